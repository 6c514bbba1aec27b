"""The start offsets of share groups: described, altered, deleted; and the deletion of groups."""

import pytest

from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.records.values import (
    ShareGroupMetadataTombstone,
    ShareGroupStatePartitionMetadata,
    ShareGroupStatePartitionMetadataTombstone,
    ShareGroupTargetAssignmentMetadataTombstone,
)
from kohort.wire import messages as m
from tests.group.share.members import GROUP, Member, ShareCoordinator

ALL = (0, 1, 2, 3)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def key(coordinator: ShareCoordinator, partition: int, topic: str = "orders") -> SharePartitionKey:
    return SharePartitionKey(GROUP, coordinator.image.by_name[topic].topic_id, partition)


def initialized(coordinator: ShareCoordinator) -> dict[str, tuple[int, ...]]:
    states = coordinator.group.known_states
    return {states.names[topic_id]: partitions for topic_id, partitions in states.initialized.items()}


def left() -> ShareCoordinator:
    """A group whose member has left; the states of `orders` are there."""
    coordinator = ShareCoordinator()
    member = Member(coordinator)
    member.join()
    member.leave()
    return coordinator


# Altered


def test_altering_makes_a_group_without_members() -> None:
    coordinator = ShareCoordinator()
    answer = coordinator.alter({"orders": {0: 4, 3: 1, 4: 0, -1: 0}, "nothing": {0: 0}})
    assert answer.error_code == 0
    assert coordinator.altered(answer.response) == {
        "orders": {0: NONE, 3: NONE, 4: UNKNOWN, -1: UNKNOWN},
        "nothing": {0: UNKNOWN},
    }
    assert coordinator.listed() == {GROUP: "Empty"}
    assert initialized(coordinator) == {"orders": (0, 3)}
    assert coordinator.start_offsets() == {0: 4, 3: 1}
    coordinator.restart()
    assert initialized(coordinator) == {"orders": (0, 3)}


def test_the_answer_waits_for_the_record_of_the_outcome() -> None:
    coordinator = ShareCoordinator()
    coordinator.states.is_held = True
    answer = coordinator.alter({"orders": {0: 4}})
    coordinator.log.is_held = True
    coordinator.states.let_go()
    coordinator.node.settle()
    assert answer.is_parked
    coordinator.log.commit()
    coordinator.node.settle()
    assert coordinator.altered(answer.response) == {"orders": {0: NONE}}


def test_an_outcome_that_cannot_be_written_is_answered_too() -> None:
    coordinator = ShareCoordinator()
    coordinator.states.is_held = True
    answer = coordinator.alter({"orders": {0: 4}})
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.states.let_go()
    coordinator.node.settle()
    assert coordinator.altered(answer.response) == {"orders": {0: NONE}}
    assert list(coordinator.group.known_states.initializing.values()) == [(0,)]


def test_a_partition_that_fails_is_answered_alone_and_stays_initializing() -> None:
    coordinator = left()
    coordinator.fail("orders", 1)
    answer = coordinator.alter({"orders": {0: 5, 1: 6}})
    assert coordinator.altered(answer.response) == {"orders": {0: NONE, 1: UNAVAILABLE}}
    states = coordinator.group.known_states
    assert list(states.initializing.values()) == [(1,)]
    assert list(states.initialized.values()) == [ALL]


def test_only_unknown_topics_make_no_group() -> None:
    coordinator = ShareCoordinator()
    assert coordinator.altered(coordinator.alter({"nothing": {0: 0}}).response) == {"nothing": {0: UNKNOWN}}
    assert coordinator.listed() == {}
    assert coordinator.end == 0


def test_offsets_of_a_group_with_members_are_not_altered_and_not_deleted() -> None:
    coordinator = ShareCoordinator()
    Member(coordinator).join()
    for answer in (coordinator.alter({"orders": {0: 0}}), coordinator.delete_offsets("orders")):
        assert (answer.code, answer.error_message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    end = coordinator.end
    assert coordinator.delete(GROUP) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    assert coordinator.end == end
    assert [name for name, _ in coordinator.states.calls] == ["initialize"] * 4


def test_groups_of_other_kinds_are_refused() -> None:
    coordinator = ShareCoordinator()
    coordinator.commit()
    message = f"Group {GROUP} is not a share group."
    answers = [coordinator.alter({"orders": {0: 0}}), coordinator.delete_offsets("orders"), Member(coordinator).join()]
    assert [(each.code, each.error_message) for each in answers] == [(ErrorCode.GROUP_ID_NOT_FOUND, message)] * 3
    assert coordinator.lags() == {}


# Described


def test_the_lag_counts_from_the_start_offset_without_what_is_done_after_it() -> None:
    coordinator = left()
    coordinator.states.known[key(coordinator, 1)] = SharePartitionState(2, 7, 10, 3)
    coordinator.states.known[key(coordinator, 2)] = SharePartitionState(2, 7, 10, -1)
    coordinator.ends = {TopicPartition("orders", 1): 20, TopicPartition("orders", 2): 20}
    assert coordinator.lags() == {"orders": {0: (-1, -1), 1: (10, 7), 2: (10, -1), 3: (-1, -1)}}
    assert [each.leader_epoch for each in coordinator.offsets().topics[0].partitions] == [0, 7, 7, 0]


def test_named_partitions_need_no_group_and_what_does_not_exist_is_unknown() -> None:
    coordinator = left()
    coordinator.states.known[key(coordinator, 1)] = SharePartitionState(2, 7, 10, 0)
    asked = {"orders": [1, 9, -1], "nothing": [0]}
    assert coordinator.lags(asked) == {"orders": {1: (10, -10), 9: (-1, -1), -1: (-1, -1)}, "nothing": {0: (-1, -1)}}
    assert coordinator.lags({"orders": [1]}, "other") == {"orders": {1: (-1, -1)}}
    assert coordinator.lags(None, "other") == coordinator.lags({}) == coordinator.lags(None, "") == {}
    # A partition that does not exist is not looked for.
    assert [each.partition for name, each in coordinator.states.calls if name == "summary"] == [1, 1]


@pytest.mark.parametrize(("topics", "group"), [({"orders": []}, GROUP), ({"orders": [0]}, "")])
def test_what_kafka_fails_at(topics: dict[str, list[int]], group: str) -> None:
    answer = left().offsets(topics, group)
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


def test_an_error_of_a_share_coordinator_is_an_unknown_offset_and_one_of_a_leader_is_told() -> None:
    coordinator = left()
    for partition in (0, 1):
        coordinator.states.known[key(coordinator, partition)] = SharePartitionState(2, 7, 10, 0)
    coordinator.fail("orders", 0)
    coordinator.ends[TopicPartition("orders", 1)] = CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (topic,) = coordinator.offsets().topics
    assert [each.error_code for each in topic.partitions] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]
    assert [each.start_offset for each in topic.partitions] == [-1] * 4


# Deleted


def test_deleted_offsets_are_forgotten_before_the_answer() -> None:
    coordinator = left()
    end = coordinator.end
    answer = coordinator.delete_offsets("orders", "payments", "nothing")
    assert answer.error_code == 0
    found = {each.topic_name: (each.error_code, each.error_message) for each in answer.response.responses}
    assert found == {
        "orders": (0, None),
        "payments": (UNKNOWN, "There is no offset information to delete."),
        "nothing": (UNKNOWN, "This server does not host this topic-partition."),
    }
    noted, done = coordinator.records(end)
    assert isinstance(noted, ShareGroupStatePartitionMetadata)
    assert isinstance(done, ShareGroupStatePartitionMetadata)
    assert [topic.topic_name for topic in noted.deleting_topics] == ["orders"]
    assert (done.initialized_topics, done.deleting_topics) == ((), ())
    assert coordinator.states.known == {}


def test_a_failed_deletion_is_told_and_may_be_repeated() -> None:
    coordinator = left()
    coordinator.fail("orders", 2)
    (topic,) = coordinator.delete_offsets("orders").response.responses
    assert topic.error_code == UNAVAILABLE
    assert len(coordinator.group.known_states.deleting) == 1
    coordinator.fail("orders", 2, None)
    (topic,) = coordinator.delete_offsets("orders").response.responses
    assert topic.error_code == 0
    assert coordinator.states.known == {}
    assert coordinator.group.known_states.topic_ids == frozenset()


def test_a_member_takes_a_topic_out_of_deletion() -> None:
    coordinator = left()
    coordinator.fail("orders", 2)
    coordinator.delete_offsets("orders")
    coordinator.fail("orders", 2, None)
    member = Member(coordinator)
    member.join()
    member.beat()
    assert member.assigned == {"orders": ALL}
    assert coordinator.group.known_states.deleting == frozenset()


def test_a_group_without_any_state_answers_with_no_topic() -> None:
    coordinator = ShareCoordinator()
    member = Member(coordinator, topics=("nothing",))
    member.join()
    member.leave()
    end = coordinator.end
    assert list(coordinator.delete_offsets("orders").response.responses) == []
    assert coordinator.end == end


def test_the_states_of_a_deleted_group_go_first() -> None:
    coordinator = left()
    end = coordinator.end
    coordinator.states.is_held = True
    request = coordinator.ask("delete_groups", m.DeleteGroupsRequest(groups_names=[GROUP, "unknown"]))
    assert request.is_parked
    assert coordinator.listed() == {GROUP: "Empty"}
    coordinator.states.let_go()
    coordinator.node.settle()
    codes = {each.group_id: ErrorCode(each.error_code) for each in request.results}
    assert codes == {GROUP: NONE, "unknown": ErrorCode.GROUP_ID_NOT_FOUND}
    assert [type(record) for record in coordinator.records(end)] == [
        ShareGroupStatePartitionMetadata,
        ShareGroupTargetAssignmentMetadataTombstone,
        ShareGroupStatePartitionMetadataTombstone,
        ShareGroupMetadataTombstone,
    ]
    assert coordinator.states.known == {}
    assert coordinator.listed() == {}
    coordinator.restart()
    assert coordinator.listed() == {}


def test_a_group_whose_states_cannot_be_deleted_stays() -> None:
    coordinator = left()
    coordinator.commit(group="classic")
    coordinator.fail("orders", 2)
    assert coordinator.delete(GROUP, "classic") == {GROUP: UNAVAILABLE, "classic": NONE}
    assert coordinator.listed() == {GROUP: "Empty"}
    coordinator.fail("orders", 2, None)
    assert coordinator.delete(GROUP) == {GROUP: NONE}
    assert coordinator.states.known == {}


def test_states_that_are_made_during_a_deletion_keep_the_group() -> None:
    coordinator = left()
    coordinator.states.is_held = True
    request = coordinator.ask("delete_groups", m.DeleteGroupsRequest(groups_names=[GROUP]))
    coordinator.alter({"payments": {0: 0}})
    coordinator.states.let_go()
    coordinator.node.settle()
    assert [each.error_code for each in request.results] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert initialized(coordinator) == {"payments": (0,)}
