"""
Columnar reading of numbers and strings of bytes from one buffer. Needs numpy.

Every function takes positions as an array and trusts them: the caller keeps them inside the buffer, which is padded so that a
number can be read at any position.
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
COMPARED_BYTES_MAX = 64
_MULTIPLIERS = np.cumprod(np.full(WORDS_BYTES_MAX // 8, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)
_MIX = np.uint64(0x94D049BB133111EB)

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
_TOO_LONG = 1 << 62
"""The value of a varint with too many bytes: no buffer has that length."""


def unsigned_varint(data: Bytes, at: Ints, *, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """Unsigned varints and the positions after them. A varint of more than `bytes_max` bytes is 2^62."""
    byte = data[at]
    value: Ints = byte.astype(np.int64)
    after = at + 1
    long = byte >= 0x80
    if not long.any():
        return value, after
    # A second byte and no third is the usual case, so two bytes are read for all.
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
    """Zigzag varints, as record batches have them, and the positions after them."""
    value, after = unsigned_varint(data, at, bytes_max=bytes_max)
    return (value >> 1) ^ -(value & 1), after


def skip_varint(data: Bytes, at: Ints) -> Ints:
    """The positions after varints of up to ten bytes."""
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
    """Big-endian integers at any positions, in native byte order. `dtype` is numpy's, such as "i8"."""
    wide = np.dtype(dtype).newbyteorder(">")
    view: npt.NDArray[Any] = np.ndarray((len(data) - wide.itemsize + 1,), wide, data, strides=(1,))
    return view[at].astype(np.dtype(dtype))


def words(data: Bytes, at: Ints, size_bytes: Ints, width: int) -> Words:
    """
    Strings of bytes as rows of eight-byte words, padded with zeros; none is longer than `width`, a multiple of eight.

    Two strings of the same size are equal if their words are.
    """
    view: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    found: Words = view[at].view(np.uint64).reshape(len(at), width // 8)
    found &= _masks(width)[size_bytes]
    return found


@lru_cache(maxsize=8)
def _masks(width: int) -> Words:
    """For each size, ones over the bytes of a string and zeros after it."""
    ones = np.tri(width + 1, width, -1, dtype=np.uint8) * np.uint8(0xFF)
    return ones.view(np.uint64)


def hashes(found: Words, bits: int) -> Words:
    """A hash of each row with so many bits. Chosen strings can collide, so callers compare the rows as well."""
    mixed: Words = found[:, 0] * _MULTIPLIERS[0]
    for column in range(1, found.shape[1]):
        mixed ^= (mixed >> np.uint64(29)) + found[:, column] * _MULTIPLIERS[column]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX
    mixed >>= np.uint64(64 - bits)
    return mixed


def are_equal(found: Words, one: Ints, other: Ints) -> Bools:
    """Which of these pairs of rows are equal."""
    same = np.ones(len(one), np.bool_)
    for column in range(found.shape[1]):
        same &= found[one, column] == found[other, column]
    return same


def first_equal(data: Bytes, at: Ints, size_bytes: Ints) -> Ints:
    """
    For each string of bytes the index of an equal one; nearly all equal strings get the same index.

    A string longer than `COMPARED_BYTES_MAX` gets its own index.
    """
    mine = np.arange(len(at))
    longest = int(size_bytes.max(initial=1))
    rows = None
    if longest > COMPARED_BYTES_MAX:
        rows = np.flatnonzero(size_bytes <= COMPARED_BYTES_MAX)
        at, size_bytes, longest = at[rows], size_bytes[rows], COMPARED_BYTES_MAX
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
