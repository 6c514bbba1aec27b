"""Base of the logs of all stores: offset assignment, fencing, high watermark, listeners, leader epochs, search by time."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import CorruptError, FencedError, OffsetOutOfRangeError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import NO_SEQUENCE, HighWatermarkListener, HoldAt, LogView
from kohort.storage.batchset import Span, assign_offsets, placed_span, read_front, split_one
from kohort.storage.epochs import EpochCache
from kohort.storage.log import (
    NO_TIMESTAMP,
    AppendLimits,
    BatchSetTooLargeError,
    LogConfig,
    LogMetrics,
    TimestampOffset,
)
from kohort.storage.logs.retention import LogSegment, count_expired
from kohort.storage.logs.timestamps import first_at_least
from kohort.storage.markers import marker_batch
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager
from kohort.wire.batch_header import PRODUCER_ID_AT
from kohort.wire.batches import check_crc

_log = logging.getLogger("kohort.storage")

PIECE_BYTES: Final = 4096
"""An append of this size or more is not copied: segment and journal are written from the caller's buffer."""


def _do_nothing() -> None:
    pass


class LogBase(ABC):
    """
    A log without storage of bytes, which a subclass provides with `_write` and `read`.

    Attributes:
        refusal: the reason why the log is closed or offline, a sentence; None while it can be used.
        hold_flush: asked before the high watermark advances.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        epochs: EpochCache,
        producers: ProducerStateManager | None = None,
        log_start_offset: int = 0,
        end_offset: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._config = config
        self.limits = AppendLimits(config)
        self.epochs = epochs
        self.producers = producers or ProducerStateManager()
        self.leader_epoch = epochs.latest
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.high_watermark = end_offset
        self.refusal: str | None = None
        self._is_left = False
        self._found_base = (-1, -1)
        """A log start, and the base offset of the batch that holds it."""
        self._listeners: tuple[HighWatermarkListener, ...] = ()
        self._on_start_raised: Callable[[], None] = _do_nothing
        self._offline_listeners: list[Callable[[], None]] = []
        self.hold_flush: HoldAt | None = None

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.limits = AppendLimits(config)

    @property
    def batch_bytes_max(self) -> int:
        return self.limits.max_message_bytes

    @property
    def last_stable_offset(self) -> int:
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        if first < self.log_start_offset:
            first = self.base_of_log_start()
        return min(first, self.high_watermark)

    def base_of_log_start(self) -> int:
        """The base offset of the batch that holds the log start, which Kafka answers. It is read once."""
        log_start_offset, base_offset = self._found_base
        if log_start_offset != self.log_start_offset:
            data = self.read(self.log_start_offset, bytes_max=1)
            base_offset = read_front(data)[0] if data else self.log_start_offset
            self._found_base = self.log_start_offset, base_offset
        return base_offset

    @property
    @abstractmethod
    def segments(self) -> Sequence[LogSegment]:
        """By rising base offset, not to be changed; the last one is active."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def metrics(self) -> LogMetrics:
        return LogMetrics(
            self.topic_partition,
            self.log_start_offset,
            self.end_offset,
            len(self.segments),
            self.size_bytes,
            self.refusal is not None,
            self.high_watermark - self.last_stable_offset if self.refusal is None else 0,
            len(self.producers.states),
            self.producers.oldest_transaction_ms,
            self.size_bytes * 100 // limit if (limit := self.config.retention_bytes) > 0 else 0,
        )

    def append(self, batch: bytes | bytearray, *, leader_epoch: int, end: EndTransaction | None = None) -> int:
        """
        As `PartitionLog.append`.

        Args:
            end: the content of a marker, which is not read from its bytes then.
        """
        if self.refusal is not None:
            raise UnavailableError(self.refusal)
        if leader_epoch != self.leader_epoch:
            self.become_leader(leader_epoch)
        size, limits = len(batch), self.limits
        if size < PIECE_BYTES and isinstance(batch, bytes):
            span = placed_span(batch, self.end_offset, leader_epoch, limits.max_message_bytes)
            if span is not None and size <= limits.segment_bytes:
                spans = [span]
                self._write(batch, b"", spans)
                self._update_producers(batch, spans, end)
                return self.end_offset
        # Of a large batch only the header is copied and changed. The records are written from the caller's buffer, maybe later;
        # a buffer that is not `bytes` may change until then, so it is copied.
        split = split_one(batch) if size >= PIECE_BYTES and isinstance(batch, bytes) else None
        data, rest = split or (bytearray(batch), b"")
        spans = assign_offsets(
            data,
            size,
            base_offset=self.end_offset,
            leader_epoch=leader_epoch,
            batch_bytes_max=limits.max_message_bytes,
        )
        if size > limits.segment_bytes:
            raise BatchSetTooLargeError(
                f"{size} bytes at once for {self.topic_partition}, whose segment.bytes is {limits.segment_bytes}"
            )
        if spans:
            self._write(data, rest, spans)
            self._update_producers(data, spans)
        return self.end_offset

    def start_verification(self, producer: Producer, now_ms: int, first_sequence: int = NO_SEQUENCE) -> object | None:
        return self.producers.start_verification(producer, now_ms, first_sequence)

    def is_verifying(self, producer_id: int, guard: object) -> bool:
        return self.producers.is_verifying(producer_id, guard)

    def append_transactional(
        self,
        batch: bytes | bytearray,
        *,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        guard: object | None,
    ) -> int:
        self.producers.check_transactional(producer_id=producer_id, producer_epoch=producer_epoch, guard=guard)
        return self.append(batch, leader_epoch=leader_epoch)

    def append_marker(self, end: EndTransaction, *, leader_epoch: int, timestamp_ms: int) -> int:
        self.producers.check_marker(end)
        batch = marker_batch(end, timestamp_ms, self.end_offset, leader_epoch)
        return self.append(batch, leader_epoch=leader_epoch, end=end)

    def _update_producers(self, data: bytes | bytearray, spans: list[Span], end: EndTransaction | None = None) -> None:
        """
        Update the state of producers with the appended batches; the header of a split batch is enough.

        Args:
            end: the content of the only batch, if it is a marker that was made here.
        """
        for span in spans:
            # The first bit of a producer id is its sign; most batches have no producer id (-1).
            if data[span[0] + PRODUCER_ID_AT] < 0x80:
                producers = self.producers
                aborted = producers.update(data, span) if end is None else producers.end(end, span[2], span[4])
                if aborted is not None:
                    self._add_aborted(aborted)

    # Changes of a log, which a view does not have.

    def _add_aborted(self, aborted: AbortedTxn) -> None:
        """Add to the transaction index a transaction that the last batch aborted."""
        raise NotImplementedError

    def _write(self, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        """
        Store batches whose offsets are assigned, move `end_offset` behind them, and call `advance` when they are durable.

        Args:
            rest: the records of the batch if `data` is its header alone, else empty.
        """
        raise NotImplementedError

    def _roll(self) -> LogSegment:
        """Begin a new segment at the end of the log."""
        raise NotImplementedError

    @abstractmethod
    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes: ...

    def load_view(self) -> LogView | None:
        return None

    def _check_readable(self, offset: int) -> None:
        if self.refusal is not None:
            raise UnavailableError(self.refusal)
        if offset < self.log_start_offset or offset > self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition}, which holds {self.log_start_offset} to {self.end_offset}"
            )

    def add_listener(self, listener: HighWatermarkListener) -> None:
        self._listeners += (listener,)

    def remove_listener(self, listener: HighWatermarkListener) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def when_start_rises(self, listener: Callable[[], None]) -> None:
        self._on_start_raised = listener

    def when_offline(self, listener: Callable[[], None]) -> None:
        self._offline_listeners.append(listener)

    def forget_listeners(self) -> None:
        """
        Call no listener any more: the store has removed the log. A listener refers to the log, so the records would stay in
        memory until a garbage collection finds the cycle.
        """
        self._listeners = ()
        self._offline_listeners.clear()
        self._on_start_raised = _do_nothing

    def _refuse(self, refusal: str) -> None:
        """Take the log offline and tell the listeners, whose requests would wait for ever."""
        self.refusal = refusal
        listeners, self._offline_listeners = self._offline_listeners, []
        for listener in listeners:
            try:
                listener()
            except Exception:  # noqa: BLE001 -- requests on other partitions must not hang because of this listener
                _log.exception("log.listener_failed partition=%s", self.topic_partition)

    def leave(self, refusal: str) -> None:
        """
        Refuse everything from now on, because another node leads the partition. The listeners are called until the outcome of
        every append is known: the high watermark advances, or the log is offline.
        """
        self.refusal = refusal
        self._is_left = True
        if self.high_watermark == self.end_offset:
            self.forget_listeners()

    def end_leave(self) -> None:
        """End the wait: records from the high watermark on were not appended. Without effect unless the log was left."""
        if self._is_left and self.refusal is not None:
            self._refuse(self.refusal)
            self.forget_listeners()

    def take_offline(self, reason: str) -> None:
        """Refuse everything until `bring_online`, as if the directory of the log had failed; for tests of clients."""
        self.refusal = reason
        for listener in list(self._offline_listeners):
            listener()

    def bring_online(self) -> None:
        """End `take_offline`."""
        self.refusal = None

    def advance(self, high_watermark: int, *, is_released: bool = False) -> None:
        """
        Advance the high watermark: all data below is durable. A closed or offline log calls no listener, unless it was left.

        Args:
            is_released: whether it was held before.
        """
        if high_watermark <= self.high_watermark or (self.refusal is not None and not self._is_left):
            return
        if self.hold_flush is not None and not is_released:
            go = partial(self.advance, high_watermark, is_released=True)
            if self.hold_flush(self.topic_partition, go):
                return
        self.high_watermark = high_watermark
        self.producers.on_high_watermark(high_watermark)
        for listener in self._listeners:
            try:
                listener(high_watermark)
            except Exception:  # noqa: BLE001 -- as above
                _log.exception("log.listener_failed partition=%s", self.topic_partition)
        if self._is_left and high_watermark == self.end_offset:
            self.forget_listeners()

    def become_leader(self, leader_epoch: int) -> None:
        if self.refusal is not None:
            raise UnavailableError(self.refusal)
        if leader_epoch < self.leader_epoch:
            raise FencedError(
                f"leader epoch {leader_epoch} of {self.topic_partition} is older than {self.leader_epoch}"
            )
        if leader_epoch > self.leader_epoch:
            self.epochs.assign(leader_epoch, self.end_offset)
            self.leader_epoch = leader_epoch
            self._persist_epoch()

    def _persist_epoch(self) -> None:
        """Make the newest leader epoch durable soon, although no batch may be appended in it."""
        raise NotImplementedError

    def delete_before(self, offset: int, done: Callable[[], None] = lambda: None) -> None:
        if self.refusal is not None:
            raise UnavailableError(self.refusal)
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(f"offset {offset} of {self.topic_partition} is above {self.high_watermark}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self._on_start_raised()
        self._persist_start(done)

    def _persist_start(self, done: Callable[[], None]) -> None:
        """Make the log start durable, call `done` later than this call, and allow removal of the data before it."""
        raise NotImplementedError

    def apply_retention(self, now_ms: int) -> None:
        segments = self.segments
        ends = [*(segment.base_offset for segment in segments[1:]), self.end_offset]
        sizes = [segment.size_bytes for segment in segments]
        count = count_expired(
            sizes, ends, lambda index: segments[index].newest_ms, self.config, self.high_watermark, now_ms
        )
        if count == 0:
            return
        if count == len(segments):
            self._roll()
        if ends[count - 1] > self.log_start_offset:
            self.delete_before(ends[count - 1])

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(leader_epoch, self.end_offset)

    def location_of(self, _offset: int) -> str:
        return str(self.topic_partition)

    def epoch_for_offset(self, offset: int) -> int:
        return self.epochs.epoch_for_offset(offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        self._check_readable(self.log_start_offset)
        for batch in self._batches_at_least(timestamp_ms):
            found = self._first_at_least(batch, timestamp_ms)
            if found is not None:
                return found
        return None

    def _first_at_least(self, batch: bytes, timestamp_ms: int) -> TimestampOffset | None:
        """
        Raises:
            CorruptError: the batch is damaged.
        """
        is_right = check_crc(batch)
        found = first_at_least(batch, timestamp_ms, self.log_start_offset) if is_right else None
        if not is_right or (found is not None and found.offset >= self.end_offset):
            raise CorruptError(f"{self.topic_partition}: the batch at offset {read_front(batch)[0]} is damaged")
        if found is None:
            return None
        leader_epoch = self.epochs.epoch_for_offset(found.offset)  # no checksum covers the one in the header
        return TimestampOffset(found.offset, found.timestamp_ms, leader_epoch) if leader_epoch >= 0 else found

    @abstractmethod
    def _batches_at_least(self, timestamp_ms: int) -> Iterator[bytes]:
        """The batches whose largest timestamp is at least this, in log order, without batches that end before the log start."""

    def max_timestamp(self) -> TimestampOffset | None:
        timestamp_ms, offset = self._newest()
        if timestamp_ms <= NO_TIMESTAMP:
            return None
        data = self.read(max(offset, self.log_start_offset), bytes_max=1)
        return self._first_at_least(data, timestamp_ms) if data else None

    @abstractmethod
    def _newest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it; (-1, -1) if the log is empty."""
