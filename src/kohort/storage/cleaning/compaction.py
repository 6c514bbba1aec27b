"""
One pass of the cleaner over the files of one log: of every key the newest record stays.

First the dirty part is read, from where the last pass ended up to the first segment that may not be cleaned, and the newest
offset of each key is noted. Then the log is read from its beginning up to there, and the retained batches are written into
new segments beside the old ones; neighbours become one segment if they fit. No existing file changes: the files of a group
get their `.swap` names when they are complete and durable, and the owner of the log puts them in place.

A pass knows files and values only, so any thread or process may run it.

Source: Kafka Cleaner; KIP-58 (lag), KIP-354 (maximum lag), KIP-534 (delete horizon).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from kohort.model.errors import CorruptError
from kohort.runtime.ports import Clock
from kohort.storage.batchset import iter_spans, read_front
from kohort.storage.cleaning.job import CleanerJob, PassResult, SegmentGroup, SourceSegment
from kohort.storage.cleaning.rules import Compaction
from kohort.storage.files import syscalls
from kohort.storage.files.directory import CLEANED_SUFFIX, SWAP_SUFFIX
from kohort.storage.log import LogConfig
from kohort.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment
from kohort.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT
from kohort.wire.batches import check_crc


class StoppedError(Exception):
    """The pass was told to end; its unfinished files are removed."""


Report: TypeAlias = Callable[[SegmentGroup], None]


def compact(
    job: CleanerJob,
    report: Report,
    clock: Clock,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    pace: Callable[[int], None] = lambda _bytes: None,
) -> PassResult:
    """
    Make a pass. Each cleaned segment is reported when its files are durable and have their `.swap` names.

    Raises:
        StoppedError: `is_stopped` returned True.
        CorruptError: a batch is damaged; its segment group is left unchanged.
        OSError: a file cannot be read or written.
    """
    return _Pass(job, report, clock, is_stopped, pace).run()


class _Pass:
    def __init__(
        self,
        job: CleanerJob,
        report: Report,
        clock: Clock,
        is_stopped: Callable[[], bool],
        pace: Callable[[int], None],
    ) -> None:
        self._job = job
        self._report = report
        self._clock = clock
        self._is_stopped = is_stopped
        self._pace = pace
        self._directory = Path(job.directory)
        self._bytes_read = self._bytes_written = 0
        self._rules = Compaction(job.terms, job.aborted)

    def run(self) -> PassResult:
        started_ms = self._clock.now_ms()
        self._build_map()
        end_offset = self._rules.latest_offset + 1
        sources = [source for source in self._job.sources if source.base_offset < end_offset]
        for group in group_segments(sources, self._job.config):
            self._clean(group)
        return PassResult(
            end_offset=end_offset,
            map_utilization=self._rules.map_utilization,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            invalid_records=self._rules.invalid_records,
            elapsed_s=(self._clock.now_ms() - started_ms) / 1000,
        )

    def _build_map(self) -> None:
        """Source: Cleaner.buildOffsetMap."""
        for source in self._job.sources:
            if source.next_base_offset <= self._job.terms.first_dirty_offset:
                continue
            for batches in self._read(source, self._position_in(source)):
                if not self._rules.add(batches):
                    return
            if not self._rules.end_segment(source.next_base_offset):
                return

    def _position_in(self, source: SourceSegment) -> int:
        """Where the dirty part begins; later batches of a transaction that began before tell of it."""
        if source.base_offset >= self._job.terms.first_dirty_offset:
            return 0
        segment = Segment(self._directory, source.base_offset, self._job.config, created_ms=0)
        segment.size_bytes = source.size_bytes
        segment.index.release()
        try:
            return segment.position_of(self._job.terms.first_dirty_offset)
        finally:
            segment.close()

    def _clean(self, group: Sequence[SourceSegment]) -> None:
        """Write what stays of these segments into a new one. Source: Cleaner.cleanSegments."""
        cleaned = Segment(self._directory, group[0].base_offset, self._job.config, created_ms=self._job.terms.now_ms)
        cleaned.rename_with(CLEANED_SUFFIX)
        cleaned.aborted.clear()
        try:
            cleaned.create()
            self._rules.keep_aborted_in(cleaned.aborted.append)
            for source in group:
                for batches in self._read(source, 0):
                    for retained in self._rules.retain(batches):
                        self._write(cleaned, retained)
            cleaned.write_indexes()
            _make_swap(cleaned, group[-1].modified_ns)
        except BaseException:
            discard(cleaned)
            raise
        finally:
            cleaned.close()
        self._bytes_written += cleaned.size_bytes
        bases = [source.base_offset for source in group]
        self._report(
            SegmentGroup(
                group[0].base_offset, bases, cleaned.size_bytes, cleaned.max_timestamp, cleaned.rolling_timestamp_ms
            )
        )

    def _write(self, cleaned: Segment, retained: list[bytes]) -> None:
        out = bytearray().join(retained)
        if out:
            cleaned.append(out, list(iter_spans(out)), index_interval_bytes=self._job.config.index_interval_bytes)
            self._pace(len(out))

    # Reading

    def _read(self, source: SourceSegment, position: int) -> Iterator[list[bytes]]:
        """
        The whole batches of a segment, about one read buffer at a time.

        Raises:
            CorruptError: the bytes are not a batch, or a checksum is wrong; a rewritten batch would hide the damage.
        """
        segment = Segment(self._directory, source.base_offset, self._job.config, created_ms=0)
        segment.open()
        try:
            while position < source.size_bytes:
                if self._is_stopped():
                    raise StoppedError
                data = segment.read_at(position, min(self._job.io_bytes, source.size_bytes - position))
                batches, used = _split(data)
                if not batches:
                    data = segment.read_at(position, min(_first_bytes(data), source.size_bytes - position))
                    batches, used = _split(data)
                self._check(batches, segment.path, position)
                self._bytes_read += used
                self._pace(used)
                position += used
                yield batches
        finally:
            segment.close()

    def _check(self, batches: list[bytes], path: Path, position: int) -> None:
        if not batches:
            raise CorruptError(f"{path}: no whole batch at {position}")
        for batch in batches:
            if batch[MAGIC_AT] != MAGIC or not check_crc(batch):
                raise CorruptError(f"{path}: the batch at offset {read_front(batch)[0]} is damaged")


def _split(data: bytes) -> tuple[list[bytes], int]:
    """The whole batches at the beginning of the bytes, and their size."""
    batches = []
    start, end = 0, len(data)
    while end - start >= HEADER_BYTES:
        size = read_front(data, start)[1] + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or size > end - start:
            break
        batches.append(data[start : start + size])
        start += size
    return batches, start


def _first_bytes(data: bytes) -> int:
    """The size that the first batch states, at least the size of the bytes read."""
    return max(read_front(data)[1] + LOG_OVERHEAD_BYTES, len(data)) if len(data) >= HEADER_BYTES else len(data)


def group_segments(sources: Sequence[SourceSegment], config: LogConfig) -> list[list[SourceSegment]]:
    """
    Group neighbouring segments that become one; their sums must not exceed the size of a segment, of an index, or the offset
    range.

    Source: Kafka Cleaner.groupSegmentsBySize, lastOffsetForFirstSegment.
    """
    groups: list[list[SourceSegment]] = []
    sizes = (0, 0, 0)
    for source in sources:
        new = source.size_bytes, source.index_bytes, source.time_index_bytes
        sums = sizes[0] + new[0], sizes[1] + new[1], sizes[2] + new[2]
        spans = source.next_base_offset - 1 - groups[-1][0].base_offset if groups else 0
        if (
            groups
            and sums[0] <= config.segment_bytes
            and max(sums[1:]) <= config.segment_index_bytes
            and (source.size_bytes == 0 or spans <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(source)
            sizes = sums
        else:
            groups.append([source])
            sizes = new
    return groups


# Files


def _make_swap(cleaned: Segment, modified_ns: int) -> None:
    """
    Make the files and their names durable, then rename them to their `.swap` names.

    If a crash leaves only some of the renames, a `.cleaned` file is left, and the next start removes all of the files. Without
    durable names, one that was never on the disk could be missed among them.
    """
    os.utime(cleaned.path, ns=(modified_ns, modified_ns))
    paths = [path for path in cleaned.files() if path.exists()]
    for path in paths:
        syscalls.sync_directory(path)
    syscalls.sync_directory(cleaned.directory)
    for path in paths:
        syscalls.rename(path, path.with_name(path.name.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX))
    syscalls.sync_directory(cleaned.directory)


def discard(cleaned: Segment) -> None:
    """Remove the files of an unfinished segment."""
    for path in cleaned.files():
        syscalls.remove(path)
