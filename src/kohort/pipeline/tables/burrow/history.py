"""
The history of Burrow statuses of one partition of a group, from its first commit on: each status with its start and end.

A plain class without Spark. Burrow evaluates on request, and polls log end offsets periodically. Here the status is evaluated
for every instant, with log end offsets polled at every whole `refresh_ms` since 1970. Between two events (a commit, an appended
batch)
the status can change with time alone: when the silence exceeds the span of the window, when a stored end offset leaves the
ring, or when commits expire. These instants are computed, so that not every millisecond has to be tried.

Source: as `evaluator`.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, TypeAlias

from kohort.pipeline.tables.burrow.evaluator import Commit, Rules, Status, evaluate, window
from kohort.pipeline.tables.incarnations import INCARNATION

Row: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class BurrowHistory:
    """
    Replays the events of one partition of a group (from `lag_over_time.partition_lag`) up to `until_ms`.

    Rows of the result: `group`, `topic`, `partition`, `since_ms`, `until_ms` (null for the last), `status`, `lag_max`.
    """

    group: str
    topic: str
    partition: int
    rules: Rules
    until_ms: int
    _commits: deque[Commit] = field(default_factory=deque)
    _deleted_at: int = -1
    _ends: deque[tuple[int, int]] = field(default_factory=deque)
    _incarnation: int = 0
    _at_ms: int | None = None
    _open: Row | None = None

    def replay(self, event: Row) -> Iterator[Row]:
        """Apply one event. Events of the same instant are evaluated together."""
        at_ms = event["timestamp_ms"]
        if self._at_ms is not None and at_ms != self._at_ms:
            yield from self._evaluate_until(at_ms)
        self._at_ms = at_ms
        if event["committed"] is None:
            self._produced(at_ms, event["end_offset"] or 0, event.get(INCARNATION) or 0)
        elif event["committed"]["offset"] is None:
            self._deleted(event["order"])
        else:
            self._committed(Commit(event["committed"]["offset"], at_ms, event["behind"], event["order"]))

    def finish(self) -> Iterator[Row]:
        if self._at_ms is not None:
            yield from self._evaluate_until(self.until_ms + 1)
        if self._open is not None:
            yield self._open

    def _produced(self, at_ms: int, end: int, incarnation: int) -> None:
        if incarnation <= self._incarnation:
            # A batch of an ended incarnation, or below the end of an earlier batch, does not move the end.
            before = self._ends[-1][1] if self._ends else 0
            end = max(end, before) if incarnation == self._incarnation else before
        self._incarnation = max(incarnation, self._incarnation)
        self._ends.append((at_ms, end))
        # Of the ends before the ring only the last one matters: it holds at the start of the ring.
        oldest_ms = at_ms - (self.rules.intervals + 1) * self.rules.refresh_ms
        while len(self._ends) > 1 and self._ends[1][0] <= oldest_ms:
            self._ends.popleft()

    def _deleted(self, order: int) -> None:
        self._deleted_at = max(self._deleted_at, order)
        self._commits = deque(one for one in self._commits if one.order > order)

    def _committed(self, commit: Commit) -> None:
        if commit.order < self._deleted_at:
            return
        if self._commits and commit.order < self._commits[-1].order:
            # Burrow inserts a late commit in order, without a lag.
            insort(self._commits, replace(commit, lag=None), key=lambda one: one.order)
        else:
            self._commits.append(commit)
        if not self.rules.distance_min_ms:
            if len(self._commits) > self.rules.intervals:
                self._commits.popleft()
            return
        self._commits = deque(window(self._commits, self.rules))

    def _evaluate_until(self, next_ms: int) -> Iterator[Row]:
        """Evaluate from the last event until before the next one."""
        assert self._at_ms is not None
        status, lag = self._evaluated(self._at_ms)
        yield from self._emit(self._at_ms, status, lag)
        # Without a lag the status stays OK until the commits expire.
        turns = {*self._expiries(next_ms), *(() if lag <= self.rules.allowed_lag else self._turns(next_ms))}
        for at_ms in sorted(one for one in turns if self._at_ms < one < next_ms):
            yield from self._emit(at_ms, *self._evaluated(at_ms))

    def _expiries(self, next_ms: int) -> Iterator[int]:
        for commit in self._commits:
            at_ms = commit.timestamp_ms + self.rules.expire_ms + 1
            if at_ms < next_ms:
                yield at_ms

    def _turns(self, next_ms: int) -> Iterator[int]:
        """Instants at which time alone may change a status with lag: STOP begins, or an end leaves the ring."""
        assert self._at_ms is not None
        expired_ms = self._at_ms - self.rules.expire_ms
        live = [one for one in self._commits if one.timestamp_ms >= expired_ms]
        if not live:
            return
        # The span of the window changes when its first commit expires.
        firsts = [one.timestamp_ms for one in live]
        is_quiet = 2 * firsts[-1] - firsts[0] + 1 >= next_ms
        if is_quiet and min(firsts) + self.rules.expire_ms >= next_ms:
            return
        # After late commits, the last commit in order may expire before others.
        for last in live if firsts != sorted(firsts) else live[-1:]:
            yield from (2 * last.timestamp_ms - first_ms + 1 for first_ms in firsts)
            yield from self._turns_of_ends(last.offset)

    def _turns_of_ends(self, offset: int) -> Iterator[int]:
        """Instants at which an end leaves the ring: the oldest one, or one next to a change from below to above an offset."""
        turned = (later for before, later in pairwise(self._ends) if (before[1] > offset) != (later[1] > offset))
        for moment in {at_ms for at_ms, _ in (*islice(self._ends, 1), *turned)}:
            asked_ms = self.rules.asked_ms(moment)
            yield from (asked_ms + step * self.rules.refresh_ms for step in range(1, self.rules.intervals + 2))

    def _evaluated(self, at_ms: int) -> tuple[Status, int]:
        live = [one for one in self._commits if at_ms - one.timestamp_ms <= self.rules.expire_ms]
        if not live:
            return Status.NOTFOUND, 0
        end = self._end_at(at_ms)
        lag = max((end or 0) - live[-1].offset, 0)
        asked_ms = self.rules.asked_ms(at_ms)
        if lag <= self.rules.allowed_lag:
            return Status.OK, lag
        ring = (self._end_at(asked_ms - step * self.rules.refresh_ms) for step in range(self.rules.intervals))
        ends = [one for one in ring if one is not None]
        return evaluate(live, self.rules, current_lag=lag, now_ms=at_ms, ends=ends), lag

    def _end_at(self, at_ms: int) -> int | None:
        index = bisect_right(self._ends, at_ms, key=lambda one: one[0])
        return self._ends[index - 1][1] if index else None

    def _emit(self, at_ms: int, status: Status, lag: int) -> Iterator[Row]:
        if self._open is not None and self._open["status"] == status.name:
            self._open["lag_max"] = max(self._open["lag_max"], lag)
            return
        if self._open is not None:
            yield self._open | {"until_ms": at_ms}
        self._open = None
        if status is not Status.NOTFOUND:
            self._open = {
                "group": self.group,
                "topic": self.topic,
                "partition": self.partition,
                "since_ms": at_ms,
                "until_ms": None,
                "status": status.name,
                "lag_max": lag,
            }
