"""
ListOffsets (2), versions 1 to 11: v2 isolation level; v4 leader epochs; v7 the largest timestamp (-3); v8 the earliest
local offset (-4); v9 the latest tiered one (-5); v10 a timeout; v11 the earliest pending upload (-6).

There is no tiered storage: the earliest local offset is the earliest offset, and there are no tiered offsets.

Source: KIP-79, KIP-734, KIP-405, KIP-1005; Kafka KafkaApis.handleListOffsetRequest, UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kohort.broker.partitions.partitions import LocalPartitions, Partition
from kohort.broker.ports import Context
from kohort.broker.records.large_batches import Steps
from kohort.broker.records.log_reads import AbandonedError, LogRead, LogReads
from kohort.broker.records.offset_for_leader_epoch import leader_epoch_error
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.storage.log import NO_TIMESTAMP, Log, ReadView, TimestampOffset
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

    def __init__(self, partitions: LocalPartitions, searches: LogReads) -> None:
        self._partitions = partitions
        self._searches = searches

    def list_offsets(
        self, request: m.ListOffsetsRequest, context: Context, reply: Reply[m.ListOffsetsResponse]
    ) -> m.ListOffsetsResponse | None:
        occurrences = Counter(
            (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
        )
        topics = []
        searches: list[_Search] = []
        for topic in request.topics:
            answers: list[m.ListOffsetsPartitionResponse] = []
            for requested in {partition.partition_index: partition for partition in topic.partitions}.values():
                if occurrences[topic.name, requested.partition_index] > 1:
                    answers.append(_refusal(requested, ErrorCode.INVALID_REQUEST))
                else:
                    found = self._answer(topic.name, requested, request, context.api_version)
                    if isinstance(found, Partition):
                        searches.append(_Search(found, requested, request, answers, len(answers)))
                        found = _refusal(requested, ErrorCode.NONE)
                    answers.append(found)
            topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        response = m.ListOffsetsResponse(topics=topics)
        if not searches:
            return response
        context.go_on(self._search(searches, response, context), reply)
        return None

    def _search(
        self, searches: Sequence[_Search], response: m.ListOffsetsResponse, context: Context
    ) -> Steps[m.ListOffsetsResponse]:
        """
        Search one partition after the other, each on another thread: batches are read from the disk, and decompressed.

        Raises:
            AbandonedError: the client has disconnected.
        """
        is_abandoned = False
        reading: LogRead[TimestampOffset | None]

        def abandon() -> None:
            nonlocal is_abandoned
            is_abandoned = True
            self._searches.drop(reading)

        for search in searches:
            reading = search.read()
            context.when_abandoned(abandon)
            yield partial(self._searches.begin, reading)
            if is_abandoned:
                raise AbandonedError
            search.answer(reading)
        return response

    def _answer(
        self, topic: str, requested: m.ListOffsetsPartition, request: m.ListOffsetsRequest, api_version: int
    ) -> m.ListOffsetsPartitionResponse | Partition:
        """The answer for a partition; the partition itself if its records have to be searched."""
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
            match requested.timestamp:
                case -1:
                    found = TimestampOffset(_bound(partition, request), NO_TIMESTAMP, partition.leader_epoch)
                case -2 | -4:
                    start = partition.log.log_start_offset
                    found = TimestampOffset(start, NO_TIMESTAMP, partition.epoch_for_offset(start))
                case -5 | -6:
                    found = TimestampOffset(-1, NO_TIMESTAMP, -1)
                case _:
                    return partition
        except StorageError as error:
            return _refusal(requested, error.code)
        return _found(requested, found)


class _Search(NamedTuple):
    """The search for a timestamp in one partition. Its answer goes to the place `number` of `answers`."""

    partition: Partition
    requested: m.ListOffsetsPartition
    request: m.ListOffsetsRequest
    answers: list[m.ListOffsetsPartitionResponse]
    number: int

    def read(self) -> LogRead[TimestampOffset | None]:
        timestamp = self.requested.timestamp

        def work(view: ReadView | Log) -> TimestampOffset | None:
            return view.max_timestamp() if timestamp == MAX_TIMESTAMP else view.offset_for_timestamp(timestamp)

        return LogRead(self.partition.log, work)

    def answer(self, read: LogRead[TimestampOffset | None]) -> None:
        partition, requested = self.partition, self.requested
        if partition.topic.is_deleted:
            self.answers[self.number] = _refusal(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        try:
            partition.check()
            found, bound = read.result(), _bound(partition, self.request)
        except StorageError as error:
            self.answers[self.number] = _refusal(requested, error.code)
        else:
            self.answers[self.number] = _found(requested, found if found is not None and found.offset < bound else None)


def _bound(partition: Partition, request: m.ListOffsetsRequest) -> int:
    """The last stable offset, the high watermark, or (for a replica) the log end offset: what is found lies below."""
    log = partition.log
    if request.replica_id != _CONSUMER:
        return log.end_offset
    return log.last_stable_offset if request.isolation_level == _READ_COMMITTED else log.high_watermark


def _found(requested: m.ListOffsetsPartition, found: TimestampOffset | None) -> m.ListOffsetsPartitionResponse:
    if found is None:
        return m.ListOffsetsPartitionResponse(partition_index=requested.partition_index)
    return m.ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _refusal(requested: m.ListOffsetsPartition, code: ErrorCode) -> m.ListOffsetsPartitionResponse:
    return m.ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=code)
