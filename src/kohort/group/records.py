"""
The records of `__consumer_offsets` that this coordinator reads and writes: committed offsets, and those of its kinds of groups.

A load skips every other record type with a warning.
"""

from collections.abc import Collection
from typing import TypeAlias

import msgspec

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records.offset_commits import NO_LEADER_EPOCH
from kohort.records.serde import CoordinatorRecordSerde
from kohort.records.values import (
    LegacyOffsetCommit,
    LegacyOffsetCommitTombstone,
    OffsetCommit,
    OffsetCommitTombstone,
)

GroupRecord: TypeAlias = msgspec.Struct
"""A value class of `kohort.records.values`: an offset, or a record of one of the kinds of groups (`GroupManager.replayers`)."""

OFFSET_KEY_TYPES = (0, 1)


class GroupRecordSerde(CoordinatorRecordSerde):
    """
    `RecordSerde` of the group coordinator. An offset under the key of Kafka 0.8 is read as an OffsetCommit.

    Args:
        key_types: of the groups; `kohort.group.kinds.record_serde` has those of every kind.

    Source: Kafka GroupCoordinatorShard.replay, OffsetMetadataManager.
    """

    def __init__(self, key_types: Collection[int] = (2,)) -> None:
        super().__init__(CONSUMER_OFFSETS, (*OFFSET_KEY_TYPES, *key_types))

    def converted(self, record: GroupRecord) -> GroupRecord:
        if isinstance(record, LegacyOffsetCommit):
            return OffsetCommit(
                record.group_id,
                record.topic,
                record.partition,
                record.offset,
                NO_LEADER_EPOCH,
                record.metadata,
                record.commit_timestamp_ms,
            )
        if isinstance(record, LegacyOffsetCommitTombstone):
            return OffsetCommitTombstone(record.group_id, record.topic, record.partition)
        return record


def utf16_length(text: str) -> int:
    """The length of a Java string, which `offset.metadata.max.bytes` counts in spite of its name."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
