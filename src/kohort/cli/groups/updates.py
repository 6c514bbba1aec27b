"""Updates of groups: commit and delete offsets, delete groups. Each function returns the error codes of what failed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kohort.client.cluster import Client
from kohort.client.connection import Versions, refusal
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

_BY_NAME = Versions(2, 9)
"""Versions of OffsetCommit with topic names; version 10 has topic ids."""

NO_GENERATION = -1
"""The generation of a commit without membership. The coordinator rejects it if the group has members."""


class NewOffset(NamedTuple):
    """The offset to commit for one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


def commit_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, NewOffset]
) -> dict[TopicPartition, int]:
    """Commit offsets for a group without members. The group need not exist."""
    topics = [
        messages.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                messages.OffsetCommitRequestPartition(
                    partition_index=each.partition,
                    committed_offset=offsets[each].offset,
                    committed_leader_epoch=offsets[each].leader_epoch,
                    committed_metadata=offsets[each].metadata or "",
                )
                for each in partitions
            ],
        )
        for topic, partitions in _by_topic(offsets).items()
    ]
    request = messages.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        retention_time_ms=-1,
        group_instance_id=None,
        topics=topics,
    )
    response = client.send_to_coordinator(
        group_id, ApiKey.OFFSET_COMMIT, request, error_code=_first_error, within=_BY_NAME
    )
    return _errors(response)


def delete_offsets(client: Client, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Delete committed offsets of a group. A partition without one is not an error.

    Raises:
        CoordinatorError: the coordinator rejected the whole request.
    """
    topics = [
        messages.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[messages.OffsetDeleteRequestPartition(partition_index=each.partition) for each in its],
        )
        for topic, its in _by_topic(partitions).items()
    ]
    request = messages.OffsetDeleteRequest(group_id=group_id, topics=topics)
    response = client.send_to_coordinator(
        group_id, ApiKey.OFFSET_DELETE, request, error_code=lambda response: response.error_code
    )
    if response.error_code:
        raise refusal(response.error_code, f"cannot delete offsets of group {group_id}")
    return _errors(response)


def delete_group(client: Client, group_id: str) -> int:
    """Delete a group with its offsets. Returns the error code, 0 if the group was deleted."""
    request = messages.DeleteGroupsRequest(groups_names=(group_id,))
    response = client.send_to_coordinator(
        group_id, ApiKey.DELETE_GROUPS, request, error_code=lambda response: response.results[0].error_code
    )
    return int(response.results[0].error_code)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for each in sorted(partitions):
        found[each.topic].append(each)
    return found


def _errors(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code
    }


def _first_error(response: Any) -> int:
    """Return the group's error code. OffsetCommit reports it in every partition."""
    codes = (partition.error_code for topic in response.topics for partition in topic.partitions)
    return next((code for code in codes if code), int(ErrorCode.NONE))
