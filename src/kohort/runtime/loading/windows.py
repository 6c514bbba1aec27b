"""
One load in progress: its windows, whose rows a scan finds and one loop replays; and the scan without numpy.

Source: Kafka CoordinatorLoaderImpl.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordSerde, Shard
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.runtime.loading.ahead import Pause, ReadAhead
from kohort.runtime.loading.checks import check_batches
from kohort.runtime.loading.set_aside import DETAILS_MAX, SetAside, batch_set_aside, record_set_aside
from kohort.runtime.ports import PartitionLog
from kohort.wire.batches import BatchHeader, LogRecord, iter_batches, read_marker, read_records

_log = logging.getLogger("kohort.runtime")

LOAD_BUFFER_BYTES = 5 * 1024 * 1024
"""The size of a window. Source: offsets.load.buffer.size."""
REPLAYED_PER_STEP = 2048
STEP_MS = 1
"""A step ends when it has replayed so many records, or taken so long: the event loop is never held longer."""
LOOKED_AT_EVERY = 128
"""How many records are replayed between two looks at the clock."""


class LoadSummary(msgspec.Struct):
    """
    The progress of a load.

    Attributes:
        records: data records that were read.
        replayed: records that were decoded and replayed.
        bytes: bytes that were read.
        unknown_types: the record types that were skipped.
        set_aside: the first records that could not be decoded, at most `DETAILS_MAX`.
        set_aside_count: the number of all such records.
    """

    records: int = 0
    replayed: int = 0
    bytes: int = 0
    unknown_types: tuple[int, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    set_aside_count: int = 0


class Marker(msgspec.Struct, frozen=True):
    """The marker that ends a transaction, in the log."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool


Row: TypeAlias = tuple[int, bytes, bytes | None, int, int]
"""A record with a key: offset, key, value, producer id and epoch."""
Rows: TypeAlias = Generator[Row | Marker | Pause, None, None]
"""
What a scan finds in a window, in the order of the log: of the records outside transactions the newest value and the newest
tombstone of each key (or all, if the log is not compacted), all records of transactions, and the markers. None is a possible
pause, and a read one that is needed.
"""
Scan: TypeAlias = Callable[["Load", int, int], Rows]
"""
`scan(load, start, end)` reads a window from offset `start` on, and sets `load.next_offset`. A scan may replay rows by itself.

Raises:
    CorruptError: see `kohort.runtime.loading.loader.load`.
    StorageError: the log cannot be read.
"""


class Load:
    """
    One load in progress.

    Attributes:
        next_offset: the offset behind the window that is read; the end of the load if nothing was found.
        is_compacted: whether the newest record of a key stands for all before it.
    """

    def __init__(
        self,
        log: PartitionLog,
        shard: Shard[Any],
        serde: RecordSerde[Any],
        summary: LoadSummary,
        now_ms: Callable[[], int],
        buffer_bytes: int = LOAD_BUFFER_BYTES,
        is_compacted: bool = True,
        ahead: ReadAhead | None = None,
    ) -> None:
        self.log = log
        self._ahead = ahead
        self.is_compacted = is_compacted
        self.buffer_bytes = buffer_bytes
        self.shard = shard
        self.summary = summary
        self.next_offset = -1
        self._set_aside_keys: set[bytes] = set()
        """Keys outside transactions whose newest value in this window is set aside, for `_replay_earlier`."""
        self._decode = serde.decode
        self._replay = shard.replay
        self._now_ms = now_ms
        self._until_ms = 0

    def read(self, offset: int, bytes_max: int, up_to: int) -> Generator[Pause, None, bytes]:
        """
        Return whole batches, as `PartitionLog.read`. Yields while they are read elsewhere.

        Raises:
            StorageError: the log cannot be read.
        """
        if self._ahead is None:
            return self.log.read(offset, bytes_max=bytes_max, up_to=up_to)
        while (found := self._ahead.read(offset, bytes_max, up_to)) is None:
            yield self._ahead
        return found

    def window(self, scan: Scan, start: int, end: int) -> Generator[Pause, None, int]:
        """Load a window, and return the next offset. Yields at the end of each step."""
        self.next_offset = end
        self._begin_step()
        for count, row in enumerate(scan(self, start, end), 1):
            if isinstance(row, tuple):
                self.replay(*row)
            elif isinstance(row, ReadAhead):
                yield row
                self._begin_step()
                continue
            elif row is not None:
                if self._set_aside_keys:
                    yield from self._replay_earlier(start, row.offset)
                self.shard.replay_end_transaction_marker(row.producer_id, row.producer_epoch, committed=row.committed)
            if count % REPLAYED_PER_STEP == 0 or ((row is None or count % LOOKED_AT_EVERY == 0) and self._is_step_over):
                yield None
                self._begin_step()
        if self._set_aside_keys:
            yield from self._replay_earlier(start, self.next_offset)
        return self.next_offset

    def end_step(self) -> None:
        """End the step at the next possible pause."""
        self._until_ms = 0

    def _begin_step(self) -> None:
        self._until_ms = self._now_ms() + STEP_MS

    @property
    def _is_step_over(self) -> bool:
        """Whether it is time to let others have their turn."""
        return self._now_ms() >= self._until_ms

    def replay(self, offset: int, key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> None:
        """
        Replay one record. An unknown type is skipped with one warning per type; a record that cannot be decoded is set aside.
        """
        summary = self.summary
        try:
            record = self._decode(key, value)
        except UnknownRecordTypeError as error:
            if error.record_type not in summary.unknown_types:
                summary.unknown_types += (error.record_type,)
                _log.warning("load.skipped type=%d offset=%d", error.record_type, offset)
            return
        except CorruptError as error:
            if producer_id == NO_PRODUCER_ID and self.is_compacted:
                self._set_aside_keys.add(key)
            self.set_aside(record_set_aside(offset, key, error))
            return
        self._replay(offset, producer_id, producer_epoch, record)
        summary.replayed += 1

    def set_aside(self, found: SetAside) -> None:
        """Count and log a record or a batch that is left out."""
        summary = self.summary
        summary.set_aside_count += found.records
        if len(summary.set_aside) < DETAILS_MAX:
            summary.set_aside += (found,)
            _log.warning("load.set_aside partition=%s %s", self.log.topic_partition, found)

    def _replay_earlier(self, start: int, end: int) -> Generator[None, None, None]:
        """
        Replay the records that the set aside ones stand in front of, as if those were not in the log.

        Only the newest value of each key in a window is decoded. If that one is set aside, the newest record before it within
        `[start, end)` counts. These offsets are read again.
        """
        keys, self._set_aside_keys = self._set_aside_keys, set()
        versions: dict[bytes, list[LogRecord]] = {}
        for count, record in enumerate(self._plain_records(start, end), 1):
            if record.key in keys:
                versions.setdefault(record.key, []).append(record)
            if count % LOOKED_AT_EVERY == 0 and self._is_step_over:
                yield
                self._begin_step()
        for key, found in versions.items():
            for earlier in reversed(found):
                try:
                    decoded = self._decode(key, earlier.value)
                except (CorruptError, UnknownRecordTypeError):
                    continue
                # A tombstone has been replayed.
                if earlier.value is not None:
                    self._replay(earlier.offset, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, decoded)
                    self.summary.replayed += 1
                break
            if self._is_step_over:
                yield
                self._begin_step()

    def _plain_records(self, start: int, end: int) -> Iterator[LogRecord]:
        """The records outside transactions within `[start, end)`, without batches that are set aside."""
        offset = start
        while offset < end and (window := self.log.read(offset, bytes_max=self.buffer_bytes, up_to=end)):
            view = memoryview(window)
            for position, header in iter_batches(window):
                offset = header.next_offset
                if header.is_control or header.is_transactional:
                    continue
                with suppress(CorruptError):
                    for record in read_records(view[position : position + header.size_bytes], header=header):
                        if start <= record.offset < end:
                            yield record


def scan_batches(load: Load, start: int, end: int) -> Rows:
    """A `Scan` without numpy."""
    window = yield from load.read(start, load.buffer_bytes, end)
    if not window:
        return
    load.next_offset = yield from check_batches(window, start, end)
    load.summary.bytes += len(window)
    rows: list[Row | Marker | None] = []
    values: dict[bytes, int] = {}
    tombstones: dict[bytes, int] = {}
    view = memoryview(window)
    for position, header in iter_batches(window):
        batch = view[position : position + header.size_bytes]
        if header.is_control:
            rows += read_markers(header, batch, start)
        elif header.is_transactional:
            rows += [
                (record.offset, record.key, record.value, header.producer_id, header.producer_epoch)
                for record in _records(load, header, batch, start)
                if record.key is not None
            ]
        else:
            for record in _records(load, header, batch, start):
                key, value = record.key, record.value
                # A record without a key is not a record of the shard.
                if key is not None:
                    newest = tombstones if value is None else values
                    if key in newest and load.is_compacted:
                        rows[newest[key]] = None
                    newest[key] = len(rows)
                    rows.append((record.offset, key, value, NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
        yield None
    load.end_step()
    yield None
    yield from filter(None, rows)


def _records(load: Load, header: BatchHeader, batch: memoryview, start: int) -> Sequence[LogRecord]:
    try:
        records = read_records(batch, header=header)
    except CorruptError as error:
        load.summary.records += max(header.record_count, 0)
        load.set_aside(batch_set_aside(header, error))
        return []
    if header.base_offset < start:
        records = [record for record in records if record.offset >= start]
    load.summary.records += len(records)
    return records


def read_markers(header: BatchHeader, batch: memoryview, start: int) -> list[Marker]:
    """
    Return the transaction markers of a control batch from offset `start` on.

    Raises:
        CorruptError: a marker cannot be read. A load without it would leave its transaction pending.
    """
    markers = ((record.offset, read_marker(record)) for record in read_records(batch, header=header))
    return [
        Marker(offset, header.producer_id, header.producer_epoch, marker.committed)
        for offset, marker in markers
        if marker is not None and offset >= start
    ]
