"""
Verdicts: the status of each partition of a group, worst first. The report, `kohort pipeline status` and the exporter share
them.

Burrow's status (`evaluator`) is the base. It looks at commits and log ends only, and misses these cases:

- A group without members that has lag. Burrow says OK until the silence exceeds the span of the window, and says nothing once
  the commits are older than a week. The verdict is STOP at once.
- Lag that grows for hours. One decrease resets Burrow's WARN. The verdict is WARN if the low-water mark of the lag rises
  (`is_rising`).
- Lag of which no reader gets anything: transaction markers and records of aborted transactions. Kafka counts their offsets,
  so a group that reads transactions never reaches 0. The verdict is OK if everything else was read.
- Records that the group can no longer read: deleted before it read them, or a committed offset beyond the end of the log. The
  verdict is LOST.

Plain functions over rows, without Spark.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

OK, WARN, STOP, LOST = "OK", "WARN", "STOP", "LOST"
SEVERITIES = (OK, WARN, STOP, "STALL", "REWIND", LOST)
"""All verdicts, the mildest first, in Burrow's order."""
BAD = SEVERITIES[SEVERITIES.index(STOP) :]
"""Verdicts of partitions that do not recover by themselves."""

_PLACE = ("group", "topic", "partition")
_RISING_MIN = 4
"""Known lags in the window below which no trend is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """
    Facts about one partition of a group; None is unknown.

    Attributes:
        status: Burrow's status; None if it has no commit in the window, because all have expired.
        has_members: whether the group has a member now.
        is_rising: see `is_rising`.
        records_lost: records that were deleted before the group read them.
        is_all_read: the lag consists of transaction markers, records of aborted transactions, and gaps of compaction only.
    """

    status: str | None
    lag: int | None
    offset: int | None = None
    end_offset: int | None = None
    has_members: bool | None = None
    is_rising: bool = False
    records_lost: int | None = None
    is_all_read: bool = False
    allowed_lag: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, and the reason in words; empty for OK."""

    name: str
    why: str = ""


_REASONS = {
    "WARN": "commits advance, and the lag does not shrink",
    "STOP": "no commit for longer than the span of the last ones",
    "STALL": "commits repeat one offset",
    "REWIND": "the committed offset went back",
}


def judge(facts: PartitionFacts) -> Verdict:
    """Return the verdict of one partition: the first rule that applies."""
    if facts.records_lost:
        return Verdict(LOST, f"{facts.records_lost} records were deleted before the group read them")
    if facts.offset is not None and facts.end_offset is not None and facts.offset > facts.end_offset:
        return Verdict(LOST, f"the committed offset {facts.offset} is beyond the log end offset {facts.end_offset}")
    if (facts.lag or 0) <= facts.allowed_lag or facts.is_all_read:
        return Verdict(OK)
    if facts.has_members is False:
        return Verdict(STOP, "the group has no members")
    if facts.status in BAD:
        return Verdict(facts.status, _REASONS[facts.status])
    if facts.status is None:
        return Verdict(STOP, "the last commit has expired")
    if facts.status == WARN:
        return Verdict(WARN, _REASONS[WARN])
    return Verdict(WARN, "the lag rises, with single decreases") if facts.is_rising else Verdict(OK)


def is_rising(lags: Sequence[int | None]) -> bool:
    """
    Tell whether the low-water mark of the lag rises over the commits of a window.

    Args:
        lags: the lag at each commit, the oldest first; unknown ones are left out.
    """
    known = [lag for lag in lags if lag is not None]
    half = len(known) // 2
    return len(known) >= _RISING_MIN and min(known[half:]) > min(known[:half]) and known[-1] > known[0]


def verdicts(
    lag: Iterable[Row],
    status: Iterable[Row],
    rebalances: Iterable[Row],
    *,
    share: Iterable[Row] = (),
    allowed_lag: int = 0,
) -> list[Row]:
    """
    Return the verdict of every partition with a committed offset or share state, the worst first.

    Columns: `group`, `topic`, `partition`, `verdict`, `why`, `status` (Burrow's; null if all commits have expired), `lag`,
    `time_lag_ms` and `is_exact` (null unless `lag` has them), `commits` (in the window), `last_commit_ms`.

    Args:
        lag: rows of table `lag` or `time_lag`. Rows of the latter know about deleted records.
        status: rows of table `status`.
        rebalances: rows of table `rebalances`, for the members of groups.
        share: rows of table `share_state`. Share groups commit no offsets, so Burrow has no status; without members they are
            STOP like other groups. An unknown topic has its id as name.
    """
    by_place = {tuple(row[name] for name in _PLACE): row for row in status}
    members = groups_with_members(rebalances)
    rows = [
        _row(row, by_place.get(tuple(row[name] for name in _PLACE)), members.get(row["group"]), allowed_lag)
        for row in lag
    ]
    rows += (_share_row(row, members.get(row["group"]), allowed_lag) for row in share)
    return sorted(rows, key=worst_first)


def worst_first(row: Row) -> Any:
    """Return the sort key of a row with a verdict."""
    return -SEVERITIES.index(row["verdict"]), -(row["lag"] or 0), *(row[name] for name in _PLACE)


def worst(names: Iterable[str]) -> str:
    """Return the worst of some verdicts; empty if there are none."""
    return max(names, key=SEVERITIES.index, default="")


def at_least(rows: Iterable[Row], verdict: str) -> Iterator[Row]:
    """Yield the rows with this verdict or a worse one."""
    return (row for row in rows if SEVERITIES.index(row["verdict"]) >= SEVERITIES.index(verdict))


def groups_with_members(rebalances: Iterable[Row]) -> dict[str, bool]:
    """Return whether each group has members after its last change. Groups that never had a member are missing."""
    found: dict[str, tuple[int, bool]] = {}
    for row in rebalances:
        if row["log_offset"] >= found.get(row["group"], (-1, False))[0]:
            found[row["group"]] = row["log_offset"], bool(row["members"])
    return {group: has_members for group, (_, has_members) in found.items()}


def _row(row: Row, status: Row | None, has_members: bool | None, allowed_lag: int) -> Row:
    facts = PartitionFacts(
        status=None if status is None else status["status"],
        lag=row["lag"],
        offset=row["offset"],
        end_offset=row["end_offset"],
        has_members=has_members,
        is_rising=bool(status is not None and status.get("is_rising")),
        records_lost=row.get("records_lost"),
        is_all_read=row.get("time_lag_ms") == 0 and row["next_produced_at_ms"] is None,
        allowed_lag=allowed_lag,
    )
    found = _judged(row, facts) | {"last_commit_ms": row["commit_timestamp_ms"]}
    found |= {name: row.get(name) for name in ("time_lag_ms", "is_exact")}
    return found if status is None else found | {name: status[name] for name in ("status", "commits", "last_commit_ms")}


def _share_row(row: Row, has_members: bool | None, allowed_lag: int) -> Row:
    facts = PartitionFacts(status=OK, lag=row["lag"], has_members=has_members, allowed_lag=allowed_lag)
    return _judged(row, facts) | {"topic": row["topic"] or row["topic_id"], "last_commit_ms": row["written_at_ms"]}


def _judged(row: Row, facts: PartitionFacts) -> Row:
    """Return a row with its verdict, for a partition without a status by Burrow."""
    verdict = judge(facts)
    known = {"verdict": verdict.name, "why": verdict.why, "status": None, "lag": row["lag"]}
    unknown = dict.fromkeys(("time_lag_ms", "is_exact", "last_commit_ms"))
    return {**{name: row[name] for name in _PLACE}, **known, **unknown, "commits": 0}
