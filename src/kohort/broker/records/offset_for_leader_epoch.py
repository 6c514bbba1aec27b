"""
Leader epochs: is the one that a client knows still right; and OffsetForLeaderEpoch (23), versions 2 to 4.

v3 tells replicas from consumers, v4 is flexible.

Source: KIP-101, KIP-320; Kafka Partition.checkCurrentLeaderEpoch, KafkaApis.handleOffsetForLeaderEpochRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.partitions import Partitions
from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.storage.log import NO_EPOCH
from kohort.wire import messages as m

if TYPE_CHECKING:
    Asked = m.OffsetForLeaderEpochRequestOffsetForLeaderPartition
    EpochEnd = m.OffsetForLeaderEpochResponseEpochEndOffset


def leader_epoch_problem(asked: int, current: int) -> ErrorCode | None:
    """What to tell a client that names a leader epoch; -1 names none."""
    if asked in (NO_EPOCH, current):
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH


class LeaderEpochs:
    """Says where the records of an epoch end, so that a client notices a log that was cut."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def offset_for_leader_epoch(
        self,
        request: m.OffsetForLeaderEpochRequest,
        _context: Context,
        _reply: Reply[m.OffsetForLeaderEpochResponse],
    ) -> m.OffsetForLeaderEpochResponse:
        topics = [
            m.OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[self._end(topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
        return m.OffsetForLeaderEpochResponse(topics=topics)

    def _end(self, topic: str, asked: Asked) -> EpochEnd:
        try:
            partition = self._partitions.find(topic, asked.partition)
        except StorageError as error:
            return _refusal(asked, error.code)
        if partition is None:
            return m.OffsetForLeaderEpochResponseEpochEndOffset(
                partition=asked.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if problem := leader_epoch_problem(asked.current_leader_epoch, partition.log.leader_epoch):
            return _refusal(asked, problem)
        leader_epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
        return m.OffsetForLeaderEpochResponseEpochEndOffset(
            partition=asked.partition, leader_epoch=leader_epoch, end_offset=end_offset
        )


def _refusal(asked: Asked, code: ErrorCode) -> EpochEnd:
    return m.OffsetForLeaderEpochResponseEpochEndOffset(partition=asked.partition, error_code=code)
