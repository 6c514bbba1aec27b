"""
Members with an instance id: they leave for a while and come back under another member id.

Source: KIP-848, "Static membership"; what Apache Kafka 4.2.1 answered to raw frames.
"""

from typing import Any

import pytest

from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode, UnavailableError
from kohort.records import values as v
from tests.group.consumer.members import Member, consumer_group, settle, state
from tests.group.consumer.states import Known, group_of
from tests.group.harness import Coordinator

SESSION_MS = 45_000


def pair() -> tuple[Coordinator, Member, Member]:
    """A Stable group at epoch 2 of the static member `a` and the dynamic member `b`."""
    coordinator = Coordinator()
    a, b = Member(coordinator, "a", instance="i"), Member(coordinator, "b")
    a.join()
    b.join()
    settle(a, b)
    return coordinator, a, b


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions() -> None:
    """One record: no new epoch, the previous epoch and the state as they were."""
    coordinator, a, b = pair()
    end = coordinator.end
    before = consumer_group(coordinator).members["a"]
    answer = a.leave(-2)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", -2, 0)
    (record,) = coordinator.records(end)
    assert isinstance(record, v.ConsumerGroupCurrentMemberAssignment)
    assert (record.member_epoch, record.previous_member_epoch) == (-2, before.previous_epoch)
    assert consumer_group(coordinator).members["a"].assigned == before.assigned
    assert (state(coordinator), consumer_group(coordinator).epoch.get()) == ("Reconciling", 3)
    assert b.beat().assignment is None


def test_a_member_that_leaves_for_a_while_forgets_what_it_had_to_revoke() -> None:
    coordinator = group_of(
        [Known("a", 4, 3, 1, (0, 1), (2,), target=(0, 1), instance="i"), Known("b", 5, 4, 2, (3,), target=(2, 3))]
    )
    b = Member(coordinator, "b")
    b.epoch, b.owned = 5, {"orders": (3,)}
    Member(coordinator, "a", instance="i").leave(-2)
    member = consumer_group(coordinator).members["a"]
    assert (member.epoch, member.state, member.pending_revocation) == (-2, 1, {})
    b.beat()
    assert b.owned == {"orders": (2, 3)}


def test_its_old_epoch_is_fenced_while_it_is_away() -> None:
    _coordinator, a, _ = pair()
    a.leave(-2)
    answer = a.beat(member_epoch=2)
    assert answer.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert "a greater member epoch (2) than the one known by the group coordinator (-2)" in answer.error_message


def test_leaving_twice_writes_twice() -> None:
    coordinator, a, _ = pair()
    a.leave(-2)
    end = coordinator.end
    assert a.leave(-2).member_epoch == -2
    assert len(coordinator.records(end)) == 1


def test_the_session_of_a_member_that_is_away_counts_from_its_last_heartbeat() -> None:
    coordinator, a, b = pair()
    coordinator.advance(SESSION_MS - 10_000)
    b.beat()
    a.leave(-2)
    coordinator.advance(9_999)
    b.beat()
    assert set(consumer_group(coordinator).members) == {"a", "b"}
    coordinator.advance(1)
    assert set(consumer_group(coordinator).members) == {"b"}
    b.beat()
    assert b.owned == {"orders": (0, 1, 2, 3)}


def test_it_gets_its_partitions_back_under_another_id() -> None:
    """No new epoch, and the others notice nothing. Record 8 of the new id is written twice in one batch."""
    coordinator, a, b = pair()
    owned = dict(a.owned)
    a.leave(-2)
    end = coordinator.end
    again = Member(coordinator, "c", instance="i")
    assert again.join().member_epoch == 3
    assert again.owned == owned
    records: list[Any] = list(coordinator.records(end))
    assert [(type(record).__name__, record.member_id) for record in records] == [
        ("ConsumerGroupCurrentMemberAssignmentTombstone", "a"),
        ("ConsumerGroupTargetAssignmentMemberTombstone", "a"),
        ("ConsumerGroupMemberMetadataTombstone", "a"),
        ("ConsumerGroupMemberMetadata", "c"),
        ("ConsumerGroupTargetAssignmentMember", "c"),
        ("ConsumerGroupCurrentMemberAssignment", "c"),
        ("ConsumerGroupCurrentMemberAssignment", "c"),
    ]
    assert [record.member_epoch for record in records[-2:]] == [0, 3]
    assert state(coordinator) == "Stable"
    end = coordinator.end
    b.beat()
    assert coordinator.end == end


def test_a_replacement_with_another_subscription_is_written_after_the_copy() -> None:
    coordinator, a, b = pair()
    a.leave(-2)
    end = coordinator.end
    again = Member(coordinator, "c", ("payments",), instance="i")
    assert again.join().code is ErrorCode.NONE
    names = [
        record.subscribed_topic_names
        for record in coordinator.records(end)
        if isinstance(record, v.ConsumerGroupMemberMetadata)
    ]
    assert names == [("orders",), ("payments",)]
    settle(again, b)
    assert (again.owned, b.owned) == ({"payments": (0, 1, 2, 3)}, {"orders": (0, 1, 2, 3)})


@pytest.mark.parametrize("member_id", ["a", "c"])
def test_an_instance_id_in_use_is_not_given_away(member_id: str) -> None:
    """Not even to the member that has it."""
    coordinator, _, _ = pair()
    end = coordinator.end
    answer = Member(coordinator, member_id, instance="i").join()
    assert (answer.code, coordinator.end) == (ErrorCode.UNRELEASED_INSTANCE_ID, end)


def test_an_instance_id_is_free_when_its_session_has_ended() -> None:
    coordinator, _, b = pair()
    for _ in range(9):
        coordinator.advance(5_000)
        b.beat()
    assert Member(coordinator, "c", instance="i").join().code is ErrorCode.NONE


def test_leaving_for_good_raises_the_epoch() -> None:
    coordinator, a, b = pair()
    a.leave(-2)
    assert a.leave(-1).member_epoch == -1
    assert consumer_group(coordinator).epoch.get() == 4
    assert consumer_group(coordinator).static_member("i") is None
    b.beat()
    assert b.owned == {"orders": (0, 1, 2, 3)}


def test_a_successor_whose_assignor_changes_nothing_has_its_target_written_once() -> None:
    """The epoch rises for another assignor; of the new assignment only the epoch is written, as the targets are the same."""
    coordinator = Coordinator()
    a = Member(coordinator, "a", instance="i")
    a.join()
    a.leave(-2)
    end = coordinator.end
    Member(coordinator, "x", instance="i", server_assignor="range").join()
    written = coordinator.records(end)
    assert [type(each).__name__ for each in written if "Target" in type(each).__name__] == [
        "ConsumerGroupTargetAssignmentMemberTombstone",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
    ]
    assert consumer_group(coordinator).targets.keys() == {"x"}


def test_a_full_group_takes_back_a_static_member_under_another_id() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_max_size=1))
    a = Member(coordinator, "a", instance="i")
    a.join()
    a.leave(-2)
    assert Member(coordinator, "c", instance="other").join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Member(coordinator, "c", instance="i").join().code is ErrorCode.NONE
    # The size is no matter for an instance id that was not released.
    assert a.join().code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_member_that_joins_again_with_another_instance_id_frees_the_old_one() -> None:
    coordinator = Coordinator()
    Member(coordinator, "x", instance="old").join()
    Member(coordinator, "x", instance="new").join()
    assert dict(consumer_group(coordinator).static_members) == {"new": "x"}
    assert Member(coordinator, "y", instance="old").join().code is ErrorCode.NONE


def test_a_dynamic_member_becomes_static() -> None:
    """One record of its metadata, and no new epoch."""
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    end = coordinator.end
    assert a.join(instance_id="i").member_epoch == 2
    assert [type(record) for record in coordinator.records(end)] == [v.ConsumerGroupMemberMetadata]
    assert consumer_group(coordinator).static_member("i") is not None


def test_a_static_member_without_its_instance_id_is_served_as_a_dynamic_one() -> None:
    coordinator, a, _ = pair()
    a.instance = None
    end = coordinator.end
    assert (a.beat().code, a.join().code, coordinator.end) == (ErrorCode.NONE, ErrorCode.NONE, end)
    assert consumer_group(coordinator).members["a"].instance_id == "i"


def test_a_replacement_that_cannot_be_written_leaves_the_old_member() -> None:
    coordinator, a, b = pair()
    a.leave(-2)
    coordinator.log.fail_next_append = UnavailableError("offline")
    again = Member(coordinator, "c", instance="i")
    assert again.join().code is not ErrorCode.NONE
    group = consumer_group(coordinator)
    assert (set(group.members), group.static_members["i"]) == ({"a", "b"}, "a")
    assert again.join().code is ErrorCode.NONE
    assert settle(again, b) == 1


def test_the_rebalance_timeout_does_not_end_a_member_that_is_away() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_session_timeout_ms=SESSION_MS))
    a, b = Member(coordinator, "a", instance="i", rebalance_timeout_ms=5_000), Member(coordinator, "b")
    a.join()
    b.join()
    a.beat()
    a.leave(-2)
    coordinator.advance(5_001)
    assert set(consumer_group(coordinator).members) == {"a", "b"}
