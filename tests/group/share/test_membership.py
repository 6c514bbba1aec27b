"""How share groups come together and part. Source: KIP-932, and what Apache Kafka 4.4.0 answered to raw frames."""

from uuid import UUID

from kohort.group.configs import GroupConfig
from kohort.group.share.calls import CALLS_AT_ONCE
from kohort.model.errors import ErrorCode
from kohort.records.values import (
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from tests.group.harness import Topic
from tests.group.share.members import GROUP, Member, ShareCoordinator

ALL = (0, 1, 2, 3)


def test_the_first_member_gets_its_partitions_when_their_states_are_made() -> None:
    coordinator = ShareCoordinator()
    coordinator.states.is_held = True
    a = Member(coordinator)
    answer = a.join()
    assert (answer.code, answer.member_epoch, a.assigned) == (ErrorCode.NONE, 2, {})
    assert [type(record) for record in coordinator.records()] == [
        ShareGroupMemberMetadata,
        ShareGroupMetadata,
        ShareGroupTargetAssignmentMember,
        ShareGroupTargetAssignmentMetadata,
        ShareGroupCurrentMemberAssignment,
        ShareGroupStatePartitionMetadata,
    ]
    assert a.beat().assignment is None
    coordinator.states.let_go()
    coordinator.node.settle()
    assert coordinator.start_offsets() == dict.fromkeys(ALL, -1)
    assert a.beat().member_epoch == 3
    assert a.assigned == {"orders": ALL}


def test_two_members_share_the_partitions_and_more_members_than_partitions_share_each() -> None:
    coordinator = ShareCoordinator()
    members = [Member(coordinator, str(number)) for number in range(6)]
    members[0].join()
    for count in range(1, 7):
        for member in members[:count]:
            member.join()
        for member in members[:count]:
            member.beat()
        loads = sorted(len(member.assigned.get("orders", ())) for member in members[:count])
        assert loads == {1: [4], 2: [2, 2], 3: [1, 1, 2], 4: [1] * 4, 5: [1, 1, 2, 2, 2], 6: [1, 1, 1, 1, 2, 2]}[count]


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    coordinator = ShareCoordinator()
    a = Member(coordinator)
    a.join()
    a.beat()
    a.beat()
    end = coordinator.end
    for _ in range(3):
        answer = a.beat()
        assert (answer.code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 3, None)
    assert coordinator.end == end


def test_a_session_ends_after_its_timeout_and_a_heartbeat_begins_it_anew() -> None:
    coordinator = ShareCoordinator(GroupConfig(group_share_session_timeout_ms=10_000))
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    for _ in range(3):
        coordinator.advance(9_000)
        assert a.beat().code is ErrorCode.NONE
    assert list(coordinator.group.members) == ["a"]
    coordinator.advance(10_000)
    assert coordinator.listed() == {GROUP: "Empty"}
    assert a.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_does_not_expire() -> None:
    coordinator = ShareCoordinator()
    a = Member(coordinator)
    a.join()
    a.leave()
    coordinator.advance(
        coordinator.config.offsets_retention_ms + coordinator.config.offsets_retention_check_interval_ms
    )
    assert coordinator.listed() == {GROUP: "Empty"}


def test_new_partitions_of_a_known_topic_begin_at_0() -> None:
    coordinator = ShareCoordinator()
    a = Member(coordinator)
    a.join()
    for _ in range(3):
        a.beat()
    orders = coordinator.image.by_name["orders"]
    coordinator.set_topic(Topic("orders", orders.topic_id, 6))
    a.beat()
    assert coordinator.start_offsets() == {**dict.fromkeys(ALL, -1), 4: 0, 5: 0}
    a.beat()
    assert a.assigned == {"orders": (0, 1, 2, 3, 4, 5)}


def test_a_failed_initialization_is_tried_again_by_the_next_heartbeat() -> None:
    coordinator = ShareCoordinator()
    coordinator.fail("orders", 2)
    a = Member(coordinator)
    a.join()
    assert a.beat().member_epoch == 2
    assert coordinator.group.known_states.initialized == {}
    coordinator.fail("orders", 2, None)
    a.beat()
    a.beat()
    assert a.assigned == {"orders": ALL}


def test_an_initialization_without_an_outcome_is_begun_anew_after_its_interval() -> None:
    config = GroupConfig(group_share_initialize_retry_interval_ms=20_000)
    coordinator = ShareCoordinator(config)
    coordinator.states.is_held = True
    a = Member(coordinator)
    a.join()
    assert coordinator.states.waiting == 4
    coordinator.advance(19_000)
    a.beat()
    assert coordinator.states.waiting == 4
    coordinator.advance(1_000)
    a.beat()
    assert coordinator.states.waiting == 8
    # A load begins the interval anew.
    coordinator.restart()
    coordinator.advance(19_000)
    a.beat()
    assert coordinator.states.waiting == 8
    coordinator.advance(1_000)
    a.beat()
    assert coordinator.states.waiting == 12


def test_a_deleted_topic_is_dropped_at_once_and_from_the_assignment_at_the_next_heartbeat() -> None:
    coordinator = ShareCoordinator()
    a = Member(coordinator, topics=("orders", "payments"))
    a.join()
    a.beat()
    assert set(a.assigned) == {"orders", "payments"}
    coordinator.delete_topic("orders")
    assert list(coordinator.group.known_states.names.values()) == ["payments"]
    assert a.beat().member_epoch == 4
    assert a.assigned == {"payments": ALL}


def test_a_topic_that_is_deleted_while_its_states_are_made_is_not_noted() -> None:
    coordinator = ShareCoordinator()
    coordinator.states.is_held = True
    a = Member(coordinator, topics=("orders", "payments"))
    a.join()
    coordinator.delete_topic("orders")
    coordinator.states.let_go()
    coordinator.node.settle()
    states = coordinator.group.known_states
    assert [states.names[topic_id] for topic_id in states.topic_ids] == ["payments"]
    a.beat()
    assert a.assigned == {"payments": ALL}


def test_an_outcome_that_comes_after_the_group_is_made_anew_is_not_noted() -> None:
    coordinator = ShareCoordinator()
    coordinator.states.is_held = True
    a = Member(coordinator)
    a.join()
    held, coordinator.states.held = coordinator.states.held, []
    coordinator.states.is_held = False
    a.leave()
    assert coordinator.delete(GROUP) == {GROUP: ErrorCode.NONE}
    b = Member(coordinator, "b", topics=("nothing",))
    b.join()
    for answer in held:
        answer()
    coordinator.node.settle()
    assert coordinator.group.known_states.topic_ids == frozenset()


def test_some_states_are_made_at_a_time() -> None:
    coordinator = ShareCoordinator()
    coordinator.states.is_held = True
    coordinator.set_topic(Topic("wide", UUID(int=150), 150))
    a = Member(coordinator, topics=("wide",))
    a.join()
    waiting = []
    while coordinator.states.waiting:
        waiting.append(coordinator.states.waiting)
        coordinator.states.let_go()
        coordinator.states.is_held = True
        coordinator.node.settle()
    assert max(waiting) == CALLS_AT_ONCE
    a.beat()
    assert a.assigned == {"wide": tuple(range(150))}
