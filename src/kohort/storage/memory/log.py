"""The log of one partition in memory, which waits for no flush: segments of batches, as on disk but smaller."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock, Defer
from kohort.storage.batchset import Span, iter_spans, span_at
from kohort.storage.epochs import EpochCache
from kohort.storage.log import NO_OFFSET, NO_TIMESTAMP, LogConfig, ReadView
from kohort.storage.logs.base import LogBase
from kohort.storage.logs.timestamps import newest_from
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.aborted import find_overlapping

SEGMENT_BYTES_MAX: Final = 256 * 1024
"""
A segment in memory ends at this size, or at `segment.bytes` if that is less: neither compaction nor retention touches the
active segment.
"""


class MemorySegment:
    """
    Consecutive batches, one `bytes` each.

    Attributes:
        last_offsets: the last offset of each batch.
        max_timestamps: the largest timestamp up to each batch.
        rolling_timestamp_ms: the largest timestamp of the first set appended, by which the segment's age is measured.
        aborted: aborted transactions whose markers are here, in the order of the markers.
    """

    __slots__ = (
        "aborted",
        "base_offset",
        "batches",
        "created_ms",
        "last_offsets",
        "max_timestamps",
        "rolling_timestamp_ms",
        "size_bytes",
    )

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.batches: list[bytes] = []
        self.last_offsets: list[int] = []
        self.max_timestamps: list[int] = []
        self.rolling_timestamp_ms = NO_TIMESTAMP
        self.size_bytes = 0
        self.aborted: list[AbortedTxn] = []

    def append(self, batch: bytes, last_offset: int, max_timestamp_ms: int) -> None:
        newest_ms = self.max_timestamps[-1] if self.max_timestamps else NO_TIMESTAMP
        self.batches.append(batch)
        self.last_offsets.append(last_offset)
        self.max_timestamps.append(max(newest_ms, max_timestamp_ms))
        self.size_bytes += len(batch)

    def extend(self, batches: Iterable[bytes]) -> None:
        """Append batches that were in a log."""
        for batch in batches:
            span = span_at(batch, 0)
            assert span is not None, "a log has whole batches"
            self.append(batch, span[3], span[4])

    def chunks(self, offset: int, bytes_max: int) -> Iterator[list[bytes]]:
        """The batches from the one that has an offset on, in lists that end with the batch that makes them so large."""
        batches = self.batches
        first = bisect_left(self.last_offsets, offset)
        size = 0
        for place in range(first, len(batches)):
            size += len(batches[place])
            if size >= bytes_max:
                yield batches[first : place + 1]
                first, size = place + 1, 0
        yield batches[first:]

    def copy(self) -> "MemorySegment":
        """The same batches; appends to one do not reach the other."""
        copy = MemorySegment(self.base_offset, self.created_ms)
        copy.batches, copy.last_offsets = self.batches.copy(), self.last_offsets.copy()
        copy.max_timestamps, copy.aborted = self.max_timestamps.copy(), self.aborted.copy()
        copy.rolling_timestamp_ms, copy.size_bytes = self.rolling_timestamp_ms, self.size_bytes
        return copy

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; if there is none, the time when the segment was begun."""
        timestamp_ms = self.max_timestamps[-1] if self.max_timestamps else NO_TIMESTAMP
        return timestamp_ms if timestamp_ms >= 0 else self.created_ms


class LogContent:
    """What a log has at one time: a value that later appends and cleanings do not change."""

    def __init__(self, log: "MemoryLog") -> None:
        self.topic_id: Final = log.topic_id
        self.config: Final = log.config
        self.log_start_offset: Final = log.log_start_offset
        self.end_offset: Final = log.end_offset
        self.size_bytes: Final = log.size_bytes
        self.epochs: Final = log.epochs.copy()
        self.producers: Final = [state.copy() for state in log.producers.states.values()]
        # Sealed segments never change.
        self.segments: Final = [*log.segments[:-1], log.segments[-1].copy()]


class Watermarks:
    """Advances the high watermarks of all logs that were appended to in a turn, in one deferred call."""

    def __init__(self, defer: Defer) -> None:
        self.defer = defer
        self._behind: list[LogBase] = []

    def add(self, log: LogBase) -> None:
        if not self._behind:
            self.defer(self.advance_all)
        self._behind.append(log)

    def advance_all(self) -> None:
        behind, self._behind = self._behind, []
        for log in behind:
            log.advance(log.end_offset)


class MemoryLog(LogBase):
    """One partition. Appends go to the last segment; earlier segments never change, and compaction replaces them whole."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        watermarks: Watermarks,
        clock: Clock,
        on_roll: Callable[["MemoryLog"], None],
    ) -> None:
        """`on_roll` is called when the log has begun a new segment."""
        super().__init__(topic_partition, topic_id, config, epochs=EpochCache())
        self._watermarks = watermarks
        self._clock = clock
        self._on_roll = on_roll
        self._active = MemorySegment(0, clock.now_ms())
        self._segments = [self._active]
        self._bases = [0]

    @property
    def segments(self) -> Sequence[MemorySegment]:
        return self._segments

    def fill(self, content: LogContent) -> None:
        """Let a new log have what another one had; everything is durable."""
        self.epochs = content.epochs.copy()
        self.leader_epoch = self.epochs.latest
        self.producers = ProducerStateManager([state.copy() for state in content.producers])
        self.log_start_offset = content.log_start_offset
        self.end_offset = self.high_watermark = content.end_offset
        self._active = content.segments[-1].copy()
        self._segments = [*content.segments[:-1], self._active]
        self._bases = [segment.base_offset for segment in self._segments]

    # Writing

    def _write(self, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        if rest:
            data += rest
        size = len(data)
        active = self._active
        if active.size_bytes and self._must_roll(active, size, spans):
            active = self._roll()
        if not active.size_bytes:
            active.rolling_timestamp_ms = max(span[4] for span in spans)
        if len(spans) == 1:
            batch = data if isinstance(data, bytes) else bytes(data)
            active.append(batch, spans[0][3], spans[0][4])
        else:
            for start, size, _, last_offset, max_timestamp_ms in spans:
                active.append(bytes(data[start : start + size]), last_offset, max_timestamp_ms)
        self.end_offset = spans[-1][3] + 1
        self._watermarks.add(self)

    def _must_roll(self, active: MemorySegment, incoming_bytes: int, spans: list[Span]) -> bool:
        """Source: Kafka LogSegment.shouldRoll; without indexes and jitter."""
        limits = self.limits
        bytes_max = limits.segment_bytes
        if bytes_max > SEGMENT_BYTES_MAX:
            bytes_max = SEGMENT_BYTES_MAX
        if active.size_bytes > bytes_max - incoming_bytes:
            return True
        first_ms = active.rolling_timestamp_ms
        if first_ms < 0:
            return self._clock.now_ms() - active.created_ms > limits.segment_ms
        return spans[-1][4] - first_ms > limits.segment_ms

    def _roll(self) -> MemorySegment:
        segment = MemorySegment(self.end_offset, self._clock.now_ms())
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._on_roll(self)
        return segment

    def _add_aborted(self, aborted: AbortedTxn) -> None:
        self._active.aborted.append(aborted)

    def _persist_epoch(self) -> None:
        pass

    # Reading

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        self._check_readable(offset)
        place = bisect_right(self._bases, offset) - 1
        found: list[bytes] = []
        size = 0
        while place < len(self._segments):
            segment = self._segments[place]
            batches = segment.batches
            first = end = bisect_left(segment.last_offsets, offset)
            limit = len(batches) if up_to is None else bisect_left(segment.last_offsets, up_to)
            while end < limit:
                size += len(batches[end])
                if size > bytes_max and (end > first or found):
                    return b"".join(found + batches[first:end])
                end += 1
            found += batches[first:end]
            if limit < len(batches):
                break
            place += 1
        return b"".join(found)

    def read_cached(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes | None:
        return self.read(offset, bytes_max=bytes_max, up_to=up_to)

    def aborted_cached(self, offset: int, data: bytes) -> list[AbortedTxn] | None:
        return self.aborted_transactions(offset, data)

    def view(self) -> None:
        return None

    def read_failed(self, _view: ReadView, _exc: OSError) -> bool:
        return False

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        if not data:
            return []
        found: list[AbortedTxn] = []
        for place in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._segments)):
            found += find_overlapping(self._segments[place].aborted, offset, self.end_offset)[0]
        return found

    def _batches_at_least(self, timestamp_ms: int) -> Iterator[bytes]:
        start_offset = self.log_start_offset
        for segment in tuple(self._segments):  # another thread searches, while the log changes
            for index in range(bisect_left(segment.max_timestamps, timestamp_ms), len(segment.last_offsets)):
                batch = segment.batches[index]
                if segment.last_offsets[index] >= start_offset and next(iter_spans(batch))[4] >= timestamp_ms:
                    yield batch

    def _newest(self) -> tuple[int, int]:
        newest = NO_TIMESTAMP, NO_OFFSET
        start_offset = self.log_start_offset
        for segment in tuple(self._segments):
            if not segment.batches or segment.max_timestamps[-1] <= newest[0]:
                continue
            if segment.base_offset >= start_offset:
                index = bisect_left(segment.max_timestamps, segment.max_timestamps[-1])
                newest = segment.max_timestamps[index], segment.last_offsets[index]
                continue
            for batch in segment.batches:
                _, _, base_offset, last_offset, timestamp_ms = next(iter_spans(batch))
                if base_offset < start_offset:
                    timestamp_ms = newest_from(batch, start_offset) if last_offset >= start_offset else NO_TIMESTAMP
                if timestamp_ms > newest[0]:
                    newest = timestamp_ms, last_offset
        return newest

    # Deleting

    def _persist_start(self, done: Callable[[], None]) -> None:
        """Segments that lie before the log start go at once."""
        count = max(bisect_right(self._bases, self.log_start_offset) - 1, 0)
        if count:
            del self._segments[:count], self._bases[:count]
        self._watermarks.defer(done)

    # Cleaning

    def replace(self, old: Sequence[MemorySegment], cleaned: MemorySegment) -> bool:
        """
        Put a cleaned segment in the place of these.

        Returns:
            False if the log does not have all of them any more; nothing is changed then.
        """
        first = bisect_right(self._bases, old[0].base_offset) - 1
        end = first + len(old)
        if first < 0 or end >= len(self._segments) or self._segments[first:end] != list(old):
            return False
        self._segments[first:end] = [cleaned]
        self._bases[first:end] = [cleaned.base_offset]
        return True
