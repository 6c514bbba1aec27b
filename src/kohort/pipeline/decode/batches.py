"""
The whole record batches (magic 2) in the bytes of a segment file, and the damaged ranges.

A segment is a chain: a batch states its length, and the next one follows. A file that was not closed cleanly may end in a torn
batch or in zero bytes. Any other bytes that are no batch are damage: a batch with a wrong CRC is left out, and after an
implausible length the chain continues at the next plausible header with a correct CRC. All of it is reported.

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

from kohort.pipeline.decode.checksums import IS_NATIVE, ChecksumsAhead, crc32c
from kohort.pipeline.decode.storage import release
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    COUNT_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    fields_struct,
)
from kohort.wire.columnar.layout import HEADER_DTYPE
from kohort.wire.columnar.vectors import Bytes, Ints, big_endian

_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_PREFIX = fields_struct("base_offset", "crc")
_SEARCH_BYTES = 1 << 20
_RELEASE_BYTES = 1 << 20
"""The part of a mapped segment that stays in memory during a scan."""
SCAN_BATCHES = 1 << 17
"""Batches that are held at once: a segment of 1 GiB may have ten million batches of one record."""

ZERO_BYTES = "zero bytes"
INCOMPLETE_BATCH = "incomplete batch"
CRC_MISMATCH = "CRC does not match"
DAMAGED_RANGE = "no record batch"
OLD_FORMAT = "message format older than 2"

Headers: TypeAlias = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Corruption:
    """An unreadable range of a segment file, or an unreadable record; `log_offset` is None if it is unknown."""

    position: int
    size_bytes: int
    problem: str
    log_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """
    Batches of one segment and the damage before them, for the last batches also the damage after them.

    Attributes:
        data: the segment's bytes.
        positions: the position of each batch.
        headers: their headers, `HEADER_DTYPE`.
        mapped: the mapped file behind `data`, see `release`.
    """

    data: Bytes
    positions: Ints
    headers: Headers
    damage: list[Corruption] = field(default_factory=list)
    mapped: Any = None

    def of(self, chosen: Any) -> "Scan":
        """Some of the batches, by their numbers."""
        return Scan(self.data, self.positions[chosen], self.headers[chosen], mapped=self.mapped)

    def release(self, begin: int, end: int) -> None:
        """Release the pages of a range that is not needed soon."""
        release(self.mapped, begin, end)

    @property
    def ends(self) -> Ints:
        """The end of each batch."""
        result: Ints = self.positions + LOG_OVERHEAD_BYTES + self.headers["length"].astype(np.int64)
        return result

    @property
    def next_offsets(self) -> Ints:
        """The offset after each batch."""
        result: Ints = self.headers["base_offset"] + self.headers["last_offset_delta"].astype(np.int64) + 1
        return result


def scan(segment: Any, *, check_crc: bool = True, begin: int = 0, until: int | None = None) -> Scan:
    """
    All batches in a segment's bytes (any object with the buffer protocol, except an empty mmap).

    Args:
        begin, until: scan only this part; positions stay those in the segment. A batch begins at `begin`.
    """
    (found,) = scans(segment, check_crc=check_crc, begin=begin, until=until, batches_max=sys.maxsize)
    return found


def base_offset_at(data: Any, position: int) -> int | None:
    """The base offset of the whole batch at a position in a segment's bytes; None if there is none."""
    view = memoryview(data)
    return None if _whole_end(view, position) is None else _PREFIX.unpack_from(view, position)[0]


def scans(
    segment: Any,
    *,
    check_crc: bool = True,
    begin: int = 0,
    until: int | None = None,
    batches_max: int = SCAN_BATCHES,
) -> Iterator[Scan]:
    """
    As `scan`, in pieces; the last piece may have no batch. Damage is in the piece of the batch after it, or in the last piece.

    Args:
        batches_max: batches in a piece.
    """
    view = memoryview(segment)[:until]
    data = np.frombuffer(view, np.uint8)
    size = len(view)
    positions = array("q")
    damage: list[Corruption] = []
    at = released = begun = begin
    unpack = _PREFIX.unpack_from
    ahead = None if IS_NATIVE or not check_crc else ChecksumsAhead(view)
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
                and (
                    not check_crc or (crc32c(view[at + ATTRIBUTES_AT : end]) if ahead is None else ahead.of(at)) == crc
                )
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
    """The position at which the chain continues after damage, and the problem."""
    size = len(view)
    if not data[at:].any():
        return size, ZERO_BYTES
    if size - at >= HEADER_BYTES:
        _, length, _, magic, _ = _PREFIX.unpack_from(view, at)
        end = at + LOG_OVERHEAD_BYTES + length
        if length >= _LENGTH_MIN and magic == MAGIC and end <= size and _may_follow(view, end):
            swallowed = _swallowed(data, view, at + 1, end)
            return (end, CRC_MISMATCH) if swallowed is None else (swallowed, DAMAGED_RANGE)
        if length > 0 and 0 <= magic < MAGIC and end <= size and _may_follow(view, end):
            return end, OLD_FORMAT
    found = _find(data, view, at + 1)
    return (size, INCOMPLETE_BATCH) if found is None else (found, DAMAGED_RANGE)


def _swallowed(data: Bytes, view: memoryview, start: int, end: int) -> int | None:
    """
    The first whole batch that a damaged length hides, or None.

    Whole batches from there on lead to `end` or past it. Batches inside a record's value end before the record does.
    """
    found = at = _find(data, view, start, end)
    while at is not None and at < end:
        at = _whole_end(view, at)
    return None if at is None else found


def _whole_end(view: memoryview, at: int) -> int | None:
    """The end of the whole batch with a correct CRC at a position; None if there is none."""
    if not 0 <= at <= len(view) - HEADER_BYTES:
        return None
    _, length, _, magic, crc = _PREFIX.unpack_from(view, at)
    end = at + LOG_OVERHEAD_BYTES + length
    is_whole = magic == MAGIC and length >= _LENGTH_MIN and end <= len(view)
    return end if is_whole and crc32c(view[at + ATTRIBUTES_AT : end]) == crc else None


def _may_follow(view: memoryview, at: int) -> bool:
    """Whether a chain may continue here: at the end of the file, or at plausible first fields of a header."""
    if len(view) - at < HEADER_BYTES:
        return True
    base_offset, length, _, magic, _ = _PREFIX.unpack_from(view, at)
    return bool(base_offset >= 0 and length >= 0 and 0 <= magic <= MAGIC)


def _find(data: Bytes, view: memoryview, start: int, until: int | None = None) -> int | None:
    """The first position in `start:until` of a whole batch with a correct CRC; the batch may end after `until`."""
    size = len(view)
    last = size - HEADER_BYTES + 1 if until is None else min(until, size - HEADER_BYTES + 1)
    for begin in range(start, last, _SEARCH_BYTES):
        end = min(begin + _SEARCH_BYTES, last)
        at = begin + np.flatnonzero(data[begin + MAGIC_AT : end + MAGIC_AT] == MAGIC)
        length = big_endian(data, at + LENGTH_AT, "i4")
        likely = (
            (big_endian(data, at, "i8") >= 0) & (length >= _LENGTH_MIN) & (at + LOG_OVERHEAD_BYTES + length <= size)
        )
        likely &= (big_endian(data, at + LAST_OFFSET_DELTA_AT, "i4") >= 0) & (
            big_endian(data, at + COUNT_AT, "i4") >= 0
        )
        for candidate in at[likely].tolist():
            if _whole_end(view, candidate) is not None:
                return int(candidate)
    return None
