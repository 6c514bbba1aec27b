"""
Verdicts: the status of each partition of a group, worst first. The report, `kohort pipeline status` and the exporter share
them.

Burrow's status (`evaluator`) is the base. It looks at commits and log ends only, and misses these cases:

- A group without members that has lag. Burrow says OK until the silence exceeds the span of the window, and says nothing once
  the commits are older than a week. The verdict is STOP at once.
- A live member that never commits: Burrow knows no such partition. The verdict is STOP after `UNCOMMITTED_MS`, if the log has a
  record. Whether the member is stuck at its first record, or has `auto.offset.reset=latest` and commits after records only, the
  logs do not tell.
- Lag that grows for hours. One decrease resets Burrow's WARN. The verdict is WARN if the low-water mark of the lag rises
  (`is_rising`).
- A pause that is usual. A member that commits in bursts is silent between them, for longer than the window spans; Burrow says
  STOP. The verdict waits for twice the longest of the last pauses (`evaluator.usual_pause_ms`).
- Lag of which no reader gets anything: transaction markers and records of aborted transactions. Kafka counts their offsets,
  so a group that reads transactions never reaches 0. The verdict is OK if everything else was read.
- A topic that the live members have left: its offsets stay until they expire, and nobody reads it. The verdict is OK.
- Records that the group can no longer read: deleted before it read them, or a committed offset beyond the end of the log. The
  verdict is LOST.
- A Spark query: its checkpoint tells whether it stands, without the span of a window, see `checkpoints.state`. STOP.
- A log that is not there, as in a copy of `__consumer_offsets` alone. Nobody knows the lag, and the verdict is UNKNOWN. The
  same for a partition of a share group whose state is in the log of a share coordinator that is not there.

Plain functions over rows, without Spark.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kohort.pipeline.checkpoints.state import STANDING
from kohort.pipeline.report.formatting import duration, moment

Row: TypeAlias = dict[str, Any]

OK, WARN, UNKNOWN, STOP, LOST = "OK", "WARN", "UNKNOWN", "STOP", "LOST"
SEVERITIES = (OK, WARN, UNKNOWN, STOP, "STALL", "REWIND", LOST)
"""All verdicts, the mildest first, in Burrow's order."""
BAD = SEVERITIES[SEVERITIES.index(STOP) :]
"""Verdicts of partitions that do not recover by themselves."""
NUMBERS: Mapping[str, int] = {OK: 0, WARN: 1, STOP: 2, "STALL": 3, "REWIND": 4, LOST: 5, UNKNOWN: 6}
"""Numbers of verdicts in metrics."""
UNCOMMITTED_MS = 60_000
"""The time that a member may own a partition with records without a commit."""
GAP_MS = 300_000
"""The time that a partition may be without an owner, as between two starts of a member that crashes, and count as owned."""

_PLACE = ("group", "topic", "partition")
_NAMES_MAX = 3
"""The number of members that left, as far as a reason names them."""
_RISING_MIN = 4
"""Known lags in the window below which no trend is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """
    Facts about one partition of a group; None is unknown.

    Attributes:
        status: Burrow's status, in which a usual pause is no STOP; None if it has no commit in the window, because all have
            expired.
        commits: commits in the window.
        offset: the committed offset; None if there is none.
        end_offset: of the log; None if the log is not there.
        has_members: whether the group has a member now.
        who_left: without members, who left last and when, in words.
        is_subscribed: whether a member subscribes to the topic.
        is_rising: see `is_rising`.
        records_lost: records that were deleted before the group read them.
        is_all_read: the lag consists of transaction markers, records of aborted transactions, and gaps of compaction only.
        owned_ms: how long members have owned a partition without a committed offset.
        waits_at: the open transaction at the committed offset, in words.
        query: the state of the Spark query that the group is, of `checkpoints.state`; None for other groups.
        query_why: its reason.
        has_state: whether the state of a share group is known.
    """

    status: str | None
    lag: int | None
    commits: int = 0
    offset: int | None = None
    end_offset: int | None = None
    has_members: bool | None = None
    who_left: str = ""
    is_subscribed: bool | None = None
    is_rising: bool = False
    records_lost: int | None = None
    is_all_read: bool = False
    owned_ms: int | None = None
    waits_at: str = ""
    query: str | None = None
    query_why: str = ""
    has_state: bool = True
    allowed_lag: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, and the reason in words; empty for OK in most cases."""

    name: str
    why: str = ""


_NO_MEMBERS = "the group has no members"
_REASONS = {
    "WARN": "commits advance, and the lag does not shrink",
    "STOP": "no commit for longer than the span of the last ones",
    "STALL": "commits repeat one offset",
    "REWIND": "the committed offset went back",
}


def judge(facts: PartitionFacts) -> Verdict:
    """Return the verdict of one partition."""
    found = _rule(facts)
    return (
        Verdict(found.name, f"{found.why}; it waits at {facts.waits_at}")
        if facts.waits_at and found.name != OK
        else found
    )


def _rule(facts: PartitionFacts) -> Verdict:
    """Return the first rule that applies."""
    if facts.has_members and facts.is_subscribed is False:
        return Verdict(OK, "no member subscribes to the topic any more")
    if facts.records_lost:
        return Verdict(LOST, f"{facts.records_lost} records were deleted before the group read them")
    if facts.offset is not None and facts.end_offset is not None and facts.offset > facts.end_offset:
        return Verdict(LOST, f"the committed offset {facts.offset} is beyond the log end offset {facts.end_offset}")
    if facts.lag is None:
        return _without_lag(facts)
    if facts.lag <= facts.allowed_lag or facts.is_all_read:
        return Verdict(OK)
    if facts.has_members is False:
        return Verdict(STOP, _no_members(facts))
    if facts.query is not None and facts.status != "REWIND":
        return _of_query(facts)
    if facts.status in BAD:
        is_first = facts.status == "STALL" and facts.commits == 1
        return Verdict(facts.status, "no commit since the first" if is_first else _REASONS[facts.status])
    if facts.status is None:
        return Verdict(STOP, "the last commit has expired")
    if facts.status == WARN:
        return Verdict(WARN, _REASONS[WARN])
    return Verdict(WARN, "the lag rises, with single decreases") if facts.is_rising else Verdict(OK)


def _of_query(facts: PartitionFacts) -> Verdict:
    """A checkpoint tells whether its query stands, and Burrow's rules whether it falls behind."""
    if facts.query in STANDING:
        return Verdict(STOP, f"{facts.query}: {facts.query_why}")
    if facts.status == WARN:
        return Verdict(WARN, _REASONS[WARN])
    return Verdict(WARN, "the lag rises, with single decreases") if facts.is_rising else Verdict(OK)


def _without_lag(facts: PartitionFacts) -> Verdict:
    if facts.end_offset is None or not facts.has_state:
        told = f"the log of {'the partition' if facts.has_state else 'the share coordinator'} is not here"
        return Verdict(UNKNOWN, f"{told}; {_no_members(facts)}" if facts.has_members is False else told)
    if facts.is_all_read or facts.end_offset <= facts.allowed_lag:
        return Verdict(OK)
    owned = duration(facts.owned_ms)
    if facts.owned_ms is not None and facts.owned_ms >= UNCOMMITTED_MS:
        return Verdict(STOP, f"no commit for {owned} since a member has the partition, and its log has records")
    return Verdict(OK, f"no commit yet, for {owned} since a member has the partition")


def _no_members(facts: PartitionFacts) -> str:
    return f"{_NO_MEMBERS}: {facts.who_left}" if facts.who_left else _NO_MEMBERS


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
    blocking: Iterable[Row] = (),
    owned: Iterable[Row] = (),
    queries: Iterable[Row] = (),
    at_ms: int = 0,
    allowed_lag: int = 0,
) -> list[Row]:
    """
    Return the verdict of every partition with a committed offset, a live owner or share state, the worst first.

    Columns: `group`, `topic`, `partition`, `verdict`, `why`, `since_ms` (when the last member left, a member took the partition
    without a commit, or the last commit was; null for OK and if the logs do not tell), `status` (Burrow's; null if all commits
    have expired), `lag`, `time_lag_ms` and `is_exact` (null unless `lag` has them), `commits` (in the window),
    `last_commit_ms`.

    Args:
        lag: rows of table `lag` or `time_lag`. Rows of the latter know about deleted records.
        status: rows of table `status`.
        rebalances: rows of table `rebalances`, for the members of groups and their subscriptions.
        share: rows of table `share_state`. Share groups commit no offsets, so Burrow has no status; without members they are
            STOP like other groups. An unknown topic has its id as name. Without a start offset the group has not begun; without
            a state epoch nobody knows.
        blocking: rows of table `blocking_transactions`; the reason names the one that a group waits at.
        owned: rows of table `assignments`, at least of groups that own partitions without a committed offset.
        queries: rows of table `spark_queries`.
        at_ms: the instant of the tables.
    """
    by_place = {tuple(row[name] for name in _PLACE): row for row in status}
    changes, first_open = last_changes(rebalances), _first_open(blocking)
    since = owned_since(owned)
    of_spark = {row["group"]: {"query": row["state"], "query_why": row["state_why"] or ""} for row in queries}
    rows = []
    for row in lag:
        place = tuple(row[name] for name in _PLACE)
        owned_ms = at_ms - since[place] if place in since else None
        change = changes.get(row["group"])
        facts = _facts(row, by_place.get(place), change, first_open.get(place[1:]), owned_ms)
        facts = replace(
            facts, allowed_lag=allowed_lag, who_left=_who_left(change, at_ms), **of_spark.get(row["group"], {})
        )
        found = _row(row, by_place.get(place), facts)
        rows.append(found | {"since_ms": _since(found, facts, change, since.get(place))})
    for row in share:
        if row["start_offset"] is not None or row["state_epoch"] is None:
            change = changes.get(row["group"])
            rows.append(_share_row(row, change, _who_left(change, at_ms), allowed_lag))
    return sorted(rows, key=worst_first)


def worst_first(row: Row) -> Any:
    """Return the sort key of a row with a verdict."""
    return -SEVERITIES.index(row["verdict"]), -(row["lag"] or 0), *(row[name] for name in _PLACE)


def worst(names: Iterable[str]) -> str:
    """Return the worst of some verdicts; empty if there are none."""
    return max(names, key=SEVERITIES.index, default="")


def at_least(rows: Iterable[Row], verdict: str, *, allows_unknown: bool = False) -> Iterator[Row]:
    """
    Yield the rows with this verdict or a worse one, and those of which nothing is known.

    Args:
        allows_unknown: without the latter.
    """
    least = SEVERITIES.index(verdict)
    for row in rows:
        if SEVERITIES.index(row["verdict"]) >= least if row["verdict"] != UNKNOWN else not allows_unknown:
            yield row


def last_changes(rebalances: Iterable[Row]) -> dict[str, Row]:
    """Return the last change of each group: its members of now, and their subscriptions."""
    found: dict[str, Row] = {}
    for row in rebalances:
        if row["group"] not in found or row["log_offset"] >= found[row["group"]]["log_offset"]:
            found[row["group"]] = row
    return found


def owned_since(owned: Iterable[Row]) -> dict[tuple[Any, ...], int]:
    """Return since when members of a group have owned each partition that has an owner, one member after the other."""
    stays: dict[tuple[Any, ...], list[tuple[int, int | None]]] = {}
    for row in owned:
        stays.setdefault(tuple(row[name] for name in _PLACE), []).append((row["since_ms"], row["until_ms"]))
    found = {}
    for place, intervals in stays.items():
        since_ms: int | None = None
        for begin_ms, end_ms in sorted(intervals, key=lambda one: one[0], reverse=True):
            if since_ms is None and end_ms is not None:
                continue
            if since_ms is None or end_ms is None or since_ms - end_ms <= GAP_MS:
                since_ms = begin_ms
        if since_ms is not None:
            found[place] = since_ms
    return found


def _first_open(blocking: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Return the first open transaction of each partition, where readers with `read_committed` stop."""
    return {
        (row["topic"], row["partition"]): row for row in sorted(blocking, key=lambda row: -int(row["start_offset"]))
    }


def _facts(
    row: Row, status: Row | None, change: Row | None, opened: Row | None, owned_ms: int | None
) -> PartitionFacts:
    known = {} if status is None else status
    waits = opened is not None and opened["start_offset"] == row["offset"]
    return PartitionFacts(
        status=known.get("basis"),
        commits=known.get("commits", 0),
        lag=row["lag"],
        offset=row["offset"],
        end_offset=row["end_offset"],
        has_members=None if change is None else bool(change["members"]),
        is_subscribed=None if change is None else is_subscribed(change.get("subscribed"), row["topic"]),
        is_rising=bool(known.get("is_rising")),
        records_lost=row.get("records_lost"),
        is_all_read=_is_all_read(row),
        owned_ms=owned_ms,
        waits_at=_named(opened) if opened is not None and waits else "",
    )


def is_subscribed(subscribed: Collection[str] | None, topic: str) -> bool | None:
    """Tell whether a topic is among those that the members of a group subscribe to; None if these are unknown."""
    return None if subscribed is None else topic in subscribed


def _is_all_read(row: Row) -> bool:
    """Tell whether no record behind the committed offset waits, or, without one, whether the log has none."""
    if "next_produced_at_ms" not in row or row["next_produced_at_ms"] is not None:
        return False
    return bool(row["time_lag_ms"] == 0 or row["offset"] is None)


def _named(opened: Row) -> str:
    kind = "open" if opened["verdict"] == "unknown" else opened["verdict"]
    return f"the {kind} transaction of {opened['transactional_id'] or 'producer ' + str(opened['producer_id'])}"


def _row(row: Row, status: Row | None, facts: PartitionFacts) -> Row:
    found = _judged(row, facts) | {"last_commit_ms": row["commit_timestamp_ms"]}
    found |= {name: row.get(name) for name in ("time_lag_ms", "is_exact")}
    return found if status is None else found | {name: status[name] for name in ("status", "commits", "last_commit_ms")}


def _share_row(row: Row, change: Row | None, who_left: str, allowed_lag: int) -> Row:
    has_members = None if change is None else bool(change["members"])
    facts = PartitionFacts(
        status=OK,
        lag=row["lag"],
        end_offset=row["end_offset"],
        has_members=has_members,
        who_left=who_left,
        has_state=row["state_epoch"] is not None,
        allowed_lag=allowed_lag,
    )
    found = _judged(row, facts)
    written = {"topic": row["topic"] or row["topic_id"], "last_commit_ms": row["written_at_ms"]}
    return found | written | {"since_ms": _since(found, facts, change, None)}


def _who_left(change: Row | None, at_ms: int) -> str:
    """The members that left an empty group, and when. The log does not tell whether a member left or its session expired."""
    left = [] if change is None or change["members"] else change.get("left") or []
    if change is None or not left:
        return ""
    names = sorted({each["instance_id"] or each["client_id"] for each in left})
    shown = ", ".join(names[:_NAMES_MAX]) + (f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else "")
    return f"{shown} left, or expired, at {moment(change['completed_at_ms'], at_ms)}"


def _since(found: Row, facts: PartitionFacts, change: Row | None, owned_since_ms: int | None) -> int | None:
    """Since when a verdict holds; None if the logs do not tell."""
    if found["verdict"] == OK:
        return None
    if facts.has_members is False and change is not None and found["verdict"] in (STOP, UNKNOWN):
        return change.get("completed_at_ms")
    if found["verdict"] == STOP:
        return owned_since_ms if facts.offset is None else found["last_commit_ms"]
    return None


def _judged(row: Row, facts: PartitionFacts) -> Row:
    """Return a row with its verdict, for a partition without a status by Burrow."""
    verdict = judge(facts)
    known = {"verdict": verdict.name, "why": verdict.why, "status": None, "lag": row["lag"]}
    unknown = dict.fromkeys(("time_lag_ms", "is_exact", "last_commit_ms"))
    return {**{name: row[name] for name in _PLACE}, **known, **unknown, "commits": 0}
