"""
The first unread record behind a committed offset, from the batch headers there: few batches are looked at.

A batch counts if a `read_committed` reader gets data of it: no marker, not aborted, and with records left after compaction.
Batches of a transaction are decided by the next marker of their producer; those of an open one count, because it may commit.

If the committed offset is the first of the batch, the time is that of the batch's first record; inside a batch it is the
batch's greatest timestamp. The table `time_lag` has the same rules over frames.

Source: KIP-98 (the records that an ABORT marker ends); Kafka CompletedFetch (the records that `read_committed` skips).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kohort.pipeline.decode.batch_rows import controls, first_timestamps_ms
from kohort.pipeline.decode.batches import Scan
from kohort.pipeline.decode.schemas import ABORT
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL


@dataclass(slots=True)
class FirstUnread:
    """
    Looks for the first unread record in consecutive batches.

    Attributes:
        offset: the committed offset.
        at_ms: later batches are ignored.
        produced_at_ms: when the first unread record was produced, as far as it is known.
        has_later: a batch was ignored because it is later.
    """

    offset: int
    at_ms: int
    produced_at_ms: int | None = None
    has_later: bool = False
    _open: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Batches without a marker yet, by producer id: base offset, and when the first unread record was produced."""
    _found_at: int | None = None

    def look(self, found: Scan) -> bool:
        """Look at following batches, and tell whether the record is found."""
        headers = found.headers
        attributes = headers["attributes"].astype(np.int16)
        is_control = (attributes & CONTROL) != 0
        is_later = headers["max_timestamp"].astype(np.int64) > self.at_ms
        is_unread = found.next_offsets > self.offset
        self.has_later |= bool((is_later & is_unread).any())
        chosen = np.flatnonzero(is_unread & ~is_later & (is_control | (headers["count"] > 0)))
        if not len(chosen):
            return False
        some = Scan(found.data, found.positions[chosen], headers[chosen], mapped=found.mapped)
        base_offsets = some.headers["base_offset"].astype(np.int64)
        is_whole = base_offsets >= self.offset
        greatest_ms = some.headers["max_timestamp"].astype(np.int64)
        first_ms = first_timestamps_ms(some).fill_null(-1).to_numpy(zero_copy_only=False)
        times = np.where(is_whole & (first_ms >= 0), first_ms, greatest_ms).tolist()
        ends = controls(some).to_pylist()
        flags = (attributes[chosen] & (CONTROL | TRANSACTIONAL)).tolist()
        rows = zip(flags, base_offsets.tolist(), times, some.headers["producer_id"].tolist(), ends, strict=True)
        return any(self._add(*row) for row in rows)

    def _add(self, flags: int, base_offset: int, at_ms: int, producer_id: int, end: str | None) -> bool:
        """Look at one batch."""
        if flags & CONTROL:
            decided = self._open.pop(producer_id, [])
            if decided and end != ABORT:
                self._take(*decided[0])
        elif flags & TRANSACTIONAL:
            if self._found_at is None:
                self._open.setdefault(producer_id, []).append((base_offset, at_ms))
        else:
            self._take(base_offset, at_ms)
        return self._found_at is not None and all(self._found_at < of[0][0] for of in self._open.values())

    def _take(self, base_offset: int, at_ms: int) -> None:
        if self._found_at is None or base_offset < self._found_at:
            self._found_at, self.produced_at_ms = base_offset, at_ms

    def end(self) -> int | None:
        """Return the result at the end of the log: batches of open transactions count."""
        for waiting in self._open.values():
            self._take(*waiting[0])
        self._open.clear()
        return self.produced_at_ms


def first_unread(batches: Iterable[Scan], offset: int, *, at_ms: int) -> FirstUnread:
    """
    Look for the first unread record.

    Args:
        batches: from the batch of the committed offset on, or earlier; no more are read than needed.
        at_ms: later batches are ignored.
    """
    search = FirstUnread(offset, at_ms)
    for found in batches:
        if search.look(found):
            break
    search.end()
    return search
