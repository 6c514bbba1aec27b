"""
The latest commit of each key, as compaction would keep it, found before records are decoded.

Only offset commits (key types 0 and 1) outside transactions are compared. A commit in a transaction takes effect later than its
position in the log, or never, so all of them stay.

The commits of a window are compared together, and the bytes of the remaining ones are copied. When the remaining commits take
twice the memory that they took after the last comparison, they are compared again: memory holds keys and not the log, and a
commit is compared about twice. Above `HELD_BYTES` the commits are emitted before the end, and the same key may be emitted
again later.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from kohort.pipeline.decode.records import Records
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.vectors import slices
from kohort.records.offset_columns import KEY_TYPES
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL
from kohort.wire.columnar.vectors import Bools, big_endian

HELD_BYTES = 48 << 20
_COMPARED_BYTES_MIN = 4 << 20
"""Below this size the commits of several windows are not compared."""

Held: TypeAlias = list[tuple[Segment, Records]]


class LatestByKey:
    """The last commit outside transactions of each key of one log partition, over its consecutive segments."""

    def __init__(self, *, held_bytes: int = HELD_BYTES) -> None:
        """
        Args:
            held_bytes: an approximate limit of the memory.
        """
        self._held_max = held_bytes
        self._compared_at = min(_COMPARED_BYTES_MIN, held_bytes)
        self._held: Held = []
        self._held_bytes = 0

    def take(self, records: Records, segment: Segment) -> tuple[Records, Held]:
        """
        Keep the plain commits of a window.

        Returns:
            The other records, and the commits that are emitted now.
        """
        plain = _is_plain_commit(records)
        others = records.select(~plain)
        if not plain.any():
            return others, []
        is_same_log = not self._held or self._held[-1][0].place == segment.place
        given = [] if is_same_log else self.rest()
        (last,) = _last_of_keys([records.select(plain)])
        self._hold([*self._held, (segment, last.gathered())])
        if self._held_bytes > self._compared_at:
            left = _last_of_keys([one for _, one in self._held])
            self._hold([(whose, one.gathered()) for (whose, _), one in zip(self._held, left, strict=True) if len(one)])
            if self._held_bytes > self._held_max // 2:
                given += self.rest()
            self._compared_at = min(max(2 * self._held_bytes, _COMPARED_BYTES_MIN), self._held_max)
        return others, given

    def rest(self) -> Held:
        """Emit the last commit of each key and forget all."""
        held = self._held
        self._hold([])
        if not held:
            return []
        left = _last_of_keys([one for _, one in held])
        return [(segment, one) for (segment, _), one in zip(held, left, strict=True) if len(one)]

    def _hold(self, held: Held) -> None:
        self._held = held
        self._held_bytes = sum(one.held_bytes for _, one in held)


def _last_of_keys(windows: Sequence[Records]) -> list[Records]:
    """The last record of each key, by window."""
    # Without the type: types 0 and 1 are two versions of the same key.
    keys = pa.chunked_array([slices(one.window.data, one.key_at + 2, one.key_bytes - 2) for one in windows])
    codes = keys.dictionary_encode().unify_dictionaries().combine_chunks()
    codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
    at = codes.indices.to_numpy(zero_copy_only=False)
    last = np.full(len(codes.dictionary), -1, np.int64)
    # numpy keeps the last of several values for one index.
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
