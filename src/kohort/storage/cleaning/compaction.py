"""
One pass of the cleaner over one log: of every key the newest record stays.

First the dirty part is read, from where the last pass ended up to the first segment that may not be cleaned, and the newest
offset of each key is noted. Then the log is read from its beginning up to there, and what is still needed is written into
new segments beside the old ones, several of which become one where they fit. Nothing that exists is changed: the files of a
group end in `.swap` when they are complete and on the disk, and whoever owns the log puts them in its place.

A pass knows files and values only, so it may run in any thread or process.

Source: Kafka Cleaner, MemoryRecords.filterTo; KIP-58 (lag), KIP-354 (maximum lag), KIP-534 (delete horizon).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from kohort.model.errors import CorruptError
from kohort.runtime.ports import Clock
from kohort.storage.batchset import DELTAS_BEGIN, Span, read_deltas, read_front
from kohort.storage.cleaning.batches import empty, rebuild
from kohort.storage.cleaning.job import Done, Group, Job, Source
from kohort.storage.cleaning.offset_map import OffsetMap, make_offset_map
from kohort.storage.cleaning.transactions import CleanedTransactions
from kohort.storage.durability import syscalls
from kohort.storage.log import LONG_MAX, NO_TIMESTAMP, LogConfig
from kohort.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment
from kohort.wire.batches import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    LogRecord,
    check_crc,
    read_header,
    read_records,
)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

NO_KEY = -2
"""In the place of a newest offset, for a record without a key; -1 is for a key that is not in the map."""
_RECORD_BYTES_MIN = 8
_KEYS_AT_ONCE = 16_384
_UNPACKED_AT_ONCE = 16 << 20
"""Some kB of a log may unpack to many times that: so many bytes of records are held at a time, and those of one batch more."""
_RECORD_OBJECT_BYTES = 100


class StoppedError(Exception):
    """The pass was told to end; what it had begun is removed."""


Report: TypeAlias = Callable[[Group], None]
_Batch: TypeAlias = tuple[BatchHeader, bytes]
_Shown: TypeAlias = tuple[BatchHeader, bytes, Sequence[LogRecord], bool]
"""A batch, its records, and whether it is of no use to its transaction."""


def compact(
    job: Job,
    report: Report,
    clock: Clock,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    pace: Callable[[int], None] = lambda _bytes: None,
) -> Done:
    """
    Make a pass. Each group is reported when its files are durable and have their `.swap` names.

    Raises:
        StoppedError: `is_stopped` said so.
        CorruptError: a batch is damaged; the group that holds it is left as it was.
        OSError: something cannot be read or written.
    """
    return _Pass(job, report, clock, is_stopped, pace).run()


class _Pass:
    def __init__(
        self,
        job: Job,
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
        self._latest_offset = -1
        self._map: OffsetMap
        self._bytes_read = self._bytes_written = self._invalid_records = 0

    def run(self) -> Done:
        started_ms = self._clock.now_ms()
        self._build_map()
        end_offset = self._latest_offset + 1
        transactions = CleanedTransactions(self._job.aborted)
        sources = [source for source in self._job.sources if source.base_offset < end_offset]
        for group in group_segments(sources, self._job.config):
            self._clean(group, transactions)
        return Done(
            end_offset=end_offset,
            map_utilization=self._map.count / self._map.keys_max,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            invalid_records=self._invalid_records,
            elapsed_s=(self._clock.now_ms() - started_ms) / 1000,
        )

    # Which offsets are the newest

    def _build_map(self) -> None:
        """Source: Cleaner.buildOffsetMap, buildOffsetMapForSegment."""
        job = self._job
        dirty = [source for source in job.sources if source.next_base_offset > job.first_dirty_offset]
        self._map = make_offset_map(
            buffer_bytes=job.buffer_bytes,
            load_factor=job.load_factor,
            records_max=sum(source.size_bytes for source in dirty) // _RECORD_BYTES_MIN,
        )
        transactions = CleanedTransactions(
            [entry for entry in job.aborted if entry.last_offset >= job.first_dirty_offset]
        )
        self._latest_offset = job.first_dirty_offset - 1
        keys: list[bytes] = []
        offsets: list[int] = []
        keys_bytes = 0
        for source in dirty:
            for batches in self._read(source, self._position_in(source)):
                for header, batch in batches:
                    if header.last_offset >= job.first_dirty_offset:
                        keys_bytes += self._collect(header, batch, transactions, keys, offsets)
                    if len(keys) >= _KEYS_AT_ONCE or keys_bytes >= _UNPACKED_AT_ONCE:
                        keys_bytes = 0
                        if not self._put(keys, offsets):
                            return
            if not self._put(keys, offsets):
                return
            self._latest_offset = source.next_base_offset - 1

    def _position_in(self, source: Source) -> int:
        """Where the dirty part begins; a transaction that was begun before is known by its later batches."""
        if source.base_offset >= self._job.first_dirty_offset:
            return 0
        segment = Segment(self._directory, source.base_offset, self._job.config, created_ms=0)
        segment.size_bytes = source.size_bytes
        segment.index.release()
        try:
            return segment.position_of(self._job.first_dirty_offset)
        finally:
            segment.close()

    def _collect(
        self,
        header: BatchHeader,
        batch: bytes,
        transactions: CleanedTransactions,
        keys: list[bytes],
        offsets: list[int],
    ) -> int:
        """Add the keys of a batch, and their offsets; how many bytes they are."""
        before = len(keys)
        if header.is_control:
            transactions.on_control(header, read_records(batch, header=header))
        elif not transactions.on_data(header) and header.record_count:
            records = read_records(batch, header=header)
            found = [record.key for record in records], [record.offset for record in records]
            if header.base_offset < self._job.first_dirty_offset or None in found[0]:
                first = self._job.first_dirty_offset
                found = _without(found, lambda key, offset: key is None or offset < first)
            keys += found[0]  # type: ignore[arg-type]  # no key is None here
            offsets += found[1]
        return sum(map(len, keys[before:]))

    def _put(self, keys: list[bytes], offsets: list[int]) -> bool:
        """Whether there was room for all; if not, the pass ends before the first record for which there was none."""
        for begin in range(0, len(keys), _KEYS_AT_ONCE):
            part = keys[begin : begin + _KEYS_AT_ONCE]
            taken = self._map.put(part, offsets[begin : begin + _KEYS_AT_ONCE])
            if taken < len(part):
                self._latest_offset = offsets[begin + taken] - 1
                return False
        keys.clear()
        offsets.clear()
        return True

    # What stays

    def _clean(self, group: Sequence[Source], transactions: CleanedTransactions) -> None:
        """Write what stays of these segments into a new one. Source: Cleaner.cleanSegments."""
        cleaned = _cleaned_segment(self._directory, group[0].base_offset, self._job)
        try:
            cleaned.create()
            transactions.keep_aborted = cleaned.aborted.append
            for source in group:
                for batches in self._read(source, 0):
                    for shown in self._show_all(batches, transactions):
                        self._filter_into(cleaned, shown)
            cleaned.assign_offsets()
            _make_swap(cleaned, group[-1].modified_ns)
        except BaseException:
            discard(cleaned)
            raise
        finally:
            cleaned.close()
        self._bytes_written += cleaned.size_bytes
        bases = [source.base_offset for source in group]
        self._report(Group(group[0].base_offset, bases, cleaned.size_bytes, cleaned.max_timestamp))

    def _show_all(self, batches: list[_Batch], transactions: CleanedTransactions) -> Iterator[list[_Shown]]:
        """The batches with their records, so many at a time as do not unpack to too much, one at least."""
        shown: list[_Shown] = []
        unpacked_bytes = 0
        for header, batch in batches:
            records, can_discard = self._show(header, batch, transactions)
            shown.append((header, batch, records, can_discard))
            unpacked_bytes += _unpacked_bytes(header, records)
            if unpacked_bytes >= _UNPACKED_AT_ONCE:
                yield shown
                shown, unpacked_bytes = [], 0
        yield shown

    def _filter_into(self, cleaned: Segment, shown: list[_Shown]) -> None:
        """Source: Cleaner.cleanInto."""
        # The map is asked once for a whole chunk: a call for every batch would cost more than its answer.
        keys = [[record.key for record in records] for _, _, records, _ in shown]
        newest = self._find([key for some in keys for key in some if key is not None])
        asked = 0
        out = bytearray()
        spans: list[Span] = []
        for (header, batch, records, can_discard), some in zip(shown, keys, strict=True):
            answers = newest[asked : asked + len(some)]
            if None in some:
                answers = _spread(some, answers)
                asked -= some.count(None)
            asked += len(some)
            written = self._filter(header, batch, records, answers, can_discard=can_discard)
            if written:
                max_timestamp_ms = read_deltas(written, DELTAS_BEGIN)[2]
                spans.append((len(out), len(written), header.base_offset, header.last_offset, max_timestamp_ms))
                out += written
        if out:
            cleaned.append(out, spans, index_interval_bytes=self._job.config.index_interval_bytes)
            self._pace(len(out))

    def _show(
        self, header: BatchHeader, batch: bytes, transactions: CleanedTransactions
    ) -> tuple[Sequence[LogRecord], bool]:
        """The records of a batch, none where its records go in any case, and whether it is of no use to its transaction."""
        if header.is_control:
            records = read_records(batch, header=header)
            return records, transactions.on_control(header, records)
        if transactions.on_data(header):
            return (), True
        return (read_records(batch, header=header) if header.record_count else ()), False

    def _find(self, keys: list[bytes]) -> list[int]:
        found: list[int] = []
        for begin in range(0, len(keys), _KEYS_AT_ONCE):
            found += self._map.get(keys[begin : begin + _KEYS_AT_ONCE])
        return found

    def _filter(
        self,
        header: BatchHeader,
        batch: bytes,
        records: Sequence[LogRecord],
        newest: list[int],
        *,
        can_discard: bool,
    ) -> bytes:
        """What is written of one batch: nothing, itself, or less. Source: MemoryRecords.filterTo."""
        now_ms = self._job.now_ms
        has_horizon = header.has_delete_horizon
        is_past_horizon = has_horizon and header.base_timestamp <= now_ms
        if header.is_control:
            kept: Sequence[LogRecord] = () if can_discard and is_past_horizon else records
            wants_horizon = can_discard
        else:
            kept = self._kept(records, newest, drops_tombstones=is_past_horizon)
            wants_horizon = any(record.value is None for record in kept)
        if not kept:
            is_needed = self._is_last_of_producer(header) or header.next_offset == self._job.first_uncleanable_offset
            return empty(header) if is_needed else b""
        new_horizon_ms = now_ms + self._job.config.delete_retention_ms
        # One beyond what an int64 holds never comes: Kafka's sum turns negative there, which is none.
        if wants_horizon and not has_horizon and new_horizon_ms <= LONG_MAX:
            return rebuild(header, kept, delete_horizon_ms=new_horizon_ms)
        if len(kept) == len(records):
            return batch
        return rebuild(header, kept, delete_horizon_ms=header.base_timestamp if has_horizon else NO_TIMESTAMP)

    def _kept(self, records: Sequence[LogRecord], newest: list[int], *, drops_tombstones: bool) -> Sequence[LogRecord]:
        """Source: Cleaner.shouldRetainRecord."""
        latest = self._latest_offset
        if not drops_tombstones and records and records[-1].offset <= latest and NO_KEY not in newest:
            return [record for record, offset in zip(records, newest, strict=True) if record.offset >= offset]
        kept = []
        for record, newest_offset in zip(records, newest, strict=True):
            offset = record.offset
            if offset > latest:
                kept.append(record)
            elif newest_offset == NO_KEY:
                self._invalid_records += 1
            elif offset >= newest_offset and not (drops_tombstones and record.value is None):
                kept.append(record)
        return kept

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the next batch of an active producer is judged by this one."""
        last = self._job.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    # Reading

    def _read(self, source: Source, position: int) -> Iterator[list[_Batch]]:
        """
        The whole batches of a segment, about as many at a time as the buffer for reading holds.

        Raises:
            CorruptError: there is something else, or a checksum is wrong: writing the records anew would hide that for good.
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

    def _check(self, batches: list[_Batch], path: Path, position: int) -> None:
        if not batches:
            raise CorruptError(f"{path}: no whole batch at {position}")
        for header, batch in batches:
            if header.magic != MAGIC or not check_crc(batch):
                raise CorruptError(f"{path}: the batch at offset {header.base_offset} is damaged")


def _unpacked_bytes(header: BatchHeader, records: Sequence[LogRecord]) -> int:
    """About what the records take; those of a batch that is not compressed are bounded by what was read of the log."""
    if not header.codec:
        return 0
    return sum(len(record.key or b"") + len(record.value or b"") + _RECORD_OBJECT_BYTES for record in records)


def _without(
    found: tuple[list[bytes | None], list[int]], is_left_out: Callable[[bytes | None, int], bool]
) -> tuple[list[bytes | None], list[int]]:
    pairs = [(key, offset) for key, offset in zip(*found, strict=True) if not is_left_out(key, offset)]
    return [key for key, _ in pairs], [offset for _, offset in pairs]


def _spread(keys: Sequence[bytes | None], answers: list[int]) -> list[int]:
    """The answers for the records that have a key, with `NO_KEY` for the others in between."""
    rest = iter(answers)
    return [NO_KEY if key is None else next(rest) for key in keys]


def _split(data: bytes) -> tuple[list[_Batch], int]:
    """The whole batches at the beginning of these bytes, and how many bytes they are."""
    batches = []
    start, end = 0, len(data)
    while end - start >= HEADER_BYTES:
        size = read_front(data, start)[1] + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or size > end - start:
            break
        batches.append((read_header(data, start), data[start : start + size]))
        start += size
    return batches, start


def _first_bytes(data: bytes) -> int:
    """What the first batch says of its size; never less than was read."""
    return max(read_front(data)[1] + LOG_OVERHEAD_BYTES, len(data)) if len(data) >= HEADER_BYTES else len(data)


def group_segments(sources: Sequence[Source], config: LogConfig) -> list[list[Source]]:
    """
    Neighbours that become one: as many as do not exceed a segment in bytes, in an index, or in what offsets may span.

    Source: Kafka Cleaner.groupSegmentsBySize, lastOffsetForFirstSegment.
    """
    groups: list[list[Source]] = []
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


def _cleaned_segment(directory: Path, base_offset: int, job: Job) -> Segment:
    segment = Segment(directory, base_offset, job.config, created_ms=job.now_ms)
    segment.rename_with(CLEANED_SUFFIX)
    segment.aborted.clear()
    return segment


def _make_swap(cleaned: Segment, modified_ns: int) -> None:
    """
    Make the files durable, and then their new names.

    When only some of the names are found after a crash, one that ends in `.cleaned` is among them, and all of them are void.
    """
    os.utime(cleaned.path, ns=(modified_ns, modified_ns))
    paths = [path for path in cleaned.files() if path.exists()]
    for path in paths:
        syscalls.sync_directory(path)
    for path in paths:
        syscalls.rename(path, path.with_name(path.name.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX))
    syscalls.sync_directory(cleaned.directory)


def discard(cleaned: Segment) -> None:
    """Remove what was written of a segment that will not be."""
    for path in cleaned.files():
        syscalls.remove(path)
