"""
Reading many numbers at once out of one stretch of bytes; needs numpy, and is imported only where much is read.

Every function takes positions as an array and trusts them: the caller keeps them inside the bytes, which are padded so that a
number may be read from any position up to their end.
"""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]

WORDS_BYTES_MAX = 256
ALIKE_BYTES_MAX = 64
_MULTIPLIERS = np.cumprod(np.full(WORDS_BYTES_MAX // 8, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)
_MIX = np.uint64(0x94D049BB133111EB)

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
_TOO_LONG = 1 << 62
"""Stands for a number that does not end in time: as a length it fits nowhere."""


def unsigned_varint(data: Bytes, at: Ints, *, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """Base-128 numbers, and the positions behind them. One of more than `bytes_max` bytes comes out as 2^62."""
    byte = data[at]
    value: Ints = byte.astype(np.int64)
    after = at + 1
    long = byte >= 0x80
    if not long.any():
        return value, after
    # Nearly always there is a second byte and no third, so that much is done for all.
    byte = np.where(long, data[after], 0)
    value = (value & 0x7F) | ((byte & 0x7F).astype(np.int64) << 7)
    after += long
    live = np.flatnonzero(byte >= 0x80)
    for place in range(2, bytes_max):
        if not live.size:
            return value, after
        byte = data[after[live]]
        value[live] |= (byte & 0x7F).astype(np.int64) << (7 * place)
        after[live] += 1
        live = live[byte >= 0x80]
    value[live] = _TOO_LONG
    return value, after


def varint(data: Bytes, at: Ints, *, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """Zigzag base-128 numbers, as record batches hold them, and the positions behind them."""
    value, after = unsigned_varint(data, at, bytes_max=bytes_max)
    return (value >> 1) ^ -(value & 1), after


def skip_varint(data: Bytes, at: Ints) -> Ints:
    """The positions behind numbers of up to ten bytes that nobody wants to know."""
    long = data[at] >= 0x80
    after: Ints = at + 1
    if not long.any():
        return after
    live = np.flatnonzero(long)
    for _ in range(1, VARLONG_BYTES_MAX):
        long = data[after[live]] >= 0x80
        after[live] += 1
        live = live[long]
        if not live.size:
            break
    return after


def big_endian(data: Bytes, at: Ints, dtype: str) -> npt.NDArray[Any]:
    """Big-endian integers at any positions, as native ones. `dtype` is numpy's, say "i8"."""
    wide = np.dtype(dtype).newbyteorder(">")
    view: npt.NDArray[Any] = np.ndarray((len(data) - wide.itemsize + 1,), wide, data, strides=(1,))
    return view[at].astype(np.dtype(dtype))


def words(data: Bytes, at: Ints, size_bytes: Ints, width: int) -> Words:
    """
    Strings of bytes as rows of eight-byte words, zeros behind their ends; none is longer than `width`, a multiple of eight.

    Two of one size are equal if their words are.
    """
    view: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    found: Words = view[at].view(np.uint64).reshape(len(at), width // 8)
    found &= _masks(width)[size_bytes]
    return found


@lru_cache(maxsize=8)
def _masks(width: int) -> Words:
    """For each size, ones over the bytes of a string and zeros behind it."""
    ones = np.tri(width + 1, width, -1, dtype=np.uint8) * np.uint8(0xFF)
    return ones.view(np.uint64)


def hashes(found: Words, bits: int) -> Words:
    """A hash of each row, of so many bits. Whoever chooses the strings can make them collide: it decides nothing by itself."""
    mixed: Words = found[:, 0] * _MULTIPLIERS[0]
    for column in range(1, found.shape[1]):
        mixed ^= (mixed >> np.uint64(29)) + found[:, column] * _MULTIPLIERS[column]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX
    mixed >>= np.uint64(64 - bits)
    return mixed


def are_equal(found: Words, one: Ints, other: Ints) -> Bools:
    """Which of these pairs of rows are the same, word for word."""
    same = np.ones(len(one), np.bool_)
    for column in range(found.shape[1]):
        same &= found[one, column] == found[other, column]
    return same


def first_equal(data: Bytes, at: Ints, size_bytes: Ints) -> Ints:
    """
    For each of some strings of bytes the index of one that is equal, so that nearly all that are equal get the same one.

    Each at most `ALIKE_BYTES_MAX` long is compared; a longer one is only like itself.
    """
    mine = np.arange(len(at))
    longest = int(size_bytes.max(initial=1))
    rows = None
    if longest > ALIKE_BYTES_MAX:
        rows = np.flatnonzero(size_bytes <= ALIKE_BYTES_MAX)
        at, size_bytes, longest = at[rows], size_bytes[rows], ALIKE_BYTES_MAX
    found = words(data, at, size_bytes, max(longest + 7 & ~7, 8))
    slots = hashes(found, max((2 * len(at)).bit_length(), 4))
    last: Ints = np.empty(1 << max((2 * len(at)).bit_length(), 4), np.int64)
    each = mine[: len(at)]
    last[slots] = each
    other = last[slots]
    other = np.where(are_equal(found, each, other) & (size_bytes == size_bytes[other]), other, each)
    if rows is None:
        return other
    mine[rows] = rows[other]
    return mine


__all__ = [
    "ALIKE_BYTES_MAX",
    "VARINT_BYTES_MAX",
    "VARLONG_BYTES_MAX",
    "WORDS_BYTES_MAX",
    "Bools",
    "Bytes",
    "Ints",
    "Words",
    "first_equal",
    "are_equal",
    "skip_varint",
    "big_endian",
    "hashes",
    "unsigned_varint",
    "varint",
    "words",
]
