"""Commits of offsets for groups without members, by tools and by programs that are no consumers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kohort.client.cluster import Client
from kohort.client.connection import Versions
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
        for topic, partitions in by_topic(offsets).items()
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
    return errors_of(response)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return sorted partitions by topic."""
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for each in sorted(partitions):
        found[each.topic].append(each)
    return found


def errors_of(response: Any) -> dict[TopicPartition, int]:
    """Return the error codes of partitions of a response, without those that are none."""
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
