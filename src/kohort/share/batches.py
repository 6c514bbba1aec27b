"""
Delivery states of offsets as ranges, and their combination.

Of two batches that hold the same offset the one with the higher delivery count wins, and at equal counts the one with the
higher number of its state: never the newer one. So a write cannot lower a count, nor make an acknowledged offset available.

Source: Kafka PersisterStateBatchCombiner.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final, TypeAlias

from kohort.machine.ports import StateBatch

Batches: TypeAlias = tuple[StateBatch, ...]
"""In the order of offsets, none of which two batches have."""

NO_OFFSET: Final = -1
"""A start offset that is not known."""

_last = itemgetter(1)


def combined(stored: Batches, added: Iterable[StateBatch], start_offset: int) -> Batches:
    """
    Combine batches with some more, without the offsets below a start offset. Only the stored batches around the added ones are
    looked at; those are in any order and may overlap.

    Args:
        start_offset: -1 for none.
    """
    if stored and stored[0].first_offset < start_offset:
        stored = stored[bisect_left(stored, start_offset, key=_last) :]
        if stored and stored[0].first_offset < start_offset:
            stored = (stored[0]._replace(first_offset=start_offset), *stored[1:])
    some = [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in added
        if start_offset <= batch.last_offset and batch.first_offset <= batch.last_offset
    ]
    if not some:
        return stored
    some.sort()
    found: list[StateBatch] = []
    copied = 0
    index = 0
    while index < len(some):
        # Some added batches, and the stored ones that they touch: neighbours may be joined.
        beginning = index
        low = high = bisect_left(stored, some[index].first_offset - 1, copied, key=_last)
        last = reach = some[index].last_offset
        while index < len(some) and some[index].first_offset <= last + 1:
            reach = max(reach, some[index].last_offset)
            while high < len(stored) and stored[high].first_offset <= reach + 1:
                high += 1
            last = max(reach, stored[high - 1].last_offset) if low < high else reach
            index += 1
        found += stored[copied:low]
        if low == high and index == beginning + 1:
            found.append(some[beginning])
        else:
            found += _highest([*stored[low:high], *some[beginning:index]])
        copied = high
    found += stored[copied:]
    return tuple(found)


def is_ordered(batches: Sequence[StateBatch]) -> bool:
    """Whether batches are in the order of offsets, none of which two of them have."""
    before = batches[0].first_offset - 1 if batches else 0
    for batch in batches:
        if not before < batch.first_offset <= batch.last_offset:
            return False
        before = batch.last_offset
    return True


def _highest(batches: list[StateBatch]) -> list[StateBatch]:
    """The winning state of each offset. Neighbours with the same state and count are one batch."""
    batches.sort()
    found: list[StateBatch] = []
    active: list[tuple[int, int, int]] = []
    """A heap of what may hold at the present offset: count and state, negated, and the last offset."""
    index = 0
    offset = 0
    while index < len(batches) or active:
        if not active:
            offset = batches[index].first_offset
        while index < len(batches) and batches[index].first_offset <= offset:
            batch = batches[index]
            heappush(active, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        count, state, last = active[0]
        if last < offset:
            heappop(active)
            continue
        if index < len(batches):
            last = min(last, batches[index].first_offset - 1)
        _append(found, StateBatch(offset, last, -state, -count))
        offset = last + 1
    return found


def _append(found: list[StateBatch], batch: StateBatch) -> None:
    if found:
        first, last, state, count = found[-1]
        if last + 1 == batch.first_offset and state == batch.delivery_state and count == batch.delivery_count:
            found[-1] = StateBatch(first, batch.last_offset, state, count)
            return
    found.append(batch)
