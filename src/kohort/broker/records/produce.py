"""
Produce (0), versions 3 to 13: v4 errors of the disk; v5 log start offset; v7 zstd; v8 record errors; v10 current leader;
v12 transactions of version 2; v13 topic ids.

With acks 0 there is no response, and an error closes the connection so that the client notices. With acks 1 the response
follows the append. With acks -1 it is sent when the high watermark has passed the batches.

Batches of idempotent producers are checked by their sequences. A batch that is in the log already is not appended again: the
response has its base offset, and its largest timestamp as the log append time, even for topics with CreateTime. Transactional
batches are appended if the transaction coordinator confirms their transaction (`kohort.machine.ports.Verification`).

Source: KIP-98, KIP-110, KIP-467, KIP-516, KIP-890, KIP-951; Kafka KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.partitions import Partition, Partitions
from kohort.broker.ports import CallLater, Cancel, Context, NoResponse
from kohort.broker.records.validation import NO_TIMESTAMP, InvalidRecordsError, check_sequence, validate_batch
from kohort.machine.ports import Verification
from kohort.machine.shard import Producer, Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.ids import INTERNAL_TOPICS, TopicPartition
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
    BatchHeader,
    read_header,
)
from kohort.wire.compression import Codec
from kohort.wire.produced import validate_produced

if TYPE_CHECKING:
    Data = m.ProduceRequestPartitionProduceData
    Answer = m.ProduceResponsePartitionProduceResponse

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics. Source: Kafka AdminUtils."""

ALL: Final = -1
NONE: Final = 0
_ACKS: Final = (ALL, NONE, 1)
_TOPIC_IDS_SINCE: Final = 13
_TRANSACTIONS_2_SINCE: Final = 12
_ZSTD_SINCE: Final = 7
NO_OFFSET: Final = -1

_NO_ERRORS: Final[dict[TopicPartition, CoordinatorError]] = {}
_NO_GUARDS: Final[dict[TopicPartition, object]] = {}
"""Of requests without a transactional id: nothing is put in."""

_PartitionAnswer: Final = m.ProduceResponsePartitionProduceResponse
_TopicKey = tuple[str, UUID | None]
_Topics = dict[_TopicKey, dict[int, "Data"]]


class Produce:
    """Handler of Produce: appends each batch to its partition. The refusal of one batch does not affect the others."""

    def __init__(
        self,
        catalog: Catalog,
        partitions: Partitions,
        clock: Clock,
        call_later: CallLater,
        verification: Verification,
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._clock = clock
        self._call_later = call_later
        self._verification = verification

    def produce(
        self, request: m.ProduceRequest, context: Context, reply: Reply[m.ProduceResponse]
    ) -> m.ProduceResponse | NoResponse | None:
        write = _Write(request, context, self._clock.now_ms())
        topics = _by_topic(request)
        if request.transactional_id is not None:
            return self._verify(write, topics, request.transactional_id, reply)
        return self._append(write, topics, reply)

    def _append(
        self, write: _Write, topics: _Topics, reply: Reply[m.ProduceResponse]
    ) -> m.ProduceResponse | NoResponse | None:
        for (name, topic_id), partitions in topics.items():
            topic = self._name(name, topic_id, write.api_version)
            answers = [self._answer(write, topic, data) for data in partitions.values()]
            write.topics.append(
                m.ProduceResponseTopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers)
            )
        if write.acks == NONE:
            return NoResponse.CLOSE_CONNECTION if write.has_error else NoResponse.NO_OP
        if write.acks == ALL and write.pending:
            write.wait(reply, self._call_later)
            return None
        return write.response()

    def _name(self, name: str, topic_id: UUID | None, api_version: int) -> str | None:
        """The name of the topic; None if no topic has the id."""
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
        """
        Raises:
            CoordinatorError: there is no such partition.
            StorageError: the partition is offline.
        """
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._partitions.find(topic, index)
        if partition is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def _verify(
        self, write: _Write, topics: _Topics, transactional_id: str, reply: Reply[m.ProduceResponse]
    ) -> m.ProduceResponse | NoResponse | None:
        """
        Append once the transaction coordinator has answered for every transactional batch.

        Source: Kafka ReplicaManager.handleProduceAppend, maybeSendPartitionsToTransactionCoordinator.
        """
        write.unverified, write.guards = {}, {}
        outstanding = 1
        response: m.ProduceResponse | NoResponse | None = None
        is_inside = True

        def verified(topic_partition: TopicPartition, error: CoordinatorError | None) -> None:
            if error is not None:
                write.unverified[topic_partition] = error
            proceed()

        def proceed() -> None:
            nonlocal outstanding, response
            outstanding -= 1
            if outstanding:
                return
            response = self._append(write, topics, reply)
            if not is_inside and response is not None:
                reply(response)  # type: ignore[arg-type]

        for partition, header in self._transactional(topics, write.api_version):
            outstanding += 1
            place = partition.topic_partition
            guard = write.guards[place] = partition.log.start_verification(header.producer_id)
            producer = Producer(
                transactional_id,
                header.producer_id,
                header.producer_epoch,
                adds_partition=write.api_version >= _TRANSACTIONS_2_SINCE,
                guard=guard,
            )
            self._verification.verify(place, producer, partial(verified, place))
        proceed()
        is_inside = False
        return response

    def _transactional(self, topics: _Topics, api_version: int) -> list[tuple[Partition, BatchHeader]]:
        """The partitions that get a transactional batch; partitions that do not exist are answered by `_append`."""
        found = []
        for (name, topic_id), partitions in topics.items():
            topic = self._name(name, topic_id, api_version)
            for index, data in partitions.items():
                records = data.records or b""
                if not _is_one_batch(records) or not records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL:
                    continue
                try:
                    found.append((self._find(topic, index), read_header(records)))
                except (CoordinatorError, StorageError):
                    continue
        return found


def _by_topic(request: m.ProduceRequest) -> _Topics:
    """Group the request by topic. Of a partition that is listed twice the last entry counts."""
    topics: _Topics = {}
    for topic in request.topic_data:
        partitions = topics.setdefault((topic.name, topic.topic_id), {})
        for data in topic.partition_data:
            partitions[data.index] = data
    return topics


class _Write:
    """
    One request in progress: its answers, and which of them wait for the high watermark.

    Attributes:
        unverified: the errors of transactional batches whose verification failed.
        guards: the verification guards of transactional batches; see `PartitionLog.start_verification`.

    Source: Kafka DelayedProduce.
    """

    __slots__ = (
        "_cancel",
        "_context",
        "_now_ms",
        "_reply",
        "_request",
        "acks",
        "api_version",
        "guards",
        "has_error",
        "pending",
        "topics",
        "unverified",
    )

    def __init__(self, request: m.ProduceRequest, context: Context, now_ms: int) -> None:
        self._request = request
        self.acks: int = request.acks
        self._context = context
        self.api_version = context.api_version
        self._now_ms = now_ms
        self._reply: Reply[m.ProduceResponse] | None = None
        self._cancel: Cancel | None = None
        self.has_error = False
        self.topics: list[m.ProduceResponseTopicProduceResponse] = []
        self.pending: dict[tuple[int, int], tuple[Partition, int]] = {}
        """By place of the topic in the response and partition index: the partition, and the end offset to wait for."""
        self.unverified = _NO_ERRORS
        self.guards = _NO_GUARDS

    def append(self, partition: Partition, data: Data) -> Answer:
        """
        Validate and append a batch.

        Raises:
            CoordinatorError, StorageError: nothing was appended.
        """
        log, rules = partition.log, partition.rules
        records = data.records or b""
        if self.acks not in _ACKS and _is_one_batch(records):
            raise CoordinatorError(ErrorCode.INVALID_REQUIRED_ACKS)
        header = validate_produced(records, api_version=self.api_version, batch_bytes_max=log.config.max_message_bytes)
        is_transactional = header.attributes & TRANSACTIONAL != 0
        self._check(partition, is_transactional=is_transactional)
        size = header.length + LOG_OVERHEAD_BYTES
        if size < len(records):
            records = records[:size]
        batch = validate_batch(records, header, rules, self._now_ms, where=partition.topic_partition)
        if header.producer_id >= 0 and (duplicate := check_sequence(log.producers, header)):
            return self._answer_duplicate(partition, data, duplicate)
        if is_transactional:
            end_offset = partition.append_transactional(batch, header, self.guards.get(partition.topic_partition))
        else:
            end_offset = partition.append(batch)
        index = data.index
        if self.acks == ALL:
            self.pending[len(self.topics), index] = partition, end_offset
        return _PartitionAnswer(
            index=index,
            base_offset=end_offset - header.record_count,
            log_append_time_ms=self._now_ms if rules.is_log_append_time else NO_TIMESTAMP,
            log_start_offset=log.log_start_offset,
        )

    def _answer_duplicate(self, partition: Partition, data: Data, duplicate: BatchMetadata) -> Answer:
        """Answer with the offset of the batch in the log, which may not be durable yet."""
        if self.acks == ALL and duplicate.last_offset >= partition.log.high_watermark:
            self.pending[len(self.topics), data.index] = partition, duplicate.last_offset + 1
        return _PartitionAnswer(
            index=data.index,
            base_offset=duplicate.first_offset,
            log_append_time_ms=duplicate.timestamp_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def _check(self, partition: Partition, *, is_transactional: bool) -> None:
        """
        Check that the batch may go to the partition. Without a transactional id Kafka refuses the whole request, Kohort its
        transactional batches.

        Raises:
            CoordinatorError: it may not.
        """
        if is_transactional:
            if self._request.transactional_id is None:
                raise CoordinatorError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            error = self.unverified.get(partition.topic_partition)
            if error is not None:
                raise error
        if partition.topic.name in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic.name}"
            )

    def response(self) -> m.ProduceResponse:
        return m.ProduceResponse(responses=self.topics)

    def wait(self, reply: Reply[m.ProduceResponse], call_later: CallLater) -> None:
        """Reply when the high watermark has passed every pending batch, at the latest after the request's timeout."""
        self._reply = reply
        self._cancel = call_later(max(self._request.timeout_ms, 0), self._on_deadline)
        for place, (partition, end_offset) in self.pending.items():
            partition.when_replicated(end_offset, partial(self._on_replicated, place))

    def _on_replicated(self, place: tuple[int, int], code: ErrorCode) -> None:
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
        """Put an error into an answer. The batch stays in the log, but the client cannot know that."""
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


_ERRORS_OF_LOG: Final = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def _has_reached_log(error: CoordinatorError | StorageError, data: Data, api_version: int) -> bool:
    """
    Whether an error comes from the append to the log; the answer then has the log start offset.

    Before the append Kafka checks the request: that there is exactly one batch, its format, and in old versions its codec.
    """
    records = data.records or b""
    if error.code not in _ERRORS_OF_LOG or not _is_one_batch(records):
        return False
    return api_version >= _ZSTD_SINCE or records[ATTRIBUTES_LOW_AT] & CODEC_MASK <= Codec.ZSTD


def _is_one_batch(records: bytes) -> bool:
    if len(records) < HEADER_BYTES or records[16] != MAGIC:
        return False
    size = int.from_bytes(records[8:12], "big", signed=True) + LOG_OVERHEAD_BYTES
    return size <= len(records) < size + HEADER_BYTES


def _has_message(error: CoordinatorError) -> bool:
    """Whether clients get its message. Source: Kafka LogAppendResult.hasCustomErrorMessage, ProduceRequest.validateRecords."""
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
        error_message=error.message if isinstance(error, CoordinatorError) and _has_message(error) else None,
    )
