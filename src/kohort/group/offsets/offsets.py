"""
Committed offsets by group, topic and partition, and pending offsets of open transactions.

Only `replay` writes here. Each offset is stored with the log offset of its record: when a transaction commits, its offset
replaces the committed one only if its record is later in the log. So the state does not depend on compaction.

Source: Kafka OffsetMetadataManager (Offsets, OpenTransactions), OffsetAndMetadata.
"""

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.records.offset_commits import NO_LEADER_EPOCH, NO_TIMESTAMP_MS
from kohort.records.values import OffsetCommit, OffsetCommitTombstone

NO_OFFSET: Final = -1


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """
    The offset of one partition, as last logged.

    Attributes:
        record_offset: the offset of its record in `__consumer_offsets`.
        expire_timestamp_ms: -1 if the retention applies.
        topic_id: shared with the other offsets of the topic. None stands for any topic of the name: records of releases before
            4.4.0 and those with an expire timestamp have no id.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: UUID | None
    record_offset: int


class DeletedTopic(msgspec.Struct, frozen=True):
    """
    The deleted topics of one name.

    Attributes:
        topic_ids: of each of them.
        newest: the offset in the log of the newest commit at the time of the deletion. A later commit without a topic id is one
            of a new topic with the same name.
    """

    topic_ids: frozenset[UUID]
    newest: int

    def has(self, offset: CommittedOffset) -> bool:
        """Whether an offset in a topic of this name is one of these topics."""
        topic_id = offset.topic_id
        return offset.record_offset <= self.newest if topic_id is None else topic_id in self.topic_ids


Partition: TypeAlias = tuple[str, int]
"""Topic and partition; a plain tuple, because every record makes one."""
GroupPartition: TypeAlias = tuple[str, Partition]
GroupOffsets: TypeAlias = TimelineDict[Partition, CommittedOffset]


def committed_at(offset: CommittedOffset) -> int:
    """A `kohort.group.groups.BaseTimestamp`: the retention counts from the commit."""
    return offset.commit_timestamp_ms


NOTHING = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", NO_TIMESTAMP_MS, NO_TIMESTAMP_MS, None, NO_OFFSET)
"""Stands for a missing offset in responses."""


class Offsets:
    """
    The offsets of one shard.

    Attributes:
        by_group: committed offsets; only groups that have some.
        pending: offsets of open transactions, by producer id.
        writers: the ids of the producers with a pending offset, by group and partition; only groups that have some.
        newest_record_offset: the log offset of the newest of their records.
    """

    __slots__ = ("_registry", "by_group", "newest_record_offset", "pending", "writers")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self.by_group: TimelineDict[str, GroupOffsets] = TimelineDict(registry)
        self.pending: TimelineDict[int, TimelineDict[GroupPartition, CommittedOffset]] = TimelineDict(registry)
        self.writers: TimelineDict[str, TimelineDict[Partition, frozenset[int]]] = TimelineDict(registry)
        self.newest_record_offset = NO_OFFSET

    # Reading

    def get(self, group_id: str, partition: Partition) -> CommittedOffset | None:
        committed = self.by_group.get(group_id)
        return None if committed is None else committed.get(partition)

    def partitions_of(self, group_id: str) -> list[Partition]:
        """The partitions of a group with an offset, committed or pending."""
        committed = self.by_group.get(group_id, ())
        return [*committed, *(partition for partition in self.writers.get(group_id, ()) if partition not in committed)]

    def has(self, group_id: str, partition: Partition) -> bool:
        """Whether there is an offset, committed or pending."""
        return partition in self.by_group.get(group_id, ()) or self.has_pending(group_id, partition)

    def has_pending(self, group_id: str, partition: Partition) -> bool:
        return partition in self.writers.get(group_id, ())

    def all_of(self, group_id: str, partition: Partition) -> list[CommittedOffset]:
        """The offsets of one partition, committed and pending."""
        committed = self.get(group_id, partition)
        found = [] if committed is None else [committed]
        writers = self.writers.get(group_id)
        producer_ids = writers.get(partition, ()) if writers else ()
        return found + [self.pending[producer_id][group_id, partition] for producer_id in producer_ids]

    # Replay

    def replay_commit(self, record_offset: int, record: OffsetCommit) -> None:
        self.newest_record_offset = record_offset
        self._put(record.group_id, (record.topic, record.partition), _committed(record_offset, record))

    def replay_commits(self, record_offset: int, records: Sequence[OffsetCommit]) -> None:
        """`replay_commit` for consecutive records of one group."""
        self.newest_record_offset = record_offset + len(records) - 1
        self.to_fill(records[0].group_id).put_all(
            {
                (record.topic, record.partition): _committed(offset, record)
                for offset, record in enumerate(records, record_offset)
            }
        )

    def replay_transactional_commit(self, record_offset: int, producer_id: int, record: OffsetCommit) -> None:
        """Keep an offset until the transaction ends."""
        self.newest_record_offset = record_offset
        group_id, partition = record.group_id, (record.topic, record.partition)
        written = self.pending.get(producer_id)
        if written is None:
            written = self.pending[producer_id] = TimelineDict(self._registry)
        written.put((group_id, partition), _committed(record_offset, record))
        writers = self.writers.get(group_id)
        if writers is None:
            writers = self.writers[group_id] = TimelineDict(self._registry)
        writers.put(partition, writers.get(partition, frozenset()) | {producer_id})

    def replay_tombstone(self, record: OffsetCommitTombstone) -> None:
        """Drop the offset of a partition, and its pending offsets."""
        group_id, partition = record.group_id, (record.topic, record.partition)
        committed = self.by_group.get(group_id)
        if committed is not None:
            committed.remove(partition)
            if not committed:
                self.by_group.remove(group_id)
        writers = self.writers.get(group_id)
        for producer_id in sorted(writers.get(partition, ()) if writers else ()):
            self._drop_pending(producer_id, group_id, partition)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """
        End a transaction. A transaction without pending offsets here is ignored.

        The offsets of a group are handled together: a transaction of many takes effect in one step.
        """
        written = self.pending.remove(producer_id)
        if written is None:
            return
        groups: dict[str, dict[Partition, CommittedOffset]] = {}
        for (group_id, partition), offset in written.items():
            offsets = groups.get(group_id)
            if offsets is None:
                offsets = groups[group_id] = {}
            offsets[partition] = offset
        for group_id, offsets in groups.items():
            self._remove_writers(producer_id, group_id, offsets)
            if not committed:
                continue
            present = self.by_group.get(group_id)
            if present is not None:
                get = present.get
                offsets = {
                    partition: offset
                    for partition, offset in offsets.items()
                    if (known := get(partition)) is None or known.record_offset < offset.record_offset
                }
            if offsets:
                self.to_fill(group_id).put_all(offsets)

    def to_fill(self, group_id: str) -> GroupOffsets:
        """The table of a group, created if missing; the caller must put an offset into it."""
        offsets = self.by_group.get(group_id)
        if offsets is None:
            offsets = self.by_group[group_id] = TimelineDict(self._registry)
        return offsets

    def _put(self, group_id: str, partition: Partition, offset: CommittedOffset) -> None:
        self.to_fill(group_id).put(partition, offset)

    def _drop_pending(self, producer_id: int, group_id: str, partition: Partition) -> None:
        written = self.pending[producer_id]
        written.remove((group_id, partition))
        if not written:
            self.pending.remove(producer_id)
        self._remove_writer(producer_id, group_id, partition)

    def _remove_writers(self, producer_id: int, group_id: str, partitions: Collection[Partition]) -> None:
        writers = self.writers[group_id]
        alone = frozenset((producer_id,))
        if len(writers) == len(partitions) and all(each == alone for each in writers.values()):
            self.writers.remove(group_id)
            return
        for partition in partitions:
            self._remove_writer(producer_id, group_id, partition)

    def _remove_writer(self, producer_id: int, group_id: str, partition: Partition) -> None:
        writers = self.writers[group_id]
        others = writers[partition] - {producer_id}
        if others:
            writers.put(partition, others)
        else:
            writers.remove(partition)
            if not writers:
                self.writers.remove(group_id)


def _committed(record_offset: int, record: OffsetCommit) -> CommittedOffset:
    return CommittedOffset(
        record.offset,
        record.leader_epoch,
        record.metadata,
        record.commit_timestamp_ms,
        record.expire_timestamp_ms,
        record.topic_id,
        record_offset,
    )
