"""
ListOffsets (2), versions 1 to 11: v2 isolation level; v4 leader epochs; v7 the largest timestamp (-3); v8 the earliest
local offset (-4); v9 the latest tiered one (-5); v10 a timeout; v11 the earliest pending upload (-6).

There is no tiered storage: the earliest local offset is the earliest offset, and there are no tiered offsets.

Source: KIP-79, KIP-734, KIP-405, KIP-1005; Kafka KafkaApis.handleListOffsetRequest, UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections import Counter

from kohort.broker.partitions import LocalPartitions, Partition
from kohort.broker.ports import Context
from kohort.broker.records.offset_for_leader_epoch import leader_epoch_error
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.storage.log import NO_TIMESTAMP, TimestampOffset
from kohort.wire import messages as m

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_CONSUMER = -1
_READ_COMMITTED = 1


class ListOffsets:
    """Handler of ListOffsets: finds offsets by timestamp, among the records that the client may read."""

    def __init__(self, partitions: LocalPartitions) -> None:
        self._partitions = partitions

    def list_offsets(
        self, request: m.ListOffsetsRequest, context: Context, _reply: Reply[m.ListOffsetsResponse]
    ) -> m.ListOffsetsResponse:
        occurrences = Counter(
            (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
        )
        topics = []
        for topic in request.topics:
            answers = []
            for requested in {partition.partition_index: partition for partition in topic.partitions}.values():
                if occurrences[topic.name, requested.partition_index] > 1:
                    answers.append(_refusal(requested, ErrorCode.INVALID_REQUEST))
                else:
                    answers.append(self._answer(topic.name, requested, request, context.api_version))
            topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return m.ListOffsetsResponse(topics=topics)

    def _answer(
        self, topic: str, requested: m.ListOffsetsPartition, request: m.ListOffsetsRequest, api_version: int
    ) -> m.ListOffsetsPartitionResponse:
        if request.isolation_level not in (0, _READ_COMMITTED):
            return _refusal(requested, ErrorCode.UNKNOWN_SERVER_ERROR)
        if requested.timestamp < 0 and api_version < _SINCE.get(requested.timestamp, 1 << 15):
            return _refusal(requested, ErrorCode.UNSUPPORTED_VERSION)
        try:
            partition = self._partitions.find(topic, requested.partition_index)
            if partition is None:
                return _refusal(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code := leader_epoch_error(requested.current_leader_epoch, partition.leader_epoch):
                return _refusal(requested, code)
            found = _find(partition, requested.timestamp, request)
        except StorageError as error:
            return _refusal(requested, error.code)
        if found is None:
            return m.ListOffsetsPartitionResponse(partition_index=requested.partition_index)
        return m.ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )


def _find(partition: Partition, timestamp: int, request: m.ListOffsetsRequest) -> TimestampOffset | None:
    """Find an offset below the last stable offset, the high watermark, or (for a replica) the log end offset."""
    log = partition.log
    if request.replica_id != _CONSUMER:
        bound = log.end_offset
    elif request.isolation_level == _READ_COMMITTED:
        bound = log.last_stable_offset
    else:
        bound = log.high_watermark
    match timestamp:
        case -1:
            return TimestampOffset(bound, NO_TIMESTAMP, partition.leader_epoch)
        case -2 | -4:
            start = log.log_start_offset
            return TimestampOffset(start, NO_TIMESTAMP, partition.epoch_for_offset(start))
        case -5 | -6:
            return TimestampOffset(-1, NO_TIMESTAMP, -1)
        case -3:
            found = log.max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return found if found is not None and found.offset < bound else None


def _refusal(requested: m.ListOffsetsPartition, code: ErrorCode) -> m.ListOffsetsPartitionResponse:
    return m.ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=code)
