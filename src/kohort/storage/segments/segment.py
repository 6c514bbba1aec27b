"""
One segment of a log: its appends, its loading, and the names of its files.

The indexes get an entry before a batch if more than `index.interval.bytes` were appended since the last entry: the offset
index gets (last offset, position) of that batch, the time index the largest timestamp so far.

Source: Kafka LogSegment, FileRecords.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.model.errors import CorruptError
from kohort.runtime.ports import Clock
from kohort.storage.batchset import Span
from kohort.storage.epochs import EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.directory import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    final_name,
    segment_path,
)
from kohort.storage.log import NO_TIMESTAMP, AppendLimits, LogConfig
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.header_check import HeaderCheck
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX, IndexChecksums, written_bytes
from kohort.storage.segments.segment_file import SegmentFile, SegmentWrite
from kohort.storage.segments.segment_reads import SegmentReads
from kohort.storage.segments.snapshots import SNAPSHOT_SUFFIX
from kohort.storage.segments.tail import Tail
from kohort.storage.segments.valid_batches import ValidBatches
from kohort.wire.batch_header import HEADER_BYTES

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Segment(SegmentReads):
    """
    A segment of a log.

    The active segment of a log that is served takes appends into memory (`begin_write`, `take`); the disk thread writes them.

    Attributes:
        file: the file that `take` writes to; the disk thread uses it.
        write: the last write, to which appends of the same flush batch are added.
        rolling_timestamp_ms: the largest timestamp of the first set appended, from which the age of the segment counts.
    """

    def __init__(self, directory: Path, base_offset: int, config: LogConfig, *, created_ms: int) -> None:
        super().__init__(directory, base_offset, config)
        self.created_ms = self.modified_ms = created_ms
        self.rolling_timestamp_ms = NO_TIMESTAMP
        self.checksums_path = segment_path(directory, base_offset, CHECKSUMS_SUFFIX)
        self.is_unsynced = False
        """Whether the file was written since the last checkpoint began; maintained by the log."""
        self.file: SegmentFile | None = None
        self.write: SegmentWrite | None = None
        self._since_index_bytes = 0

    # Writing

    def create(self) -> None:
        """Make the file; an existing one is emptied."""
        self._fd = self._open_file(_NEW)
        self._count_open()

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
        self,
        write: SegmentWrite,
        data: bytes | bytearray,
        rest: bytes | memoryview,
        spans: list[Span],
        interval_bytes: int,
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
        self, incoming_bytes: int, last_offset: int, max_timestamp_ms: int, limits: AppendLimits, clock: Clock
    ) -> bool:
        """Whether the next set needs a new segment. Source: Kafka LogSegment.shouldRoll."""
        size = self.size_bytes
        if not size:
            return False
        first_ms = self.rolling_timestamp_ms
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else clock.now_ms() - self.created_ms
        return (
            size > limits.segment_bytes - incoming_bytes
            or waited_ms > limits.segment_ms - self._jitter_ms(limits)
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or self.index.is_full
            or self.time_index.is_full
        )

    def _jitter_ms(self, limits: AppendLimits) -> int:
        """The part of `segment.jitter.ms` for this segment, from a hash of its name: partitions do not roll all at once."""
        if limits.segment_jitter_ms <= 0:
            return 0
        bound_ms = min(limits.segment_jitter_ms, limits.segment_ms)
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

    # Loading

    def scan(
        self, config: LogConfig, *, gapless_from: int | None = None, durable_until: int = 0
    ) -> Iterator[tuple[memoryview, int, Span]]:
        """
        Check the checksum of every batch, rebuild the indexes, and truncate the file behind the last valid batch. Bytes below
        `durable_until` are not truncated.

        Yields:
            For each valid batch a buffer, the position of the batch in it, and its span in the file. The file is truncated
            after the last one.

        Args:
            gapless_from: a gap before a batch from this offset on ends the valid batches; None if gaps are allowed everywhere.
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
            next_offset=self.base_offset,
            offset_max=self.base_offset + RELATIVE_OFFSET_MAX,
            gapless_from=gapless_from,
        )
        self._reset()
        next_offset = self.base_offset
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

    # Names

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

    def rename_to_stray(self, *, keeps_snapshot: bool = False) -> list[Path]:
        """Rename the files to `.deleted`, on any thread; returns the new paths of the existing files."""
        snapshot = () if keeps_snapshot else (segment_path(self.directory, self.base_offset, SNAPSHOT_SUFFIX),)
        renamed = []
        for path in (*self.files(), *snapshot):
            with suppress(FileNotFoundError):
                renamed.append(syscalls.rename(path, path.with_name(path.name + DELETED_SUFFIX)))
        return renamed
