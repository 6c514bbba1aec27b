"""
The records of `__consumer_offsets` that this coordinator reads and writes: committed offsets and classic groups.

A load skips every other record type with a warning.
"""

from typing import TypeAlias

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records.offset_commits import NO_LEADER_EPOCH
from kohort.records.serde import CoordinatorRecordSerde
from kohort.records.values import (
    GroupMetadata,
    GroupMetadataTombstone,
    LegacyOffsetCommit,
    LegacyOffsetCommitTombstone,
    OffsetCommit,
    OffsetCommitTombstone,
)

GroupRecord: TypeAlias = OffsetCommit | OffsetCommitTombstone | GroupMetadata | GroupMetadataTombstone

_KEY_TYPES = (0, 1, 2)


class GroupRecordSerde(CoordinatorRecordSerde):
    """
    `RecordSerde` of the group coordinator. An offset under the key of Kafka 0.8 is read as an OffsetCommit.

    Source: Kafka GroupCoordinatorShard.replay, OffsetMetadataManager.
    """

    def __init__(self) -> None:
        super().__init__(CONSUMER_OFFSETS, _KEY_TYPES)

    def converted(self, record: GroupRecord | LegacyOffsetCommit | LegacyOffsetCommitTombstone) -> GroupRecord:
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
    return len(text) + sum(char > "\uffff" for char in text)
