"""
Burrow's verdict on a partition of a group, rule by rule, as plain functions.

Burrow keeps the last ten commits of each partition with the lag at each of them, and the last ten ends of its log (asked for
every ten seconds). `evaluate` is given what such a window holds and answers what Burrow would; what Burrow overlooks
(tombstones, commits of aborted transactions) is left out before, see `burrow_status`.

Source: LinkedIn Burrow, core/internal/evaluator/caching.go and core/internal/storage/inmemory.go (rules, order and defaults).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

INTERVALS = 10
REFRESH_MS = 10_000
"""How often Burrow asks for the ends of logs, by default."""
EXPIRE_MS = 604_800_000


@dataclass(frozen=True, slots=True)
class Rules:
    """
    Burrow's settings, by default its own.

    Attributes:
        intervals: commits that the window holds, and ends of the log (`intervals`).
        allowed_lag: a lag that is none (`allowed-lag`).
        refresh_ms: how often ends are asked for (`offset-refresh`).
        distance_min_ms: commits closer to each other count as one (`min-distance`).
        complete_min: the share of the window below which a partition is OK (`minimum-complete`).
        expire_ms: commits older than this are forgotten (`expire-group`).
    """

    intervals: int = INTERVALS
    allowed_lag: int = 0
    refresh_ms: int = REFRESH_MS
    distance_min_ms: int = 0
    complete_min: float = 0.0
    expire_ms: int = EXPIRE_MS

    def asked_ms(self, at_ms: int) -> int:
        """When the ends of logs were last asked for: at whole `refresh_ms` since 1970, so that any two runs agree."""
        return at_ms - at_ms % self.refresh_ms


class Status(IntEnum):
    """By severity, as Burrow numbers them."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit and the lag it left; `lag` is None where it is not known. `order` is its place in the coordinator's log."""

    offset: int
    timestamp_ms: int
    lag: int | None
    order: int = 0


def window(commits: Iterable[Commit], *, intervals: int = INTERVALS, distance_min_ms: int = 0) -> tuple[Commit, ...]:
    """
    The commits that Burrow's ring holds, oldest first by their place in the coordinator's log.

    A commit sooner than `distance_min_ms` after the one before takes its place and keeps its time.
    """
    kept: list[Commit] = []
    for commit in commits:
        if distance_min_ms and kept and commit.timestamp_ms - kept[-1].timestamp_ms < distance_min_ms:
            kept[-1] = replace(commit, timestamp_ms=kept[-1].timestamp_ms)
        else:
            kept.append(commit)
    return tuple(kept[-intervals:])


def evaluate(
    commits: Sequence[Commit],
    *,
    current_lag: int,
    now_ms: int,
    ends: Iterable[int] = (),
    allowed_lag: int = 0,
    complete_min: float = 0.0,
    intervals: int = INTERVALS,
) -> Status:
    """
    The status of one partition.

    Args:
        commits: as `window` returns them.
        ends: the end offsets of the log that Burrow has stored.
        complete_min: the share of `intervals` below which a partition is OK.
    """
    if not commits:
        return Status.NOTFOUND
    if len(commits) / intervals < complete_min or current_lag <= allowed_lag:
        return Status.OK
    if _is_stopped(commits, now_ms) and not any(end <= commits[-1].offset for end in ends):
        return Status.STOP
    if _is_rewound(commits):
        return Status.REWIND
    known = [commit.lag for commit in commits if commit.lag is not None]
    if any(lag <= allowed_lag for lag in known):
        return Status.OK
    if all(commit.offset == commits[0].offset for commit in commits):
        return Status.STALL
    return Status.WARN if all(later >= lag for lag, later in pairwise(known)) else Status.OK


def _is_stopped(commits: Sequence[Commit], now_ms: int) -> bool:
    """Silent for longer than the whole window lasted."""
    first_ms, last_ms = commits[0].timestamp_ms, commits[-1].timestamp_ms
    return now_ms - last_ms > last_ms - first_ms


def _is_rewound(commits: Sequence[Commit]) -> bool:
    """The offset went back, and has not come up to where it was."""
    for index, (before, here) in enumerate(pairwise(commits)):
        if here.offset < before.offset:
            return not any(commit.offset >= before.offset for commit in commits[index + 1 :])
    return False


def group_status(partitions: Iterable[Status]) -> Status:
    """The worst of a group's partitions; Burrow calls everything worse than WARN an error of the group."""
    return min(max(partitions, default=Status.NOTFOUND), Status.ERR)
