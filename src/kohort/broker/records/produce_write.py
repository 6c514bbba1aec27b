"""
One Produce request in progress: its batches are checked and appended, and its answers wait for the high watermark.

Source: Kafka ReplicaManager.appendRecords, DelayedProduce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import FLUSH_MS_MIN, CallLater, Cancel, Context
from kohort.broker.records.produce_refusals import is_one_batch
from kohort.broker.records.produce_verification import Verified
from kohort.broker.records.validation import (
    AT_ONCE_RECORDS,
    NO_TIMESTAMP,
    LargeBatch,
    decompressed_at_once,
    validate_batch,
)
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import INTERNAL_TOPICS
from kohort.storage.producer_states import BatchMetadata
from kohort.wire import messages as m
from kohort.wire.batch_header import CODEC_MASK, LOG_OVERHEAD_BYTES
from kohort.wire.batches import BatchHeader
from kohort.wire.produced import validate_produced

if TYPE_CHECKING:
    Data = m.ProduceRequestPartitionProduceData
    Answer = m.ProduceResponsePartitionProduceResponse

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics. Source: Kafka AdminUtils."""

ALL: Final = -1
NONE: Final = 0
_ACKS: Final = (ALL, NONE, 1)

_PARTITION_COST: Final = 20
"""The work of a partition, in records that are scanned in the same time."""
_BYTES_COST: Final = 9
"""The same for decompression: a record for each 512 bytes that come out."""
_WORK_AT_ONCE: Final = AT_ONCE_RECORDS + _PARTITION_COST

_NOTHING_VERIFIED: Final = Verified()
"""Of requests without a transactional id: nothing is put in."""

_PartitionAnswer: Final = m.ProduceResponsePartitionProduceResponse


class WaitingBatch:
    """
    A batch that waits for the high watermark. The partition calls it with NONE, or with the error that prevents the wait's end.

    Attributes:
        topic_place, index: the place of the topic in the response, and the index of the partition.
        end_offset: the offset to wait for.
    """

    __slots__ = ("_write", "end_offset", "index", "is_answered", "partition", "topic_place")

    def __init__(self, write: ProduceWrite, partition: Partition, end_offset: int, index: int) -> None:
        self._write = write
        self.partition = partition
        self.end_offset = end_offset
        self.topic_place = len(write.topics) - 1
        self.index = index
        self.is_answered = False

    def __call__(self, code: ErrorCode) -> None:
        write = self._write
        if write.is_complete:
            return
        self.is_answered = True
        write.pending_count -= 1
        if code:
            write.fail(self, code)
        if not write.pending_count and write.reply is not None:
            write.complete(write.reply)


class ProduceWrite:
    """
    One request in progress: its answers, and which of them wait for the high watermark.

    Attributes:
        pending_count: how many batches wait.
        reply: takes the response, once everything is appended.
        is_complete: whether the response was given to it.
        verified: the outcome of the verification of the transactional batches.
        endpoints: the leaders of the partitions that this broker does not lead.
        is_in_steps: whether batches are appended in later turns.

    Source: Kafka DelayedProduce.
    """

    __slots__ = (
        "_cancel",
        "_request",
        "_waiting",
        "_watched",
        "_work_left",
        "acks",
        "api_version",
        "context",
        "endpoints",
        "has_error",
        "is_complete",
        "is_in_steps",
        "now_ms",
        "pending_count",
        "reply",
        "topics",
        "verified",
    )

    def __init__(self, request: m.ProduceRequest, context: Context, now_ms: int) -> None:
        self._request = request
        self.acks: int = request.acks
        self.context = context
        self.api_version = context.api_version
        self.now_ms = now_ms
        self._work_left = _WORK_AT_ONCE
        self.is_complete = False
        self._watched = 0
        self.is_in_steps = False
        self.reply: Reply[m.ProduceResponse] | None = None
        self._cancel: Cancel | None = None
        self.has_error = False
        self.topics: list[m.ProduceResponseTopicProduceResponse] = []
        self.pending_count = 0
        self._waiting: list[WaitingBatch] = []
        self.verified = _NOTHING_VERIFIED
        self.endpoints: dict[int, m.ProduceResponseNodeEndpoint] = {}

    def begin_topic(self, name: str, topic_id: UUID | None) -> list[Answer]:
        """Begin the answer for a topic; returns the answers for its partitions, to be filled."""
        answers: list[Answer] = []
        self.topics.append(
            m.ProduceResponseTopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers)
        )
        return answers

    def answers_of(self, place: int) -> list[Answer]:
        """The answers of a topic that was begun."""
        answers = self.topics[place].partition_responses
        assert isinstance(answers, list), "`begin_topic`"
        return answers

    def begin_step(self) -> None:
        """Allow as much work at once as for a new request."""
        self._work_left = _WORK_AT_ONCE

    def append(self, partition: Partition, data: Data) -> Answer:
        """
        Validate and append a batch.

        Raises:
            CoordinatorError, StorageError: nothing was appended.
            LargeBatch: as well; it is to be validated in steps, or when others have had their turn.
        """
        header, records = self.check(partition, data)
        self._work_left -= header.record_count + _PARTITION_COST
        if self._work_left < 0:
            raise LargeBatch
        plain = None
        if header.attributes & CODEC_MASK:
            plain = decompressed_at_once(records, header)
            self._work_left -= len(plain) >> _BYTES_COST
        batch = validate_batch(
            records, header, partition.rules, self.now_ms, where=partition.topic_partition, plain=plain
        )
        return self.store(partition, data, header, batch)

    def check(self, partition: Partition, data: Data) -> tuple[BatchHeader, bytes]:
        """
        Check what does not depend on the records; returns the header and the bytes of the batch.

        Raises:
            CoordinatorError: the batch is refused.
        """
        records = data.records or b""
        if self.verified is not _NOTHING_VERIFIED:
            unverified = self.verified.errors.get(partition.topic_partition)
            if unverified is not None:
                raise unverified
        if self.acks not in _ACKS and is_one_batch(records):
            raise CoordinatorError(ErrorCode.INVALID_REQUIRED_ACKS)
        batch_bytes_max = partition.log.config.max_message_bytes
        header = validate_produced(records, api_version=self.api_version, batch_bytes_max=batch_bytes_max)
        self.check_topic(partition)
        if self.acks == ALL and partition.isr_count < partition.rules.min_insync_replicas:
            partition.check_isr()
        size = header.length + LOG_OVERHEAD_BYTES
        if size < len(records):
            records = records[:size]
        return header, records

    def store(self, partition: Partition, data: Data, header: BatchHeader, batch: bytes | bytearray) -> Answer:
        """
        Append a valid batch.

        Raises:
            CoordinatorError, StorageError: nothing was appended.
        """
        log = partition.log
        if header.producer_id >= 0:
            guard = self.verified.guards.get(partition.topic_partition)
            duplicate = log.producers.validate(header, guard)
            if duplicate is not None:
                return self._answer_duplicate(partition, data, duplicate)
        end_offset = partition.append(batch)
        traffic = partition.traffic
        traffic.produce_requests += 1
        traffic.messages_in += header.record_count
        traffic.bytes_in += len(batch)
        index = data.index
        if self.acks != NONE:
            self._wait_for(partition, end_offset, index)
        return _PartitionAnswer(
            index=index,
            base_offset=end_offset - header.record_count,
            log_append_time_ms=self.now_ms if partition.rules.is_log_append_time else NO_TIMESTAMP,
            log_start_offset=log.log_start_offset,
        )

    def _wait_for(self, partition: Partition, end_offset: int, index: int) -> None:
        self._waiting.append(WaitingBatch(self, partition, end_offset, index))
        self.pending_count += 1

    def _answer_duplicate(self, partition: Partition, data: Data, duplicate: BatchMetadata) -> Answer:
        """Answer with the offset of the batch in the log, which may not be durable yet."""
        partition.traffic.produce_requests += 1
        if self.acks != NONE and duplicate.last_offset >= partition.log.high_watermark:
            self._wait_for(partition, duplicate.last_offset + 1, data.index)
        return _PartitionAnswer(
            index=data.index,
            base_offset=duplicate.first_offset,
            log_append_time_ms=duplicate.timestamp_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def check_topic(self, partition: Partition) -> None:
        """
        Raises:
            CoordinatorError: the client may not write to the topic.
        """
        if partition.topic.name in INTERNAL_TOPICS and self.context.client_id != ADMIN_CLIENT_ID:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic.name}"
            )

    def response(self) -> m.ProduceResponse:
        if self.endpoints:
            return m.ProduceResponse(responses=self.topics, node_endpoints=list(self.endpoints.values()))
        return m.ProduceResponse(responses=self.topics)

    def wait(self, reply: Reply[m.ProduceResponse], call_later: CallLater) -> None:
        """
        Reply when the high watermark has passed every pending batch, at the latest after the request's timeout, or
        `FLUSH_MS_MIN` if that is less.
        """
        self.reply = reply
        self._cancel = call_later(max(self._request.timeout_ms, FLUSH_MS_MIN), self._on_deadline)
        if not self.is_in_steps:
            self.watch()

    def watch(self) -> None:
        """Watch the high watermark for the pending batches that are not watched yet, in the turn of their append."""
        waiting = self._waiting
        while self._watched < len(waiting):
            batch = waiting[self._watched]
            self._watched += 1
            batch.partition.when_replicated(batch.end_offset, batch)

    def _on_deadline(self) -> None:
        if self.reply is not None:
            for batch in self._waiting:
                if not batch.is_answered:
                    self.fail(batch, ErrorCode.REQUEST_TIMED_OUT)
            self.complete(self.reply)

    def fail(self, batch: WaitingBatch, code: ErrorCode) -> None:
        """Put an error into an answer. The batch stays in the log, but the client cannot know that."""
        answers = self.answers_of(batch.topic_place)
        for number, answer in enumerate(answers):
            if answer.index == batch.index:
                answers[number] = msgspec.structs.replace(answer, error_code=code)

    def complete(self, reply: Reply[m.ProduceResponse]) -> None:
        self.reply = None
        self.is_complete = True
        self._waiting.clear()  # They refer to this object, which would be left to the garbage collector.
        if self._cancel is not None:
            self._cancel()
        reply(self.response())
