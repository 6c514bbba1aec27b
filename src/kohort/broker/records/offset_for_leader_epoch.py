"""
OffsetForLeaderEpoch (23), versions 2 to 4 (v3 replica id; v4 is flexible), and the check of a request's leader epoch.

Source: KIP-101, KIP-320; Kafka Partition.checkCurrentLeaderEpoch, KafkaApis.handleOffsetForLeaderEpochRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.partitions.partitions import LocalPartitions
from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.storage.log import NO_EPOCH
from kohort.wire import messages as m

if TYPE_CHECKING:
    Requested = m.OffsetForLeaderEpochRequestOffsetForLeaderPartition
    EpochEnd = m.OffsetForLeaderEpochResponseEpochEndOffset


def leader_epoch_error(known: int, current: int) -> ErrorCode | None:
    """The error for a client that knows another leader epoch than the current one; -1 if the client knows none."""
    if known in (NO_EPOCH, current):
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if known < current else ErrorCode.UNKNOWN_LEADER_EPOCH


class OffsetForLeaderEpoch:
    """Handler of OffsetForLeaderEpoch: the end offset of a leader epoch, by which a client detects a truncation."""

    def __init__(self, partitions: LocalPartitions) -> None:
        self._partitions = partitions

    def offset_for_leader_epoch(
        self,
        request: m.OffsetForLeaderEpochRequest,
        _context: Context,
        _reply: Reply[m.OffsetForLeaderEpochResponse],
    ) -> m.OffsetForLeaderEpochResponse:
        topics = [
            m.OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[self._end(topic.topic, requested) for requested in topic.partitions]
            )
            for topic in request.topics
        ]
        return m.OffsetForLeaderEpochResponse(topics=topics)

    def _end(self, topic: str, requested: Requested) -> EpochEnd:
        try:
            partition = self._partitions.find(topic, requested.partition)
        except StorageError as error:
            return _refusal(requested, error.code)
        if partition is None:
            return m.OffsetForLeaderEpochResponseEpochEndOffset(
                partition=requested.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if code := leader_epoch_error(requested.current_leader_epoch, partition.leader_epoch):
            return _refusal(requested, code)
        leader_epoch, end_offset = partition.end_offset_for_epoch(requested.leader_epoch)
        return m.OffsetForLeaderEpochResponseEpochEndOffset(
            partition=requested.partition, leader_epoch=leader_epoch, end_offset=end_offset
        )


def _refusal(requested: Requested, code: ErrorCode) -> EpochEnd:
    return m.OffsetForLeaderEpochResponseEpochEndOffset(partition=requested.partition, error_code=code)
