"""Reads of the segments of one partition on disk, and a view of its log for another thread."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NoReturn

from kohort.model.errors import CorruptError
from kohort.storage.batchset import read_front
from kohort.storage.log import NO_TIMESTAMP
from kohort.storage.logs.base import LogBase
from kohort.storage.logs.timestamps import newest_from
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.aborted import find_overlapping
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.segment_reads import ANY_READS, CACHED_READS, NotCachedError, SegmentReads
from kohort.wire.batches import check_crc


class DiskReads(LogBase):
    """A log of segments, without appends."""

    _segments: list[Segment]
    """By rising base offset; the last one is active."""
    _bases: list[int]
    """Their base offsets."""
    generation: int
    """The number of the log's set of segments; a new one has another number."""

    @abstractmethod
    def _on_read_error(self, exc: OSError) -> NoReturn:
        """Handle a failed read."""

    def _reader_of(self, segment: SegmentReads) -> SegmentReads:
        """A segment for reading."""
        return segment

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        self._check_readable(offset)
        if up_to is None or up_to > self.end_offset:
            up_to = self.end_offset
        if offset >= up_to:
            return b""
        try:
            return self._read(offset, bytes_max, up_to)
        except OSError as exc:
            self._on_read_error(exc)

    def _read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        index = max(bisect_right(self._bases, offset) - 1, 0)
        last = len(self._bases) - 1
        while index <= last:
            end_offset = self.end_offset if index == last else self._bases[index + 1]
            data = self._reader_of(self._segments[index]).read(
                offset, bytes_max=bytes_max, up_to=up_to, end_offset=end_offset
            )
            if data or end_offset > up_to:
                return data
            index += 1
        return b""

    def read_cached(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes | None:
        self._check_readable(offset)
        if up_to is None or up_to > self.end_offset:
            up_to = self.end_offset
        if offset >= up_to:
            return b""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            return None
        segment = self._segments[index]
        if not segment.may_be_cached:
            return None
        last = len(self._bases) - 1
        end_offset = self.end_offset if index == last else self._bases[index + 1]
        segment.cached_reads_left = CACHED_READS
        try:
            data = segment.read(offset, bytes_max=bytes_max, up_to=up_to, end_offset=end_offset)
        except NotCachedError:
            return None
        finally:
            segment.cached_reads_left = ANY_READS
        return data if data or end_offset > up_to else None

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        if not data:
            return []
        offset = max(offset, read_front(data)[0])
        index = max(bisect_right(self._bases, offset) - 1, 0)
        if not any(segment.aborted.entries for segment in self._segments[index:]):
            return []
        upper = self._reader_of(self._segments[index]).upper_bound(offset, len(data))
        if upper is None:
            upper = self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset
        found: list[AbortedTxn] = []
        for segment in self._segments[index:]:
            overlap, is_complete = find_overlapping(segment.aborted.entries, offset, upper)
            found += overlap
            if is_complete:
                break
        return found

    def aborted_cached(self, offset: int, data: bytes) -> list[AbortedTxn] | None:
        if not data:
            return []
        index = max(bisect_right(self._bases, max(offset, read_front(data)[0])) - 1, 0)
        segments = self._segments[index:]
        if not all(segment.aborted.is_loaded for segment in segments):
            return None
        if not any(segment.aborted.entries for segment in segments):
            return []
        first = segments[0]
        if not first.may_be_cached:
            return None
        first.cached_reads_left = CACHED_READS
        try:
            return self.aborted_transactions(offset, data)
        except NotCachedError:
            return None
        finally:
            first.cached_reads_left = ANY_READS

    def _batches_at_least(self, timestamp_ms: int) -> Iterator[bytes]:
        """Segments without such a batch are not read, and of the other segments only the headers."""
        try:
            for segment in tuple(self._segments):
                if segment.max_timestamp[0] >= timestamp_ms:
                    yield from self._batches_of(self._reader_of(segment), timestamp_ms)
        except OSError as exc:
            self._on_read_error(exc)

    def _batches_of(self, segment: SegmentReads, timestamp_ms: int) -> Iterator[bytes]:
        """
        Raises:
            CorruptError: a batch on the way is damaged. A batch is passed over because of the largest timestamp in its header,
                so its checksum has to be right; the time index keeps the way short.
        """
        start = segment.position_of(max(segment.time_index.offset_for(timestamp_ms), self.log_start_offset))
        following = bisect_right(self._bases, segment.base_offset)
        end_offset = self._bases[following] if following < len(self._bases) else self.end_offset
        for span in segment.walk(start):
            position, size, _, _, max_timestamp_ms = span
            if max_timestamp_ms >= timestamp_ms:
                segment.check_neighbours(span, end_offset)
                yield segment.read_at(position, size)
            elif not check_crc(segment.read_at(position, size)):
                raise CorruptError(f"{segment.path} is damaged at byte {position}: the checksum of the batch is wrong")

    def _newest(self) -> tuple[int, int]:
        newest = (self._newest_of(segment) for segment in self._segments)
        return max(newest, key=lambda entry: entry[0], default=(NO_TIMESTAMP, self.log_start_offset))

    def _newest_of(self, segment: SegmentReads) -> tuple[int, int]:
        """`max_timestamp` of a segment; if the log starts within the segment, of the records from the log start on."""
        start_offset = self.log_start_offset
        if segment.base_offset >= start_offset or segment.max_timestamp[0] <= NO_TIMESTAMP:
            return segment.max_timestamp
        newest = NO_TIMESTAMP, start_offset
        segment = self._reader_of(segment)
        try:
            for position, size, base_offset, last_offset, max_timestamp_ms in segment.walk(
                segment.position_of(start_offset)
            ):
                timestamp_ms = max_timestamp_ms
                if base_offset < start_offset:
                    timestamp_ms = newest_from(segment.read_at(position, size), start_offset)
                if timestamp_ms > newest[0]:
                    newest = timestamp_ms, last_offset
        except OSError as exc:
            self._on_read_error(exc)
        return newest

    def location_of(self, offset: int) -> str:
        index = max(bisect_right(self._bases, offset) - 1, 0)
        return str(self._segments[index].path) if self._segments else super().location_of(offset)


class LogView(DiskReads):
    """
    A log as it was when the view was made, for one piece of work on any one thread, which may wait for the disk. A failed read
    raises OSError.
    """

    def __init__(self, log: DiskReads) -> None:
        producers = ProducerStateManager()
        producers.first_unstable_offset = log.producers.first_unstable_offset
        super().__init__(
            log.topic_partition,
            log.topic_id,
            log.config,
            epochs=log.epochs.copy(),
            producers=producers,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
        )
        self.high_watermark = log.high_watermark
        self.generation = log.generation
        self._log: Final = log
        self._segments, self._bases = log._segments.copy(), log._bases.copy()
        self._readers: dict[int, SegmentReads] = {}
        """The copies that were made for reading, by base offset."""
        if self._segments:
            self._reader_of(self._segments[-1])

    def _reader_of(self, segment: SegmentReads) -> SegmentReads:
        reader = self._readers.get(segment.base_offset)
        if reader is None:
            reader = self._readers[segment.base_offset] = segment.detached(self.config, self.epochs)
        return reader

    def _on_read_error(self, exc: OSError) -> NoReturn:
        raise exc

    def end(self) -> None:
        log = self._log
        if log.refusal is None and log.generation == self.generation:
            for base_offset, reader in self._readers.items():
                log._segments[bisect_right(log._bases, base_offset) - 1].take_file(reader)
        self.close()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
