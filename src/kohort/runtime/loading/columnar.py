"""
Loads a window of a log with numpy: records are found, and the newest of each key are, before anything is decoded.

A shard that can replays what is left many records at a time (`kohort.machine.bulk.BulkShard`); to any other they are given one
by one. Windows share a budget, so that many partitions that load at once need no more memory than one, until there are so many
that each has the smallest window.

Imported by `kohort.runtime.loading.loader` when a load is worth it.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from kohort.machine.bulk import RawRecords
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.runtime.loading.latest_by_key import latest_by_key
from kohort.runtime.loading.loader import Load, read_markers
from kohort.wire.batches import CONTROL, TRANSACTIONAL, read_header
from kohort.wire.layout import BatchBuffer, Layout
from kohort.wire.vectors import Bools, Ints

WINDOWS_BYTES = 10 * 1024 * 1024
"""How much of logs all loads together hold at a time, beside as much again for what is known of it."""
WINDOW_BYTES_MIN = 1024 * 1024
READ_BYTES = 2 * 1024 * 1024
ROWS_AT_ONCE = 1024
"""How many records are replayed one by one between two looks at the clock."""
BULK_ROWS_AT_ONCE = 65_536
"""How many a shard is given at once that takes many."""
BULK_MIN = 64
"""Fewer records than that are replayed one by one: columns of them would cost more."""


class _Budget:
    """Who loads at the moment shares `WINDOWS_BYTES`."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._loads = 0

    @contextmanager
    def share(self) -> Generator[int, None, None]:
        """How many bytes a window may have that begins now."""
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
    Load from one offset on; where to go on, or None at the end. Yields at the end of each step.

    Args:
        bytes_max: of the window, if its share of the budget is not less.

    Raises:
        CorruptError: a record cannot be read.
        StorageError: the log cannot be read.
    """
    with _budget.share() as share_bytes:
        bytes_max = min(bytes_max, share_bytes)
        stretch = BatchBuffer()
        yield from _read(load, stretch, start, end, bytes_max)
        if not len(stretch):
            return None
        load.summary.bytes += stretch.size_bytes
        # What comes first is to copy all of it, which takes some milliseconds.
        yield
        load.begin_step()
        layout = yield from _paced(load, stretch.parse())
        window = _Window(load, layout, start)
        rows = yield from _paced(load, window.choose())
        yield from window.replay(rows)
        return stretch.next_offset


def _read(load: Load, stretch: BatchBuffer, start: int, end: int, bytes_max: int) -> Generator[None, None, None]:
    offset = start
    while offset < end and stretch.size_bytes < bytes_max:
        piece = load.log.read(offset, bytes_max=min(READ_BYTES, bytes_max), up_to=end)
        if not piece or not stretch.add(piece, bytes_max=bytes_max):
            return
        offset = stretch.next_offset
        if load.is_step_over:
            yield
            load.begin_step()


def _paced(load: Load, work: Iterator[None]) -> Generator[None, None, Any]:
    """Do something that yields often, and yield where a step is over."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        if load.is_step_over:
            yield
            load.begin_step()


class _Window:
    """The records of one window, and what becomes of them."""

    def __init__(self, load: Load, layout: Layout, start: int) -> None:
        self.load = load
        self.layout = layout
        self.start = start
        attributes = layout.headers["attributes"]
        self.special: list[int] = np.flatnonzero((attributes & (TRANSACTIONAL | CONTROL)) != 0).tolist()
        """Batches that are not plain data."""
        self.replay_bulk: Callable[..., Iterator[None]] | None = getattr(load.shard, "replay_bulk", None)

    def choose(self) -> Generator[None, None, Ints]:
        """The rows that have to be replayed."""
        layout = self.layout
        keep: Bools = layout.key_bytes >= 0
        records = len(layout)
        if len(layout.headers) and layout.headers["base_offset"][0] < self.start:
            early = np.flatnonzero(layout.batch == 0)
            early = early[layout.offsets(early) < self.start]
            keep[early] = False
            records -= len(early)
        self.load.summary.records += records
        plain = keep
        if self.special:
            is_plain = np.ones(len(layout.headers), np.bool_)
            is_plain[self.special] = False
            plain = keep & is_plain[layout.batch]
        dropped = yield from latest_by_key(layout, plain)
        keep[dropped] = False
        return np.flatnonzero(keep)

    def replay(self, rows: Ints) -> Generator[None, None, None]:
        """Replay these rows, and the ends of transactions between them."""
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
                    load.end_transaction(marker)
            else:
                until = int(np.searchsorted(rows, layout.first[batch] + header.record_count))
                self._one_by_one(self._raw(rows[done:until]), header.producer_id, header.producer_epoch)
                done = until
            if load.is_step_over:
                yield
                load.begin_step()
        yield from self._plain(rows[done:])

    def _plain(self, rows: Ints) -> Generator[None, None, None]:
        """Replay records outside transactions."""
        load = self.load
        replay_bulk = self.replay_bulk if len(rows) >= BULK_MIN else None
        for low in range(0, len(rows), ROWS_AT_ONCE if replay_bulk is None else BULK_ROWS_AT_ONCE):
            if replay_bulk is None:
                self._one_by_one(self._raw(rows[low : low + ROWS_AT_ONCE]), NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
                if load.is_step_over:
                    yield
                    load.begin_step()
            else:
                records, before = self._raw(rows[low : low + BULK_ROWS_AT_ONCE]), load.summary.replayed
                yield from _paced(load, replay_bulk(records, partial(self._one, records)))
                load.summary.replayed = before + len(records)

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

    def _one_by_one(self, records: RawRecords, producer_id: int, producer_epoch: int) -> None:
        replay = self.load.replay
        for index, offset in enumerate(records.offsets.tolist()):
            replay(offset, *records.pair(index), producer_id, producer_epoch)
