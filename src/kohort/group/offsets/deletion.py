"""
OffsetDelete (47), version 0 (KIP-496), and the other ways in which offsets go: with their group, with their topic.

Source: Kafka OffsetMetadataManager.deleteOffsets, deleteAllOffsets, onPartitionsDeleted; ClassicGroup.validateOffsetDelete.
"""

from collections.abc import Collection, Iterator

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import DEAD, EMPTY
from kohort.group.offsets.offsets import Offsets
from kohort.group.records import GroupRecord, OffsetTombstone
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def offset_delete(
    registry: GroupRegistry, offsets: Offsets, request: m.OffsetDeleteRequest
) -> Result[GroupRecord, m.OffsetDeleteResponse]:
    """Forget positions in topics that nobody in the group reads. Those that are not there count as forgotten."""
    try:
        group = _check(registry, request.group_id)
    except CoordinatorError as exc:
        return Result(response=m.OffsetDeleteResponse(error_code=int(exc.code)))
    records: list[GroupRecord] = []
    topics: list[m.OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic.name) else ErrorCode.NONE
        partitions = [partition.partition_index for partition in topic.partitions]
        if code is ErrorCode.NONE:
            records += _known_tombstones(offsets, request.group_id, topic.name, dict.fromkeys(partitions))
        topics.append(
            m.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    m.OffsetDeleteResponsePartition(partition_index=partition, error_code=int(code))
                    for partition in partitions
                ],
            )
        )
    registry.counters.offset_deletions += len(records)
    return Result(records, m.OffsetDeleteResponse(topics=topics))


def _check(registry: GroupRegistry, group_id: str) -> ClassicGroup:
    """
    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP for members whose subscriptions cannot be known.
    """
    group = registry.get(group_id)
    if group.state is DEAD:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not EMPTY and not group.is_consumer:
        raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _known_tombstones(
    offsets: Offsets, group_id: str, topic: str, partitions: Collection[int]
) -> Iterator[OffsetTombstone]:
    for partition in partitions:
        if offsets.has(group_id, (topic, partition)):
            yield OffsetTombstone(group_id, topic, partition)


def offset_tombstones(offsets: Offsets, group_id: str) -> list[OffsetTombstone]:
    """Tombstones for all positions of a group, and for those that an open transaction would add."""
    partitions = dict.fromkeys(partition for partition, _ in offsets.of_group(group_id))
    partitions |= dict.fromkeys(offsets.pending_of_group(group_id))
    return [OffsetTombstone(group_id, topic, partition) for topic, partition in partitions]


def topic_tombstones(offsets: Offsets, topics: Collection[str]) -> list[OffsetTombstone]:
    """Tombstones for every position in these topics, of any group."""
    group_ids = dict.fromkeys((*offsets.by_group, *offsets.writers))
    return [
        tombstone
        for group_id in group_ids
        for tombstone in offset_tombstones(offsets, group_id)
        if tombstone.topic in topics
    ]
