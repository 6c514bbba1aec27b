"""
The loader with numpy: finds the records of a window, and the newest of each key, before any is decoded.

A shard with `replay_bulk` (`kohort.machine.bulk.BulkShard`) replays the remaining records many at a time; any other shard gets
them one by one. The windows of all loads share a budget of memory: with many loads at a time each window is smaller, down to a
minimum.

`kohort.runtime.loading.loader` imports this module for a load that is large enough.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from kohort.machine.bulk import RawRecords
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.model.errors import CorruptError
from kohort.runtime.loading.checks import check_batches
from kohort.runtime.loading.latest_by_key import latest_by_key
from kohort.runtime.loading.windows import Load, read_markers
from kohort.runtime.loading.windows import load_window as load_window_plainly
from kohort.wire.batches import CONTROL, TRANSACTIONAL, read_header
from kohort.wire.columnar.layout import BatchBuffer, Layout
from kohort.wire.columnar.vectors import Bools, Ints

WINDOWS_BYTES = 10 * 1024 * 1024
"""The bytes of log that all loads together hold; the positions of their records take about as much again."""
WINDOW_BYTES_MIN = 1024 * 1024
READ_BYTES = 2 * 1024 * 1024
ROWS_AT_ONCE = 1024
"""The records that are replayed one by one between two checks of the clock."""
BULK_ROWS_AT_ONCE = 65_536
"""The largest number of records in a call of `replay_bulk`."""
BULK_MIN = 64
"""Fewer records are replayed one by one: columns of them would cost more."""


class _Budget:
    """Divides `WINDOWS_BYTES` among the loads in progress."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._loads = 0

    @contextmanager
    def share(self) -> Generator[int, None, None]:
        """The size of a window that begins now."""
        with self._changing:
            self._loads += 1
            loads = self._loads
        try:
            yield max(WINDOWS_BYTES // loads, WINDOW_BYTES_MIN)
        finally:
            with self._changing:
                self._loads -= 1


_budget = _Budget()


def load_window(
    load: Load, start: int, end: int, *, bytes_max: int = WINDOWS_BYTES
) -> Generator[None, None, int | None]:
    """
    Load a window, and return the next offset; None at the end. Yields at the end of each step.

    Args:
        bytes_max: an upper bound of the window; its share of the budget and twice the load buffer are others.

    Raises:
        CorruptError: see `kohort.runtime.loading.loader.load`.
        StorageError: the log cannot be read.
    """
    with _budget.share() as share_bytes:
        bytes_max = min(bytes_max, share_bytes, 2 * load.buffer_bytes)
        buffer = BatchBuffer()
        try:
            yield from _read(load, buffer, start, end, bytes_max)
            if not len(buffer):
                return None
            # The parser first copies all bytes, which takes some milliseconds.
            yield
            load.begin_step()
            layout = yield from load.paced(buffer.parse())
            window = _Window(load, layout, start)
            rows = yield from load.paced(window.choose())
        except CorruptError:
            # Nothing is replayed yet. Without numpy the loader finds the batch, and sets it aside or fails.
            return (yield from load_window_plainly(load, start, end))
        load.summary.bytes += buffer.size_bytes
        load.summary.records += window.records
        yield from window.replay(rows)
        return buffer.next_offset


def _read(load: Load, buffer: BatchBuffer, start: int, end: int, bytes_max: int) -> Generator[None, None, None]:
    offset = start
    while offset < end and buffer.size_bytes < bytes_max:
        piece = load.log.read(offset, bytes_max=min(READ_BYTES, bytes_max), up_to=end)
        yield from load.paced(check_batches(piece, offset, end))
        if not piece or not buffer.add(piece, bytes_max=bytes_max):
            return
        offset = buffer.next_offset
        if load.is_step_over:
            yield
            load.begin_step()


class _Window:
    """
    The records of one window.

    Attributes:
        records: the number of records from the start of the window on.
        special: the batches of transactions and of control records.
    """

    def __init__(self, load: Load, layout: Layout, start: int) -> None:
        self.load = load
        self.layout = layout
        self.start = start
        attributes = layout.headers["attributes"]
        self.special: list[int] = np.flatnonzero((attributes & (TRANSACTIONAL | CONTROL)) != 0).tolist()
        self.records = len(layout)
        self.replay_bulk: Callable[..., Iterator[None]] | None = getattr(load.shard, "replay_bulk", None)

    def choose(self) -> Generator[None, None, Ints]:
        """Return the rows that have to be replayed."""
        layout = self.layout
        keep: Bools = layout.key_bytes >= 0
        if len(layout.headers) and layout.headers["base_offset"][0] < self.start:
            early = np.flatnonzero(layout.batch == 0)
            early = early[layout.offsets(early) < self.start]
            keep[early] = False
            self.records -= len(early)
        plain = keep
        if self.special:
            is_plain = np.ones(len(layout.headers), np.bool_)
            is_plain[self.special] = False
            plain = keep & is_plain[layout.batch]
        dropped = yield from latest_by_key(layout, plain)
        keep[dropped] = False
        return np.flatnonzero(keep)

    def replay(self, rows: Ints) -> Generator[None, None, None]:
        """Replay these rows, and the transaction markers between them."""
        load, layout = self.load, self.layout
        done = 0
        for batch in self.special:
            until = int(np.searchsorted(rows, layout.first[batch]))
            yield from self._plain(rows[done:until])
            done = until
            header = read_header(layout.raw, int(layout.positions[batch]))
            if header.is_control:
                at = int(layout.positions[batch])
                for marker in read_markers(header, memoryview(layout.raw)[at:], self.start):
                    if load.set_aside_keys:
                        yield from load.replay_earlier(self._plain_records(batch))
                    load.end_transaction(marker)
            else:
                until = int(np.searchsorted(rows, layout.first[batch] + header.record_count))
                self._one_by_one(rows[done:until], header.producer_id, header.producer_epoch)
                done = until
            if load.is_step_over:
                yield
                load.begin_step()
        yield from self._plain(rows[done:])
        if load.set_aside_keys:
            yield from load.replay_earlier(self._plain_records(len(layout.positions)))

    def _plain_records(self, end: int) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Offset, key and value of the records outside transactions before the batch of index `end`."""
        layout, special = self.layout, set(self.special)
        for row in np.flatnonzero((layout.key_bytes >= 0) & (layout.batch < end)).tolist():
            if int(layout.batch[row]) in special:
                continue
            with suppress(CorruptError):
                records = self._raw(np.array([row]))
                offset = int(records.offsets[0])
                if offset >= self.start:
                    yield offset, *records.pair(0)

    def _plain(self, rows: Ints) -> Generator[None, None, None]:
        """Replay records outside transactions."""
        load = self.load
        replay_bulk = self.replay_bulk if len(rows) >= BULK_MIN else None
        for low in range(0, len(rows), ROWS_AT_ONCE if replay_bulk is None else BULK_ROWS_AT_ONCE):
            if replay_bulk is None:
                self._one_by_one(rows[low : low + ROWS_AT_ONCE], NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
                if load.is_step_over:
                    yield
                    load.begin_step()
            else:
                some = rows[low : low + BULK_ROWS_AT_ONCE]
                summary = load.summary
                replayed, set_aside = summary.replayed, summary.set_aside_count
                try:
                    records = self._raw(some)
                except CorruptError:
                    self._one_by_one(some, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
                    continue
                yield from load.paced(replay_bulk(records, partial(self._one, records)))
                summary.replayed = replayed + len(records) - (summary.set_aside_count - set_aside)

    def _raw(self, rows: Ints) -> RawRecords:
        layout = self.layout
        value_at, value_bytes = layout.values(rows)
        return RawRecords(
            layout.raw,
            layout.data,
            layout.offsets(rows),
            layout.key_at[rows],
            layout.key_bytes[rows],
            value_at,
            value_bytes,
        )

    def _one(self, records: RawRecords, index: int) -> None:
        self.load.replay(int(records.offsets[index]), *records.pair(index), NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def _one_by_one(self, rows: Ints, producer_id: int, producer_epoch: int) -> None:
        try:
            records = self._raw(rows)
        except CorruptError as error:
            # The value of one of them is longer than its record.
            if len(rows) > 1:
                for row in range(len(rows)):
                    self._one_by_one(rows[row : row + 1], producer_id, producer_epoch)
            else:
                self._set_aside(rows, error, producer_id)
            return
        replay = self.load.replay
        for index, offset in enumerate(records.offsets.tolist()):
            replay(offset, *records.pair(index), producer_id, producer_epoch)

    def _set_aside(self, rows: Ints, error: CorruptError, producer_id: int) -> None:
        layout = self.layout
        # Its own offset may be what cannot be read.
        offset = int(layout.headers["base_offset"][layout.batch[rows][0]])
        key_at = int(layout.key_at[rows][0])
        key = layout.raw[key_at : key_at + int(layout.key_bytes[rows][0])]
        self.load.set_aside_record(offset, key, error, producer_id)
