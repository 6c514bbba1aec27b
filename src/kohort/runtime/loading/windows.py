"""
One load in progress, and its windows without numpy.

Source: Kafka CoordinatorLoaderImpl.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from heapq import merge
from operator import attrgetter
from typing import Any

import msgspec

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordSerde, Shard
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.runtime.loading.checks import check_batches
from kohort.runtime.loading.set_aside import DETAILS_MAX, SetAside, batch_set_aside, record_set_aside
from kohort.runtime.ports import PartitionLog
from kohort.wire.batches import BatchHeader, LogRecord, iter_batches, read_marker, read_records

_log = logging.getLogger("kohort.runtime")

LOAD_BUFFER_BYTES = 5 * 1024 * 1024
"""The size of a window. Source: offsets.load.buffer.size."""
READ_PER_STEP = 16_384
REPLAYED_PER_STEP = 2048
STEP_MS = 8
"""A step ends when it has read or replayed so many records, or taken so long: the event loop is never held longer."""
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


class _Pending(msgspec.Struct, frozen=True):
    """A record of a transaction."""

    offset: int
    producer_id: int
    producer_epoch: int
    key: bytes
    value: bytes | None


class Load:
    """One load in progress: it replays records, and paces itself."""

    def __init__(
        self,
        log: PartitionLog,
        shard: Shard[Any],
        serde: RecordSerde[Any],
        summary: LoadSummary,
        now_ms: Callable[[], int],
        buffer_bytes: int = LOAD_BUFFER_BYTES,
    ) -> None:
        self.log = log
        self.buffer_bytes = buffer_bytes
        self.shard = shard
        self.summary = summary
        self.set_aside_keys: set[bytes] = set()
        """Keys outside transactions whose newest value in this window is set aside, for `replay_earlier`."""
        self._decode = serde.decode
        self._replay = shard.replay
        self._now_ms = now_ms
        self._until_ms = 0

    def begin_step(self) -> None:
        self._until_ms = self._now_ms() + STEP_MS

    @property
    def is_step_over(self) -> bool:
        """Whether it is time to let others have their turn."""
        return self._now_ms() >= self._until_ms

    def paced(self, work: Iterator[None]) -> Generator[None, None, Any]:
        """Advance `work`, which yields often, and yield at the end of each step."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value
            if self.is_step_over:
                yield
                self.begin_step()

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
            self.set_aside_record(offset, key, error, producer_id)
            return
        self._replay(offset, producer_id, producer_epoch, record)
        summary.replayed += 1

    def set_aside_record(self, offset: int, key: bytes, error: CorruptError, producer_id: int) -> None:
        """Set a record aside."""
        if producer_id == NO_PRODUCER_ID:
            self.set_aside_keys.add(key)
        self.set_aside(record_set_aside(offset, key, error))

    def replay_earlier(self, records: Iterable[tuple[int, bytes, bytes | None]]) -> Generator[None, None, None]:
        """
        Replay the records that the set aside ones stand in front of, as if those were not in the log.

        Only the newest value of each key in a window is decoded. If that one is set aside, the newest record before it counts.

        Args:
            records: offset, key and value of the records of this window outside transactions, up to the current position.
        """
        keys, self.set_aside_keys = self.set_aside_keys, set()
        versions: dict[bytes, list[tuple[int, bytes | None]]] = {}
        for count, (offset, key, value) in enumerate(records, 1):
            if key in keys:
                versions.setdefault(key, []).append((offset, value))
            if count % LOOKED_AT_EVERY == 0 and self.is_step_over:
                yield
                self.begin_step()
        for key, found in versions.items():
            for offset, value in reversed(found):
                try:
                    record = self._decode(key, value)
                except (CorruptError, UnknownRecordTypeError):
                    continue
                # A tombstone has been replayed.
                if value is not None:
                    self._replay(offset, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, record)
                    self.summary.replayed += 1
                break
            if self.is_step_over:
                yield
                self.begin_step()

    def set_aside(self, found: SetAside) -> None:
        """Count and log a record or a batch that is left out."""
        summary = self.summary
        summary.set_aside_count += found.records
        if len(summary.set_aside) < DETAILS_MAX:
            summary.set_aside += (found,)
            _log.warning("load.set_aside partition=%s %s", self.log.topic_partition, found)

    def end_transaction(self, marker: Marker) -> None:
        self.shard.replay_end_transaction_marker(marker.producer_id, marker.producer_epoch, committed=marker.committed)


def load_window(load: Load, start: int, end: int) -> Generator[None, None, int | None]:
    """Load a window without numpy, and return the next offset; None at the end."""
    window = load.log.read(start, bytes_max=load.buffer_bytes, up_to=end)
    if not window:
        return None
    yield from load.paced(check_batches(window, start, end))
    load.summary.bytes += len(window)
    collected = _Collected()
    view, since_step, offset = memoryview(window), 0, start
    for position, header in iter_batches(window):
        _collect(load, header, view[position : position + header.size_bytes], start, collected)
        offset = header.next_offset
        since_step += header.record_count
        if since_step >= READ_PER_STEP or load.is_step_over:
            since_step = 0
            yield
            load.begin_step()
    yield
    load.begin_step()
    for count, event in enumerate(collected.in_order(), 1):
        if isinstance(event, Marker):
            if load.set_aside_keys:
                yield from load.replay_earlier(_plain_records(window, start, event.offset))
            load.end_transaction(event)
        elif isinstance(event, _Pending):
            load.replay(event.offset, event.key, event.value, event.producer_id, event.producer_epoch)
        elif event.key is not None:
            # A record without a key is not a record of the shard.
            load.replay(event.offset, event.key, event.value, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if count % REPLAYED_PER_STEP == 0 or (count % LOOKED_AT_EVERY == 0 and load.is_step_over):
            yield
            load.begin_step()
    if load.set_aside_keys:
        yield from load.replay_earlier(_plain_records(window, start, offset))
    return offset


def _plain_records(window: bytes, start: int, end: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of the records outside transactions within `[start, end)`, without batches that are set aside."""
    view = memoryview(window)
    for position, header in iter_batches(window):
        if header.is_control or header.is_transactional:
            continue
        with suppress(CorruptError):
            for record in read_records(view[position : position + header.size_bytes], header=header):
                if record.key is not None and start <= record.offset < end:
                    yield record.offset, record.key, record.value


class _Collected:
    """The records of a window: the newest value and tombstone of each key, and every record of a transaction."""

    __slots__ = ("tombstones", "transactional", "values")

    def __init__(self) -> None:
        self.values: dict[bytes | None, LogRecord] = {}
        self.tombstones: dict[bytes | None, LogRecord] = {}
        self.transactional: list[Marker | _Pending] = []

    def add(self, records: Iterable[LogRecord]) -> None:
        """Add records outside transactions; each replaces the earlier value, or tombstone, of its key."""
        values, tombstones = self.values, self.tombstones
        for record in records:
            key = record.key
            newest = tombstones if record.value is None else values
            # Removed first, so that the dict keeps the order of the log.
            newest.pop(key, None)
            newest[key] = record

    def in_order(self) -> Iterable[LogRecord | Marker | _Pending]:
        """All records and markers to replay, in the order of the log."""
        if not self.tombstones and not self.transactional:
            return self.values.values()
        return merge(self.values.values(), self.tombstones.values(), self.transactional, key=_offset)


_offset = attrgetter("offset")


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


def _collect(load: Load, header: BatchHeader, batch: memoryview, start: int, collected: _Collected) -> None:
    if header.is_control:
        collected.transactional += read_markers(header, batch, start)
        return
    try:
        records = read_records(batch, header=header)
    except CorruptError as error:
        load.summary.records += max(header.record_count, 0)
        load.set_aside(batch_set_aside(header, error))
        return
    if header.base_offset < start:
        records = [record for record in records if record.offset >= start]
    load.summary.records += len(records)
    if header.is_transactional:
        collected.transactional += [
            _Pending(record.offset, header.producer_id, header.producer_epoch, record.key, record.value)
            for record in records
            if record.key is not None
        ]
    else:
        collected.add(records)
