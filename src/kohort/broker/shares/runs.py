"""
The records in flight of a share partition, as runs: neighbouring offsets with the same state.

A run takes 34 bytes in arrays, so a share partition with 100 000 runs takes some megabytes. Runs with `BEGINS` begin an
in-flight batch: the records that were acquired together, or that were persisted together. A batch is one run until its records
have different states or owners; from then on its runs have `SPLIT`, and it stays split. Batches have gaps between them, runs of
one batch have none.

Source: Kafka InFlightBatch, which has an object for each record of a split batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from kohort.broker.shares.record_states import PENDING

BEGINS: Final = 1
SPLIT: Final = 2

_JOINED_ONE_BY_ONE: Final = 8


class Runs:
    """
    Parallel arrays, in the order of the offsets.

    Attributes:
        firsts, lasts: offsets, both included.
        states: with `PENDING` while a state is being written.
        counts: numbers of deliveries.
        owners: numbers of the members that have acquired the records; 0 without.
        locks: times in milliseconds at which acquired records are released; 0 without.
        flags: `BEGINS`, `SPLIT`.
    """

    __slots__ = ("counts", "firsts", "flags", "lasts", "locks", "owners", "states")

    def __init__(self) -> None:
        self.firsts: array[int] = array("q")
        self.lasts: array[int] = array("q")
        self.states = bytearray()
        self.counts: array[int] = array("i")
        self.owners: array[int] = array("i")
        self.locks: array[int] = array("q")
        self.flags = bytearray()

    def __len__(self) -> int:
        return len(self.firsts)

    def floor(self, offset: int) -> int:
        """The last run that begins at `offset` or before it; -1 if there is none."""
        return bisect_right(self.firsts, offset) - 1

    def from_offset(self, offset: int) -> int:
        """The first run that ends at `offset` or after it."""
        index = bisect_right(self.firsts, offset) - 1
        return index if index >= 0 and self.lasts[index] >= offset else index + 1

    def batch_begin(self, index: int) -> int:
        """The first run of the batch that a run belongs to."""
        flags = self.flags
        while not flags[index] & BEGINS:
            index -= 1
        return index

    def batch_end(self, index: int) -> int:
        """The run after the last one of the batch that a run belongs to."""
        flags = self.flags
        end = len(flags)
        index += 1
        while index < end and not flags[index] & BEGINS:
            index += 1
        return index

    @property
    def batch_count(self) -> int:
        """The number of batches."""
        return self.flags.count(BEGINS) + self.flags.count(BEGINS | SPLIT)

    def insert(
        self, index: int, first: int, last: int, state: int, count: int, owner: int, lock: int, flags: int
    ) -> None:
        """Insert a run; the caller keeps the order of offsets."""
        self.firsts.insert(index, first)
        self.lasts.insert(index, last)
        self.states.insert(index, state)
        self.counts.insert(index, count)
        self.owners.insert(index, owner)
        self.locks.insert(index, lock)
        self.flags.insert(index, flags)

    def set(self, index: int, state: int, count: int, owner: int, lock: int) -> None:
        """Change all that a run has beside its offsets and flags."""
        self.states[index] = state
        self.counts[index] = count
        self.owners[index] = owner
        self.locks[index] = lock

    def cut(self, index: int, offset: int) -> None:
        """Split a run in two, the second of which begins at `offset`. Its batch is split from then on."""
        last = self.lasts[index]
        self.lasts[index] = offset - 1
        self.flags[index] |= SPLIT
        self.insert(
            index + 1,
            offset,
            last,
            self.states[index],
            self.counts[index],
            self.owners[index],
            self.locks[index],
            SPLIT,
        )

    def drop_before(self, index: int) -> None:
        """Delete the first runs."""
        self._delete(0, index)

    def _delete(self, low: int, high: int) -> None:
        del self.firsts[low:high]
        del self.lasts[low:high]
        del self.states[low:high]
        del self.counts[low:high]
        del self.owners[low:high]
        del self.locks[low:high]
        del self.flags[low:high]

    def join(self, low: int, high: int) -> None:
        """Join the equal neighbours among the runs from before `low` up to and including `high`."""
        high = min(high, len(self.firsts) - 1)
        low = max(low, 1)
        equal = [index for index in range(low, high + 1) if self._is_like_previous(index)]
        if len(equal) > _JOINED_ONE_BY_ONE:
            self._join_all(low - 1, high + 1)
            return
        for index in reversed(equal):
            self.lasts[index - 1] = self.lasts[index]
            self._delete(index, index + 1)

    def _join_all(self, low: int, high: int) -> None:
        new = Runs()
        for index in range(low, high):
            if index > low and self._is_like_previous(index):
                new.lasts[-1] = self.lasts[index]
            else:
                new.append(
                    self.firsts[index],
                    self.lasts[index],
                    self.states[index],
                    self.counts[index],
                    self.owners[index],
                    self.locks[index],
                    self.flags[index],
                )
        self.splice(low, high, new)

    def _is_like_previous(self, index: int) -> bool:
        other = index - 1
        state = self.states[index]
        return (
            self.flags[index] == SPLIT
            and state == self.states[other]
            and not state & PENDING
            and self.counts[index] == self.counts[other]
            and self.owners[index] == self.owners[other]
            and self.locks[index] == self.locks[other]
        )

    def splice(self, low: int, high: int, new: Runs) -> None:
        """Replace the runs from `low` up to `high`, which is not included."""
        self.firsts[low:high] = new.firsts
        self.lasts[low:high] = new.lasts
        self.states[low:high] = new.states
        self.counts[low:high] = new.counts
        self.owners[low:high] = new.owners
        self.locks[low:high] = new.locks
        self.flags[low:high] = new.flags

    def append(self, first: int, last: int, state: int, count: int, owner: int, lock: int, flags: int) -> None:
        """Add a run at the end."""
        self.firsts.append(first)
        self.lasts.append(last)
        self.states.append(state)
        self.counts.append(count)
        self.owners.append(owner)
        self.locks.append(lock)
        self.flags.append(flags)
