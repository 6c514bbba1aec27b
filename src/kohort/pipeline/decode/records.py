"""
The positions of the records of many batches (`kohort.wire.columnar.layout`), with their keys and values.

A *window* is decoded at once: some megabytes of log, copied and padded, with compressed batches decompressed. A batch with a
correct CRC can still be malformed. A length that leads out of its batch is reported as damage, and no position outside the
window is read.

Source: Kafka DefaultRecord.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kohort.model.errors import CorruptError
from kohort.model.limits import UNORDERED_RECORDS_MAX
from kohort.pipeline.decode.batches import Corruption, Headers, Scan
from kohort.pipeline.decode.vectors import joined
from kohort.wire.batch_header import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, LOG_OVERHEAD_BYTES
from kohort.wire.columnar.layout import find_records
from kohort.wire.columnar.vectors import VARLONG_BYTES_MAX, Bools, Bytes, Ints, skip_varint, varint
from kohort.wire.compression import Codec, decompress
from kohort.wire.generated.gradual import drain
from kohort.wire.scanning.record_scan import scan_records

WINDOW_BYTES = 2 << 20
PIECE_RECORDS = 1 << 15
"""Records that become columns at once; the arrays of a step fit into the processor's cache."""
RECORDS_BYTES_MAX = 256 << 20
"""The most that the records of one batch may decompress to."""
PADDING_BYTES = 64
"""Padding after a window: a record's fixed part and five varints can be read at any position."""
_RECORD_BYTES_MIN = 7
_COLUMNS = ("batch", "offset", "timestamp_ms", "key_at", "key_bytes", "value_at", "value_bytes")

MALFORMED_RECORDS = "records do not fit into their batch"


@dataclass(frozen=True, slots=True)
class Window:
    """
    Batches to decode at once.

    Attributes:
        data: the padded bytes.
        starts, ends: the begin and end of the records of each batch in `data`.
        headers: the headers of the batches.
        positions: the position of each batch in its file.
    """

    data: Bytes
    starts: Ints
    ends: Ints
    headers: Headers
    positions: Ints
    damage: list[Corruption] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Records:
    """
    The records of a window in the order of the log; every array has one element a record.

    Attributes:
        batch: index into the window's headers.
        key_at, key_bytes: position and size of the key in the window's data; -1 bytes for null.
        value_at, value_bytes: position and size of the value.
    """

    window: Window
    batch: Ints
    offset: Ints
    timestamp_ms: Ints
    key_at: Ints
    key_bytes: Ints
    value_at: Ints
    value_bytes: Ints
    damage: list[Corruption]

    def __len__(self) -> int:
        return len(self.batch)

    def select(self, chosen: Bools) -> "Records":
        """The records where `chosen` is true."""
        return self._part(chosen, self.damage)

    def _part(self, chosen: Bools | slice, damage: list[Corruption]) -> "Records":
        return replace(self, damage=damage, **{name: getattr(self, name)[chosen] for name in _COLUMNS})

    @property
    def held_bytes(self) -> int:
        """The approximate memory that these records hold."""
        window = self.window
        return window.data.nbytes + window.headers.nbytes + window.positions.nbytes + 7 * self.batch.nbytes

    def gathered(self) -> "Records":
        """The same records with a window that has only their keys and values, without damage."""
        if not len(self):
            return replace(self, damage=[])
        window, count = self.window, len(self)
        at, size_bytes = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
        at[0::2], at[1::2] = self.key_at, self.value_at
        size_bytes[0::2], size_bytes[1::2] = np.maximum(self.key_bytes, 0), np.maximum(self.value_bytes, 0)
        ends = np.cumsum(size_bytes)
        data = np.zeros(int(ends[-1]) + PADDING_BYTES, np.uint8)
        data[: int(ends[-1])] = joined(window.data, at, size_bytes)
        starts = ends - size_bytes
        # Records are in the order of their batches.
        is_first = np.concatenate(([True], np.diff(self.batch) != 0))
        used = self.batch[is_first]
        nowhere = np.zeros(len(used), np.int64)
        kept = Window(data, nowhere, nowhere, window.headers[used], window.positions[used])
        return replace(
            self, window=kept, batch=np.cumsum(is_first) - 1, key_at=starts[0::2], value_at=starts[1::2], damage=[]
        )

    def pieces(self) -> "Iterator[Records]":
        """The same records in pieces; the damage is in the first piece."""
        for begin in range(0, max(len(self), 1), PIECE_RECORDS):
            yield self._part(slice(begin, begin + PIECE_RECORDS), [] if begin else self.damage)

    def damage_of(self, index: int, problem: str) -> Corruption:
        """The damage row of an unreadable record."""
        batch = int(self.batch[index])
        return _damage(self.window, batch, problem, log_offset=int(self.offset[index]))


def _damage(window: Window, batch: int, problem: str, *, log_offset: int | None = None) -> Corruption:
    header = window.headers[batch]
    offset = int(header["base_offset"]) if log_offset is None else log_offset
    return Corruption(int(window.positions[batch]), int(header["length"]) + LOG_OVERHEAD_BYTES, problem, offset)


def windows(found: Scan, *, window_bytes: int = WINDOW_BYTES) -> Iterator[Window]:
    """The batches of a segment, window by window."""
    codecs = found.headers["attributes"] & CODEC_MASK
    packed = np.flatnonzero(codecs)
    count, first = len(found.positions), 0
    ends = found.ends
    while first < count:
        next_packed = int(np.searchsorted(packed, first))
        if next_packed < len(packed) and packed[next_packed] == first:
            plain_from = np.flatnonzero(codecs[first:] == Codec.NONE)
            until = first + int(plain_from[0]) if len(plain_from) else count
            yield from _decompressed(found, first, until, window_bytes)
        else:
            until = int(packed[next_packed]) if next_packed < len(packed) else count
            full = int(np.searchsorted(ends, found.positions[first] + window_bytes, side="right"))
            until = min(until, max(full, first + 1))
            yield _contiguous(found, first, until, ends)
        first = until


def _contiguous(found: Scan, first: int, until: int, ends: Ints) -> Window:
    """A window of batches that are not compressed, in one copy."""
    begin, end = int(found.positions[first]), int(ends[until - 1])
    data = np.zeros(end - begin + PADDING_BYTES, np.uint8)
    data[: end - begin] = found.data[begin:end]
    found.release(begin, end)
    positions = found.positions[first:until]
    return Window(
        data, positions - begin + HEADER_BYTES, ends[first:until] - begin, found.headers[first:until], positions
    )


def _decompressed(found: Scan, first: int, until: int, window_bytes: int) -> Iterator[Window]:
    """Windows of compressed batches, with their decompressed records joined."""
    chosen: list[int] = []
    pieces: list[bytes] = []
    damage: list[Corruption] = []
    filled_bytes = 0
    ends = found.ends
    for batch in range(first, until):
        header, position = found.headers[batch], int(found.positions[batch])
        packed = found.data[position + HEADER_BYTES : int(ends[batch])].tobytes()
        try:
            records = decompress(packed, int(header["attributes"]) & CODEC_MASK, RECORDS_BYTES_MAX)
            if header["count"] > UNORDERED_RECORDS_MAX:  # before their columns take ten times their memory
                scan_records(records, 0, int(header["count"]), must_rise=True)
        except CorruptError as exc:
            damage.append(Corruption(position, int(ends[batch]) - position, str(exc), int(header["base_offset"])))
            continue
        chosen.append(batch)
        pieces.append(records)
        filled_bytes += len(records)
        if filled_bytes >= window_bytes:
            found.release(int(found.positions[first]), int(ends[batch]))
            yield _joined(found, chosen, pieces, damage)
            chosen, pieces, damage, filled_bytes = [], [], [], 0
    if chosen or damage:
        yield _joined(found, chosen, pieces, damage)


def _joined(found: Scan, chosen: list[int], pieces: list[bytes], damage: list[Corruption]) -> Window:
    sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join([*pieces, bytes(PADDING_BYTES)]), np.uint8)
    return Window(data, ends - sizes, ends, found.headers[chosen], found.positions[chosen], damage)


def parse(window: Window) -> Records:
    """Find every record of a window."""
    headers = window.headers
    counts = headers["count"].astype(np.int64)
    possible = (counts >= 0) & (counts * _RECORD_BYTES_MIN <= window.ends - window.starts)
    counts = np.where(possible, counts, 0)
    batch = np.repeat(np.arange(len(headers)), counts)
    at, after, broken = drain(
        find_records(window.data, window.starts, np.where(counts, window.ends, window.starts), counts)
    )
    fields, wrong = _fields(window, batch, skip_varint(window.data, at), after)
    broken |= ~possible
    broken[batch[wrong]] = True
    timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes = fields
    broken[batch[(offset_delta < 0) | (offset_delta > headers["last_offset_delta"].astype(np.int64)[batch])]] = True
    damage = [_damage(window, int(one), MALFORMED_RECORDS) for one in np.flatnonzero(broken)]
    append_time = (headers["attributes"] & LOG_APPEND_TIME) != 0
    timestamp_ms = headers["base_timestamp"].astype(np.int64)[batch] + timestamp_delta
    if append_time.any():
        timestamp_ms = np.where(append_time[batch], headers["max_timestamp"].astype(np.int64)[batch], timestamp_ms)
    offset = headers["base_offset"].astype(np.int64)[batch] + offset_delta
    found = Records(
        window, batch, offset, timestamp_ms, key_at, key_bytes, value_at, value_bytes, window.damage + damage
    )
    return found.select(~broken[batch]) if broken.any() else found


def _fields(window: Window, batch: Ints, bodies: Ints, afters: Ints) -> tuple[Ints, Bools]:
    """
    The fields of every record, and which records are malformed.

    Returns:
        Six rows (timestamp delta, offset delta, key position and length, value position and length) with one column a record,
        and one boolean a record.
    """
    data, size, count = window.data, len(window.data), len(bodies)
    fields, wrong = np.empty((6, count), np.int64), np.empty(count, np.bool_)
    for begin in range(0, count, PIECE_RECORDS):
        part = slice(begin, begin + PIECE_RECORDS)
        limit = window.ends[batch[part]]
        timestamp_delta, here = varint(data, bodies[part] + 1, bytes_max=VARLONG_BYTES_MAX)
        offset_delta, here = varint(data, here)
        key_bytes, key_at = varint(data, here)
        value_length_at = np.minimum(key_at + np.clip(key_bytes, 0, size), limit)
        value_bytes, value_at = varint(data, value_length_at)
        wrong[part] = (key_bytes > limit - key_at) | (value_at + np.clip(value_bytes, 0, size) > afters[part])
        for row, values in enumerate((timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes)):
            fields[row, part] = values
    return fields, wrong
