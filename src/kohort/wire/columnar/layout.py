"""
Columnar reading of record batches: the positions of the records of many batches, found for all of them together. Needs numpy.

A buffer holds whole batches, and after them the decompressed records of compressed batches. Records are found by their lengths,
in lockstep: step k finds record k of every batch that has one. When few batches are left, they are walked one by one. All other
fields are then read for all records together.

A batch with a correct checksum can still be malformed. A length that leads out of its batch is refused, and no position outside
the buffer is read. Parsing takes long, so it is a generator that yields often.

Source: Kafka DefaultRecordBatch, DefaultRecord.
"""

from collections.abc import Generator
from dataclasses import dataclass
from io import BytesIO
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kohort.model.errors import CorruptError
from kohort.model.limits import DECOMPRESSED_BYTES_MAX, UNORDERED_RECORDS_MAX
from kohort.wire.batch_header import CODEC_MASK, CONTROL, FIELDS, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, fields_struct
from kohort.wire.columnar.vectors import Bools, Bytes, Ints, skip_varint, unsigned_varint, varint
from kohort.wire.compression import decompress

HEADER_DTYPE = np.dtype([(name, f">{character}" if character != "b" else "i1") for name, character in FIELDS])
Headers: TypeAlias = npt.NDArray[np.void]

PADDING_BYTES = 512
"""Padding after a buffer: a read of this many bytes may begin at any position inside."""
ROWS_PER_STEP = 8192
"""Records between two yields."""

_LOCKSTEP_MIN = 48
"""The least number of batches for which a step in lockstep is cheaper than a walk through each."""
_RECORD_BYTES_MIN = 7
_PREFIX = fields_struct("base_offset", "last_offset_delta")
_VARINT_SHIFT_MAX = 28
_MALFORMED = "records do not fit into their batch"


class BatchBuffer:
    """
    Collects batches and parses them together.

    Attributes:
        next_offset: the offset after the last batch.
        size_bytes: the decompressed size of all batches.
    """

    def __init__(self) -> None:
        self.next_offset = -1
        self.size_bytes = 0
        self._pieces: Final = BytesIO()
        self._positions: list[int] = []
        self._unpacked: list[tuple[int, bytes]] = []
        """Index of a compressed batch, and its records."""

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, piece: bytes, *, bytes_max: int) -> bool:
        """
        Add the whole batches of a piece of log, until there are `bytes_max` or more, and return whether there were any.

        Raises:
            CorruptError: the bytes are not batches of magic 2, or cannot be decompressed.
        """
        begin = self._pieces.tell()
        positions, unpack = self._positions, _PREFIX.unpack_from
        at, size, room = 0, len(piece), bytes_max - self.size_bytes
        base_offset = delta = 0
        while size - at >= HEADER_BYTES and at < room:
            base_offset, length, _, magic, _, attributes, delta = unpack(piece, at)
            after = at + LOG_OVERHEAD_BYTES + length
            if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                raise CorruptError(f"no batch of magic {MAGIC} at byte {at}")
            if after > size:
                break
            if attributes & CODEC_MASK and not attributes & CONTROL:
                packed = memoryview(piece)[at + HEADER_BYTES : after]
                records = decompress(packed, attributes & CODEC_MASK, DECOMPRESSED_BYTES_MAX)
                self._unpacked.append((len(positions), records))
                room -= len(records)
            positions.append(begin + at)
            at = after
        if at:
            self.next_offset = base_offset + delta + 1
            self._pieces.write(piece if at == size else memoryview(piece)[:at])
            self.size_bytes = bytes_max - room + at
        return at > 0

    def parse(self) -> Generator[None, None, "Layout"]:
        """
        Find every record.

        Raises:
            CorruptError: records do not fit into their batch.
        """
        ends_at = self._pieces.tell()
        for _, records in self._unpacked:
            self._pieces.write(records)
        self._pieces.write(bytes(PADDING_BYTES))
        raw = self._pieces.getvalue()  # not a copy
        data = np.frombuffer(raw, np.uint8)
        positions = np.array(self._positions, np.int64)
        headers = _headers(data, positions)
        starts = positions + HEADER_BYTES
        ends = positions + LOG_OVERHEAD_BYTES + headers["length"]
        for batch, records in self._unpacked:
            starts[batch], ends[batch] = ends_at, ends_at + len(records)
            ends_at += len(records)
        self._unpacked.clear()
        # Control records are few; the caller reads them one by one.
        is_control = (headers["attributes"] & CONTROL) != 0
        counts = np.where(is_control, 0, headers["count"].astype(np.int64))
        ends = np.where(is_control, starts, ends)
        if ((counts < 0) | (counts * _RECORD_BYTES_MIN > ends - starts)).any():
            raise CorruptError(_MALFORMED)
        yield
        for batch in np.flatnonzero(counts > UNORDERED_RECORDS_MAX).tolist():
            yield from _check_offsets(raw, data, int(starts[batch]), int(ends[batch]), int(counts[batch]))
        first = np.cumsum(counts) - counts
        at, after, broken = yield from find_records(data, starts, ends, counts, raw)
        if broken.any():
            raise CorruptError(_MALFORMED)
        layout = Layout(raw, data, positions, headers, first, at, after, *_rows(counts))
        yield from layout.find_keys()
        return layout


def _headers(data: Bytes, positions: Ints) -> Headers:
    rows: npt.NDArray[np.void] = np.ndarray((len(data) - HEADER_BYTES + 1,), HEADER_DTYPE, data, strides=(1,))
    return rows[positions]


def _rows(counts: Ints) -> tuple[Ints, Ints, Ints]:
    """The batch of each record, and empty columns for the positions and sizes of keys."""
    batch = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return batch, np.empty(len(batch), np.int64), np.empty(len(batch), np.int64)


def _check_offsets(raw: bytes, data: Bytes, at: int, end: int, count: int) -> Generator[None, None, None]:
    """
    Check that the offsets of a batch with many records rise, before memory is allocated for it.

    The columns of a record take six times the memory of the smallest encoded record, so some kB of equal compressed records
    would take a gigabyte. Rising offsets do not compress that well.

    Raises:
        CorruptError: the offsets do not rise.
    """
    before = -1
    for left in range(count, 0, -ROWS_PER_STEP):
        try:
            found = _walk(raw, at, min(left, ROWS_PER_STEP))
        except IndexError:
            raise CorruptError(_MALFORMED) from None
        at = found.pop()
        if at > end:
            raise CorruptError(_MALFORMED)
        deltas, _ = varint(data, _offset_delta_at(data, np.array(found, np.int64)))
        if deltas[0] <= before or (np.diff(deltas) <= 0).any():
            raise CorruptError(f"the offsets of a batch of {count} records do not rise")
        before = int(deltas[-1])
        yield


def find_records(
    data: Bytes, starts: Ints, ends: Ints, counts: Ints, raw: bytes | None = None
) -> Generator[None, None, tuple[Ints, Ints, Bools]]:
    """
    Find the records of batches by their lengths.

    Args:
        starts, ends: of the records of each batch.
        counts: the number of records of each batch; none is more than its bytes allow.
        raw: the same bytes as `data`, if they are there.

    Returns:
        The begin and the end of each record; and which batches are malformed: their records do not fill them. No position is
        after the end of its batch.
    """
    walk = _Walk(data, starts, ends, counts, raw)
    yield from walk.run()
    broken = np.empty(len(counts), np.bool_)
    broken[walk.order] = walk.broken | (walk.at != walk.ends)
    if (negative := data[walk.found] & 1).any():
        broken[np.repeat(np.arange(len(counts)), counts)[negative.astype(np.bool_)]] = True
    return walk.found, walk.after, broken


class _Walk:
    """The begin (`found`) and the end (`after`) of each record, and which batches have a length that leads out of them."""

    def __init__(self, data: Bytes, starts: Ints, ends: Ints, counts: Ints, raw: bytes | None) -> None:
        self.raw = raw
        self.data = data
        self.order = np.argsort(-counts, kind="stable")
        self.counts = counts[self.order]
        self.at = starts[self.order]
        self.ends = ends[self.order]
        self.target = (np.cumsum(counts) - counts)[self.order]
        self.broken = np.zeros(len(counts), np.bool_)
        total = int(counts.sum())
        self.found: Ints = np.empty(total, np.int64)
        self.after: Ints = np.empty(total, np.int64)

    def run(self) -> Generator[None, None, None]:
        descending, seen = -self.counts, 0
        for step in range(int(self.counts.max(initial=0))):
            alive = int(np.searchsorted(descending, -step, side="left"))
            if alive < _LOCKSTEP_MIN:
                yield from self._one_by_one(step, alive)
                break
            self._step(step, alive)
            seen += alive + 400
            if seen > ROWS_PER_STEP:
                seen = 0
                yield

    def _step(self, step: int, alive: int) -> None:
        at, end = self.at[:alive], self.ends[:alive]
        column = self.target[:alive] + step
        length, body = unsigned_varint(self.data, at)
        after = body + (length >> 1)
        wrong = after > end
        if wrong.any():
            self.broken[:alive] |= wrong
            after = np.where(wrong, end, after)
        self.found[column] = at
        self.after[column] = after
        self.at[:alive] = after

    def _one_by_one(self, step: int, alive: int) -> Generator[None, None, None]:
        raw = self.data.tobytes() if self.raw is None else self.raw
        seen = 0
        for batch in range(alive):
            left, end = int(self.counts[batch]) - step, int(self.ends[batch])
            try:
                found = _walk(raw, int(self.at[batch]), left)
            except IndexError:
                found = [end + 1] * (left + 1)
            if found[-1] > end:
                self.broken[batch] = True
                found = [min(each, end) for each in found]
            row = int(self.target[batch]) + step
            self.found[row : row + left] = found[:-1]
            self.after[row : row + left] = found[1:]
            self.at[batch] = found[-1]
            seen += left
            if seen > ROWS_PER_STEP:
                seen = 0
                yield


def _walk(raw: bytes, at: int, count: int) -> list[int]:
    """The positions of `count` adjacent records, and the end of the last one."""
    found = [at]
    append = found.append
    for _ in range(count):
        length = raw[at]
        if length < 0x80:
            at += 1 + (length >> 1)
        else:
            following = raw[at + 1]
            if following < 0x80:
                at += 2 + ((length & 0x7F | following << 7) >> 1)
            else:
                at = _after_long(raw, at)
        append(at)
    return found


def _after_long(raw: bytes, at: int) -> int:
    """The end of a record whose length takes three to five bytes. Raises IndexError, also for a longer length."""
    length = shift = 0
    while raw[at] >= 0x80:
        if shift == _VARINT_SHIFT_MAX:
            raise IndexError
        length |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
    return at + 1 + ((length | raw[at] << shift) >> 1)


@dataclass(slots=True, eq=False)
class Layout:
    """
    The records of a buffer in the order of the log, one row each.

    Attributes:
        raw, data: the padded bytes, as `bytes` and as an array.
        positions, headers, first: the position, header and first row of each batch. Control batches have no rows.
        at, after: the begin and the end of each record.
        batch: the batch of each record.
        key_at, key_bytes: the position and size of each key; -1 bytes for null.
    """

    raw: bytes
    data: Bytes
    positions: Ints
    headers: Headers
    first: Ints
    at: Ints
    after: Ints
    batch: Ints
    key_at: Ints
    key_bytes: Ints

    def __len__(self) -> int:
        return len(self.at)

    def find_keys(self) -> Generator[None, None, None]:
        for low in range(0, len(self), ROWS_PER_STEP):
            rows = slice(low, low + ROWS_PER_STEP)
            here = skip_varint(self.data, _offset_delta_at(self.data, self.at[rows]))
            size, here = varint(self.data, here)
            if ((size < -1) | (size > self.after[rows] - here)).any():
                raise CorruptError(_MALFORMED)
            self.key_at[rows], self.key_bytes[rows] = here, size
            yield

    def offsets(self, rows: Ints) -> Ints:
        """
        The offsets of some records.

        Raises:
            CorruptError: an offset is outside its batch.
        """
        batch = self.batch[rows]
        delta, _ = varint(self.data, _offset_delta_at(self.data, self.at[rows]))
        if ((delta < 0) | (delta > self.headers["last_offset_delta"][batch])).any():
            raise CorruptError(_MALFORMED)
        result: Ints = self.headers["base_offset"].astype(np.int64)[batch] + delta
        return result

    def values(self, rows: Ints) -> tuple[Ints, Ints]:
        """
        The positions and sizes of the values of some records; -1 bytes for null.

        Raises:
            CorruptError: a value is longer than its record.
        """
        size, here = varint(self.data, self.key_at[rows] + np.maximum(self.key_bytes[rows], 0))
        if ((size < -1) | (size > self.after[rows] - here)).any():
            raise CorruptError(_MALFORMED)
        return here, size


def _offset_delta_at(data: Bytes, at: Ints) -> Ints:
    """The position after a record's length, attributes and timestamp delta."""
    return skip_varint(data, skip_varint(data, at) + 1)
