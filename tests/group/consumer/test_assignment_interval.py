"""
The assignment interval (KIP-1263): a new target is computed by the first heartbeat or JoinGroup after the interval.

Until then members go on with the last target, whose epoch is below that of the group. The numbers are those of Apache Kafka
4.4.0.
"""

from typing import Any

import pytest

from kohort.group.configs import GroupConfig, GroupConfigs
from kohort.group.consumer.member import UNREVOKED_PARTITIONS
from kohort.model.errors import ErrorCode
from kohort.records import values as v
from tests.group.consumer.classic_member import ClassicMember
from tests.group.consumer.classic_member import settle as settle_mixed
from tests.group.consumer.members import GROUP, Member, consumer_group, settle, state
from tests.group.consumer.states import Known, group_of
from tests.group.harness import Coordinator

INTERVAL_MS = 1_000
ALL = {"orders": (0, 1, 2, 3)}


def waiting(interval_ms: int = INTERVAL_MS) -> Coordinator:
    return Coordinator(assignment_interval_ms=interval_ms)


def epochs(coordinator: Coordinator) -> tuple[int, int]:
    group = consumer_group(coordinator)
    return group.epoch.get(), group.assignment_epoch.get()


def own(coordinator: Coordinator, interval_ms: str) -> None:
    """Give the group an interval of its own."""
    context: Any = coordinator.shard.context
    overrides = {"consumer.assignment.interval.ms": interval_ms}
    context.group_configs = GroupConfigs(coordinator.config, lambda _group: overrides)


def test_a_member_that_joins_within_the_interval_gets_the_last_epoch_and_no_partitions() -> None:
    coordinator = waiting()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    end = coordinator.end
    answer = b.join()
    assert (answer.member_epoch, b.owned, answer.heartbeat_interval_ms) == (2, {}, 5_000)
    assert [type(record) for record in coordinator.records(end)] == [
        v.ConsumerGroupMemberMetadata,
        v.ConsumerGroupMetadata,
        v.ConsumerGroupCurrentMemberAssignment,
    ]
    assert (epochs(coordinator), state(coordinator)) == ((3, 2), "Assigning")
    member = consumer_group(coordinator).members["b"]
    assert member.is_reconciled_to(2)
    coordinator.advance(INTERVAL_MS)
    assert settle(a, b) <= 3
    assert (epochs(coordinator), a.owned, b.owned) == ((3, 3), {"orders": (0, 1)}, {"orders": (2, 3)})


@pytest.mark.parametrize("interval_ms", [0, 1, INTERVAL_MS, 15_000])
@pytest.mark.parametrize("after_ms", [-1, 0, 1])
@pytest.mark.parametrize("who", ["join", "beat of the old", "beat of the new", "classic join"])
def test_the_first_heartbeat_or_join_at_the_end_of_the_interval_computes(
    interval_ms: int, after_ms: int, who: str
) -> None:
    coordinator = waiting(interval_ms)
    a = Member(coordinator, "a")
    a.join()
    began_ms = coordinator.now_ms
    b = Member(coordinator, "b")
    b.join()
    is_computed = interval_ms == 0
    assert epochs(coordinator) == (3, 3 if is_computed else 2)
    coordinator.advance(max(0, began_ms + interval_ms + after_ms - coordinator.now_ms))
    # Nothing happens by itself.
    assert epochs(coordinator) == (3, 3 if is_computed else 2)
    steps = {
        "join": lambda: Member(coordinator, "c").join(),
        "beat of the old": lambda: a.beat(topic_partitions=None),
        "beat of the new": lambda: b.beat(topic_partitions=None),
        "classic join": lambda: ClassicMember(coordinator).join(),
    }
    steps[who]()
    epoch = 4 if "join" in who else 3
    is_due = coordinator.now_ms >= began_ms + interval_ms
    assert epochs(coordinator) == (epoch, epoch if is_due else 2)


def test_joins_within_the_interval_cost_one_assignment() -> None:
    coordinator = waiting()
    members = [Member(coordinator, name) for name in "abcd"]
    for member in members:
        member.join()
    coordinator.advance(INTERVAL_MS)
    settle(*members)
    written = [
        record for record in coordinator.records() if isinstance(record, v.ConsumerGroupTargetAssignmentMetadata)
    ]
    assert [record.assignment_epoch for record in written] == [2, 5]
    assert {member.owned["orders"] for member in members} == {(0,), (1,), (2,), (3,)}


def test_the_time_of_an_assignment_is_in_its_record_and_outlives_a_load() -> None:
    coordinator = waiting()
    Member(coordinator, "a").join()
    began_ms = coordinator.now_ms
    assert v.ConsumerGroupTargetAssignmentMetadata(GROUP, 2, began_ms) in coordinator.records()
    coordinator.restart()
    assert consumer_group(coordinator).assigned_at_ms.get() == began_ms
    Member(coordinator, "b").join()
    assert epochs(coordinator) == (3, 2)


def test_the_next_target_of_a_group_of_an_older_release_is_computed_at_once() -> None:
    """Its record has no time."""
    coordinator = group_of([Known("c", 5, 4, 0, (0, 1, 2, 3), target=(0, 1, 2, 3))])
    coordinator.assignment_interval_ms = INTERVAL_MS
    Member(coordinator, "a").join()
    assert epochs(coordinator) == (6, 6)


def test_an_empty_group_does_not_wait() -> None:
    coordinator = waiting()
    a = Member(coordinator, "a")
    a.join()
    a.leave()
    assert (epochs(coordinator), consumer_group(coordinator).assigned_at_ms.get()) == ((3, 3), 0)
    b = Member(coordinator, "b")
    assert (b.join().member_epoch, b.owned) == (4, ALL)


def test_topics_that_are_given_up_within_the_interval_are_revoked_at_once() -> None:
    coordinator = waiting()
    a = Member(coordinator, "a", ("orders", "payments"))
    a.join()
    answer = a.beat(subscribed_topic_names=["orders"])
    assert (answer.member_epoch, a.owned, epochs(coordinator)) == (2, ALL, (3, 2))
    member = consumer_group(coordinator).members["a"]
    assert (member.state, member.previous_epoch, len(member.pending_revocation)) == (UNREVOKED_PARTITIONS, 2, 1)
    assert a.beat().member_epoch == 2
    assert (consumer_group(coordinator).members["a"].pending_revocation, state(coordinator)) == ({}, "Assigning")


def test_partitions_of_a_member_that_left_are_free_and_nobody_gets_them_before_the_next_target() -> None:
    coordinator = waiting()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    coordinator.advance(INTERVAL_MS)
    settle(a, b)
    a.leave()
    assert (b.beat().member_epoch, b.owned, epochs(coordinator)) == (3, {"orders": (2, 3)}, (4, 3))
    coordinator.advance(INTERVAL_MS)
    assert (b.beat().member_epoch, b.owned, epochs(coordinator)) == (4, ALL, (4, 4))


def test_a_classic_heartbeat_or_sync_neither_computes_nor_asks_to_join() -> None:
    coordinator = waiting()
    a, b = Member(coordinator, "a"), ClassicMember(coordinator)
    a.join()
    b.join()
    assert (b.generation, epochs(coordinator)) == (2, (3, 2))
    assert b.sync().code is ErrorCode.NONE
    coordinator.advance(INTERVAL_MS)
    assert (b.heartbeat(), b.sync().code, epochs(coordinator)) == (ErrorCode.NONE, ErrorCode.NONE, (3, 2))
    a.beat()
    assert (b.heartbeat(), epochs(coordinator)) == (ErrorCode.REBALANCE_IN_PROGRESS, (3, 3))


@pytest.mark.parametrize(("text", "interval_ms"), [("0", 0), ("\x014000 ", 4_000)])
def test_a_group_may_have_an_interval_of_its_own(text: str, interval_ms: int) -> None:
    coordinator = waiting()
    own(coordinator, text)
    a = Member(coordinator, "a")
    a.join()
    Member(coordinator, "b").join()
    coordinator.advance(max(0, interval_ms - 1))
    a.beat()
    assert epochs(coordinator) == (3, 3 if interval_ms == 0 else 2)
    coordinator.advance(1)
    a.beat()
    assert epochs(coordinator) == (3, 3)


def test_a_change_of_the_broker_counts_for_the_present_interval() -> None:
    coordinator = waiting(15_000)
    a = Member(coordinator, "a")
    a.join()
    Member(coordinator, "b").join()
    coordinator.advance(INTERVAL_MS)
    a.beat()
    assert epochs(coordinator) == (3, 2)
    coordinator.assignment_interval_ms = INTERVAL_MS
    a.beat()
    assert epochs(coordinator) == (3, 3)


def test_members_of_the_classic_protocol_that_are_left_alone_get_the_partitions_of_the_last_other_one() -> None:
    """Apache Kafka 4.4.0 tells them nothing, and the partitions have no owner: no heartbeat of theirs computes a target."""
    coordinator = Coordinator(GroupConfig(group_consumer_migration_policy="upgrade"))
    modern, classic = Member(coordinator, "modern"), ClassicMember(coordinator)
    modern.join()
    classic.join()
    classic.sync()
    settle_mixed([modern], [classic])
    coordinator.assignment_interval_ms = 4 * INTERVAL_MS
    other = ClassicMember(coordinator)
    other.join()
    modern.leave()
    assert [classic.heartbeat(), other.heartbeat()] == [ErrorCode.NONE] * 2
    coordinator.advance(4 * INTERVAL_MS - 1)
    assert classic.heartbeat() is ErrorCode.NONE
    coordinator.advance(1)
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    settle_mixed([], [classic, other])
    assert sorted(classic.owned["orders"] + other.owned["orders"]) == [0, 1, 2, 3]
