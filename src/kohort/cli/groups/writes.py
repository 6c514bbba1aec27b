"""What the commands change of groups: their offsets, and whether they exist. Each returns what was refused, by error code."""

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
"""Versions of OffsetCommit that take names of topics."""

NO_GENERATION = -1
"""Whoever commits without being a member; refused when the group has members."""


class NewOffset(NamedTuple):
    """What is committed for one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


def commit_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, NewOffset]
) -> dict[TopicPartition, int]:
    """Commit for a group without members; the group need not exist."""
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
    response = client.ask_coordinator(
        group_id, ApiKey.OFFSET_COMMIT, request, error_code=_first_of_partitions, within=_BY_NAME
    )
    return _refused(response)


def delete_offsets(client: Client, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Forget offsets of a group; one that was not committed is no error.

    Raises:
        CoordinatorError: the coordinator refuses the whole.
    """
    topics = [
        messages.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[messages.OffsetDeleteRequestPartition(partition_index=each.partition) for each in its],
        )
        for topic, its in _by_topic(partitions).items()
    ]
    request = messages.OffsetDeleteRequest(group_id=group_id, topics=topics)
    response = client.ask_coordinator(
        group_id, ApiKey.OFFSET_DELETE, request, error_code=lambda answer: answer.error_code
    )
    if response.error_code:
        raise refusal(response.error_code, f"offsets of group {group_id} cannot be deleted")
    return _refused(response)


def delete_group(client: Client, group_id: str) -> int:
    """Delete a group with all it has committed; the error code, 0 when it is gone."""
    request = messages.DeleteGroupsRequest(groups_names=(group_id,))
    response = client.ask_coordinator(
        group_id, ApiKey.DELETE_GROUPS, request, error_code=lambda answer: answer.results[0].error_code
    )
    return int(response.results[0].error_code)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for each in sorted(partitions):
        found[each.topic].append(each)
    return found


def _refused(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code
    }


def _first_of_partitions(response: Any) -> int:
    """OffsetCommit has an error for each partition only; one of the group is in all of them."""
    codes = (partition.error_code for topic in response.topics for partition in topic.partitions)
    return next((code for code in codes if code), int(ErrorCode.NONE))
