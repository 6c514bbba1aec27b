"""
Reads of one segment of a log: a file of batches from a base offset on, with an offset index and a time index.

Source: Kafka LogSegment, FileRecords.
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kohort.model.errors import CorruptError
from kohort.storage.batchset import DELTAS_BEGIN, Span, read_deltas, read_front
from kohort.storage.epochs import EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.directory import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, open_swapped, segment_path
from kohort.storage.files.errno_hints import is_out_of_files
from kohort.storage.files.page_cache import read_cached
from kohort.storage.log import NO_TIMESTAMP, LogConfig
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX, AbortedIndex
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.header_check import HeaderCheck
from kohort.storage.segments.index import OffsetIndex, TimeIndex
from kohort.storage.segments.tail import Tail
from kohort.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC

_log = logging.getLogger("kohort.storage")

_WALK_BYTES: Final = 8192
"""The bytes that one step of a walk over headers reads: the next index entry is at most some 4096 bytes away."""


ANY_READS: Final = -1
CACHED_READS: Final = 8
"""Reads of the file for one search by a good index and the records. A long walk over headers is for another thread."""


class NotCachedError(Exception):
    """A read needs the disk, which it must not wait for."""


class SegmentReads:
    """
    A segment that is read, whose file is opened by the first access.

    Attributes:
        size_bytes: bytes of whole batches, and the position of the next append.
        tail: the newest bytes in memory; None if nothing was taken.
        cached_reads_left: how many further reads of the file are made, from the page cache alone, before NotCachedError;
            ANY_READS for reads of all kinds, which may wait for the disk.
        max_timestamp: the largest timestamp and the last offset of the first batch that has it, (-1, base) for none.
        modified_ms: when the file was written to, as far as `newest_ms` needs it.
    """

    def __init__(self, directory: Path, base_offset: int, config: LogConfig) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, LOG_SUFFIX)
        self.modified_ms = 0
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP, base_offset
        self.index = OffsetIndex(
            segment_path(directory, base_offset, INDEX_SUFFIX), base_offset, bytes_max=config.segment_index_bytes
        )
        self.time_index = TimeIndex(
            segment_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset, bytes_max=config.segment_index_bytes
        )
        self.aborted = AbortedIndex(segment_path(directory, base_offset, TXN_INDEX_SUFFIX))
        self.handles: FileHandleCache | None = None
        """The cache of open files, if any."""
        self._header_check: HeaderCheck | None = None
        """For a segment that was on the disk at the start."""
        self.was_touched = False
        """Whether the file was read or written lately; `handles` clears it."""
        self.tail: Tail | None = None
        self.cached_reads_left = ANY_READS
        self._fd = -1
        self._recent_offsets: list[int] = []
        """Base offsets and positions of the batches since the last index entry, so that a read at the tail needs no walk."""
        self._recent_positions: list[int] = []

    def open(self) -> None:
        """Open the existing file; its size counts as whole batches until a scan."""
        if self._fd < 0:
            self._fd = self._open_file(os.O_RDWR | os.O_CLOEXEC)
            self._count_open()
        if self.size_bytes == 0:
            self._take_status(os.fstat(self._fd))

    def _open_file(self, flags: int) -> int:
        """Open the file. If the process may not open more, other segments' files are closed for it."""
        while True:
            try:
                return open_swapped(self.path, lambda path: syscalls.open_file(path, flags, syscalls.FILE_MODE))
            except OSError as exc:
                if not is_out_of_files(exc) or self.handles is None or not self.handles.make_room():
                    raise

    def _count_open(self) -> None:
        if self.handles is not None and self._fd >= 0:
            self.handles.add(self)

    def _take_status(self, found: os.stat_result) -> None:
        self.size_bytes, self.modified_ms = found.st_size, found.st_mtime_ns // 1_000_000

    def take_file(self, other: "SegmentReads") -> None:
        """Take the open file of a copy, for reads of the page cache, unless there is one or the index has left the memory."""
        if self._fd < 0 <= other._fd and self.index.is_loaded:
            self._fd, other._fd = other._fd, -1
            self._count_open()

    def close(self) -> None:
        """Close the files; the next access opens them again. What of the indexes is in memory stays there."""
        self.index.unmap()
        self.time_index.unmap()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self.handles is not None:
                self.handles.remove(self)

    def read(self, offset: int, *, bytes_max: int, up_to: int, end_offset: int) -> bytes:
        """
        Read whole batches below `up_to`, at least one, from the batch that holds `offset` (or the next one) on.

        Args:
            end_offset: the offset behind the segment.

        Raises:
            CorruptError: the bytes at a position are not a batch.
        """
        start, first_bytes = self._tail_position(offset), 0
        if start < 0:
            found = self._locate(offset)
            if found is None:
                return b""
            self.check_neighbours(found, end_offset)
            if found[3] >= up_to:
                return b""
            start, first_bytes = found[:2]
        if end_offset <= up_to and self.size_bytes - start <= bytes_max:
            end = self.size_bytes
        elif first_bytes >= bytes_max and first_bytes:
            end = start + first_bytes
        else:
            end = self._end_position(start, bytes_max=bytes_max, up_to=up_to)
        data = self._pread(end - start, start)
        check = self._header_check
        if check is None or not check.is_needed(start, end):
            return data
        return check.checked(data, start, self.path, following=self._offset_at(end, end_offset))

    def check_neighbours(self, found: Span, end_offset: int) -> None:
        """
        Check that the next batch begins behind this one. No checksum covers an offset.

        Raises:
            CorruptError: the offset of one of them is wrong.
        """
        next_offset = self._offset_at(found[0] + found[1], end_offset)
        if found[3] >= next_offset:
            raise CorruptError(f"{self.path}: the batch at {found[0]} ends at {found[3]}, and {next_offset} follows")

    def _offset_at(self, position: int, end_offset: int) -> int:
        """The base offset of the batch at a position; the offset behind the segment if there is none."""
        if position + HEADER_BYTES > self.size_bytes:
            return end_offset
        base_offset: int = read_front(self._pread(HEADER_BYTES, position))[0]
        return min(base_offset, end_offset)

    def read_at(self, position: int, size: int) -> bytes:
        """
        Read bytes of the file.

        Raises:
            CorruptError: the file ends before.
        """
        return self._pread(size, position)

    def _tail_position(self, offset: int) -> int:
        """The position of the batch that begins at this offset, if it is a recent one, else -1."""
        recent = self._recent_offsets
        if not recent or offset < recent[0]:
            return -1
        found = bisect_right(recent, offset) - 1
        return self._recent_positions[found] if recent[found] == offset else -1

    def upper_bound(self, offset: int, size: int) -> int | None:
        """
        The offset of the first index entry behind `size` bytes that were read from `offset` on, but at least the offset of the
        next batch; None if there is none.

        Source: Kafka LogSegment.fetchUpperBoundOffset, which believes the index.
        """
        found = self._locate(offset)
        if found is None or found[0] + size + HEADER_BYTES > self.size_bytes:
            return None
        upper = self.index.first_offset_from(found[0] + size)
        return None if upper is None else max(upper, read_front(self._pread(HEADER_BYTES, found[0] + size))[0])

    def position_of(self, offset: int) -> int:
        """The position of the batch that holds `offset`, or of the next one; the end of the segment if there is none."""
        found = self._locate(offset)
        return self.size_bytes if found is None else found[0]

    def _locate(self, offset: int) -> Span | None:
        start = self.index.position_for(offset)
        for span in self._walk_indexed(start, lambda first: first[3] <= offset):
            if span[3] >= offset:
                if span[2] > offset and start:
                    self._check_gap(start, span[0])
                return span
        return None

    def _check_gap(self, start: int, end: int) -> None:
        """
        Check that compaction has left the gap before the batch at `end`. A walk that began at `start` does not know whether the
        offset of the batch there goes back: so walk from the index entry before.

        Raises:
            CorruptError: the offset of a batch is wrong.
        """
        for span in self.walk(self.index.position_at_most(start - 1)):
            if span[0] >= end:
                return

    def _walk_indexed(self, position: int, is_right: Callable[[Span], bool]) -> Iterator[Span]:
        """
        Walk from the position of an index entry. If there is no batch at the position, or one that is not `is_right`, the whole
        index is wrong: it is cleared, and the walk begins at the start of the segment.
        """
        spans = self.walk(position)
        if position:
            try:
                first = next(spans, None)
            except CorruptError:
                first = None
            if first is not None and is_right(first):
                yield first
            else:
                _log.warning("log.index_forgotten path=%s position=%d", self.index.path, position)
                self.index.clear()
                spans = self.walk()
        yield from spans

    def _end_position(self, start: int, *, bytes_max: int, up_to: int) -> int:
        """The end position of a read from `start` on: behind the last whole batch that fits, or behind the first batch."""
        fitting = min(self.index.position_at_most(start + bytes_max), self.index.position_for(up_to - 1))
        end = max(start, fitting)
        if end > start and next(self._walk_indexed(end, lambda first: first[3] < up_to), (0,))[0] != end:
            end = start
        for position, size, _, last_offset, _ in self.walk(end):
            if last_offset >= up_to or (position + size - start > bytes_max and position > start):
                break
            end = position + size
        return end

    def walk(self, position: int = 0) -> Iterator[Span]:
        """
        The batches from a position on, by their headers: (position, size, base offset, last offset, timestamp).

        Raises:
            CorruptError: the bytes at a position are not a batch.
        """
        if position < 0:
            raise CorruptError(f"{self.path}: no batch begins at {position}")
        chunk, chunk_position = b"", position
        next_offset = self.base_offset
        while position < self.size_bytes:
            at = position - chunk_position
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_position, at = (
                    self._pread(min(_WALK_BYTES, self.size_bytes - position), position),
                    position,
                    0,
                )
            if len(chunk) < HEADER_BYTES:
                raise CorruptError(f"{self.path}: {len(chunk)} bytes at {position} are no batch")
            base_offset, length, _, magic, _ = read_front(chunk, at)
            size = length + LOG_OVERHEAD_BYTES
            if magic != MAGIC or size < HEADER_BYTES or position + size > self.size_bytes:
                raise CorruptError(f"{self.path}: no whole batch at {position} (magic {magic}, {size} bytes)")
            last_offset_delta, _, max_timestamp_ms = read_deltas(chunk, at + DELTAS_BEGIN)
            if last_offset_delta < 0:
                raise CorruptError(f"{self.path}: the batch at {position} ends before it begins")
            if base_offset < next_offset:  # no checksum covers an offset
                raise CorruptError(f"{self.path}: offset {base_offset} at {position} follows {next_offset - 1}")
            next_offset = base_offset + last_offset_delta + 1
            yield position, size, base_offset, base_offset + last_offset_delta, max_timestamp_ms
            position += size

    def _pread(self, size: int, position: int) -> bytes:
        tail = self.tail
        if tail is not None and position >= tail.start:
            data = tail.read(size, position)
        else:
            data = self._read_file(size if tail is None else min(size, tail.start - position), position)
            if tail is not None and len(data) < size:
                data += tail.read(size - len(data), position + len(data))
        if len(data) != size:
            raise CorruptError(f"{self.path}: {len(data)} of {size} bytes at {position}")
        return data

    def _read_file(self, size: int, position: int) -> bytes:
        if self.cached_reads_left != ANY_READS:
            return self._read_page_cache(size, position)
        if self._fd < 0:
            self.open()
        else:
            self.was_touched = True
        return os.pread(self._fd, size, position)

    def _read_page_cache(self, size: int, position: int) -> bytes:
        data = None
        if self._fd >= 0 and self.cached_reads_left:
            self.cached_reads_left -= 1
            data = read_cached(self._fd, size, position)
        if data is None:
            raise NotCachedError
        self.was_touched = True
        return data

    @property
    def newest_ms(self) -> int:
        """The largest timestamp, else the modification time of the file. Source: LogSegment.largestTimestamp."""
        return self.max_timestamp[0] if self.max_timestamp[0] >= 0 else self.modified_ms

    @property
    def written_bytes(self) -> int:
        """Bytes of whole batches that are in the file, as far as the owner's thread knows."""
        return self.size_bytes if self.tail is None else self.tail.written_end

    @property
    def may_be_cached(self) -> bool:
        """Whether the index is in memory, and bytes of the segment may be in memory or in the page cache."""
        has_bytes = self._fd >= 0 or (self.tail is not None and self.tail.start < self.tail.end)
        return has_bytes and self.index.is_loaded

    def detached(self, config: LogConfig, epochs: EpochCache) -> "SegmentReads":
        """
        A copy for reading on another thread, with files of its own.

        Of the active segment only the owner's thread may make one; appends to the segment do not change it.
        """
        copy = SegmentReads(self.directory, self.base_offset, config)
        copy.path, copy.size_bytes, copy.max_timestamp = self.path, self.size_bytes, self.max_timestamp
        copy.index.share(self.index)
        copy.time_index.share(self.time_index)
        copy.aborted = self.aborted
        copy._recent_offsets, copy._recent_positions = self._recent_offsets.copy(), self._recent_positions.copy()
        if self.tail is not None:
            copy.tail = self.tail.frozen()
        if self._header_check is not None:
            copy._header_check = self._header_check.copy(epochs)
        return copy
