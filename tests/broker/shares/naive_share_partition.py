"""
A share partition with one object a record, as Kafka's own has it, for comparison: slow, and written from the rules alone.

It knows batches, because they decide what a fetch acquires: a batch is acquired as a whole until its records differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kohort.broker.shares.record_states import ShareSettings
from kohort.machine.ports import StateBatch

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
Refusal = str


@dataclass
class Record:
    state: int = ACQUIRED
    count: int = 1
    owner: str = ""
    lock: int = 0
    is_pending: bool = False

    @property
    def is_free(self) -> bool:
        return self.state == AVAILABLE and not self.is_pending

    @property
    def is_done(self) -> bool:
        return self.state in TERMINAL and not self.is_pending


@dataclass
class Batch:
    first: int
    records: list[Record]
    is_split: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def items(self) -> Iterable[tuple[int, Record]]:
        return enumerate(self.records, self.first)


@dataclass
class Pending:
    """An acknowledgement that is being written: records, and the states that they had."""

    changed: dict[int, Record] = field(default_factory=dict)


class NaiveSharePartition:
    def __init__(self, start: int, settings: ShareSettings, batches: Iterable[StateBatch] = ()) -> None:
        self.start = start
        self.end = start
        self.settings = settings
        self.batches: list[Batch] = []
        self.gaps: set[int] = set()
        expected = start
        for first, last, state, count in batches:
            self.gaps.update(range(expected, first))
            self.batches.append(Batch(first, [Record(state, count) for _ in range(first, last + 1)]))
            expected = last + 1
        if self.batches:
            self.end = expected - 1
            self.advance()

    # -- questions ---------------------------------------------------------------------------------------------

    def record(self, offset: int) -> Record | None:
        for batch in self.batches:
            if batch.first <= offset <= batch.last:
                return batch.records[offset - batch.first]
        return None

    def records(self) -> dict[int, Record]:
        return {offset: record for batch in self.batches for offset, record in batch.items()}

    @property
    def is_drained(self) -> bool:
        return not self.batches or self.batches[-1].last < self.start

    @property
    def in_flight(self) -> int:
        return 0 if self.is_drained else self.end - self.start + 1

    @property
    def complete_count(self) -> int:
        return sum(1 for offset, record in self.records().items() if offset >= self.start and record.state in TERMINAL)

    def next_offset(self) -> int:
        if self.is_drained:
            return self.end
        wanted = [offset for offset, record in self.records().items() if record.is_free and offset >= self.start]
        return min([*wanted, *self.gaps, self.end + 1])

    def may_fetch(self) -> bool:
        return self.in_flight < self.settings.locks_max or self.next_offset() != self.end + 1

    # -- the start offset --------------------------------------------------------------------------------------

    def advance(self) -> None:
        records = self.records()
        start = self.start
        for offset in sorted(records):
            if offset < start:
                continue
            if any(gap in self.gaps for gap in range(start, offset)) or not records[offset].is_done:
                break
            start = offset + 1
        if start == self.start:
            return
        self.start = start
        if self.batches[-1].last < start:
            self.batches = []
            self.end = start
            self.gaps = set()
        else:
            kept = next(number for number, batch in enumerate(self.batches) if batch.last >= start)
            self.batches = self.batches[kept:]

    def on_log_start(self, log_start: int) -> None:
        if log_start <= self.start:
            return
        self.archive_available(self.start, log_start - 1)
        self.start = log_start
        self.gaps = {gap for gap in self.gaps if gap >= log_start}
        self.end = max(self.end, log_start)
        self.advance()

    def archive_available(self, first: int, last: int) -> None:
        for batch in self.batches:
            found = [record for offset, record in batch.items() if first <= offset <= last and record.is_free]
            for record in found:
                self._end(record, ARCHIVED)
            if found and len(found) < len(batch.records):
                batch.is_split = True

    @staticmethod
    def _end(record: Record, state: int) -> None:
        record.state, record.owner, record.lock = state, "", 0

    # -- acquisition -------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        *,
        is_limited: bool,
        batch_size: int,
        records_max: int,
        log: Sequence[tuple[int, int]],
        fetch_offset: int,
        now: int,
    ) -> list[tuple[int, int, int]]:
        if records_max <= 0 or not log or log[-1][1] < self.start:
            return []
        lock = now + self.settings.lock_ms
        last = log[-1][1]
        limit = min(records_max, self.settings.locks_max - self.in_flight)
        if limit <= 0:
            if fetch_offset > self.end:
                return []
            limit = min(records_max, self.end - fetch_offset + 1)
            last = min(last, self.end)
        base = log[0][0]
        if base > fetch_offset:
            self.archive_available(fetch_offset, base - 1)
            if fetch_offset in self.gaps:
                self.gaps = {gap for gap in self.gaps if gap >= base}
        found: list[tuple[int, int, int]] = []
        taken = 0
        expected = max(base, self.start)
        overlapping = [batch for batch in self.batches if batch.last >= base and batch.first <= last]
        for batch in overlapping:
            if taken >= limit:
                return found
            gap = [offset for offset in sorted(self.gaps) if offset < batch.first and offset >= expected]
            if gap:
                taken += self._new(
                    found, gap[0], batch.first - 1, limit - taken, is_limited, batch_size, log, member, lock
                )
                if taken >= limit:
                    return found
            free = {
                offset: record
                for offset, record in batch.items()
                if record.is_free and max(base, self.start) <= offset <= last
            }
            throttle = max(2, (self.settings.delivery_limit + 1) // 2)
            is_throttled = any(record.is_free and record.count >= throttle for record in batch.records)
            if is_throttled and taken:
                return found
            expected = max(batch.last + 1, self.start)
            if not batch.is_split and not free:
                continue
            is_whole = not batch.is_split and batch.first >= base and batch.last <= last and not is_throttled
            if is_whole and not (is_limited and len(batch.records) > limit - taken):
                for record in batch.records:
                    record.state, record.count, record.owner, record.lock = ACQUIRED, record.count + 1, member, lock
                found.append((batch.first, batch.last, batch.records[0].count))
                taken += len(batch.records)
                continue
            batch.is_split = True
            part: list[tuple[int, int, int]] = []
            cap = None
            got = 0
            for offset, record in free.items():
                is_last_attempt = self.settings.delivery_limit > 2 and record.count == self.settings.delivery_limit - 1
                if (is_last_attempt and got) or (is_limited and taken + got >= limit):
                    break
                if cap is None and record.count >= throttle:
                    cap = max(1, len(batch.records) >> (record.count - throttle + 1))
                record.state, record.count, record.owner, record.lock = ACQUIRED, record.count + 1, member, lock
                got += 1
                if part and part[-1][1] + 1 == offset and part[-1][2] == record.count:
                    part[-1] = (part[-1][0], offset, record.count)
                else:
                    part.append((offset, offset, record.count))
                if is_last_attempt or (cap is not None and got >= cap):
                    break
            found += part
            taken += got
            if is_throttled and got:
                return found
        if taken >= limit:
            return found
        if self.is_drained:
            expected = max(expected, self.end)
        if not overlapping and self.gaps:
            expected = max(expected, min(self.gaps))
        self._new(found, expected, last, limit - taken, is_limited, batch_size, log, member, lock)
        return found

    def _new(
        self,
        found: list[tuple[int, int, int]],
        first: int,
        last: int,
        room: int,
        is_limited: bool,
        batch_size: int,
        log: Sequence[tuple[int, int]],
        member: str,
        lock: int,
    ) -> int:
        if first > last:
            return 0
        end = last
        if room < last - first + 1:
            end = min(next(high for _, high in log if high >= first + room - 1), last)
        if self.is_drained:
            self.start = first
            self.end = end
        self.end = max(self.end, end)
        self.gaps -= set(range(first, end + 1))
        ranges = []
        if is_limited:
            taken = min(end, first + room - 1)
            ranges.append((first, taken))
            batch = Batch(first, [Record(ACQUIRED, 1, member, lock) for _ in range(first, taken + 1)])
            batch.records += [Record(AVAILABLE, 0) for _ in range(taken + 1, end + 1)]
            batch.is_split = taken < end
            self.batches.append(batch)
        else:
            begin = first
            for base in [low for low, _ in log if first < low <= end] + [end + 1]:
                if base == end + 1 or base - begin >= batch_size:
                    ranges.append((begin, base - 1))
                    self.batches.append(Batch(begin, [Record(ACQUIRED, 1, member, lock) for _ in range(begin, base)]))
                    begin = base
        self.batches.sort(key=lambda batch: batch.first)
        found += [(low, high, 1) for low, high in ranges]
        return sum(high - low + 1 for low, high in ranges)

    def archive_aborted(
        self, found: Sequence[tuple[int, int, int]], aborted: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int]]:
        left: list[tuple[int, int, int]] = []
        for first, last, count in found:
            kept: list[int] = []
            batch = next(batch for batch in self.batches if batch.first <= first <= batch.last)
            for offset in range(first, last + 1):
                if any(low <= offset <= high for low, high in aborted):
                    self._end(batch.records[offset - batch.first], ARCHIVED)
                    continue
                if kept and kept[-1] == offset - 1:
                    left[-1] = (left[-1][0], offset, count)
                else:
                    left.append((offset, offset, count))
                kept.append(offset)
            for low, high in aborted:
                is_touched = low <= last and first <= high
                batch.is_split |= is_touched and not (low <= batch.first and batch.last <= high)
        self.advance()
        return left

    # -- acknowledgements --------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Sequence[tuple[int, int, Sequence[int]]], now: int
    ) -> Pending | Refusal:
        pending = Pending()
        for first, last, types in batches:
            refusal = self._acknowledge(pending, member, first, last, types, now)
            if refusal:
                self.roll_back(pending, now)
                return refusal
        return pending

    def _acknowledge(
        self, pending: Pending, member: str, first: int, last: int, types: Sequence[int], now: int
    ) -> Refusal | None:
        if last < self.start:
            return None
        floor = [batch for batch in self.batches if batch.first <= first]
        if not floor and first < self.start:
            floor = [batch for batch in self.batches if batch.first <= self.start]
        if not floor:
            return "not found"
        touched = [batch for batch in self.batches if batch.first <= last and batch.first >= floor[-1].first]
        if touched[-1].last < first:
            return "first is past"
        if touched[-1].last < last:
            return "last is past"
        todo: list[tuple[Batch, list[int]]] = []
        for batch in touched:
            offsets = [offset for offset, _ in batch.items() if max(first, self.start) <= offset <= last]
            if not offsets:
                continue
            for offset in offsets:
                record = batch.records[offset - batch.first]
                if record.state != ACQUIRED or record.is_pending:
                    return "offset state" if batch.is_split else "batch state"
                if record.owner != member:
                    return "offset owner" if batch.is_split else "batch owner"
            todo.append((batch, offsets))
        if 4 in types and not self.settings.can_renew:
            return "renew"
        for batch, offsets in todo:
            if len(types) > 1 or len(offsets) < len(batch.records):
                batch.is_split = True
            for offset in offsets:
                kind = types[0] if len(types) == 1 else types[offset - first]
                record = batch.records[offset - batch.first]
                if kind == 4:
                    record.lock = now + self.settings.lock_ms
                    continue
                pending.changed[offset] = Record(record.state, record.count, record.owner, record.lock)
                record.state = self._after(kind, record.count)
                record.is_pending = True
        return None

    def _after(self, kind: int, count: int) -> int:
        dead = ARCHIVING if self.settings.has_dead_letters else ARCHIVED
        if kind == 2:
            return AVAILABLE if count < self.settings.delivery_limit else dead
        return {0: ARCHIVED, 1: ACKNOWLEDGED, 3: dead}[kind]

    def commit(self, pending: Pending) -> None:
        for offset in pending.changed:
            record = self.record(offset)
            if record is not None:
                record.is_pending = False
                record.owner, record.lock = "", 0
        self.advance()

    def roll_back(self, pending: Pending, now: int) -> None:
        for batch in self.batches:
            for offset, record in batch.items():
                before = pending.changed.get(offset)
                if before is None:
                    continue
                record.is_pending = False
                if before.lock > now:
                    record.state = ACQUIRED
                    continue
                if batch.first < self.start <= batch.last:
                    batch.is_split = True
                is_over = before.count >= self.settings.delivery_limit or offset < self.start
                self._end(record, ARCHIVED if is_over else AVAILABLE)
        self.advance()

    def release(self, member: str) -> Pending:
        pending = Pending()
        for batch in self.batches:
            for offset, record in batch.items():
                if record.state == ACQUIRED and not record.is_pending and record.owner == member:
                    if batch.first < self.start <= batch.last:
                        batch.is_split = True
                    pending.changed[offset] = Record(record.state, record.count, record.owner, record.lock)
                    record.state = ARCHIVED if offset < self.start else self._after(2, record.count)
                    record.is_pending = True
        return pending

    def expire(self, now: int) -> None:
        for batch in self.batches:
            for offset, record in batch.items():
                if record.state == ACQUIRED and not record.is_pending:
                    if batch.first < self.start <= batch.last:
                        batch.is_split = True
                    if record.lock <= now:
                        self._end(record, ARCHIVED if offset < self.start else self._after(2, record.count))
        self.advance()

    def archive_letters(self, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            record = self.record(offset)
            if record is not None and record.state == ARCHIVING and not record.is_pending:
                record.state = ARCHIVED
        self.advance()
