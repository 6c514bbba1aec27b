"""Logs that live as long as the process: for tests, and for clusters that keep nothing."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Defer
from kohort.storage.base import LogBase
from kohort.storage.batchset import Span, iter_spans
from kohort.storage.cleaning.retention import count_expired
from kohort.storage.epochs import EpochCache
from kohort.storage.log import NO_OFFSET, NO_TIMESTAMP, CleanerConfig, CleanerMetrics, LogConfig, StoreMetrics
from kohort.storage.producers import AbortedTxn
from kohort.storage.segments.aborted import overlapping
from kohort.storage.timestamps import newest_from
from kohort.storage.watermarks import Watermarks


class MemoryLog(LogBase):
    """The batches of one partition, one `bytes` each."""

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, behind: Watermarks) -> None:
        super().__init__(topic_partition, topic_id, config, epochs=EpochCache())
        self._behind = behind
        self._batches: list[bytes] = []
        self._last_offsets: list[int] = []
        self._max_timestamps: list[int] = []
        """The largest so far, batch by batch: rising, so that a search by time can bisect."""
        self._size_bytes = 0
        self._aborted: list[AbortedTxn] = []

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def _write(self, data: bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        data += rest
        for span in spans:
            self._keep(bytes(data[span[0] : span[0] + span[1]]), span)
        self.end_offset = spans[-1][3] + 1
        self._behind.add(self)

    def _keep(self, batch: bytes, span: Span) -> None:
        _, size, _, last_offset, max_timestamp_ms = span
        newest = self._max_timestamps[-1] if self._max_timestamps else NO_TIMESTAMP
        self._batches.append(batch)
        self._last_offsets.append(last_offset)
        self._max_timestamps.append(max(newest, max_timestamp_ms))
        self._size_bytes += size

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        self._check_readable(offset)
        first = bisect_left(self._last_offsets, offset)
        limit = len(self._batches) if up_to is None else bisect_left(self._last_offsets, up_to)
        end, size = first, 0
        while end < limit:
            size += len(self._batches[end])
            if size > bytes_max and end > first:
                break
            end += 1
        return b"".join(self._batches[first:end])

    def _keep_aborted(self, aborted: AbortedTxn) -> None:
        self._aborted.append(aborted)

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        return overlapping(self._aborted, offset, self.end_offset)[0] if data else []

    def _keep_epoch(self) -> None:
        pass

    def _raise_start(self, done: Callable[[], None]) -> None:
        gone = bisect_left(self._last_offsets, self.log_start_offset)
        kept = self._batches[gone:]
        self._aborted = [aborted for aborted in self._aborted if aborted.last_offset >= self.log_start_offset]
        self._batches, self._last_offsets, self._max_timestamps = [], [], []
        self._size_bytes = 0
        for batch in kept:
            self._keep(batch, next(iter_spans(batch)))
        self._behind.defer(done)

    def apply_retention(self, now_ms: int) -> None:
        """Every batch is a segment of its own."""
        ends = [last_offset + 1 for last_offset in self._last_offsets]
        sizes = [len(batch) for batch in self._batches]
        newest = self._max_timestamps
        count = count_expired(sizes, ends, newest.__getitem__, self.config, self.high_watermark, now_ms)
        if count:
            self.delete_before(ends[count - 1])

    def _batches_at_least(self, timestamp_ms: int) -> Iterator[bytes]:
        for batch in self._batches[bisect_left(self._max_timestamps, timestamp_ms) :]:
            if next(iter_spans(batch))[4] >= timestamp_ms:
                yield batch

    def _newest(self) -> tuple[int, int]:
        newest = NO_TIMESTAMP, NO_OFFSET
        for batch, last_offset in zip(self._batches, self._last_offsets, strict=True):
            _, _, base_offset, _, timestamp_ms = next(iter_spans(batch))
            if base_offset < self.log_start_offset:
                timestamp_ms = newest_from(batch, self.log_start_offset)
            if timestamp_ms > newest[0]:
                newest = timestamp_ms, last_offset
        return newest


class MemoryStore:
    """Logs without a disk: what is appended counts as durable when the turn ends."""

    offline_reason: str | None = None

    def __init__(self, defer: Defer) -> None:
        self._behind = Watermarks(defer)
        self._logs: dict[TopicPartition, MemoryLog] = {}
        self._is_closed = False

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> MemoryLog:
        if self._is_closed:
            raise UnavailableError("the store is closed")
        log = self._logs.get(topic_partition)
        if log is not None and log.topic_id == topic_id:
            log.config = config
            return log
        self.delete(topic_partition)
        log = self._logs[topic_partition] = MemoryLog(topic_partition, topic_id, config, self._behind)
        return log

    def get(self, topic_partition: TopicPartition) -> MemoryLog | None:
        return self._logs.get(topic_partition)

    def partitions(self) -> Iterable[TopicPartition]:
        return sorted(self._logs)

    def delete(self, topic_partition: TopicPartition) -> None:
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            log.refusal = f"{topic_partition} was deleted"

    def clean(self, config: CleanerConfig) -> None:
        """Nothing: what is kept in memory lives as long as a test."""

    def metrics(self) -> StoreMetrics:
        return StoreMetrics(tuple(log.metrics() for log in self._logs.values()))

    def cleaner_metrics(self) -> CleanerMetrics:
        return CleanerMetrics()

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        self.delete(topic_partition)

    def flush(self) -> None:
        self._behind.advance_all()

    def close(self) -> None:
        if self._is_closed:
            return
        self.flush()
        self._is_closed = True
        for topic_partition, log in self._logs.items():
            log.refusal = f"{topic_partition} is closed"
