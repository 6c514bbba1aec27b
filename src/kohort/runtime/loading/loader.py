"""
Reads a partition from its start to its end and replays it, window by window.

Of records outside transactions only the newest value and the newest tombstone of each key in a window are decoded and
replayed. (A log that is compacted holds no more, so a shard must load from that anyway. A value is replayed even if a
tombstone follows, because it may leave more behind than itself: a committed offset makes its group, which stays when the
offset is deleted.) Records of transactions are replayed one by one, with their markers.

A large log is read in large windows and with numpy, where that is installed (`columnar`). It is imported on a
thread of its own, and until it is there the load goes on without.

Source: Kafka CoordinatorLoaderImpl.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordSerde, Shard
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.runtime.ports import PartitionLog
from kohort.runtime.timers.clock import SystemClock
from kohort.wire.batches import BatchHeader, LogRecord, iter_batches, read_marker, read_records

_log = logging.getLogger("kohort.runtime")

LOAD_BUFFER_BYTES = 5 * 1024 * 1024
"""How much of the log is read at once. Source: offsets.load.buffer.size."""
READ_PER_STEP = 16_384
REPLAYED_PER_STEP = 2048
STEP_MS = 8
"""A step ends when it has read or replayed so many records, or taken so long: the event loop is never held longer."""
LOOKED_AT_EVERY = 128
"""How many records are replayed between two looks at the clock."""
BULK_RECORDS_MIN = 8_192
"""From so many records on numpy is used where it is there already."""
IMPORT_RECORDS_MIN = 100_000
"""From so many on it is imported."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


class LoadSummary(msgspec.Struct):
    """What a load has done so far."""

    records: int = 0
    replayed: int = 0
    bytes: int = 0
    unknown_types: tuple[int, ...] = ()


class Marker(msgspec.Struct, frozen=True):
    """The end of a transaction, as the log holds it."""

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
    """One load under way: where records go, and how long that has taken."""

    def __init__(
        self,
        log: PartitionLog,
        shard: Shard[Any],
        serde: RecordSerde[Any],
        summary: LoadSummary,
        now_ms: Callable[[], int],
    ) -> None:
        self.log = log
        self.shard = shard
        self.summary = summary
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

    def replay(self, offset: int, key: bytes, value: bytes | None, producer_id: int, producer_epoch: int) -> None:
        """Replay one record; a type that is not known is skipped, and warned about once."""
        summary = self.summary
        try:
            record = self._decode(key, value)
        except UnknownRecordTypeError as error:
            if error.record_type not in summary.unknown_types:
                summary.unknown_types += (error.record_type,)
                _log.warning("load.skipped type=%d offset=%d", error.record_type, offset)
            return
        self._replay(offset, producer_id, producer_epoch, record)
        summary.replayed += 1

    def end_transaction(self, marker: Marker) -> None:
        self.shard.replay_end_transaction_marker(marker.producer_id, marker.producer_epoch, committed=marker.committed)


def load(
    log: PartitionLog,
    shard: Shard[Any],
    serde: RecordSerde[Any],
    summary: LoadSummary,
    *,
    start: int,
    end: int,
    now_ms: Callable[[], int] | None = None,
) -> Iterator[None]:
    """
    Replay `[start, end)` into the shard, a step at a time: advance the iterator until it ends.

    Args:
        now_ms: by which a step ends; a steady clock by default.

    Raises:
        CorruptError: a record cannot be read.
        StorageError: the log cannot be read.
    """
    under_way = Load(log, shard, serde, summary, now_ms or SystemClock().now_ms)
    offset: int | None = start
    while offset is not None and offset < end:
        bulk = _Bulk.for_records(end - offset)
        under_way.begin_step()
        if bulk is None:
            following = yield from _load_window(under_way, offset, end)
        else:
            following = yield from bulk.load_window(under_way, offset, end)
        if following is not None and following <= offset:
            raise CorruptError(f"the batches from offset {offset} on end at {following}")
        offset = following


class _Bulk:
    """`columnar`, once it is imported: numpy takes longer to import than a loop may be held."""

    module: ClassVar[Any] = None
    _is_asked_for: ClassVar[bool] = False

    @classmethod
    def for_records(cls, count: int) -> Any:
        """The module, if so many records are worth it and it is there by now."""
        if count < BULK_RECORDS_MIN:
            return None
        if cls.module is None and not cls._is_asked_for:
            if "numpy" in sys.modules:
                cls._import()
            elif count >= IMPORT_RECORDS_MIN:
                cls._is_asked_for = True
                threading.Thread(target=cls._import, name="kohort-import-numpy", daemon=True).start()
        return cls.module

    @classmethod
    def _import(cls) -> None:
        cls._is_asked_for = True
        try:
            with _without_threads_of_blas():
                cls.module = import_module("kohort.runtime.loading.columnar")
        except ImportError:
            _log.info("load.without_numpy")


@contextmanager
def _without_threads_of_blas() -> Iterator[None]:
    """
    Nobody multiplies matrices here. The library that could starts its threads while it is imported, and all others of this
    process stand still for that: 40 ms instead of 5.
    """
    if _BLAS_THREADS in os.environ:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        # Processes that are started from here make up their own minds.
        os.environ.pop(_BLAS_THREADS, None)


def _load_window(load: Load, start: int, end: int) -> Generator[None, None, int | None]:
    """Load from one offset on, without numpy; where to go on, or None at the end."""
    window = load.log.read(start, bytes_max=LOAD_BUFFER_BYTES, up_to=end)
    if not window:
        return None
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
            load.end_transaction(event)
        elif isinstance(event, _Pending):
            load.replay(event.offset, event.key, event.value, event.producer_id, event.producer_epoch)
        elif event.key is not None:
            # A record without a key says nothing.
            load.replay(event.offset, event.key, event.value, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if count % REPLAYED_PER_STEP == 0 or (count % LOOKED_AT_EVERY == 0 and load.is_step_over):
            yield
            load.begin_step()
    return offset


class _Collected:
    """What a window holds: the newest value and the newest tombstone of each key, and all that belongs to transactions."""

    __slots__ = ("tombstones", "transactional", "values")

    def __init__(self) -> None:
        self.values: dict[bytes | None, LogRecord] = {}
        self.tombstones: dict[bytes | None, LogRecord] = {}
        self.transactional: list[Marker | _Pending] = []

    def add(self, records: Iterable[LogRecord]) -> None:
        """Records outside transactions: those of their kind that were under their keys are forgotten."""
        values, tombstones = self.values, self.tombstones
        for record in records:
            key = record.key
            newest = tombstones if record.value is None else values
            # Taken out first, so that the dict keeps the order of the log.
            newest.pop(key, None)
            newest[key] = record

    def in_order(self) -> Iterable[LogRecord | Marker | _Pending]:
        """Everything that is to be replayed, in the order of the log."""
        if not self.tombstones and not self.transactional:
            return self.values.values()
        return merge(self.values.values(), self.tombstones.values(), self.transactional, key=_offset)


_offset = attrgetter("offset")


def read_markers(header: BatchHeader, batch: memoryview, start: int) -> list[Marker]:
    """The ends of transactions in a control batch, from `start` on."""
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
    records = read_records(batch, header=header)
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
