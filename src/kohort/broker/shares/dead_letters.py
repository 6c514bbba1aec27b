"""
Dead letters: records that a share group rejects, or that were delivered too often, are written to a topic that the group names.

A letter tells where the record comes from and why; its key and value are those of the record if the group asks for it. Whatever
goes wrong is logged, and the record is archived all the same: the member was told that its acknowledgement has succeeded.

Source: KIP-1191; Kafka DefaultShareGroupDLQManager, ShareGroupDLQStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.ports import CallLater, Leadership
from kohort.broker.records.log_reads import LogRead, LogReads
from kohort.broker.shares.led_share_partition import LedSharePartition
from kohort.broker.shares.share_partition import Letter
from kohort.broker.topics.creation import NewTopic, TopicCreation
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode, StorageError
from kohort.runtime.ports import Clock
from kohort.storage.log import Log, ReadView
from kohort.wire import messages as m
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records

_log = logging.getLogger("kohort.broker")

_ENABLED: Final = "errors.deadletterqueue.group.enable"
_CREATES: Final = "errors.deadletterqueue.auto.create.topics.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"

PRODUCE_VERSION: Final = 12
_PRODUCE_MS: Final = 30_000
_RETRY_MS_MIN: Final = 1_000
_RETRY_MS_MAX: Final = 30_000
_ATTEMPTS_MAX: Final = 5
_MAY_PASS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
_LETTERS_MAX: Final = 500
"""Letters of one batch, beside the bound of its size."""
_READ_BYTES: Final = 1 << 20
"""Bytes of the log that are read for the records of letters at a time."""
_HEADER_BYTES: Final = 400
"""About so many bytes a letter takes beside key, value and names."""

Original = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class Producing(Protocol):
    """A broker that takes a Produce request of the leader itself, without the rights of any user."""

    def __call__(self, node_id: int, request: m.ProduceRequest, reply: Reply[m.ProduceResponse], /) -> None: ...


class DeadLetterWriter:
    """
    The `DeadLetters` of the brokers of a process.

    Args:
        produce: has a broker append records.

    Attributes:
        written, requests, failed: dead letters, Produce requests, and those that failed, by group.
    """

    def __init__(
        self,
        catalog: Catalog,
        creation: TopicCreation,
        configs: TopicConfigs,
        config: BrokerConfig,
        leadership: Leadership,
        log_reads: LogReads,
        clock: Clock,
        call_later: CallLater,
        produce: Producing,
    ) -> None:
        self.catalog = catalog
        self.creation = creation
        self.configs = configs
        self.config = config
        self.leadership = leadership
        self.log_reads = log_reads
        self.clock = clock
        self.call_later = call_later
        self.produce = produce
        self.written: dict[str, int] = {}
        self.requests: dict[str, int] = {}
        self.failed: dict[str, int] = {}

    def write(self, led: LedSharePartition, letter: Letter, done: Callable[[], None], /) -> None:
        _Writing(self, led, letter, done).begin()

    def refusal(self, name: str, source: str) -> str | None:
        """
        The reason, a sentence, for which a topic takes no dead letters of another one; None if it does, or would if it existed.

        Kafka lets a group write to the topic that it reads, and so reject its own letters without end.
        """
        topic = self.catalog.topic(name)
        prefix = self.config.get_str(_PREFIX) or ""
        if not name:
            return "the group has no dead-letter topic any more"
        if name.startswith("__"):
            return "the name begins with __"
        if name == source:
            return "the group reads this topic"
        if prefix and not name.startswith(prefix):
            return f"the name does not begin with {prefix!r}"
        if topic is None and not self.config.get_bool(_CREATES):
            return f"there is no such topic, and {_CREATES} is false"
        if topic is not None and topic.configs.get(_ENABLED, "false").strip().lower() != "true":
            return f"the topic does not have {_ENABLED}=true"
        return None

    def count_bytes_max(self, topic: Topic) -> int:
        """The largest batch of a topic."""
        return self.configs.log_config(topic.configs).max_message_bytes


class _Writing:
    """The letters of one change: the topic is looked up or made, then one batch after the other is produced."""

    __slots__ = ("_attempts", "_done", "_led", "_letter", "_next", "_writer")

    def __init__(
        self, writer: DeadLetterWriter, led: LedSharePartition, letter: Letter, done: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._led = led
        self._letter = letter
        self._done = done
        self._next = letter.first
        self._attempts = 0

    def begin(self) -> None:
        name = self._led.settings.dead_letter_topic
        refusal = self._writer.refusal(name, self._led.partition.topic_partition.topic)
        if refusal is not None:
            self._fail(name, refusal)
            return
        topic = self._writer.catalog.topic(name)
        if topic is None:
            self._create(name)
        else:
            self._go_on(topic)

    def _create(self, name: str) -> None:
        configs: dict[str, str | None] = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
        new_topic = NewTopic(name, configs=configs)
        try:
            topic = self._writer.creation.validate(new_topic)
        except CoordinatorError as error:
            self._on_error(name, error.code, str(error.message))
            return
        if self._writer.creation.elsewhere(new_topic, None):
            self._on_error(name, ErrorCode.REQUEST_TIMED_OUT, "the controller has not created the topic")
            return
        self._writer.catalog.change(CatalogChange(put=(topic,)), partial(self._on_created, name))

    def _on_created(self, name: str, code: ErrorCode) -> None:
        if code:
            self._on_error(name, code, "the topic cannot be created")
        else:
            self.begin()

    def _go_on(self, topic: Topic) -> None:
        """Produce the next batch, with the records themselves if the group wants copies."""
        if not self._led.settings.copies_records:
            self._produce(topic, {}, self._letter.last)
            return
        log, offset = self._led.partition.log, self._next
        last = self._letter.last

        def work(view: ReadView | Log) -> tuple[dict[int, Original], int]:
            return originals(view, offset, last)

        read = LogRead(log, work)
        self._writer.log_reads.begin(read, partial(self._on_read, topic, read))

    def _on_read(self, topic: Topic, read: LogRead[tuple[dict[int, Original], int]]) -> None:
        try:
            found, last = read.result()
        except (StorageError, CorruptError):
            # A record that cannot be read any more has a letter without key and value.
            found, last = {}, self._letter.last
        self._produce(topic, found, last)

    def _produce(self, topic: Topic, found: Mapping[int, Original], last: int) -> None:
        writer, letter = self._writer, self._letter
        bytes_max = writer.count_bytes_max(topic)
        source = self._led.partition.topic_partition
        headers = (
            ("__dlq.errors.topic", source.topic.encode()),
            ("__dlq.errors.partition", b"%d" % source.partition),
        )
        why = "Offset rejected by client." if letter.is_rejected else "Offset delivery count exceeded the threshold."
        behind = (
            ("__dlq.errors.group", self._led.key.group_id.encode()),
            ("__dlq.errors.delivery.count", b"%d" % letter.deliveries),
            ("__dlq.errors.message", why.encode()),
        )
        fixed = _HEADER_BYTES + len(headers[0][1]) + len(behind[0][1])
        records: list[BatchRecord] = []
        size = 0
        offset = self._next
        while offset <= last and len(records) < _LETTERS_MAX:
            key, value = found.get(offset, (None, None))
            size += fixed + len(key or b"") + len(value or b"")
            if records and size > bytes_max:
                break
            records.append(BatchRecord(key, value, (*headers, ("__dlq.errors.offset", b"%d" % offset), *behind)))
            offset += 1
        index = source.partition % topic.partition_count
        batch = build_batch(records, timestamp_ms=writer.clock.now_ms())
        data = m.ProduceRequestPartitionProduceData(index=index, records=batch)
        request = m.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=_PRODUCE_MS,
            topic_data=[m.ProduceRequestTopicProduceData(name=topic.name, partition_data=[data])],
        )
        group_id = self._led.key.group_id
        writer.requests[group_id] = writer.requests.get(group_id, 0) + 1
        leader = writer.leadership.leader(topic, index).leader_id
        if leader < 0:
            self._on_error(topic.name, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition has no leader")
        else:
            writer.produce(leader, request, partial(self._on_produced, topic.name, len(records)))

    def _on_produced(self, name: str, count: int, response: m.ProduceResponse) -> None:
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            group_id = self._led.key.group_id
            self._writer.failed[group_id] = self._writer.failed.get(group_id, 0) + 1
            self._on_error(name, ErrorCode(answer.error_code), answer.error_message or "")
            return
        group_id = self._led.key.group_id
        self._writer.written[group_id] = self._writer.written.get(group_id, 0) + count
        self._attempts = 0
        self._next += count
        if self._next > self._letter.last or self._led.error:
            self._done()
        else:
            self._writer.call_later(0, self.begin)

    def _on_error(self, name: str, code: ErrorCode, message: str) -> None:
        self._attempts += 1
        if code in _MAY_PASS and self._attempts < _ATTEMPTS_MAX and not self._led.error:
            delay_ms = min(_RETRY_MS_MIN << (self._attempts - 1), _RETRY_MS_MAX)
            self._writer.call_later(delay_ms, self.begin)
        else:
            self._fail(name, f"{code.name} {message}".strip())

    def _fail(self, name: str, reason: str) -> None:
        _log.warning(
            "share.dead_letter_lost group=%r partition=%s first=%d last=%d topic=%r reason=%s",
            self._led.key.group_id,
            self._led.partition.topic_partition,
            self._next,
            self._letter.last,
            name,
            reason,
        )
        self._done()


def originals(view: ReadView | Log, first: int, last: int) -> tuple[dict[int, Original], int]:
    """
    Keys and values of records by offset, and the last offset that was read.

    Raises:
        CorruptError: a batch is damaged.
    """
    data = view.read(first, bytes_max=_READ_BYTES)
    found: dict[int, Original] = {}
    end = first
    for position, header in iter_batches(data):
        if header.base_offset > last:
            break
        for record in read_records(data[position : position + header.size_bytes]):
            if first <= record.offset <= last:
                found[record.offset] = record.key, record.value
        end = header.next_offset
    return found, last if end > last or end == first else end - 1
