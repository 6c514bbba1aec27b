"""
Consumer groups when the log or the assignor fails, and when the coordinator moves.

Source: Kafka CoordinatorRuntime; sections on routing and load of the probes of Apache Kafka 4.2.1.
"""

from collections.abc import Callable

import pytest

from kohort.group.assignors.checking import CheckedAssignor
from kohort.group.assignors.interface import AssignorError
from kohort.group.assignors.specs import GroupAssignment, GroupSpec
from kohort.group.consumer.registry import registry_of
from kohort.model.errors import ErrorCode, UnavailableError
from kohort.wire import messages as m
from tests.group.consumer.members import Member, consumer_group, settle, state
from tests.group.consumer.picture import picture
from tests.group.harness import Coordinator


class FailingAssignor:
    """An assignor of a user that refuses every group."""

    name = "uniform"

    def assign(self, _spec: GroupSpec, _topics: object) -> GroupAssignment:
        raise AssignorError("no partitions today")


def test_an_assignor_that_fails_persists_nothing() -> None:
    """The group epoch neither; the next heartbeat tries again."""
    coordinator = Coordinator()
    registry = registry_of(coordinator.shard)
    working, registry.assignors[:] = list(registry.assignors), [CheckedAssignor(FailingAssignor())]
    a = Member(coordinator, "a")
    answer = a.join()
    assert (answer.code, answer.error_message) == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "Failed to compute a new target assignment for epoch 2: no partitions today",
    )
    assert (coordinator.end, coordinator.listed()) == (0, {})
    registry.assignors[:] = working
    assert a.join().member_epoch == 2


Step = Callable[[Coordinator, Member, Member], object]
STEPS: dict[str, Step] = {
    "join": lambda coordinator, _a, _b: Member(coordinator, "c").join(),
    "first join": lambda coordinator, _a, _b: Member(coordinator, "c", group="new").join(),
    "subscription": lambda _coordinator, a, _b: a.beat(subscribed_topic_names=["payments"]),
    "leave": lambda _coordinator, a, _b: a.leave(),
    "leave for a while": lambda _coordinator, _a, b: b.leave(-2),
}


def fail(coordinator: Coordinator) -> None:
    coordinator.log.fail_next_append = UnavailableError("offline")


@pytest.mark.parametrize("step", STEPS)
def test_what_cannot_be_written_did_not_happen(step: str) -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b", instance="i")
    a.join()
    b.join()
    settle(a, b)
    before, end = picture(coordinator.shard), coordinator.end
    epochs = a.epoch, b.epoch
    fail(coordinator)
    STEPS[step](coordinator, a, b)
    assert (picture(coordinator.shard), coordinator.end) == (before, end)
    a.epoch, b.epoch = epochs
    a.owned, b.owned = {"orders": (0, 1)}, {"orders": (2, 3)}
    assert [member.beat().code for member in (a, b)] == [ErrorCode.NONE] * 2


def test_answers_wait_for_their_records() -> None:
    coordinator = Coordinator()
    coordinator.log.is_held = True
    a = Member(coordinator, "a")
    answer = a.join()
    assert answer.is_parked
    # What is not committed is described to nobody.
    describe = m.ConsumerGroupDescribeRequest(group_ids=["group"])
    assert coordinator.ask("consumer_group_describe", describe).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    coordinator.log.commit()
    coordinator.node.settle()
    assert answer.member_epoch == 2
    (group,) = coordinator.ask("consumer_group_describe", describe).groups
    assert (group.group_state, [member.member_id for member in group.members]) == ("Stable", ["a"])


def test_a_lost_tail_takes_back_what_was_not_answered() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    coordinator.log.is_held = True
    assert b.join().is_parked
    coordinator.restart(is_tail_lost=True)
    coordinator.log.is_held = False
    assert set(consumer_group(coordinator).members) == {"a"}
    assert b.join().member_epoch == 3
    settle(a, b)


def test_an_append_that_lands_elsewhere_loads_the_shard_again() -> None:
    """Another writer was there before: its coordinator answers NOT_COORDINATOR, and the log decides."""
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    coordinator.log.shift_next_append = 1
    assert b.join().code is ErrorCode.NOT_COORDINATOR
    coordinator.advance(1_000)
    assert coordinator.listed().keys() == {"group"}
    assert b.join().code is ErrorCode.NONE
    settle(a, b)


def test_a_heartbeat_during_the_load_is_refused() -> None:
    coordinator = Coordinator()
    Member(coordinator, "a").join()
    coordinator.runtime.unload(0, coordinator.leader_epoch + 1)
    request = m.ConsumerGroupHeartbeatRequest(group_id="group", member_id="a", member_epoch=2)
    answer = coordinator.ask("consumer_group_heartbeat", request)
    assert answer.code is ErrorCode.NOT_COORDINATOR
    coordinator.leader_epoch += 2
    coordinator.runtime.load(0, coordinator.log, coordinator.leader_epoch)
    answer = coordinator.send("consumer_group_heartbeat", request)
    assert answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.node.settle()
    assert coordinator.ask("consumer_group_heartbeat", request).code is ErrorCode.NONE
    assert state(coordinator) == "Stable"


def test_a_member_whose_leave_cannot_be_written_still_expires() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    fail(coordinator)
    assert a.leave().code is not ErrorCode.NONE
    assert set(consumer_group(coordinator).members) == {"a"}
    coordinator.advance(45_000)
    assert state(coordinator) == "Empty"
