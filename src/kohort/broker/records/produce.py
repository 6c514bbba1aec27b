"""
Produce (0), versions 3 to 13: v4 errors of the disk; v5 log start offset; v7 zstd; v8 record errors; v10 current leader;
v12 transactions of version 2; v13 topic ids.

With acks 0 nothing is answered, and an error closes the connection so that the client notices; with acks 1 the answer
follows the append; with acks -1 it waits until the batches are below the high watermark.

Batches of idempotent producers are judged by their sequences. One that was written already is not written again: its first
offset is answered, and its largest timestamp as the log append time, on topics with CreateTime, too. Transactional batches
are refused: there is no transaction to belong to.

Source: KIP-98, KIP-110, KIP-467, KIP-516, KIP-951; Kafka KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.partitions import Partition, Partitions
from kohort.broker.ports import CallLater, Cancel, Context, Outcome
from kohort.broker.records.validation import NO_TIMESTAMP, InvalidRecordsError, admit, judge
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.runtime.ports import Clock
from kohort.storage.producers import BatchMetadata
from kohort.wire import messages as m
from kohort.wire.batches import (
    ATTRIBUTES_LOW_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    validate_produced,
)
from kohort.wire.compression import Codec

if TYPE_CHECKING:
    Data = m.ProduceRequestPartitionProduceData
    Answer = m.ProduceResponsePartitionProduceResponse

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client that may write to internal topics. Source: Kafka AdminUtils."""

ALL: Final = -1
NONE: Final = 0
_ACKS: Final = (ALL, NONE, 1)
_TOPIC_IDS_SINCE: Final = 13
_ZSTD_SINCE: Final = 7
NO_OFFSET: Final = -1

_PartitionAnswer: Final = m.ProduceResponsePartitionProduceResponse
_TopicKey = tuple[str, UUID | None]


class Produce:
    """Writes batches, each to its partition; one that is refused does not keep the others."""

    def __init__(self, catalog: Catalog, partitions: Partitions, clock: Clock, call_later: CallLater) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._clock = clock
        self._call_later = call_later

    def produce(
        self, request: m.ProduceRequest, context: Context, reply: Reply[m.ProduceResponse]
    ) -> m.ProduceResponse | Outcome | None:
        write = _Write(request, context, self._clock.now_ms())
        for (name, topic_id), asked in _by_topic(request).items():
            topic = self._name(name, topic_id, context.api_version)
            answers = [self._answer(write, topic, data) for data in asked.values()]
            write.topics.append(
                m.ProduceResponseTopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers)
            )
        if request.acks == NONE:
            return Outcome.CLOSE_CONNECTION if write.has_error else Outcome.NO_RESPONSE
        if request.acks == ALL and write.pending:
            write.wait(reply, self._call_later)
            return None
        return write.response()

    def _name(self, name: str, topic_id: UUID | None, api_version: int) -> str | None:
        """None when there is no topic of that id."""
        if api_version < _TOPIC_IDS_SINCE:
            return name
        topic = self._catalog.topic_by_id(topic_id) if topic_id else None
        return topic.name if topic else None

    def _answer(self, write: _Write, topic: str | None, data: Data) -> Answer:
        partition = None
        try:
            partition = self._find(topic, data.index)
            return write.append(partition, data)
        except (CoordinatorError, StorageError) as error:
            write.has_error = True
            reached = partition is not None and _has_reached_log(error, data, write.api_version)
            start = partition.log.log_start_offset if partition and reached else NO_OFFSET
            return _refusal(data.index, error, log_start_offset=start)

    def _find(self, topic: str | None, index: int) -> Partition:
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._partitions.find(topic, index)
        if partition is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition


def _by_topic(request: m.ProduceRequest) -> dict[_TopicKey, dict[int, Data]]:
    """Of a partition that is named twice the last entry counts."""
    topics: dict[_TopicKey, dict[int, Data]] = {}
    for topic in request.topic_data:
        asked = topics.setdefault((topic.name, topic.topic_id), {})
        for data in topic.partition_data:
            asked[data.index] = data
    return topics


class _Write:
    """
    One request under way: its answers, and which of them wait for the high watermark.

    Source: Kafka DelayedProduce.
    """

    __slots__ = (
        "_acks",
        "_cancel",
        "_context",
        "_now_ms",
        "_reply",
        "_request",
        "api_version",
        "has_error",
        "pending",
        "topics",
    )

    def __init__(self, request: m.ProduceRequest, context: Context, now_ms: int) -> None:
        self._request = request
        self._acks: int = request.acks
        self._context = context
        self.api_version = context.api_version
        self._now_ms = now_ms
        self._reply: Reply[m.ProduceResponse] | None = None
        self._cancel: Cancel | None = None
        self.has_error = False
        self.topics: list[m.ProduceResponseTopicProduceResponse] = []
        self.pending: dict[tuple[int, int], tuple[Partition, int]] = {}
        """Place of the topic in the answer and index: the partition, and the end offset to wait for."""

    def append(self, partition: Partition, data: Data) -> Answer:
        """
        Raises:
            CoordinatorError, StorageError: nothing was written.
        """
        log, rules = partition.log, partition.rules
        records = data.records or b""
        if self._acks not in _ACKS and _is_one_batch(records):
            raise CoordinatorError(ErrorCode.INVALID_REQUIRED_ACKS)
        header = validate_produced(records, api_version=self.api_version, batch_bytes_max=log.config.max_message_bytes)
        self._check(partition, is_transactional=header.attributes & TRANSACTIONAL != 0)
        size = header.length + LOG_OVERHEAD_BYTES
        if size < len(records):
            records = records[:size]
        batch = admit(records, header, rules, self._now_ms, where=partition.topic_partition)
        if header.producer_id >= 0 and (written := judge(log.producers, header)):
            return self._answer_again(partition, data, written)
        end_offset = partition.append(batch)
        index = data.index
        if self._acks == ALL:
            self.pending[len(self.topics), index] = partition, end_offset
        return _PartitionAnswer(
            index=index,
            base_offset=end_offset - header.record_count,
            log_append_time_ms=self._now_ms if rules.is_log_append_time else NO_TIMESTAMP,
            log_start_offset=log.log_start_offset,
        )

    def _answer_again(self, partition: Partition, data: Data, written: BatchMetadata) -> Answer:
        """A duplicate, which may not be durable itself yet."""
        if self._acks == ALL and written.last_offset >= partition.log.high_watermark:
            self.pending[len(self.topics), data.index] = partition, written.last_offset + 1
        return _PartitionAnswer(
            index=data.index,
            base_offset=written.first_offset,
            log_append_time_ms=written.timestamp_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def _check(self, partition: Partition, *, is_transactional: bool) -> None:
        """Without a transactional id Kafka refuses the whole request; here its transactional batches are refused."""
        if is_transactional and self._request.transactional_id is None:
            raise CoordinatorError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if is_transactional:
            raise CoordinatorError(ErrorCode.INVALID_TXN_STATE)
        if partition.topic.name in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic.name}"
            )

    def response(self) -> m.ProduceResponse:
        return m.ProduceResponse(responses=self.topics)

    def wait(self, reply: Reply[m.ProduceResponse], call_later: CallLater) -> None:
        """Answer when every pending batch is below the high watermark, at the latest when the time is up."""
        self._reply = reply
        self._cancel = call_later(max(self._request.timeout_ms, 0), self._on_deadline)
        for place, (partition, end_offset) in self.pending.items():
            partition.when_replicated(end_offset, partial(self._on_written, place))

    def _on_written(self, place: tuple[int, int], code: ErrorCode) -> None:
        if self._reply is None:
            return
        del self.pending[place]
        if code:
            self._fail(place, code)
        if not self.pending:
            self._complete(self._reply)

    def _on_deadline(self) -> None:
        if self._reply is not None:
            for place in self.pending:
                self._fail(place, ErrorCode.REQUEST_TIMED_OUT)
            self._complete(self._reply)

    def _fail(self, place: tuple[int, int], code: ErrorCode) -> None:
        """What was written stays written; the client does not know it."""
        topic_place, index = place
        topic = self.topics[topic_place]
        answers = [
            msgspec.structs.replace(answer, error_code=code) if answer.index == index else answer
            for answer in topic.partition_responses
        ]
        self.topics[topic_place] = msgspec.structs.replace(topic, partition_responses=answers)

    def _complete(self, reply: Reply[m.ProduceResponse]) -> None:
        self._reply = None
        if self._cancel is not None:
            self._cancel()
        reply(self.response())


_JUDGED_BY_LOG: Final = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def _has_reached_log(error: CoordinatorError | StorageError, data: Data, api_version: int) -> bool:
    """
    Whether it was Kafka's log that refused the records, and not the check of the request before it; the answer then tells
    where the log starts. What comes before is that there is exactly one batch, its format, and in old versions its codec.
    """
    records = data.records or b""
    if error.code not in _JUDGED_BY_LOG or not _is_one_batch(records):
        return False
    return api_version >= _ZSTD_SINCE or records[ATTRIBUTES_LOW_AT] & CODEC_MASK <= Codec.ZSTD


def _is_one_batch(records: bytes) -> bool:
    if len(records) < HEADER_BYTES or records[16] != MAGIC:
        return False
    size = int.from_bytes(records[8:12], "big", signed=True) + LOG_OVERHEAD_BYTES
    return size <= len(records) < size + HEADER_BYTES


def _tells_why(error: CoordinatorError) -> bool:
    """Source: LogAppendResult.hasCustomErrorMessage, ProduceRequest.validateRecords."""
    return isinstance(error, InvalidRecordsError) or error.code == ErrorCode.CORRUPT_MESSAGE


def _refusal(index: int, error: CoordinatorError | StorageError, *, log_start_offset: int) -> Answer:
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return _PartitionAnswer(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_start_offset=log_start_offset,
        record_errors=[
            m.ProduceResponseBatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=message)
            for place, message in record_errors
        ],
        error_message=error.message if isinstance(error, CoordinatorError) and _tells_why(error) else None,
    )
