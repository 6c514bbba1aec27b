"""
One segment of a log: a file of batches from a base offset on, with an offset index and a time index.

The indexes get an entry before a batch if more than `index.interval.bytes` were appended since the last entry: the offset
index gets (last offset, position) of that batch, the time index the largest timestamp so far.

Source: Kafka LogSegment, FileRecords.
"""

import logging
import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.model.errors import CorruptError
from kohort.runtime.ports import Clock
from kohort.storage.batchset import DELTAS_BEGIN, Span, read_deltas, read_front
from kohort.storage.epochs import EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.directory import final_name, open_swapped
from kohort.storage.files.errno_hints import is_out_of_files
from kohort.storage.log import NO_TIMESTAMP, LogConfig
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX, AbortedIndex
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.header_check import HeaderCheck
from kohort.storage.segments.index import OffsetIndex, TimeIndex
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX, IndexChecksums, written_bytes
from kohort.storage.segments.segment_file import SegmentFile, SegmentWrite
from kohort.storage.segments.snapshots import SNAPSHOT_SUFFIX
from kohort.storage.segments.tail import Tail
from kohort.storage.segments.valid_batches import ValidBatches
from kohort.wire.batches import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC

_log = logging.getLogger("kohort.storage")

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
DELETED_SUFFIX: Final = ".deleted"
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_WALK_BYTES: Final = 8192
"""The bytes that one step of a walk over headers reads: the next index entry is at most some 4096 bytes away."""


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"


class NotInMemoryError(Exception):
    """A read needs the disk, which it must not wait for."""


class Segment:
    """
    A segment, whose file is opened by the first access.

    The active segment of a log that is served takes appends into memory (`begin_write`, `take`); the disk thread writes them.

    Attributes:
        size_bytes: bytes of whole batches, and the position of the next append.
        tail: the newest bytes in memory; None if nothing was taken.
        file: the file that `take` writes to; the disk thread uses it.
        write: the last write, to which appends of the same flush batch are added.
        is_memory_only: whether reads of the disk raise NotInMemoryError.
        max_timestamp: the largest timestamp and the last offset of the first batch that has it, (-1, base) for none.
        rolling_timestamp_ms: the largest timestamp of the first set appended, from which the age of the segment counts.
        modified_ms: when the file was written to, as far as `newest_ms` needs it.
    """

    def __init__(self, directory: Path, base_offset: int, config: LogConfig, *, created_ms: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, LOG_SUFFIX)
        self.created_ms = created_ms
        self.modified_ms = created_ms
        self.size_bytes = 0
        self.rolling_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP, base_offset
        self.index = OffsetIndex(
            segment_path(directory, base_offset, INDEX_SUFFIX), base_offset, bytes_max=config.segment_index_bytes
        )
        self.time_index = TimeIndex(
            segment_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset, bytes_max=config.segment_index_bytes
        )
        self.aborted = AbortedIndex(segment_path(directory, base_offset, TXN_INDEX_SUFFIX))
        self.checksums_path = segment_path(directory, base_offset, CHECKSUMS_SUFFIX)
        self.is_unsynced = False
        """Whether the file was written since the last checkpoint began; maintained by the log."""
        self.handles: FileHandleCache | None = None
        """The cache of open files, if any."""
        self._header_check: HeaderCheck | None = None
        """For a segment that was on the disk at the start."""
        self.was_touched = False
        """Whether the file was read or written lately; `handles` clears it."""
        self.tail: Tail | None = None
        self.file: SegmentFile | None = None
        self.write: SegmentWrite | None = None
        self.is_memory_only = False
        self._fd = -1
        self._since_index_bytes = 0
        self._recent_offsets: list[int] = []
        """Base offsets and positions of the batches since the last index entry, so that a read at the tail needs no walk."""
        self._recent_positions: list[int] = []

    # Writing

    def create(self) -> None:
        """Make the file; an existing one is emptied."""
        self._fd = self._open_file(_NEW)
        self._count_open()

    def _open_file(self, flags: int) -> int:
        """Open the file. If the process may not open more, other segments' files are closed for it."""
        while True:
            try:
                return open_swapped(self.path, lambda path: syscalls.open_file(path, flags, syscalls.FILE_MODE))
            except OSError as exc:
                if not is_out_of_files(exc) or self.handles is None or not self.handles.make_room():
                    raise

    def attach(self, handles: FileHandleCache, epochs: EpochCache) -> None:
        """
        Make a segment that was on the disk a part of a log.

        Args:
            handles: the cache of open files, which may close this segment's file while it is not used.
            epochs: the leader epochs of the log.
        """
        self.handles = handles
        self._header_check = HeaderCheck(epochs, self.size_bytes)
        self._count_open()

    def _count_open(self) -> None:
        if self.handles is not None and self._fd >= 0:
            self.handles.add(self)

    def append(self, data: bytes | bytearray, spans: list[Span], *, index_interval_bytes: int) -> None:
        """
        Write a set of batches, whose offsets are assigned, to the end of the file.

        Raises:
            OSError: the set could not be written whole; the segment counts none of it.
        """
        if self._fd < 0:
            self.open()
        else:
            self.was_touched = True
        end = syscalls.write_at(self._fd, (data,), self.size_bytes)
        self._count_set(spans, end, index_interval_bytes)

    def begin_write(self, handles: FileHandleCache, flush_batch: object) -> SegmentWrite:
        """
        Begin a write of a flush batch, at the end of the segment.

        Args:
            handles: the cache of the files that the disk thread writes to.
        """
        if self.file is None:
            self.file = SegmentFile(self.path, handles)
        if self.tail is None:
            self.tail = Tail(self.size_bytes)
        self.write = SegmentWrite(self.file, self.tail, flush_batch)
        return self.write

    def take(
        self, write: SegmentWrite, data: bytearray, rest: bytes | memoryview, spans: list[Span], interval_bytes: int
    ) -> int:
        """
        Take a set of batches, whose offsets are assigned, into memory; returns its cost there.

        Args:
            rest: the records of the batch if `data` is its header alone, else empty.
            interval_bytes: `index.interval.bytes`.
        """
        cost = write.add(data, rest)
        self._count_set(spans, write.end, interval_bytes)
        return cost

    def _count_set(self, spans: list[Span], end: int, index_interval_bytes: int) -> None:
        """Add a set of batches at the end to the indexes and sums."""
        position = self.size_bytes
        for start, size, base_offset, last_offset, max_timestamp_ms in spans:
            self._count(position + start, size, base_offset, last_offset, max_timestamp_ms, index_interval_bytes)
        if position == 0:
            self.rolling_timestamp_ms = self.max_timestamp[0]
        self.size_bytes = end

    def _count(
        self,
        position: int,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Add a batch that was written at `position` to the indexes and sums."""
        if max_timestamp_ms > self.max_timestamp[0]:
            self.max_timestamp = max_timestamp_ms, last_offset
        if self._since_index_bytes > index_interval_bytes:
            self.index.append(last_offset, position)
            newest_ms, newest_offset = self.max_timestamp
            self.time_index.maybe_append(newest_ms, newest_offset)
            self._since_index_bytes = 0
            self._recent_offsets.clear()
            self._recent_positions.clear()
        self._recent_offsets.append(base_offset)
        self._recent_positions.append(position)
        self._since_index_bytes += size

    def must_roll(
        self, incoming_bytes: int, last_offset: int, max_timestamp_ms: int, config: LogConfig, clock: Clock
    ) -> bool:
        """Whether the next set needs a new segment. Source: Kafka LogSegment.shouldRoll."""
        size = self.size_bytes
        if not size:
            return False
        first_ms = self.rolling_timestamp_ms
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else clock.now_ms() - self.created_ms
        return (
            size > config.segment_bytes - incoming_bytes
            or waited_ms > config.segment_ms - self._jitter_ms(config)
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or self.index.is_full
            or self.time_index.is_full
        )

    def _jitter_ms(self, config: LogConfig) -> int:
        """The part of `segment.jitter.ms` for this segment, from a hash of its name: partitions do not roll all at once."""
        if config.segment_jitter_ms <= 0:
            return 0
        bound_ms = min(config.segment_jitter_ms, config.segment_ms)
        return zlib.crc32(f"{self.directory.name}/{self.base_offset}".encode()) % bound_ms if bound_ms > 0 else 0

    def write_indexes(self) -> None:
        """Add the last entry of the time index, and write the indexes with their checksums: at a roll and at a clean stop."""
        self.end_indexes()
        self.save_indexes()

    def end_indexes(self) -> None:
        """Add the last entry of the time index."""
        self.time_index.maybe_append(*self.max_timestamp)

    def save_indexes(self) -> None:
        """Write the indexes, which do not change any more, with their checksums. Any thread may call this."""
        self.index.save()
        self.time_index.save()
        self._checksums().write(self.checksums_path)

    def _checksums(self) -> IndexChecksums:
        return IndexChecksums(self.index.checksum, self.time_index.checksum, self.aborted.checksum, self.size_bytes)

    def release(self) -> None:
        """Drop the indexes from memory and close the files; the next access opens them again."""
        self._recent_offsets, self._recent_positions = [], []
        self.index.release()
        self.time_index.release()
        self.close()

    def limit_indexes(self, bytes_max: int) -> None:
        """Set the size at which an index is full and the segment rolls."""
        self.index.limit(bytes_max)
        self.time_index.limit(bytes_max)

    def open_for_appends(self) -> None:
        """Make the segment the active one."""
        self.open()
        self.index.make_growable()
        self.time_index.make_growable()

    # Reading

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
        if self.is_memory_only:
            raise NotInMemoryError
        if self._fd < 0:
            self.open()
        else:
            self.was_touched = True
        return os.pread(self._fd, size, position)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp, else the modification time of the file. Source: LogSegment.largestTimestamp."""
        return self.max_timestamp[0] if self.max_timestamp[0] >= 0 else self.modified_ms

    @property
    def written_bytes(self) -> int:
        """Bytes of whole batches that are in the file, as far as the owner's thread knows."""
        return self.size_bytes if self.tail is None else self.tail.written_end

    @property
    def has_memory(self) -> bool:
        """Whether bytes of the segment, and its index, are in memory."""
        return self.tail is not None and self.tail.start < self.tail.end and self.index.is_loaded

    def detached(self, config: LogConfig, epochs: EpochCache) -> "Segment":
        """
        A copy for reading on another thread, with files of its own.

        Of the active segment only the owner's thread may make one; appends to the segment do not change it.
        """
        copy = Segment(self.directory, self.base_offset, config, created_ms=self.created_ms)
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

    # Life

    def files(self) -> tuple[Path, ...]:
        """The paths of the segment's files; the last two, the transaction index and the checksums, need not exist."""
        return self.path, self.index.path, self.time_index.path, self.aborted.path, self.checksums_path

    def rename_with(self, suffix: str) -> None:
        """Set the suffix of the file names, "" for none; the caller renames the files."""
        self.path = segment_path(self.directory, self.base_offset, LOG_SUFFIX + suffix)
        self.index.path = segment_path(self.directory, self.base_offset, INDEX_SUFFIX + suffix)
        self.time_index.path = segment_path(self.directory, self.base_offset, TIME_INDEX_SUFFIX + suffix)
        self.aborted.path = segment_path(self.directory, self.base_offset, TXN_INDEX_SUFFIX + suffix)
        self.checksums_path = segment_path(self.directory, self.base_offset, CHECKSUMS_SUFFIX + suffix)

    def take_final_names(self) -> None:
        """Rename the files from their `.swap` names, the `.log` file first. Readers may use the segment meanwhile."""
        for path in self.files():
            with suppress(FileNotFoundError):
                syscalls.rename(path, final_name(path))
        self.rename_with("")

    def leave(self) -> None:
        """Close the files: the segment has left its log."""
        self.close()
        self.index.release()
        self.time_index.release()

    def rename_to_stray(self, *, keeps_snapshot: bool = False) -> list[Path]:
        """Rename the files to `.deleted`, on any thread; returns the new paths of the existing files."""
        snapshot = () if keeps_snapshot else (segment_path(self.directory, self.base_offset, SNAPSHOT_SUFFIX),)
        renamed = []
        for path in (*self.files(), *snapshot):
            with suppress(FileNotFoundError):
                renamed.append(syscalls.rename(path, path.with_name(path.name + DELETED_SUFFIX)))
        return renamed

    def open(self) -> None:
        """Open the existing file; its size counts as whole batches until a scan."""
        if self._fd < 0:
            self._fd = self._open_file(os.O_RDWR | os.O_CLOEXEC)
            self._count_open()
        if self.size_bytes == 0:
            self._take_status(os.fstat(self._fd))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self.handles is not None:
                self.handles.remove(self)

    def scan(
        self, config: LogConfig, *, next_offset: int, gapless_from: int | None = None, durable_until: int = 0
    ) -> Iterator[tuple[memoryview, int, Span]]:
        """
        Check the checksum of every batch, rebuild the indexes, and truncate the file behind the last valid batch. Bytes below
        `durable_until` are not truncated.

        Yields:
            For each valid batch a buffer, the position of the batch in it, and its span in the file. The file is truncated
            after the last one.

        Args:
            gapless_from: from this offset on a gap ends the valid batches; None if gaps are allowed everywhere.
            durable_until: all data below this offset was flushed.

        Raises:
            CorruptError: flushed data is damaged; the file is as it was.
            ConfigError: the file must not be truncated, because it has batches of an old format.

        Source: Kafka LogSegment.recover.
        """
        if self._fd < 0:
            self.open()
        good = ValidBatches(
            self._fd,
            self.path,
            next_offset=next_offset,
            offset_max=self.base_offset + RELATIVE_OFFSET_MAX,
            gapless_from=gapless_from,
        )
        self._reset()
        for buffer, at, span in good:
            self._count(*span, config.index_interval_bytes)
            if span[0] == 0:
                self.rolling_timestamp_ms = span[4]
            yield buffer, at, span
            next_offset = span[3] + 1
        if good.end < good.file_bytes:
            good.refuse_old_format()
            if next_offset < durable_until or good.is_shifted:
                raise CorruptError(
                    f"{self.path} is damaged at byte {good.end}: there is no valid batch, though the log was flushed up to "
                    f"offset {durable_until} and the valid batches end at {next_offset}"
                )
            syscalls.truncate(self._fd, good.end)
        self.size_bytes = good.end

    def _reset(self) -> None:
        self.index.clear()
        self.time_index.clear()
        self.max_timestamp = NO_TIMESTAMP, self.base_offset
        self.rolling_timestamp_ms = NO_TIMESTAMP
        self._since_index_bytes = 0
        self._recent_offsets.clear()
        self._recent_positions.clear()

    def load_inactive(self) -> bool:
        """
        Load an inactive segment; False if its indexes are missing, implausible, or do not fit their checksums.

        Raises:
            CorruptError: the file was larger when its indexes were written.
        """
        self._take_status(self.path.stat())
        if not self._load_indexes():
            return False
        self.max_timestamp = self.time_index.last
        with suppress(CorruptError):  # a read finds it
            self._read_rolling_timestamp()
        self.release()
        return True

    def _take_status(self, found: os.stat_result) -> None:
        self.size_bytes, self.modified_ms = found.st_size, found.st_mtime_ns // 1_000_000

    def _read_rolling_timestamp(self) -> None:
        if self.size_bytes:
            self.rolling_timestamp_ms = next(self.walk())[4]

    def _load_indexes(self) -> bool:
        whole_bytes = written_bytes(self.checksums_path)
        if self.size_bytes < whole_bytes:
            raise CorruptError(f"{self.path} has {self.size_bytes} of {whole_bytes} bytes")
        offset_max = self.base_offset + RELATIVE_OFFSET_MAX
        entries_max = self.size_bytes // HEADER_BYTES + 1
        return (
            self.index.load(entries_max * self.index.ENTRY.size)
            and self.time_index.load(entries_max * self.time_index.ENTRY.size)
            and self.index.is_plausible(self.size_bytes)
            and self.time_index.is_plausible(offset_max)
            and self.aborted.is_plausible(self.base_offset, offset_max)
            and self._checksums().is_right(self.checksums_path)
        )

    def load_active(self) -> int | None:
        """
        Load the active segment; returns the log end offset, or None if a scan is needed.

        The batches behind the last index entry are walked by their headers, so that a torn tail is noticed.

        Raises:
            CorruptError: as `load_inactive`.
        """
        self.open()
        if not self._load_indexes():
            return None
        self.max_timestamp = self.time_index.last
        next_offset = self.base_offset
        offset_max = self.base_offset + RELATIVE_OFFSET_MAX
        position = self.index.entry(self.index.count - 1)[1] if self.index.count else 0
        before = self.index.entry(self.index.count - 2)[1] if self.index.count > 1 else 0
        try:
            # From the entry before the last one, because a walk does not know whether its first offset goes back.
            for at, size, base_offset, last_offset, max_timestamp_ms in self.walk(before):
                if not next_offset <= base_offset <= last_offset <= offset_max:
                    return None
                if at < position:
                    continue
                if max_timestamp_ms > self.max_timestamp[0]:
                    self.max_timestamp = max_timestamp_ms, last_offset
                self._recent_offsets.append(base_offset)
                self._recent_positions.append(at)
                self._since_index_bytes += size
                next_offset = last_offset + 1
            self._read_rolling_timestamp()
        except CorruptError:
            return None
        return next_offset
