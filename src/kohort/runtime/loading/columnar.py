"""
The scan with numpy: finds the records of a window, and the newest of each key, before any is decoded.

`kohort.machine.shard.Shard.replay_bulk` replays many records at a time. The windows of all loads share a budget of memory: with
many loads at a time each window is smaller, down to a minimum.

`kohort.runtime.loading.loader` imports this module for a load that is large enough.
"""

from collections.abc import Generator

import numpy as np

from kohort.machine.bulk import RawRecords
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.model.errors import CorruptError
from kohort.runtime.loading.ahead import Pause
from kohort.runtime.loading.checks import check_batches
from kohort.runtime.loading.latest_by_key import latest_by_key
from kohort.runtime.loading.windows import Load, Rows, read_markers, scan_batches
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL
from kohort.wire.batches import read_header
from kohort.wire.columnar.layout import ROWS_PER_STEP, BatchBuffer, Layout
from kohort.wire.columnar.vectors import Bools, Ints

WINDOWS_BYTES = 10 * 1024 * 1024
"""The bytes of log that all loads together hold; the positions of their records take about as much again."""
WINDOW_BYTES_MIN = 1024 * 1024
READ_BYTES = 2 * 1024 * 1024
BULK_MIN = 64
"""Fewer records are replayed one by one: columns of them would cost more."""

_in_progress: list[Load] = []
"""The loads that hold a window: they share `WINDOWS_BYTES`."""


def scan_columns(load: Load, start: int, end: int) -> Rows:
    """A `kohort.runtime.loading.windows.Scan`. A window has its share of the budget, and at most twice the load buffer."""
    _in_progress.append(load)
    share_bytes = max(WINDOWS_BYTES // len(_in_progress), WINDOW_BYTES_MIN)
    try:
        buffer = BatchBuffer()
        try:
            yield from _read(load, buffer, start, end, min(share_bytes, 2 * load.buffer_bytes))
            if not len(buffer):
                return
            # The parser first copies all bytes, which takes some milliseconds.
            load.end_step()
            yield None
            layout = yield from buffer.parse()
            window = _Window(load, layout, start)
            yield from window.choose()
        except CorruptError:
            # Nothing is replayed yet. The scan without numpy finds the batch, and sets it aside or fails.
            yield from scan_batches(load, start, end)
            return
        load.next_offset = buffer.next_offset
        load.summary.bytes += buffer.size_bytes
        load.summary.records += window.count
        yield from window.rows()
    finally:
        _in_progress.remove(load)


def _read(load: Load, buffer: BatchBuffer, start: int, end: int, bytes_max: int) -> Generator[Pause, None, None]:
    offset, wanted = start, min(READ_BYTES, bytes_max)
    # All of a piece fits, or it would be read again for the next window; what grows when it is decompressed may not.
    while offset < end and (not len(buffer) or buffer.size_bytes + wanted <= bytes_max):
        piece = yield from load.read(offset, wanted, end)
        yield from check_batches(piece, offset, end)
        if not piece or not buffer.add(piece, bytes_max=bytes_max):
            return
        offset = buffer.next_offset
        yield None


class _Window:
    """
    The records of one window.

    Attributes:
        count: the number of records from the start of the window on.
        special: the batches of transactions and of control records.
        places, records: the rows of the layout that have to be replayed, and their records.
    """

    places: Ints
    records: RawRecords

    def __init__(self, load: Load, layout: Layout, start: int) -> None:
        self.load = load
        self.layout = layout
        self.start = start
        attributes = layout.headers["attributes"]
        self.special: list[int] = np.flatnonzero((attributes & (TRANSACTIONAL | CONTROL)) != 0).tolist()
        self.count = len(layout)

    def choose(self) -> Generator[None, None, None]:
        """
        Find the records that have to be replayed.

        Raises:
            CorruptError: an offset or a value leads out of its batch.
        """
        layout = self.layout
        keep: Bools = layout.key_bytes >= 0
        if len(layout.headers) and layout.headers["base_offset"][0] < self.start:
            early = np.flatnonzero(layout.batch == 0)
            early = early[layout.offsets(early) < self.start]
            keep[early] = False
            self.count -= len(early)
        plain = keep
        if self.special:
            is_plain = np.ones(len(layout.headers), np.bool_)
            is_plain[self.special] = False
            plain = keep & is_plain[layout.batch]
        if self.load.is_compacted:
            dropped = yield from latest_by_key(layout, plain)
            keep[dropped] = False
        self.places = places = np.flatnonzero(keep)
        offsets, value_at, value_bytes = (np.empty(len(places), np.int64) for _ in range(3))
        for low in range(0, len(places), ROWS_PER_STEP):
            part = slice(low, low + ROWS_PER_STEP)
            offsets[part] = layout.offsets(places[part])
            value_at[part], value_bytes[part] = layout.values(places[part])
            yield
        self.records = RawRecords(
            layout.raw, layout.data, offsets, layout.key_at[places], layout.key_bytes[places], value_at, value_bytes
        )

    def rows(self) -> Rows:
        """Yield the rows and the transaction markers between them. Records outside transactions are replayed many at a time."""
        layout, places = self.layout, self.places
        done = 0
        for batch in self.special:
            until = int(np.searchsorted(places, layout.first[batch]))
            yield from self._plain(done, until)
            done = until
            at = int(layout.positions[batch])
            header = read_header(layout.raw, at)
            if header.is_control:
                yield from read_markers(header, memoryview(layout.raw)[at:], self.start)
            else:
                until = int(np.searchsorted(places, layout.first[batch] + header.record_count))
                yield from self._one_by_one(done, until, header.producer_id, header.producer_epoch)
                done = until
            yield None
        yield from self._plain(done, len(places))

    def _one_by_one(self, low: int, high: int, producer_id: int, producer_epoch: int) -> Rows:
        pair = self.records.pair
        for index, offset in enumerate(self.records.offsets[low:high].tolist(), low):
            yield offset, *pair(index), producer_id, producer_epoch

    def _plain(self, low: int, high: int) -> Rows:
        """Replay records outside transactions, or yield them if they are few."""
        if high - low < BULK_MIN:
            yield from self._one_by_one(low, high, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            return
        some = self.records.take(slice(low, high))
        load, replayed_singly = self.load, 0

        def replay_one(index: int) -> None:
            nonlocal replayed_singly
            replayed_singly += 1
            load.replay(int(some.offsets[index]), *some.pair(index), NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

        yield from load.shard.replay_bulk(some, replay_one)
        load.summary.replayed += len(some) - replayed_singly
