"""
Burrow's evaluation of a partition of a group, rule by rule, as plain functions.

Burrow keeps the last ten commits of each partition with the lag at each of them, and the last ten log end offsets, which it
polls every ten seconds. `evaluate` takes the content of such a window and returns Burrow's status. Callers remove what Burrow
ignores wrongly (tombstones, commits of aborted transactions), see `burrow.status`.

Source: LinkedIn Burrow, core/internal/evaluator/caching.go and core/internal/storage/inmemory.go (rules, order and defaults).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

INTERVALS = 10
REFRESH_MS = 10_000
"""The time between two polls of log end offsets by Burrow, by default."""
EXPIRE_MS = 604_800_000
PAUSES = 100
"""Commits whose pauses are usual."""
PAUSE_FACTOR = 2
"""The silence of a group that is no STOP as a verdict, as a multiple of the longest of its last pauses."""


@dataclass(frozen=True, slots=True)
class Rules:
    """
    Burrow's settings, by default its own.

    Attributes:
        intervals: commits in the window, and stored log end offsets (`intervals`).
        allowed_lag: a lag up to this counts as none (`allowed-lag`).
        refresh_ms: how often log end offsets are polled (`offset-refresh`).
        distance_min_ms: commits closer together count as one (`min-distance`).
        complete_min: the filled share of the window below which a partition is OK (`minimum-complete`).
        expire_ms: older commits are dropped (`expire-group`).
    """

    intervals: int = INTERVALS
    allowed_lag: int = 0
    refresh_ms: int = REFRESH_MS
    distance_min_ms: int = 0
    complete_min: float = 0.0
    expire_ms: int = EXPIRE_MS

    def asked_ms(self, at_ms: int) -> int:
        """Return when log end offsets were last polled: at whole `refresh_ms` since 1970, so that any two runs agree."""
        return at_ms - at_ms % self.refresh_ms


BURROWS = Rules()


class Status(IntEnum):
    """Statuses by severity, with Burrow's numbers."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit and the lag at its time; None if unknown. `order` is its offset in the coordinator's log."""

    offset: int
    timestamp_ms: int
    lag: int | None
    order: int = 0


def window(commits: Iterable[Commit], rules: Rules = BURROWS) -> tuple[Commit, ...]:
    """
    Return the commits in Burrow's ring, in the order of the coordinator's log.

    A commit less than `rules.distance_min_ms` after the previous one replaces it, and keeps the older timestamp.
    """
    kept: list[Commit] = []
    distance_min_ms = rules.distance_min_ms
    for commit in commits:
        if distance_min_ms and kept and commit.timestamp_ms - kept[-1].timestamp_ms < distance_min_ms:
            kept[-1] = replace(commit, timestamp_ms=kept[-1].timestamp_ms)
        else:
            kept.append(commit)
    return tuple(kept[-rules.intervals :])


def evaluate(
    commits: Sequence[Commit],
    rules: Rules = BURROWS,
    *,
    current_lag: int,
    now_ms: int,
    ends: Iterable[int] = (),
    pause_ms: int = 0,
) -> Status:
    """
    Return the status of one partition.

    Args:
        commits: as `window` returns them. ends: the stored log end offsets. pause_ms: the longest of the last pauses between
        commits. Silence up to `PAUSE_FACTOR` times this is no STOP; Burrow does
            not look at pauses, so 0 gives its status.
    """
    if not commits:
        return Status.NOTFOUND
    if len(commits) / rules.intervals < rules.complete_min or current_lag <= rules.allowed_lag:
        return Status.OK
    is_silent = now_ms - commits[-1].timestamp_ms > PAUSE_FACTOR * pause_ms
    if is_silent and _is_stopped(commits, now_ms) and not any(end <= commits[-1].offset for end in ends):
        return Status.STOP
    if _is_rewound(commits):
        return Status.REWIND
    known = [commit.lag for commit in commits if commit.lag is not None]
    if any(lag <= rules.allowed_lag for lag in known):
        return Status.OK
    if all(commit.offset == commits[0].offset for commit in commits):
        return Status.STALL
    return Status.WARN if all(later >= lag for lag, later in pairwise(known)) else Status.OK


def _is_stopped(commits: Sequence[Commit], now_ms: int) -> bool:
    """Tell whether the last commit is older than the span of the window."""
    first_ms, last_ms = commits[0].timestamp_ms, commits[-1].timestamp_ms
    return now_ms - last_ms > last_ms - first_ms


def _is_rewound(commits: Sequence[Commit]) -> bool:
    """Tell whether, after the first decrease of the offset, it never reached the previous value again."""
    for index, (before, here) in enumerate(pairwise(commits)):
        if here.offset < before.offset:
            return not any(commit.offset >= before.offset for commit in commits[index + 1 :])
    return False


def group_status(partitions: Iterable[Status]) -> Status:
    """Return the worst status of the partitions; Burrow reports everything above WARN as ERR for a group."""
    return min(max(partitions, default=Status.NOTFOUND), Status.ERR)
