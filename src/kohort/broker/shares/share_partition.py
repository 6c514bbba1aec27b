"""
A share partition: a partition of a topic as one share group reads it, at the leader of the partition.

This module and its neighbours `acquisition` and `acknowledgement` know no sockets, logs and clocks: the caller reads the log,
writes what a `Change` holds, and hands in the time. Records from the start offset on are in flight if somebody has got them;
those behind the end offset nobody has seen yet.

Source: KIP-932; Kafka SharePartition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.broker.shares.record_states import (
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    PENDING,
    is_terminal,
)
from kohort.broker.shares.runs import BEGINS, Runs
from kohort.machine.ports import StateBatch

_NO_GAP: Final = -1
_OWNERS_KEPT: Final = 64
"""Members that are kept although they own nothing any more."""


class Acquired(NamedTuple):
    """Offsets that a fetch has acquired, both ends included, and how often they were delivered with it."""

    first: int
    last: int
    deliveries: int


class Letter(NamedTuple):
    """Offsets whose records become dead letters."""

    first: int
    last: int
    deliveries: int
    is_rejected: bool


class Change:
    """
    Changes of a share partition that have to be written.

    Attributes:
        batches: the changed records.
        firsts: the first offsets of the runs that are pending until the change is written.
        start_offset, complete_count: to write.
        letters: records for the dead-letter topic, when the change is written.
    """

    __slots__ = ("batches", "complete_count", "firsts", "letters", "start_offset")

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self.firsts: list[int] = []
        self.letters: list[Letter] = []
        self.start_offset = 0
        self.complete_count = 0

    def add(self, first: int, last: int, state: int, count: int) -> None:
        """Add changed records, in the order of their offsets."""
        batches = self.batches
        if batches:
            before = batches[-1]
            if before.last_offset + 1 == first and before.delivery_state == state and before.delivery_count == count:
                batches[-1] = StateBatch(before.first_offset, last, state, count)
                return
        batches.append(StateBatch(first, last, state, count))


class SharePartition:
    """
    The records in flight of a share partition.

    Attributes:
        start_offset: the first offset that is neither acknowledged nor archived.
        end_offset: the last offset in flight, or the next one to fetch if none is.
        complete_count: number of offsets from the start offset on that are acknowledged or archived.
        next_deadline: no lock ends before this time; 0 if there is none.
    """

    __slots__ = (
        "_gap_end",
        "_gap_start",
        "_members",
        "_numbers",
        "complete_count",
        "end_offset",
        "next_deadline",
        "runs",
        "seeks_next",
        "start_offset",
    )

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.complete_count = 0
        self.next_deadline = 0
        self.runs = Runs()
        self.seeks_next = False
        """Whether records in flight may be available."""
        self._gap_start = _NO_GAP
        """The first offset that may lie in a gap between persisted batches; they are fetched first."""
        self._gap_end = _NO_GAP
        """The end offset at the load: the gaps are before it."""
        self._members: list[str] = [""]
        self._numbers: dict[str, int] = {}

    # -- the load ----------------------------------------------------------------------------------------------

    def load(self, batches: Iterable[StateBatch]) -> list[Letter]:
        """
        Take the persisted batches. Returns the records whose dead letters were not written.

        Raises:
            ValueError: a batch begins before the start offset, or ends before it begins.
        """
        runs = self.runs
        expected = self.start_offset
        letters = []
        complete = 0
        for first, last, state, count in batches:
            if first < self.start_offset or last < first:
                raise ValueError(
                    f"invalid batch {first} to {last} of a share partition that starts at {self.start_offset}"
                )
            if first > expected and self._gap_start == _NO_GAP:
                self._gap_start = expected
            if first < expected and len(runs):
                raise ValueError(f"the batch {first} to {last} overlaps the batch before it")
            runs.append(first, last, state, count, 0, 0, BEGINS)
            if is_terminal(state):
                complete += last - first + 1
            elif state == ARCHIVING:
                letters.append(Letter(first, last, count, is_rejected=False))
            expected = last + 1
        if len(runs):
            self.complete_count = complete
            self.seeks_next = True
            self.end_offset = expected - 1
            if self._gap_start != _NO_GAP:
                self._gap_end = self.end_offset
            self.advance()
        return letters

    # -- members -----------------------------------------------------------------------------------------------

    def number_of(self, member_id: str) -> int:
        """The number of a member that owns records; 0 if it owns none."""
        return self._numbers.get(member_id, 0)

    def enter(self, member_id: str) -> int:
        """The number of a member that is to own records."""
        number = self._numbers.get(member_id, 0)
        if number:
            return number
        if len(self._numbers) >= _OWNERS_KEPT:
            self._forget_owners()
        for number in range(1, len(self._members)):
            if not self._members[number]:
                self._members[number] = member_id
                self._numbers[member_id] = number
                return number
        number = len(self._members)
        self._members.append(member_id)
        self._numbers[member_id] = number
        return number

    def _forget_owners(self) -> None:
        used = set(self.runs.owners)
        for number in range(1, len(self._members)):
            if number not in used and self._members[number]:
                del self._numbers[self._members[number]]
                self._members[number] = ""

    # -- what is next ------------------------------------------------------------------------------------------

    @property
    def has_gaps(self) -> bool:
        """Whether gaps between the persisted batches may have records."""
        return self._gap_end != _NO_GAP and self._gap_end == self.end_offset

    @property
    def gap_start(self) -> int:
        """The first offset that may lie in such a gap."""
        return self._gap_start

    def pass_gaps(self, offset: int) -> None:
        """Note that there are no gaps before an offset any more."""
        if self._gap_end == _NO_GAP:
            return
        if self._gap_end == self.end_offset:
            self._gap_start = max(self._gap_start, offset)
        else:
            self._gap_end = self._gap_start = _NO_GAP

    @property
    def is_drained(self) -> bool:
        """Whether nothing from the start offset on is in flight."""
        lasts = self.runs.lasts
        return not len(lasts) or lasts[-1] < self.start_offset

    @property
    def in_flight(self) -> int:
        """The number of records in flight; acknowledged ones between others count."""
        return 0 if self.is_drained else self.end_offset - self.start_offset + 1

    def next_offset(self) -> int:
        """The offset from which the next fetch reads. Source: SharePartition.nextFetchOffset."""
        if self.is_drained:
            self.seeks_next = False
            return self.end_offset
        if not self.seeks_next:
            return self.end_offset + 1
        runs = self.runs
        index = runs.states.find(AVAILABLE, runs.from_offset(self.start_offset))
        found = -1 if index < 0 else max(runs.firsts[index], self.start_offset)
        if self.has_gaps:
            gap = self._next_gap()
            if gap <= self.end_offset and (found < 0 or gap < found):
                return gap
        if found < 0:
            self.seeks_next = self.has_gaps and self._gap_start <= self.end_offset
            return self.end_offset + 1
        return found

    def _next_gap(self) -> int:
        """The first offset from the start of the gaps on that is not in flight."""
        runs = self.runs
        firsts, lasts = runs.firsts, runs.lasts
        expected = max(self._gap_start, self.start_offset)
        index = runs.from_offset(expected)
        while index < len(firsts) and firsts[index] <= expected:
            expected = lasts[index] + 1
            index += 1
        self._gap_start = expected
        return expected

    def may_fetch(self, locks_max: int) -> bool:
        """Whether a fetch may acquire records: there is room for new ones, or available ones are in flight."""
        return self.in_flight < locks_max or self.next_offset() != self.end_offset + 1

    # -- the start offset --------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """
        Move the start offset over records that are acknowledged or archived, and forget them. Returns whether it has moved.

        Source: SharePartition.maybeUpdateCachedStateAndOffsets.
        """
        runs = self.runs
        firsts, lasts, states = runs.firsts, runs.lasts, runs.states
        count = len(firsts)
        index = runs.from_offset(self.start_offset)
        expected = self.start_offset
        done = 0
        while index < count:
            first = firsts[index]
            if first > expected and self.has_gaps and expected >= self._gap_start:
                break
            if not is_terminal(states[index]):
                break
            done += lasts[index] + 1 - max(first, self.start_offset)
            expected = lasts[index] + 1
            index += 1
        if not done:
            return False
        self.complete_count -= done
        self.start_offset = expected
        if index == count:
            self.end_offset = expected
            self.runs = Runs()
            self._gap_end = self._gap_start = _NO_GAP
        else:
            runs.drop_before(runs.batch_begin(index))
        return True

    def on_log_start(self, log_start_offset: int) -> bool:
        """
        Follow the start of the log. Available records before it are archived; acquired ones may still be acknowledged.

        Source: SharePartition.updateCacheAndOffsets.
        """
        if log_start_offset <= self.start_offset:
            return False
        self.archive_available(self.start_offset, log_start_offset - 1)
        runs = self.runs
        index = runs.from_offset(self.start_offset)
        while index < len(runs) and runs.firsts[index] < log_start_offset:
            if is_terminal(runs.states[index] & ~PENDING):
                first = max(runs.firsts[index], self.start_offset)
                self.complete_count -= min(runs.lasts[index] + 1, log_start_offset) - first
            index += 1
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self.seeks_next = True
        self.advance()
        return True

    def archive_available(self, first: int, last: int) -> None:
        """Archive available records that the log has lost. This is written with the next change. The start offset stays."""
        runs = self.runs
        index = runs.from_offset(first)
        while index < len(runs) and runs.firsts[index] <= last:
            if runs.states[index] == AVAILABLE:
                if runs.firsts[index] < first:
                    runs.cut(index, first)
                    index += 1
                if runs.lasts[index] > last:
                    runs.cut(index, last + 1)
                runs.set(index, ARCHIVED, runs.counts[index], 0, 0)
                self.count_complete(runs.firsts[index], runs.lasts[index])
            index += 1

    def count_complete(self, first: int, last: int) -> None:
        """Count records that have become acknowledged or archived."""
        self.complete_count += max(last + 1 - max(first, self.start_offset), 0)

    def uncount_complete(self, first: int, last: int) -> None:
        """Count records no more that are acquired again."""
        self.complete_count -= max(last + 1 - max(first, self.start_offset), 0)

    def watch_lock(self, lock: int) -> None:
        """Note the end of a lock."""
        if not self.next_deadline or lock < self.next_deadline:
            self.next_deadline = lock

    # -- dead letters ------------------------------------------------------------------------------------------

    def archive_letters(self, letter: Letter) -> Change:
        """Archive records whose dead letters were written, or cannot be."""
        change = Change()
        runs = self.runs
        index = runs.from_offset(letter.first)
        low = index
        while index < len(runs) and runs.firsts[index] <= letter.last:
            if runs.states[index] == ARCHIVING:
                # Records of several letters are one run if they are alike.
                if runs.firsts[index] < letter.first:
                    runs.cut(index, letter.first)
                    index += 1
                if runs.lasts[index] > letter.last:
                    runs.cut(index, letter.last + 1)
                first, last, count = runs.firsts[index], runs.lasts[index], runs.counts[index]
                runs.states[index] = ARCHIVED
                self.count_complete(first, last)
                change.add(first, last, ARCHIVED, count)
            index += 1
        runs.join(low, index)
        self.seal(change)
        self.advance()
        return change

    def seal(self, change: Change) -> None:
        """Note in a change what is written with it. Source: the start offset is the one before the change."""
        change.start_offset = self.start_offset
        change.complete_count = self.complete_count
