"""
CRC-32C, in numpy where the native package is missing, as on executors of a Spark cluster.

The state after each byte is a linear function of the state before it and of the byte. So ranges are cut into pieces of one
size, all pieces advance by four bytes a step, and the pieces of a range are joined: a piece moves the state before it by a
fixed function. The checksums of the batches of a whole window are computed at once; 1 MiB of them costs some 2 to 8 ms.

Source: RFC 3720, appendix B.4 (the polynomial); Kafka DefaultRecordBatch.computeChecksum.
"""

from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kohort.wire.batch_header import ATTRIBUTES_AT, HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD_BYTES
from kohort.wire.columnar.vectors import Bytes, Ints

__all__ = ["IS_NATIVE", "ChecksumsAhead", "checksums", "crc32c"]

try:
    from crc32c import crc32c
except ImportError:

    def crc32c(data: Any) -> int:
        """Return the checksum of some bytes, of four at least."""
        raw = np.frombuffer(data, np.uint8)
        return int(checksums(raw, np.zeros(1, np.int64), np.full(1, len(raw), np.int64))[0])

    IS_NATIVE = False
else:
    IS_NATIVE = True

Words: TypeAlias = npt.NDArray[np.uint32]
Tables: TypeAlias = tuple[Words, Words]
"""A linear function of a word: its values for the lower and for the upper half of the bits."""

_POLYNOMIAL: Final = 0x82F63B78
_WORD_BYTES: Final = 4
_PIECE_BYTES: Final = 256
_WINDOW_BYTES: Final = 1 << 20
_HALF_BITS: Final = 16
_HALF: Final = 0xFFFF
_ONES: Final = 0xFFFF_FFFF


class ChecksumsAhead:
    """The checksums of the batches in a segment, computed for a whole window at the first question about a batch in it."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._known: dict[int, int] = {}

    def of(self, at: int) -> int:
        """Return the checksum of the batch at a position, which lies in the segment as a whole."""
        if at not in self._known:
            starts, ends = self._chain(at)
            found = checksums(np.frombuffer(self._view, np.uint8), starts + ATTRIBUTES_AT, ends)
            self._known = dict(zip(starts.tolist(), found.tolist(), strict=True))
        return self._known[at]

    def _chain(self, at: int) -> tuple[Ints, Ints]:
        """Return the positions and ends of the batches from `at` on, of one at least."""
        starts, ends = [], []
        until = min(at + _WINDOW_BYTES, len(self._view) - HEADER_BYTES + 1)
        while at < until:
            length = int.from_bytes(self._view[at + LENGTH_AT : at + LENGTH_AT + 4], "big", signed=True)
            end = at + LOG_OVERHEAD_BYTES + length
            if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or end > len(self._view):
                break
            starts.append(at)
            ends.append(end)
            at = end
        return np.array(starts, np.int64), np.array(ends, np.int64)


def checksums(data: Bytes, starts: Ints, ends: Ints) -> Words:
    """Return the CRC-32C of each range of some bytes. Ranges do not overlap, and have at least four bytes."""
    base = int(starts.min())
    padded = np.zeros(_PIECE_BYTES + int(ends.max()) - base, np.uint8)
    padded[_PIECE_BYTES:] = data[base : int(ends.max())]
    starts, ends = starts - base + _PIECE_BYTES, ends - base + _PIECE_BYTES
    # The state begins with ones, as if the first bytes were inverted.
    padded[starts[:, None] + np.arange(_WORD_BYTES)] ^= 0xFF
    # Pieces end where their range ends. The first piece of a range may begin before it, and is filled with zeros there.
    counts = -(-(ends - starts) // _PIECE_BYTES)
    firsts = np.cumsum(counts) - counts
    number = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    at = np.repeat(ends - counts * _PIECE_BYTES, counts) + number * _PIECE_BYTES
    pieces = np.lib.stride_tricks.sliding_window_view(padded, _PIECE_BYTES)[at]
    pieces[firsts] &= _masks()[counts * _PIECE_BYTES - (ends - starts)]
    states = _advanced(pieces.view("<u4"))
    result = states[firsts]
    shift = _piece_tables()
    for step in range(1, int(counts.max())):
        live = np.flatnonzero(counts > step)
        result[live] = _applied(shift, result[live]) ^ states[firsts[live] + step]
    found: Words = result ^ np.uint32(_ONES)
    return found


@cache
def _masks() -> Bytes:
    """For each number of bytes: a piece whose first bytes are zeros, and all others ones."""
    size = np.arange(_PIECE_BYTES)
    return np.where(size < size[:, None], 0, 0xFF).astype(np.uint8)


def _advanced(words: Words) -> Words:
    """Return the states after all words of each row, from zero."""
    tables = _word_tables()
    state = np.zeros(len(words), np.uint32)
    for word in np.ascontiguousarray(words.T):
        state = _applied(tables, state ^ word)
    return state


def _applied(tables: Tables, state: Words) -> Words:
    result: Words = tables[0][state & _HALF] ^ tables[1][state >> _HALF_BITS]
    return result


@cache
def _word_tables() -> Tables:
    """The change of a state over four bytes that are zero."""
    state = np.concatenate(
        [np.arange(_HALF + 1, dtype=np.uint32), np.arange(_HALF + 1, dtype=np.uint32) << np.uint32(_HALF_BITS)]
    )
    for _ in range(8 * _WORD_BYTES):
        state = np.where(state & 1, (state >> 1) ^ np.uint32(_POLYNOMIAL), state >> 1)
    return state[: _HALF + 1], state[_HALF + 1 :]


@cache
def _piece_tables() -> Tables:
    """The change of a state over a piece of bytes that are zero."""
    low = np.arange(_HALF + 1, dtype=np.uint32)
    high = low << np.uint32(_HALF_BITS)
    for _ in range(_PIECE_BYTES // _WORD_BYTES):
        low, high = _applied(_word_tables(), low), _applied(_word_tables(), high)
    return low, high
