"""
Acknowledgements of acquired records, and the ends of their locks.

An acknowledgement holds at once, so nobody else acquires the records while it is written. It is final when the write has
succeeded (`commit`), and taken back when it has failed (`roll_back`). A lock that runs out changes its records for good.

Source: Kafka SharePartition.acknowledge, releaseAcquiredRecords, releaseAcquisitionLockOnTimeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kohort.broker.shares.record_states import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    PENDING,
    REJECT,
    RELEASE,
    RENEW,
    ShareSettings,
    is_terminal,
    state_after,
)
from kohort.broker.shares.runs import SPLIT, Runs
from kohort.broker.shares.share_partition import Change, Letter, SharePartition
from kohort.model.errors import CoordinatorError, ErrorCode

_INVALID_STATE: Final = ErrorCode.INVALID_RECORD_STATE
_NOT_FOUND: Final = "Batch record not found. "
_NEAR: Final = 4
"""Changed runs are joined in one pass if about every fourth run between them has changed."""


class AcknowledgementBatch(NamedTuple):
    """
    Offsets that a member acknowledges, both ends included.

    Attributes:
        types: one for all of them, or one for each.
    """

    first: int
    last: int
    types: Sequence[int]


class _Piece(NamedTuple):
    """Neighbouring offsets of a run with one acknowledgement."""

    first: int
    last: int
    acknowledgement: int


class Acknowledgement:
    """One request of a member for one share partition."""

    __slots__ = ("_lock", "_now_ms", "_owner", "_partition", "_settings", "change")

    def __init__(self, partition: SharePartition, member_id: str, now_ms: int, settings: ShareSettings) -> None:
        self._partition = partition
        self._owner = partition.number_of(member_id)
        self._now_ms = now_ms
        self._lock = now_ms + settings.lock_ms
        self._settings = settings
        self.change = Change()

    def acknowledge(self, batches: Sequence[AcknowledgementBatch]) -> Change:
        """
        Acknowledge batches in their order, all or none. Renewed locks stay renewed in any case.

        Raises:
            CoordinatorError: INVALID_RECORD_STATE or INVALID_REQUEST.
        """
        partition, settings = self._partition, self._settings
        try:
            for batch in batches:
                self._acknowledge(batch)
        except CoordinatorError:
            roll_back(partition, self.change, self._now_ms, settings)
            raise
        partition.seal(self.change)
        return self.change

    def _acknowledge(self, batch: AcknowledgementBatch) -> None:
        partition = self._partition
        runs = partition.runs
        start = partition.start_offset
        first, last, types = batch
        if last < start:
            return
        index = runs.floor(first)
        if index < 0:
            index = runs.floor(start) if first < start else -1
            if index < 0:
                raise CoordinatorError(
                    _INVALID_STATE, _NOT_FOUND + "The request batch offsets are not found in the cache."
                )
        high = runs.floor(last) + 1
        known = runs.lasts[high - 1]
        if known < first:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, _NOT_FOUND + "The first offset in request is past acquired records."
            )
        if last > known:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, _NOT_FOUND + "The last offset in request is past acquired records."
            )
        low = runs.from_offset(max(first, start))
        for index in range(low, high):
            self._check(index)
        if RENEW in types and not self._settings.can_renew:
            raise CoordinatorError(_INVALID_STATE, "Renewing acquisition locks is not enabled for the group.")
        if len(types) == 1 and runs.firsts[low] >= max(first, start) and known == last:
            for index in range(low, high):
                self._change_run(index, types[0])
        else:
            self._change_parts(low, high, batch)

    def _check(self, index: int) -> None:
        """Raises: CoordinatorError."""
        runs = self._partition.runs
        if runs.flags[index] & SPLIT:
            if runs.states[index] != ACQUIRED:
                raise CoordinatorError(_INVALID_STATE, "The offset cannot be acknowledged. The offset is not acquired.")
            if runs.owners[index] != self._owner:
                raise CoordinatorError(_INVALID_STATE, "Member is not the owner of offset")
        elif runs.states[index] != ACQUIRED:
            raise CoordinatorError(
                _INVALID_STATE, "The batch cannot be acknowledged. The batch is not in the acquired state."
            )
        elif runs.owners[index] != self._owner:
            raise CoordinatorError(_INVALID_STATE, "Member is not the owner of batch record")

    def _change_run(self, index: int, acknowledgement: int) -> None:
        partition = self._partition
        runs = partition.runs
        if acknowledgement == RENEW:
            runs.locks[index] = self._lock
            return
        count = runs.counts[index]
        runs.states[index] = self._note(runs.firsts[index], runs.lasts[index], count, acknowledgement)

    def _note(self, first: int, last: int, count: int, acknowledgement: int) -> int:
        """Add changed records to `change`. Returns their new state, which is pending."""
        state = state_after(acknowledgement, count, self._settings)
        _note(self._partition, self.change, first, last, count, state, is_rejected=acknowledgement == REJECT)
        return state | PENDING

    def _change_parts(self, low: int, high: int, batch: AcknowledgementBatch) -> None:
        """Change some of the records of runs, or each in its own way."""
        runs = self._partition.runs
        start = max(batch.first, self._partition.start_offset)
        new = Runs()
        for index in range(low, high):
            first, last = runs.firsts[index], runs.lasts[index]
            state, count, owner, lock = runs.states[index], runs.counts[index], runs.owners[index], runs.locks[index]
            flags = runs.flags[index]
            if first < start or last > batch.last or len(batch.types) > 1:
                flags |= SPLIT
            if first < start:
                new.append(first, start - 1, state, count, owner, lock, flags)
                flags = SPLIT
            for piece in _pieces(batch, max(first, start), min(last, batch.last)):
                if piece.acknowledgement == RENEW:
                    new.append(piece.first, piece.last, state, count, owner, self._lock, flags)
                else:
                    changed = self._note(piece.first, piece.last, count, piece.acknowledgement)
                    new.append(piece.first, piece.last, changed, count, owner, lock, flags)
                flags = SPLIT
            if last > batch.last:
                new.append(batch.last + 1, last, state, count, owner, lock, flags)
        runs.splice(low, high, new)


def _pieces(batch: AcknowledgementBatch, first: int, last: int) -> list[_Piece]:
    """The acknowledgements of some of the offsets of a batch."""
    types = batch.types
    if len(types) == 1:
        return [_Piece(first, last, types[0])]
    pieces = []
    begin = first
    kind = types[first - batch.first]
    for offset in range(first + 1, last + 1):
        other = types[offset - batch.first]
        if other != kind:
            pieces.append(_Piece(begin, offset - 1, kind))
            begin, kind = offset, other
    pieces.append(_Piece(begin, last, kind))
    return pieces


def _note(
    partition: SharePartition, change: Change, first: int, last: int, count: int, state: int, *, is_rejected: bool
) -> None:
    """Add acquired records and their new state to a change."""
    change.firsts.append(first)
    change.add(first, last, state, count)
    if is_terminal(state):
        partition.count_complete(first, last)
    elif state == ARCHIVING:
        change.letters.append(Letter(first, last, count, is_rejected))


# -- the end of a write -----------------------------------------------------------------------------------------


def commit(partition: SharePartition, change: Change) -> bool:
    """Make a change final. Returns whether records are available now, or the start offset has moved."""
    runs = partition.runs
    is_news = False
    for first in change.firsts:
        index = runs.floor(first)
        if _is_pending(runs, index, first):
            state = runs.states[index] & ~PENDING
            runs.set(index, state, runs.counts[index], 0, 0)
            if state == AVAILABLE:
                partition.seeks_next = is_news = True
    if change.firsts:
        low, high = runs.floor(change.firsts[0]), runs.floor(change.firsts[-1])
        if high - low <= _NEAR * len(change.firsts):
            runs.join(low, high + 1)
        else:
            for first in reversed(change.firsts):
                index = runs.floor(first)
                runs.join(index, index + 1)
    return partition.advance() or is_news


def _is_pending(runs: Runs, index: int, first: int) -> bool:
    """Whether a run is still there. A run before the start offset may be gone."""
    return index >= 0 and runs.firsts[index] == first and runs.states[index] & PENDING != 0


def roll_back(partition: SharePartition, change: Change, now_ms: int, settings: ShareSettings) -> bool:
    """
    Take a change back. Records whose lock has run out meanwhile are released. Returns whether some are available then.

    Records before the start offset are archived then, as at the end of a lock. Kafka makes the whole batch available if the log
    has lost only its first records.

    Source: SharePartition.rollbackOrProcessStateUpdates.
    """
    runs = partition.runs
    is_news = False
    for first in change.firsts:
        index = runs.floor(first)
        if not _is_pending(runs, index, first):
            continue
        last, count, lock = runs.lasts[index], runs.counts[index], runs.locks[index]
        if is_terminal(runs.states[index] & ~PENDING):
            partition.uncount_complete(first, last)
        if lock > now_ms:
            runs.states[index] = ACQUIRED
            partition.watch_lock(lock)
            continue
        if first < partition.start_offset <= last:
            runs.cut(index, partition.start_offset)
            runs.set(index, ARCHIVED, count, 0, 0)
            index += 1
        is_exhausted = count >= settings.delivery_limit or last < partition.start_offset
        state = ARCHIVED if is_exhausted else AVAILABLE
        runs.set(index, state, count, 0, 0)
        if state == AVAILABLE:
            partition.seeks_next = is_news = True
        else:
            partition.count_complete(first, last)
    return partition.advance() or is_news


# -- the end of a lock ------------------------------------------------------------------------------------------


def release(partition: SharePartition, member_id: str, settings: ShareSettings) -> Change:
    """Release all records of a member whose session has ended. The change is to be written, as an acknowledgement is."""
    change = Change()
    owner = partition.number_of(member_id)
    if owner:
        runs = partition.runs
        at_start = runs.from_offset(partition.start_offset)
        if at_start < len(runs) and runs.owners[at_start] == owner:
            _cut_at_start(partition)
        index = runs.states.find(ACQUIRED)
        while index >= 0:
            if runs.owners[index] == owner:
                runs.states[index] = _released(partition, change, index, settings) | PENDING
            index = runs.states.find(ACQUIRED, index + 1)
    partition.seal(change)
    return change


def expire(partition: SharePartition, now_ms: int, settings: ShareSettings) -> Change:
    """Release the records whose lock has run out, for good: the change is to be written, and nothing takes it back."""
    change = Change()
    runs = partition.runs
    deadline = 0
    _cut_at_start(partition)
    index = runs.states.find(ACQUIRED)
    while index >= 0:
        lock = runs.locks[index]
        if lock <= now_ms:
            state = _released(partition, change, index, settings)
            runs.set(index, state, runs.counts[index], 0, 0)
            if state == AVAILABLE:
                partition.seeks_next = True
        elif not deadline or lock < deadline:
            deadline = lock
        index = runs.states.find(ACQUIRED, index + 1)
    change.firsts.clear()
    partition.next_deadline = deadline
    partition.seal(change)
    partition.advance()
    return change


def _released(partition: SharePartition, change: Change, index: int, settings: ShareSettings) -> int:
    """Note the release of an acquired run. Returns its new state."""
    runs = partition.runs
    first, last, count = runs.firsts[index], runs.lasts[index], runs.counts[index]
    state = ARCHIVED if last < partition.start_offset else state_after(RELEASE, count, settings)
    _note(partition, change, first, last, count, state, is_rejected=False)
    return state


def _cut_at_start(partition: SharePartition) -> None:
    """Records before the start offset end another way than those behind it."""
    runs = partition.runs
    index = runs.from_offset(partition.start_offset)
    if index < len(runs) and runs.firsts[index] < partition.start_offset and runs.states[index] == ACQUIRED:
        runs.cut(index, partition.start_offset)
