"""
Finds the records of a window that a later record with the same key supersedes, without making an object of any key.

A hash table has one slot per hash, which holds the last record with that hash. A record whose key equals the key in its slot is
superseded; other records of the slot are kept and replayed. Keys are compared byte by byte, so a hash collision never drops a
record: it only makes the table less effective.

Needs numpy.
"""

from collections.abc import Generator
from typing import Final

import numpy as np

from kohort.wire.columnar.layout import ROWS_PER_STEP, Layout
from kohort.wire.columnar.vectors import WORDS_BYTES_MAX, Bools, Ints, Words, are_equal, hashes, words

_WIDTHS: Final = (32, 48, 64, 96, 128, 192, WORDS_BYTES_MAX)
"""How many bytes of a key are compared; records with longer keys are kept."""
_COVERED: Final = 0.95
"""The least fraction of keys that are compared."""


def latest_by_key(layout: Layout, eligible: Bools) -> Generator[None, None, Ints]:
    """
    Return the rows, rising, whose key has a later row of the same kind, value or tombstone. Yields often.

    Args:
        eligible: the rows to search; their keys are not null.
    """
    width = _width(layout.key_bytes[eligible])
    rows = np.flatnonzero(eligible & (layout.key_bytes <= width))
    bits = max((2 * len(rows)).bit_length(), 4)
    keys: Words = np.empty((len(rows), width // 8), np.uint64)
    slots: Words = np.empty(len(rows), np.uint64)
    tombstones: Bools = np.empty(len(rows), np.bool_)
    newest: Ints = np.empty(1 << bits, np.int64)
    for low in range(0, len(rows), ROWS_PER_STEP):
        part = slice(low, low + ROWS_PER_STEP)
        chosen = rows[part]
        found = keys[part] = words(layout.data, layout.key_at[chosen], layout.key_bytes[chosen], width)
        tombstones[part] = layout.values(chosen)[1] < 0
        slot = slots[part] = hashes(found, bits) ^ tombstones[part]
        # The last row of a slot stays.
        newest[slot] = np.arange(low, low + len(chosen))
        yield
    dropped: list[Ints] = []
    for low in range(0, len(rows), ROWS_PER_STEP):
        last = newest[slots[low : low + ROWS_PER_STEP]]
        mine = np.arange(low, low + len(last))
        likely = last > mine
        mine, last = mine[likely], last[likely]
        same = are_equal(keys, mine, last) & (tombstones[mine] == tombstones[last])
        same &= layout.key_bytes[rows[mine]] == layout.key_bytes[rows[last]]
        dropped.append(rows[mine[same]])
        yield
    return np.concatenate(dropped) if dropped else rows


def _width(sizes: Ints) -> int:
    """A number of bytes that is enough for nearly all keys."""
    if not len(sizes):
        return _WIDTHS[0]
    wanted = int(np.quantile(sizes[:: max(len(sizes) // 4096, 1)], _COVERED, method="higher"))
    return next((width for width in _WIDTHS if width >= wanted), _WIDTHS[-1])
