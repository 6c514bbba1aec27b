"""
Produce (0), versions 3 to 13: v4 errors of the disk; v5 log start offset; v7 zstd; v8 record errors; v10 current leader;
v12 transactions of version 2; v13 topic ids.

With acks 0 there is no response, and an error closes the connection so that the client notices. With acks 1 and -1 the response
is sent when the high watermark has passed the batches: they are durable and can be read.

Batches of idempotent producers are checked by their sequences. A batch that is in the log already is not appended again: the
response has its base offset, and its largest timestamp as the log append time, even for topics with CreateTime. Transactional
batches are appended if the transaction coordinator confirms their transaction (`produce_verification`).

Source: KIP-98, KIP-110, KIP-467, KIP-516, KIP-890, KIP-951; Kafka KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.partitions.partitions import LocalPartitions, Partition
from kohort.broker.ports import CallLater, Context, Leadership, NoResponse, wait_at
from kohort.broker.records.large_batches import LargeBatches, Steps
from kohort.broker.records.produce_refusals import (
    NO_OFFSET,
    has_invalid_offsets_or_sequence,
    has_reached_log,
    has_transactional_batch,
    is_one_batch,
    refusal,
)
from kohort.broker.records.produce_verification import (
    TransactionalBatch,
    TransactionVerifier,
    VerificationError,
    Verified,
)
from kohort.broker.records.produce_write import NONE, ProduceWrite
from kohort.broker.records.validation import (
    LargeBatch,
)
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock, HoldAt
from kohort.wire import messages as m
from kohort.wire.batch_header import ATTRIBUTES_LOW_AT, PRODUCER_ID_AT, TRANSACTIONAL, fields_struct

if TYPE_CHECKING:
    Data = m.ProduceRequestPartitionProduceData
    Answer = m.ProduceResponsePartitionProduceResponse

_read_producer: Final = fields_struct("producer_id", "base_sequence").unpack_from
_TOPIC_IDS_SINCE: Final = 13
_LEADER_SINCE: Final = 10

_NO_FAILURES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that do not count as failed Produce requests."""

_Topics = list[tuple[str, UUID | None, dict[int, "Data"]]]
"""Name or id of each topic, and its partitions by index."""


class Produce:
    """Handler of Produce: appends each batch to its partition. The refusal of one batch does not affect the others."""

    def __init__(
        self,
        catalog: Catalog,
        partitions: LocalPartitions,
        leadership: Leadership,
        cluster: Cluster,
        clock: Clock,
        call_later: CallLater,
        verifier: TransactionVerifier,
        large: LargeBatches,
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._leadership = leadership
        self._cluster = cluster
        self._clock = clock
        self._call_later = call_later
        self._verifier = verifier
        self._large = large
        self.hold: HoldAt | None = None
        """Asked before each batch is appended."""
        self.invalid_offsets_or_sequences = 0
        """Batches refused for their offsets or their sequence number. Kafka: InvalidOffsetOrSequenceRecordsPerSec."""

    def produce(
        self, request: m.ProduceRequest, context: Context, reply: Reply[m.ProduceResponse]
    ) -> m.ProduceResponse | NoResponse | None:
        write = ProduceWrite(request, context, self._clock.now_ms())
        if request.transactional_id is not None:
            return self._verify(write, request, request.transactional_id, reply)
        if has_transactional_batch(request):
            return _refuse_all(request, CoordinatorError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return self.append_batches(write, _by_topic(request), reply)

    def append_batches(
        self,
        write: ProduceWrite,
        topics: _Topics,
        reply: Reply[m.ProduceResponse],
        when_appended: Callable[[], None] | None = None,
    ) -> m.ProduceResponse | NoResponse | None:
        """
        Append the batches of a request, in later turns from the first one on that takes long.

        Args:
            when_appended: called at the end of the later turns, if there are any.
        """
        try:
            if self.hold is not None:
                raise LargeBatch
            for name, topic_id, partitions in topics:
                topic = self._name(name, topic_id, write.api_version)
                answers = write.begin_topic(name, topic_id)
                for data in partitions.values():
                    answers.append(self._answer(write, topic, data))
        except LargeBatch:
            write.is_in_steps = True
            steps = self._append_in_steps(write, topics, reply, when_appended)
            next(steps)  # Even if the steps are dropped, `when_appended` is called.
            write.context.go_on(steps, reply)
            return None
        return self._appended(write, reply)

    def _appended(self, write: ProduceWrite, reply: Reply[m.ProduceResponse]) -> m.ProduceResponse | NoResponse | None:
        if write.acks == NONE:
            return NoResponse.CLOSE_CONNECTION if write.has_error else NoResponse.NO_OP
        if write.pending_count:
            write.wait(reply, self._call_later)
            return None
        return write.response()

    def _append_in_steps(
        self,
        write: ProduceWrite,
        topics: _Topics,
        reply: Reply[m.ProduceResponse],
        when_appended: Callable[[], None] | None,
    ) -> Steps[m.ProduceResponse | NoResponse | None]:
        """Append the batches that have no answer yet. Others may append between two of them."""
        write.watch()
        try:
            yield None
            for place, (name, topic_id, partitions) in enumerate(topics):
                answers = write.answers_of(place) if place < len(write.topics) else write.begin_topic(name, topic_id)
                for data in islice(partitions.values(), len(answers), None):
                    topic = self._name(name, topic_id, write.api_version)
                    if self.hold is not None and topic is not None:
                        yield partial(wait_at, self.hold, [TopicPartition(topic, data.index)])
                    write.begin_step()
                    answer: Answer | None
                    try:
                        answer = self._answer(write, topic, data)
                    except LargeBatch:
                        answer = None
                    if answer is None:
                        answer = yield from self._answer_in_steps(write, topic, data)
                    answers.append(answer)
                    write.watch()
                    yield None
        finally:
            if when_appended is not None:
                when_appended()
        return self._appended(write, reply)

    def _answer_in_steps(self, write: ProduceWrite, topic: str | None, data: Data) -> Steps[Answer]:
        partition = None
        try:
            partition = self._find(topic, data.index)
            header, records = write.check(partition, data)
            batch = yield from self._large.validate(
                records, header, partition.rules, write.now_ms, partition.topic_partition
            )
            if partition.topic.is_deleted:
                raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._partitions.check(partition, is_leader_asked=True)
            return write.store(partition, data, header, batch)
        except (CoordinatorError, StorageError) as error:
            return self._refused(write, partition, data, error, topic)

    def _name(self, name: str, topic_id: UUID | None, api_version: int) -> str | None:
        """The name of the topic; None if no topic has the id."""
        if api_version < _TOPIC_IDS_SINCE:
            return name
        topic = self._catalog.topic_by_id(topic_id) if topic_id else None
        return topic.name if topic else None

    def _answer(self, write: ProduceWrite, topic: str | None, data: Data) -> Answer:
        partition = None
        try:
            partition = self._find(topic, data.index)
            return write.append(partition, data)
        except (CoordinatorError, StorageError) as error:
            return self._refused(write, partition, data, error, topic)

    def _refused(
        self,
        write: ProduceWrite,
        partition: Partition | None,
        data: Data,
        error: CoordinatorError | StorageError,
        topic: str | None,
    ) -> Answer:
        write.has_error = True
        if error.code is ErrorCode.INVALID_RECORD and has_invalid_offsets_or_sequence(data.records or b""):
            self.invalid_offsets_or_sequences += 1
        self._count_refused(partition, data, error.code)
        reached = partition is not None and has_reached_log(error, data, write.api_version)
        start = partition.log.log_start_offset if partition and reached else NO_OFFSET
        answer = refusal(data.index, error, log_start_offset=start)
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and write.api_version >= _LEADER_SINCE:
            return self._tell_leader(write, topic or "", answer)
        return answer

    def _tell_leader(self, write: ProduceWrite, name: str, answer: Answer) -> Answer:
        """Name the leader of the partition, with its address. Source: KIP-951."""
        topic = self._catalog.topic(name)
        if topic is None:
            return answer
        leader_id, leader_epoch, *_ = self._leadership.leader(topic, answer.index)
        endpoint = self._cluster.endpoint(leader_id, write.context.listener)
        if endpoint is not None:
            rack = self._cluster.brokers[leader_id].rack
            write.endpoints[leader_id] = m.ProduceResponseNodeEndpoint(
                node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
        leader = m.ProduceResponseLeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return msgspec.structs.replace(answer, current_leader=leader)

    def _count_refused(self, partition: Partition | None, data: Data, code: ErrorCode) -> None:
        """Source: Kafka ReplicaManager.appendRecordsToLeader: errors of clients are no failures."""
        traffic = self._partitions.traffic.unknown if partition is None else partition.traffic
        traffic.produce_requests += 1
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            traffic.bytes_rejected += len(data.records or b"")
        if code not in _NO_FAILURES:
            traffic.failed_produce_requests += 1

    def _find(self, topic: str | None, index: int) -> Partition:
        """
        Raises:
            CoordinatorError: there is no such partition.
            StorageError: the partition is offline, or another broker leads it.
        """
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._partitions.find(topic, index)
        if partition is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def _verify(
        self, write: ProduceWrite, request: m.ProduceRequest, transactional_id: str, reply: Reply[m.ProduceResponse]
    ) -> m.ProduceResponse | NoResponse | None:
        """
        Append once the transaction coordinator has answered for every transactional batch.

        Source: Kafka ReplicaManager.handleProduceAppend.
        """
        topics = _by_topic(request)
        batches = self._transactional_batches(topics, write)
        if len(batches) > 1 and len({(each.producer_id, each.producer_epoch) for each in batches}) > 1:
            message = "Transactional records contained more than one producer ID"
            return _refuse_all(request, VerificationError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message))
        waiting = _AfterVerification(self, write, topics, reply, partial(self._verifier.appended, transactional_id))
        self._verifier.verify(transactional_id, write.api_version, batches, waiting.on_verified)
        return waiting.returned()

    def _transactional_batches(self, topics: _Topics, write: ProduceWrite) -> list[TransactionalBatch]:
        """The batches to verify. Batches that are refused whatever the coordinator says are left to `_append`."""
        found = []
        for name, topic_id, partitions in topics:
            topic = self._name(name, topic_id, write.api_version)
            for index, data in partitions.items():
                records = data.records or b""
                if not is_one_batch(records) or not records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL:
                    continue
                producer_id: int  # declared, because `unpack` returns values of any type
                producer_id, producer_epoch, base_sequence = _read_producer(records, PRODUCER_ID_AT)
                if producer_id < 0:
                    continue
                try:
                    partition = self._find(topic, index)
                    write.check_topic(partition)
                except (CoordinatorError, StorageError):
                    continue
                found.append(TransactionalBatch(partition, producer_id, producer_epoch, base_sequence))
        return found


def _refuse_all(request: m.ProduceRequest, error: CoordinatorError) -> m.ProduceResponse | NoResponse:
    """Refuse every batch of a request."""
    if request.acks == NONE:
        return NoResponse.CLOSE_CONNECTION
    return m.ProduceResponse(
        responses=[
            m.ProduceResponseTopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[refusal(index, error, log_start_offset=NO_OFFSET) for index in partitions],
            )
            for name, topic_id, partitions in _by_topic(request)
        ]
    )


def _by_topic(request: m.ProduceRequest) -> _Topics:
    """Group the request by topic. Of a partition that is listed twice the last entry counts."""
    if len(request.topic_data) == 1:  # without the hash of its id, which is a call of Python
        (topic,) = request.topic_data
        return [(topic.name, topic.topic_id, {data.index: data for data in topic.partition_data})]
    found: dict[tuple[str, UUID | None], dict[int, Data]] = {}
    for topic in request.topic_data:
        partitions = found.setdefault((topic.name, topic.topic_id), {})
        for data in topic.partition_data:
            partitions[data.index] = data
    return [(name, topic_id, partitions) for (name, topic_id), partitions in found.items()]


class _AfterVerification:
    """
    Appends the batches of one request when they are verified: within the call of the handler, which returns the response, or
    later. A class, because compiled closures that are called later are left to the garbage collector.
    """

    __slots__ = ("_is_inside", "_produce", "_reply", "_response", "_topics", "_when_appended", "_write")

    def __init__(
        self,
        produce: Produce,
        write: ProduceWrite,
        topics: _Topics,
        reply: Reply[m.ProduceResponse],
        when_appended: Callable[[], None],
    ) -> None:
        self._produce = produce
        self._write = write
        self._topics = topics
        self._reply = reply
        self._response: m.ProduceResponse | NoResponse | None = None
        self._is_inside = True
        self._when_appended = when_appended

    def on_verified(self, verified: Verified) -> bool:
        """Append; returns whether batches are left, which are appended in later turns."""
        self._write.verified = verified
        response = self._produce.append_batches(self._write, self._topics, self._reply, self._when_appended)
        if self._is_inside:
            self._response = response
        elif response is not None:
            self._reply(response)  # type: ignore[arg-type]
        return self._write.is_in_steps

    def returned(self) -> m.ProduceResponse | NoResponse | None:
        """The response; None if it is given to `reply` later."""
        self._is_inside = False
        return self._response
