"""
OffsetDelete (47), version 0 (KIP-496), and the deletion of offsets with their group and with their topic.

Source: Kafka OffsetMetadataManager.deleteOffsets, deleteAllOffsets, onTopicsDeleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from kohort.group.context import GroupContext
from kohort.group.offsets.offsets import DeletedTopic, Offsets, Partition
from kohort.group.offsets.scan import OFFSETS_AT_ONCE, TOMBSTONES_AT_ONCE, OffsetScan
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.values import OffsetCommitTombstone
from kohort.wire import messages as m


def offset_delete(context: GroupContext, request: m.OffsetDeleteRequest) -> Result[GroupRecord, m.OffsetDeleteResponse]:
    """Delete offsets of topics that no member of the group reads. A missing offset counts as deleted."""
    try:
        group = context.get(request.group_id)
        group.validate_offset_delete()
    except CoordinatorError as exc:
        return Result(response=m.OffsetDeleteResponse(error_code=int(exc.code)))
    offsets = context.offsets
    records: list[GroupRecord] = []
    topics: list[m.OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
        partitions = [partition.partition_index for partition in topic.partitions]
        if code is ErrorCode.NONE:
            records += _tombstones(offsets, request.group_id, topic.name, dict.fromkeys(partitions))
        topics.append(
            m.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    m.OffsetDeleteResponsePartition(partition_index=partition, error_code=int(code))
                    for partition in partitions
                ],
            )
        )
    context.counters.offset_deletions += len(records)
    return Result(records, m.OffsetDeleteResponse(topics=topics))


def _tombstones(
    offsets: Offsets, group_id: str, topic: str, partitions: Collection[int]
) -> Iterator[OffsetCommitTombstone]:
    for partition in partitions:
        if offsets.has(group_id, (topic, partition)):
            yield OffsetCommitTombstone(group_id, topic, partition)


def offset_tombstones(offsets: Offsets, group_id: str) -> list[OffsetCommitTombstone]:
    """Tombstones for all offsets of a group, pending offsets of open transactions included."""
    return [OffsetCommitTombstone(group_id, *partition) for partition in offsets.partitions_of(group_id)]


class TopicDeletion(msgspec.Struct, frozen=True):
    """
    The progress of deleting the offsets of topics.

    Attributes:
        topics: by name.
        scan: None before the first part.
    """

    topics: Mapping[str, DeletedTopic]
    scan: OffsetScan | None = None


def topic_tombstones(
    offsets: Offsets, deletion: TopicDeletion
) -> tuple[list[OffsetCommitTombstone], TopicDeletion | None]:
    """Tombstones for some offsets of these topics, of any group; and the rest of the deletion, None if this was all."""
    records: list[OffsetCommitTombstone] = []
    topics, looked_at = deletion.topics, 0
    scan = deletion.scan or OffsetScan(list(dict.fromkeys((*offsets.by_group, *offsets.writers))))
    while not scan.is_over:
        if looked_at >= OFFSETS_AT_ONCE or len(records) >= TOMBSTONES_AT_ONCE:
            return records, TopicDeletion(topics, scan)
        chunk = scan.step(offsets.partitions_of)
        scan = chunk.rest
        looked_at += 1 + len(chunk.partitions)
        records += [
            OffsetCommitTombstone(chunk.group_id, *partition)
            for partition in chunk.partitions
            if (deleted := topics.get(partition[0])) is not None
            and _is_gone(offsets, chunk.group_id, partition, deleted)
        ]
    return records, None


def _is_gone(offsets: Offsets, group_id: str, partition: Partition, deleted: DeletedTopic) -> bool:
    """Whether the partition has offsets, and all are of deleted topics: a tombstone takes committed and pending ones."""
    found = offsets.all_of(group_id, partition)
    return bool(found) and all(map(deleted.has, found))
