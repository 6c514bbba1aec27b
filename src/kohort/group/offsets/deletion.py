"""
OffsetDelete (47), version 0 (KIP-496), and the other ways in which offsets go: with their group, with their topic.

Source: Kafka OffsetMetadataManager.deleteOffsets, deleteAllOffsets, onPartitionsDeleted; ClassicGroup.validateOffsetDelete.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import DEAD, EMPTY
from kohort.group.offsets.offsets import Offsets, Partition
from kohort.group.offsets.scan import OFFSETS_AT_ONCE, TOMBSTONES_AT_ONCE, OffsetScan
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
    return [OffsetTombstone(group_id, *partition) for partition in offsets.partitions_of(group_id)]


class TopicDeletion(msgspec.Struct, frozen=True):
    """
    How far the deletion of topics' offsets is.

    Attributes:
        topics: which, each with the place in the log of the newest commit that there was when it was deleted. Later ones are of
            a topic that has the name now.
        walk: None before it has begun.
    """

    topics: Mapping[str, int]
    walk: OffsetScan | None = None


def topic_tombstones(offsets: Offsets, under_way: TopicDeletion) -> tuple[list[OffsetTombstone], TopicDeletion | None]:
    """Tombstones for some positions in these topics, of any group; and where to go on, if that was not all."""
    records: list[OffsetTombstone] = []
    topics, looked_at = under_way.topics, 0
    walk = under_way.walk or OffsetScan(list(dict.fromkeys((*offsets.by_group, *offsets.writers))))
    while not walk.is_over:
        if looked_at >= OFFSETS_AT_ONCE or len(records) >= TOMBSTONES_AT_ONCE:
            return records, TopicDeletion(topics, walk)
        step = walk.step(offsets.partitions_of)
        walk = step.rest
        looked_at += 1 + len(step.partitions)
        records += [
            OffsetTombstone(step.group_id, *partition)
            for partition in step.partitions
            if partition[0] in topics and _is_of_before(offsets, step.group_id, partition, topics[partition[0]])
        ]
    return records, None


def _is_of_before(offsets: Offsets, group_id: str, partition: Partition, newest: int) -> bool:
    """Whether there is a position, and none that was written later than that one."""
    places = offsets.record_offsets(group_id, partition)
    return bool(places) and max(places) <= newest
