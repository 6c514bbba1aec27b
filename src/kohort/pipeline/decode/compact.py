"""
Of the commits of a key only the last: what compaction would leave, found before anything of them is decoded.

Only offset commits (key types 0 and 1) outside transactions are compared with each other: what a transaction committed counts
later than it stands in the log, or never, so all of it stays.

The commits of a window are compared at once, and the bytes of those that are left are copied together; what is left of many
windows is compared again. So memory holds keys and not log. Where there are more of them than `HELD_BYTES`, they are given
out before the end, and the same key may come again later.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from kohort.pipeline.decode.offsets import KEY_TYPES
from kohort.pipeline.decode.records import Records
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.vectors import slices
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL
from kohort.wire.vectors import Bools, big_endian

HELD_BYTES = 48 << 20

Held: TypeAlias = list[tuple[Segment, Records]]


class LatestByKey:
    """The last plain commit of each key of one log partition, over all of its segments that come one behind the other."""

    def __init__(self, *, held_bytes: int = HELD_BYTES) -> None:
        """
        Args:
            held_bytes: how much is kept at most, about.
        """
        self._held_max = held_bytes
        self._held: Held = []
        self._held_bytes = 0

    def take(self, records: Records, segment: Segment) -> tuple[Records, Held]:
        """
        Keep the plain commits of a window.

        Returns:
            The other records, and what is no longer kept.
        """
        plain = _is_plain_commit(records)
        others = records.select(~plain)
        if not plain.any():
            return others, []
        given = [] if self._is_going_on(segment) else self.rest()
        (last,) = _last_of_keys([records.select(plain)])
        self._hold([*self._held, (segment, last.gathered())])
        if self._held_bytes > self._held_max:
            left = _last_of_keys([one for _, one in self._held])
            self._hold([(whose, one.gathered()) for (whose, _), one in zip(self._held, left, strict=True) if len(one)])
            if self._held_bytes > self._held_max // 2:
                given += self.rest()
        return others, given

    def rest(self) -> Held:
        """What is left of everything that is kept; nothing is kept from then on."""
        held = self._held
        self._hold([])
        if not held:
            return []
        left = _last_of_keys([one for _, one in held])
        return [(segment, one) for (segment, _), one in zip(held, left, strict=True) if len(one)]

    def _is_going_on(self, segment: Segment) -> bool:
        if not self._held:
            return True
        before = self._held[-1][0]
        return (before.topic, before.partition) == (segment.topic, segment.partition)

    def _hold(self, held: Held) -> None:
        self._held = held
        self._held_bytes = sum(one.held_bytes for _, one in held)


def _last_of_keys(windows: Sequence[Records]) -> list[Records]:
    """Of each key the last record, in the window that it was found in."""
    keys = pa.chunked_array([_keys(records) for records in windows])
    codes = keys.dictionary_encode().unify_dictionaries().combine_chunks()
    codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
    at = codes.indices.to_numpy(zero_copy_only=False)
    last = np.full(len(codes.dictionary), -1, np.int64)
    # Of the values that go to one place, the last stays.
    last[at] = np.arange(len(at))
    is_last = np.zeros(len(at), np.bool_)
    is_last[last] = True
    ends = np.cumsum([len(records) for records in windows])
    return [records.select(is_last[end - len(records) : end]) for records, end in zip(windows, ends, strict=True)]


def _is_plain_commit(records: Records) -> Bools:
    attributes = records.window.headers["attributes"].astype(np.int16)
    plain = (attributes & (CONTROL | TRANSACTIONAL)) == 0
    key_types = big_endian(records.window.data, records.key_at, "i2")
    chosen: Bools = plain[records.batch] & (records.key_bytes >= 2) & np.isin(key_types, KEY_TYPES)
    return chosen


def _keys(records: Records) -> pa.Array:
    # Behind the type, which says only in which version the rest was written.
    return slices(records.window.data, records.key_at + 2, records.key_bytes - 2)
