"""Share groups: their description, and their start offsets, which are described, altered and deleted."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kohort.client.cluster import Client
from kohort.client.connection import refusal
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

SHARE = "share"
"""The type of a share group."""

_NO_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class StartOffset(NamedTuple):
    """
    Where a share partition begins.

    Attributes:
        offset: None if its leader has not chosen it yet.
        lag: records from there on that are neither acknowledged nor archived; None if it is unknown.
    """

    offset: int | None
    leader_epoch: int | None
    lag: int | None


def describe_share_group(client: Client, group_id: str) -> Any:
    """Describe a group with ShareGroupDescribe. Returns None for another group type, or if the API is not supported."""
    if not client.serves(ApiKey.SHARE_GROUP_DESCRIBE):
        return None
    response = client.send_to_coordinator(
        group_id,
        ApiKey.SHARE_GROUP_DESCRIBE,
        messages.ShareGroupDescribeRequest(group_ids=(group_id,)),
        error_code=lambda response: response.groups[0].error_code,
    )
    (group,) = response.groups
    if group.error_code in _NO_GROUP:
        return None
    if group.error_code:
        raise refusal(group.error_code, f"group {group_id}", group.error_message)
    return group


def start_offsets(client: Client, group_id: str) -> dict[TopicPartition, StartOffset]:
    """
    Return the start offsets of all share partitions of a group.

    Raises:
        CoordinatorError: the coordinator returned an error, for the group or for a partition.
    """
    asked = messages.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    response = client.send_to_coordinator(
        group_id,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        messages.DescribeShareGroupOffsetsRequest(groups=[asked]),
        error_code=lambda response: response.groups[0].error_code,
    )
    (group,) = response.groups
    if group.error_code:
        raise refusal(group.error_code, f"offsets of group {group_id}", group.error_message)
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code:
                raise refusal(each.error_code, f"offset of {partition} in group {group_id}", each.error_message)
            found[partition] = _start_offset(each)
    return found


def _start_offset(described: messages.DescribeShareGroupOffsetsResponsePartition) -> StartOffset:
    """Before version 1 there is no lag."""
    if described.start_offset < 0:
        return StartOffset(None, None, None)
    lag = described.lag if described.lag >= 0 else None
    return StartOffset(described.start_offset, described.leader_epoch, lag)


def alter_start_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """
    Set start offsets of a share group without members. Returns the error codes of what failed.

    Raises:
        CoordinatorError: the coordinator rejected the whole request.
    """
    by_topic: dict[str, list[messages.AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
    for each in sorted(offsets):
        by_topic[each.topic].append(
            messages.AlterShareGroupOffsetsRequestPartition(partition_index=each.partition, start_offset=offsets[each])
        )
    topics = [
        messages.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
        for topic, partitions in by_topic.items()
    ]
    response = client.send_to_coordinator(
        group_id,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        messages.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics),
        error_code=lambda response: response.error_code,
    )
    if response.error_code:
        raise refusal(response.error_code, f"cannot move offsets of group {group_id}", response.error_message)
    return {
        TopicPartition(topic.topic_name, each.partition_index): each.error_code
        for topic in response.responses
        for each in topic.partitions
        if each.error_code
    }


def delete_start_offsets(client: Client, group_id: str, topics: Iterable[str]) -> dict[str, int]:
    """
    Delete the states of topics. Returns the error codes of those that failed.

    Raises:
        CoordinatorError: the coordinator rejected the whole request.
    """
    named = [messages.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    response = client.send_to_coordinator(
        group_id,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        messages.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=named),
        error_code=lambda response: response.error_code,
    )
    if response.error_code:
        raise refusal(response.error_code, f"cannot delete offsets of group {group_id}", response.error_message)
    return {topic.topic_name: topic.error_code for topic in response.responses if topic.error_code}
