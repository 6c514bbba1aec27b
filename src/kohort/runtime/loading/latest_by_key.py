"""
Which records of a stretch of log are followed there by another one of the same key; found without making an object of any key.

A table has one place for each hash, which holds the last record with that hash. A record whose key equals that one's is
superseded; whatever shares a hash with another key is kept, and replayed as well. Keys are compared byte by byte, so no choice
of keys can make a record disappear; it can only make the table useless.

numpy is needed here.
"""

from collections.abc import Generator
from typing import Final

import numpy as np

from kohort.wire.layout import ROWS_PER_STEP, Layout
from kohort.wire.vectors import WORDS_BYTES_MAX, Bools, Ints, Words, are_equal, hashes, words

_WIDTHS: Final = (32, 48, 64, 96, 128, 192, WORDS_BYTES_MAX)
"""How many bytes of a key are compared; longer keys are never superseded."""
_COVERED: Final = 0.95
"""Of all keys are compared, or more."""


def latest_by_key(layout: Layout, eligible: Bools) -> Generator[None, None, Ints]:
    """
    The rows, rising, whose key comes again in a later row, with a value as here or as a tombstone as here. Yields often.

    Args:
        eligible: rows to be looked at; their keys are not null.
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
        # Of several rows with one slot the last one stays.
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
    """Enough for nearly all keys."""
    if not len(sizes):
        return _WIDTHS[0]
    wanted = int(np.quantile(sizes[:: max(len(sizes) // 4096, 1)], _COVERED, method="higher"))
    return next((width for width in _WIDTHS if width >= wanted), _WIDTHS[-1])
