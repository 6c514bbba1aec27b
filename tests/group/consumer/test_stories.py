"""
How consumer groups come together, share partitions, and part.

Source: KIP-848, and what Apache Kafka 4.2.1 answered to raw frames.
"""

from kohort.model.errors import ErrorCode
from kohort.records.values import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupCurrentMemberAssignmentTombstone,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataTombstone,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMemberTombstone,
    ConsumerGroupTargetAssignmentMetadata,
)
from tests.group.consumer.members import Member, partitions_of, settle, state
from tests.group.harness import Coordinator


def test_the_first_member_gets_every_partition_at_epoch_2() -> None:
    coordinator = Coordinator()
    answer = Member(coordinator, "a").join()
    assert (answer.code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert partitions_of(coordinator, answer.assignment) == {"orders": (0, 1, 2, 3)}
    assert [type(record) for record in coordinator.records()] == [
        ConsumerGroupMemberMetadata,
        ConsumerGroupMetadata,
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupTargetAssignmentMetadata,
        ConsumerGroupCurrentMemberAssignment,
    ]
    assert state(coordinator) == "Stable"


def test_a_partition_passes_from_member_to_member_only_when_it_was_revoked() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    assert b.join().member_epoch == 3
    assert b.owned == {}
    # A is told to keep half of its partitions, and stays at its epoch.
    assert partitions_of(coordinator, a.beat().assignment) == {"orders": (0, 1)}
    assert a.epoch == 2
    assert b.beat().assignment is None
    # A no longer names the others: it goes on, and B gets them with its next heartbeat.
    assert a.beat().member_epoch == 3
    assert partitions_of(coordinator, b.beat().assignment) == {"orders": (2, 3)}
    assert state(coordinator) == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    a.beat()
    end = coordinator.end
    answer = a.beat()
    assert (answer.code, answer.assignment, coordinator.end) == (ErrorCode.NONE, None, end)


def test_a_member_that_leaves_frees_its_partitions() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    settle(a, b)
    end = coordinator.end
    answer = a.leave()
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (-1, 0)
    assert [type(record) for record in coordinator.records(end)] == [
        ConsumerGroupCurrentMemberAssignmentTombstone,
        ConsumerGroupTargetAssignmentMemberTombstone,
        ConsumerGroupMemberMetadataTombstone,
        ConsumerGroupMetadata,
    ]
    assert b.beat().member_epoch == 4
    assert b.owned == {"orders": (0, 1, 2, 3)}


def test_a_silent_member_expires_with_its_session() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    coordinator.advance(44_999)
    b.beat()
    coordinator.advance(1)
    assert a.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    assert settle(b) == 1
    assert b.owned == {"orders": (0, 1, 2, 3)}


def test_a_restart_finds_the_group_as_it_was() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    settle(a, b)
    coordinator.restart()
    end = coordinator.end
    assert a.beat().assignment is None
    assert b.beat().assignment is None
    assert (state(coordinator), coordinator.end) == ("Stable", end)
