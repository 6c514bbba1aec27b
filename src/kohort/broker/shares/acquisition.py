"""
The acquisition of records of a share partition by a member.

A fetch of mode `BATCH_OPTIMIZED` acquires whole batches of the log, one of `RECORD_LIMIT` at most so many records as it asks
for (KIP-1206).

Source: Kafka SharePartition.acquire, acquireNewBatchRecords, acquireSubsetBatchRecords.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from kohort.broker.shares.record_states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    THROTTLED_LIMIT_MIN,
    ShareSettings,
    throttled_from,
)
from kohort.broker.shares.runs import BEGINS, SPLIT, Runs
from kohort.broker.shares.share_partition import Acquired, SharePartition

BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1


class LogBatches:
    """The batches that were read from the log: first and last offset of each."""

    __slots__ = ("firsts", "lasts")

    def __init__(self, firsts: Sequence[int], lasts: Sequence[int]) -> None:
        self.firsts = firsts
        self.lasts = lasts

    def end_of(self, offset: int) -> int:
        """The last offset of the batch that has an offset, or of the next one."""
        place = bisect_left(self.lasts, offset)
        return self.lasts[place] if place < len(self.lasts) else self.lasts[-1]


class Acquisition:
    """
    One fetch that acquires records of one share partition.

    Args:
        mode: `BATCH_OPTIMIZED` or `RECORD_LIMIT`.
        batch_size: ranges of new records have at least so many, where the batches of the log allow it.
        now_ms: the time from which the locks count.
    """

    __slots__ = (
        "_batch_size",
        "_count",
        "_is_limited",
        "_limit",
        "_lock",
        "_owner",
        "_partition",
        "_settings",
        "_throttle",
        "acquired",
    )

    def __init__(
        self,
        partition: SharePartition,
        member_id: str,
        mode: int,
        batch_size: int,
        now_ms: int,
        settings: ShareSettings,
    ) -> None:
        self._partition = partition
        self._owner = partition.enter(member_id)
        self._is_limited = mode == RECORD_LIMIT
        self._batch_size = max(batch_size, 1)
        self._lock = now_ms + settings.lock_ms
        self._settings = settings
        self._throttle = throttled_from(settings)
        self._count = 0
        self._limit = 0
        self.acquired: list[Acquired] = []

    def acquire(self, records_max: int, fetch_offset: int, log_batches: LogBatches) -> list[Acquired]:
        """Acquire up to `records_max` records of the batches that were read from `fetch_offset` on."""
        partition = self._partition
        if records_max <= 0 or not log_batches.firsts or log_batches.lasts[-1] < partition.start_offset:
            return []
        last = log_batches.lasts[-1]
        self._limit = min(records_max, self._settings.locks_max - partition.in_flight)
        if self._limit <= 0:
            if fetch_offset > partition.end_offset:
                return []
            self._limit = min(records_max, partition.end_offset - fetch_offset + 1)
            last = min(last, partition.end_offset)
        base = log_batches.firsts[0]
        if base > fetch_offset:
            partition.archive_available(fetch_offset, base - 1)
            if partition.has_gaps and partition.gap_start == fetch_offset:
                partition.pass_gaps(base)
        self._acquire_from(base, last, log_batches)
        if self.acquired:
            partition.pass_gaps(self.acquired[-1].last + 1)
            partition.watch_lock(self._lock)
        return self.acquired

    def _acquire_from(self, base: int, last: int, log_batches: LogBatches) -> None:
        partition = self._partition
        runs = partition.runs
        low = base
        index = runs.from_offset(base)
        if index < len(runs) and runs.firsts[index] <= base:
            index = runs.batch_begin(index)
            low = runs.firsts[index]
        expected = max(low, partition.start_offset)
        if partition.has_gaps:
            expected = max(expected, partition.gap_start)
        has_overlap = index < len(runs) and runs.firsts[index] <= last
        while index < len(runs) and runs.firsts[index] <= last:
            if self._count >= self._limit:
                return
            if partition.has_gaps and expected < runs.firsts[index]:
                index += self._acquire_new(index, expected, runs.firsts[index] - 1, log_batches)
                if self._count >= self._limit:
                    return
            end = runs.batch_end(index)
            expected = max(runs.lasts[end - 1] + 1, partition.start_offset)
            grown = len(runs)
            if not self._acquire_batch(index, end, base, last):
                return
            index = end + len(runs) - grown
        if has_overlap and self._count >= self._limit:
            return
        if partition.is_drained:
            expected = max(expected, partition.end_offset)
        self._acquire_new(index, expected, last, log_batches)

    # -- records in flight -------------------------------------------------------------------------------------

    def _acquire_batch(self, low: int, high: int, first: int, last: int) -> bool:
        """Acquire what is available of an in-flight batch. Returns whether the fetch goes on behind it."""
        runs = self._partition.runs
        throttle = self._is_throttled(low, high)
        if throttle and self._count:
            return False
        if not runs.flags[low] & SPLIT:
            if runs.states[low] != AVAILABLE:
                return True
            size = runs.lasts[low] - runs.firsts[low] + 1
            fits = runs.firsts[low] >= first and runs.lasts[low] <= last
            if fits and not throttle and not (self._is_limited and size > self._limit - self._count):
                self._take(low)
                return True
        return not self._acquire_part(low, high, first, last) or not throttle

    def _is_throttled(self, low: int, high: int) -> bool:
        runs = self._partition.runs
        states, counts = runs.states, runs.counts
        index = states.find(AVAILABLE, low, high)
        while index >= 0:
            if counts[index] >= self._throttle:
                return True
            index = states.find(AVAILABLE, index + 1, high)
        return False

    def _take(self, index: int) -> None:
        """Acquire a run."""
        runs = self._partition.runs
        count = runs.counts[index] + 1
        runs.set(index, ACQUIRED, count, self._owner, self._lock)
        first, last = runs.firsts[index], runs.lasts[index]
        self._count += last - first + 1
        self.acquired.append(Acquired(first, last, count))

    def _acquire_part(self, low: int, high: int, first: int, last: int) -> int:
        """
        Acquire the available records of a batch that is split from now on, or that is throttled. Returns how many.

        A batch with records that were delivered often is delivered in smaller and smaller parts, and a record at its last
        attempt alone, so that a record that ends its consumer does not take others with it.
        """
        runs = self._partition.runs
        first = max(first, self._partition.start_offset)
        size = runs.lasts[high - 1] - runs.firsts[low] + 1
        limit = self._settings.delivery_limit
        is_strict = limit > THROTTLED_LIMIT_MIN
        cap = -1
        taken = 0
        begin = len(self.acquired)
        new = Runs()
        flags = runs.flags[low] | SPLIT
        index = low
        is_over = False
        while index < high:
            start, end = runs.firsts[index], runs.lasts[index]
            state, count, owner, lock = runs.states[index], runs.counts[index], runs.owners[index], runs.locks[index]
            a, b = max(start, first), min(end, last)
            room = 0
            if state == AVAILABLE and a <= b and not is_over:
                is_last = is_strict and count == limit - 1
                if is_last and taken:
                    is_over = True
                else:
                    if cap < 0 and count >= self._throttle:
                        cap = max(1, size >> (count - self._throttle + 1))
                    room = b - a + 1
                    if is_last:
                        room = 1
                    if cap >= 0:
                        room = min(room, max(1, cap - taken))
                    if self._is_limited:
                        room = min(room, self._limit - self._count - taken)
                    is_over = room < b - a + 1 or is_last or (0 <= cap <= taken + room)
                    is_over |= self._is_limited and self._count + taken + room >= self._limit
            if room:
                b = a + room - 1
                taken += room
                self._note(begin, a, b, count + 1)
                if start < a:
                    new.append(start, a - 1, state, count, owner, lock, flags)
                    flags = SPLIT
                new.append(a, b, ACQUIRED, count + 1, self._owner, self._lock, flags)
                flags = SPLIT
                start = b + 1
            if start <= end:
                new.append(start, end, state, count, owner, lock, flags)
                flags = SPLIT
            index += 1
        runs.splice(low, high, new)
        self._count += taken
        return taken

    def _note(self, begin: int, first: int, last: int, count: int) -> None:
        """Add acquired records of a split batch; neighbours are one range."""
        acquired = self.acquired
        if len(acquired) > begin and acquired[-1].last + 1 == first and acquired[-1].deliveries == count:
            acquired[-1] = Acquired(acquired[-1].first, last, count)
        else:
            acquired.append(Acquired(first, last, count))

    # -- new records -------------------------------------------------------------------------------------------

    def _acquire_new(self, index: int, first: int, last: int, log_batches: LogBatches) -> int:
        """Acquire records that were not in flight. Returns the number of new runs, which begin at `index`."""
        room = self._limit - self._count
        if first > last or room <= 0:
            return 0
        partition = self._partition
        runs = partition.runs
        is_first = partition.is_drained
        end = last if room >= last - first + 1 else min(log_batches.end_of(first + room - 1), last)
        before = len(runs)
        if self._is_limited:
            taken = min(end, first + room - 1)
            self._insert(index, first, taken, BEGINS if taken == end else BEGINS | SPLIT)
            if taken < end:
                runs.insert(index + 1, taken + 1, end, AVAILABLE, 0, 0, 0, SPLIT)
                partition.seeks_next = True
        else:
            begin = first
            for base in log_batches.firsts:
                if base > end:
                    break
                if base - begin >= self._batch_size:
                    self._insert(index, begin, base - 1, BEGINS)
                    index += 1
                    begin = base
            self._insert(index, begin, end, BEGINS)
        if is_first:
            partition.start_offset = first
        if end > partition.end_offset or is_first:
            partition.end_offset = end
        return len(runs) - before

    def _insert(self, index: int, first: int, last: int, flags: int) -> None:
        self._partition.runs.insert(index, first, last, ACQUIRED, 1, self._owner, self._lock, flags)
        self._count += last - first + 1
        self.acquired.append(Acquired(first, last, 1))


def archive_aborted(
    partition: SharePartition, acquired: Sequence[Acquired], aborted: Sequence[tuple[int, int]]
) -> list[Acquired]:
    """
    Archive the records of aborted transactions among records that were just acquired, and return the others.

    Args:
        aborted: first and last offsets of batches of the log, in order.

    Source: SharePartition.filterAbortedTransactionalAcquiredRecords.
    """
    left: list[Acquired] = []
    place = 0
    for first, last, count in acquired:
        while place < len(aborted) and aborted[place][1] < first:
            place += 1
        at = place
        begin = first
        while at < len(aborted) and aborted[at][0] <= last:
            low, high = max(aborted[at][0], first), min(aborted[at][1], last)
            if begin < low:
                left.append(Acquired(begin, low - 1, count))
            _archive(partition, low, high)
            begin = high + 1
            at += 1
        if begin <= last:
            left.append(Acquired(begin, last, count))
    partition.advance()
    return left


def _archive(partition: SharePartition, first: int, last: int) -> None:
    runs = partition.runs
    index = runs.floor(first)
    if runs.firsts[index] < first:
        runs.cut(index, first)
        index += 1
    while index < len(runs) and runs.firsts[index] <= last:
        if runs.lasts[index] > last:
            runs.cut(index, last + 1)
        partition.count_complete(runs.firsts[index], runs.lasts[index])
        runs.set(index, ARCHIVED, runs.counts[index], 0, 0)
        index += 1
