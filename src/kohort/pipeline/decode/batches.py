"""
Which bytes of a segment file are whole record batches (magic 2), and which are not.

A segment is a chain: a batch says how long it is, the next one follows. The chain ends where the file ends; a file that was
not closed cleanly may end in a torn batch or in zero bytes. Everything else that does not fit is damage: a batch whose CRC
does not match is left out, and where even the length cannot be believed the chain goes on at the next header that is
plausible and whose CRC matches. All of it is reported.

Source: Kafka DefaultRecordBatch (layout), LogSegment.recover (what a broker cuts off).
"""

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kohort.pipeline.decode.storage import release
from kohort.wire.batch_header import ATTRIBUTES_AT, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT, fields_struct
from kohort.wire.layout import HEADER_DTYPE
from kohort.wire.vectors import Bytes, Ints, big_endian

_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_PREFIX = fields_struct("base_offset", "crc")
_SEARCH_BYTES = 1 << 20
_RELEASE_BYTES = 16 << 20
"""How much of a mapped segment stays in memory while it is walked."""
SCAN_BATCHES = 1 << 17
"""How many batches are held at once: a segment of 1 GiB may be ten million of one record each."""

ZERO_BYTES = "zero bytes"
INCOMPLETE_BATCH = "incomplete batch"
CRC_MISMATCH = "CRC does not match"
DAMAGED_RANGE = "no record batch"
OLD_FORMAT = "message format older than 2"

Headers: TypeAlias = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Corruption:
    """A range of a segment file that cannot be read, or a record in it; `log_offset` is None where none can be told."""

    position: int
    size_bytes: int
    problem: str
    log_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """
    Batches of one segment, and the damage before them; behind them where they are its last.

    Attributes:
        data: the segment's bytes.
        positions: where each batch begins.
        headers: their headers, `HEADER_DTYPE`.
        mapped: what `data` is a view of, see `release`.
    """

    data: Bytes
    positions: Ints
    headers: Headers
    damage: list[Corruption] = field(default_factory=list)
    mapped: Any = None

    def release(self, begin: int, end: int) -> None:
        """These bytes are not looked at again soon."""
        release(self.mapped, begin, end)

    @property
    def ends(self) -> Ints:
        """Where each batch ends."""
        result: Ints = self.positions + LOG_OVERHEAD_BYTES + self.headers["length"].astype(np.int64)
        return result

    @property
    def next_offsets(self) -> Ints:
        """The offset that follows each batch."""
        result: Ints = self.headers["base_offset"] + self.headers["last_offset_delta"].astype(np.int64) + 1
        return result


def scan(segment: Any, *, check_crc: bool = True, begin: int = 0, until: int | None = None) -> Scan:
    """
    All batches in a segment's bytes (anything with the buffer protocol, not empty bytes of an mmap).

    Args:
        begin, until: look at this part alone; positions are still those in the segment. `begin` is where a batch begins.
    """
    (found,) = scans(segment, check_crc=check_crc, begin=begin, until=until, batches_max=sys.maxsize)
    return found


def scans(
    segment: Any,
    *,
    check_crc: bool = True,
    begin: int = 0,
    until: int | None = None,
    batches_max: int = SCAN_BATCHES,
) -> Iterator[Scan]:
    """
    The same, some batches at a time; what comes last may hold none. Damage comes with the batch behind it, or last.

    Args:
        batches_max: how many batches at once.
    """
    view = memoryview(segment)[:until]
    data = np.frombuffer(view, np.uint8)
    size = len(view)
    positions = array("q")
    damage: list[Corruption] = []
    at = released = begun = begin
    unpack = _PREFIX.unpack_from
    while at < size:
        if at - released >= _RELEASE_BYTES:
            release(segment, released, at)
            released = at
        if size - at >= HEADER_BYTES:
            _, length, _, magic, crc = unpack(view, at)
            end = at + LOG_OVERHEAD_BYTES + length
            if (
                magic == MAGIC
                and length >= _LENGTH_MIN
                and end <= size
                and (not check_crc or crc32c(view[at + ATTRIBUTES_AT : end]) == crc)
            ):
                positions.append(at)
                at = end
                if len(positions) == batches_max:
                    yield _scanned(data, positions, damage, segment, begun, at)
                    positions, damage, begun = array("q"), [], at
                continue
        resumed, problem = _resume(data, view, at)
        damage.append(Corruption(at, resumed - at, problem))
        at = resumed
    yield _scanned(data, positions, damage, segment, begun, size)


def _scanned(
    data: Bytes, positions: "array[int]", damage: list[Corruption], segment: Any, begin: int, end: int
) -> Scan:
    found = np.array(positions, dtype=np.int64)
    headers = _headers(data, found, segment)
    release(segment, begin, end)
    return Scan(data, found, headers, damage, segment)


def _headers(data: Bytes, positions: Ints, segment: Any) -> Headers:
    headers = np.empty(len(positions), HEADER_DTYPE)
    if not len(positions):
        return headers
    rows = np.lib.stride_tricks.sliding_window_view(data, HEADER_BYTES)
    bounds = np.searchsorted(positions, np.arange(positions[0], positions[-1] + 1, _RELEASE_BYTES)).tolist()
    for first, until in pairwise([*bounds, len(positions)]):
        if first < until:
            part = positions[first:until]
            headers[first:until] = np.ascontiguousarray(rows[part]).view(HEADER_DTYPE).reshape(-1)
            release(segment, int(part[0]), int(part[-1]))
    return headers


def _resume(data: Bytes, view: memoryview, at: int) -> tuple[int, str]:
    """Where the chain goes on behind bytes that are no batch, and what is wrong with them."""
    size = len(view)
    if not data[at:].any():
        return size, ZERO_BYTES
    if size - at >= HEADER_BYTES:
        _, length, _, magic, _ = _PREFIX.unpack_from(view, at)
        end = at + LOG_OVERHEAD_BYTES + length
        if length >= _LENGTH_MIN and magic == MAGIC and end <= size and _may_follow(view, end):
            return end, CRC_MISMATCH
        if length > 0 and 0 <= magic < MAGIC and end <= size and _may_follow(view, end):
            return end, OLD_FORMAT
    found = _find(data, view, at + 1)
    return (size, INCOMPLETE_BATCH) if found is None else (found, DAMAGED_RANGE)


def _may_follow(view: memoryview, at: int) -> bool:
    """Whether a chain may go on here: the end of the file, or a header's first fields."""
    if len(view) - at < HEADER_BYTES:
        return True
    base_offset, length, _, magic, _ = _PREFIX.unpack_from(view, at)
    return bool(base_offset >= 0 and length >= 0 and 0 <= magic <= MAGIC)


def _find(data: Bytes, view: memoryview, start: int) -> int | None:
    """The first position from `start` on that holds a whole batch with the right CRC."""
    size = len(view)
    for begin in range(start, size - HEADER_BYTES + 1, _SEARCH_BYTES):
        end = min(begin + _SEARCH_BYTES, size - HEADER_BYTES + 1)
        at = begin + np.flatnonzero(data[begin + MAGIC_AT : end + MAGIC_AT] == MAGIC)
        length = big_endian(data, at + 8, "i4")
        likely = (
            (big_endian(data, at, "i8") >= 0) & (length >= _LENGTH_MIN) & (at + LOG_OVERHEAD_BYTES + length <= size)
        )
        likely &= (big_endian(data, at + 23, "i4") >= 0) & (big_endian(data, at + 57, "i4") >= 0)
        for candidate in at[likely].tolist():
            _, batch_length, _, _, crc = _PREFIX.unpack_from(view, candidate)
            if crc32c(view[candidate + ATTRIBUTES_AT : candidate + LOG_OVERHEAD_BYTES + batch_length]) == crc:
                return int(candidate)
    return None
