"""The report: lag of every group over time, offsets, rebalances, and transactions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any

from kohort.pipeline.report import groups
from kohort.pipeline.report.chart import Point, lag_chart
from kohort.pipeline.report.durations import duration_bars
from kohort.pipeline.report.formatting import duration, instant, number, rebalance_duration, size
from kohort.pipeline.report.style import STYLE
from kohort.pipeline.report.timeline import timeline
from kohort.pipeline.report.top_issues import top_issues

CHARTS_MAX = 50
METADATA_LENGTH_MAX = 60
OVERVIEW_CHARTS_MAX = 6
"""The number of charts in the overview, if every group has its own chart below."""
ROWS_MAX = 2000
TIMELINES_MAX = 60
"""Limits of the page, which tells how much it omits; the Parquet tables have all rows."""
_COUNTS = ("transactions", "aborted", "timed_out", "fenced")
_DURATIONS = ("duration_p50_ms", "duration_p95_ms", "duration_max_ms")


@dataclass(frozen=True, slots=True)
class ReportData:
    """
    The rows of the tables that a report shows, each in its order.

    Attributes:
        directory: the source.
        made_at_ms: when they were read.
        log_bytes: the size of the coordinator's log.
        at_ms: the instant of the tables.
    """

    directory: str
    made_at_ms: int
    log_bytes: int
    lag: Sequence[dict[str, Any]] = ()
    lag_picture: Sequence[dict[str, Any]] = ()
    rebalances: Sequence[dict[str, Any]] = ()
    open_transactions: Sequence[dict[str, Any]] = ()
    transaction_statistics: Sequence[dict[str, Any]] = ()
    damage: Sequence[dict[str, Any]] = field(default=())
    at_ms: int = 0
    status: Sequence[dict[str, Any]] = ()
    members: Sequence[dict[str, Any]] = ()
    assignments: Sequence[dict[str, Any]] = ()
    partition_flapping: Sequence[dict[str, Any]] = ()
    time_without_owner: Sequence[dict[str, Any]] = ()
    blocking_transactions: Sequence[dict[str, Any]] = ()
    share_state: Sequence[dict[str, Any]] = ()


def render(data: ReportData) -> str:
    """Return the page as HTML."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Kohort: {escape(data.directory)}</title><style>{STYLE}</style></head><body>",
            "<h1>Consumer groups</h1>",
            _source(data),
            _tiles(data),
            _damage(data.damage),
            _top_issues(data),
            _group_index(data),
            _charts(data),
            _offsets(data.lag),
            _rebalances(data.rebalances),
            _transactions(data.transaction_statistics, data.open_transactions),
            groups.parts(_group_pages(data), until_ms=data.at_ms),
            "</body></html>",
        ]
    )


def _source(data: ReportData) -> str:
    as_of = f", as of {instant(data.at_ms)} UTC" if data.at_ms else ""
    where = f"From the logs in <code>{escape(data.directory)}</code>"
    return f'<p class="soft">{where}{as_of}, read {instant(data.made_at_ms)} UTC</p>'


def _top_issues(data: ReportData) -> str:
    return top_issues(
        lag=(*data.lag, *data.share_state),
        status=data.status,
        flapping=data.partition_flapping,
        unowned=_relevant_gaps(data),
        statistics=data.transaction_statistics,
        blocking=data.blocking_transactions,
    )


def _relevant_gaps(data: ReportData) -> list[dict[str, Any]]:
    """Return intervals without owner that ended, or of groups with members: partitions of an empty group have no owner."""
    with_members = {row["group"] for row in data.members if row["until_ms"] is None}
    return [row for row in data.time_without_owner if row["until_ms"] is not None or row["group"] in with_members]


def _group_index(data: ReportData) -> str:
    listed = _group_pages(data)
    return groups.index(listed) if listed else ""


def _group_pages(data: ReportData) -> list[groups.GroupPage]:
    """Return the sections of groups, if there are members or share state."""
    return _groups(data) if _has_parts(data) else []


def _groups(data: ReportData) -> list[groups.GroupPage]:
    return groups.pages(
        lag=data.lag,
        picture=data.lag_picture,
        rebalances=data.rebalances,
        stays=data.assignments,
        members=data.members,
        status=data.status,
        share=data.share_state,
    )


def _has_parts(data: ReportData) -> bool:
    return bool(data.members or data.share_state)


def _tiles(data: ReportData) -> str:
    total_lag = sum(row["lag"] or 0 for row in (*data.lag, *data.share_state))
    finished = sum(row["event"] == "rebalanced" for row in data.rebalances)
    facts = (
        ("groups", number(sum(not group.is_deleted for group in _groups(data)))),
        ("committed partitions", number(len(data.lag))),
        ("records behind", number(total_lag)),
        ("rebalances", number(finished)),
        ("of coordinator log", size(data.log_bytes)),
    )
    cards = "".join(f'<div class="card"><b>{value}</b>{name}</div>' for name, value in facts)
    return f'<div class="tiles">{cards}</div>'


def _damage(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    items = "".join(
        f"<li>{escape(row['log_topic'])}-{row['log_partition']}/{escape(row['segment'])}, byte {number(row['position'])}: "
        f"{number(row['size_bytes'])} bytes, {escape(row['problem'])}</li>"
        for row in rows[:ROWS_MAX]
    )
    return (
        f'<h2>Unreadable</h2><div class="card"><p>These parts of the log could not be read:</p><ul>{items}</ul></div>'
    )


def _charts(data: ReportData) -> str:
    """Return the lag charts of the groups with the largest lag, now or ever."""
    series = {
        group: [Point(row["timestamp_ms"], row["lag"], row["lag_max"]) for row in some]
        for group, some in groupby(data.lag_picture, key=lambda row: row["group"])
    }
    if not series:
        return '<h2>Lag over time</h2><p class="soft">No group has committed to a topic whose log is in this directory.</p>'
    peaks = {group: max(point.lag_max for point in points) for group, points in series.items()}
    worst_first = sorted(series, key=lambda group: (-series[group][-1].lag, -peaks[group], group))
    shown_max = OVERVIEW_CHARTS_MAX if _has_parts(data) else CHARTS_MAX
    cards = "".join(_chart(group, series[group], data.at_ms) for group in worst_first[:shown_max])
    return f"<h2>Lag over time</h2>{_left_out(len(series), shown_max, 'groups, by lag')}{cards}"


def _chart(group: str, points: Sequence[Point], until_ms: int) -> str:
    chart = lag_chart(points, label=f"Lag of group {group} over time", until_ms=until_ms)
    return f'<div class="card"><h3>{escape(group)}</h3>{chart}</div>'


def _offsets(rows: Sequence[dict[str, Any]]) -> str:
    last = ("Committed (UTC)", "Metadata")
    head = groups.heads("Group", "Topic", right=("Partition", "Offset", "End", "Lag"), last=last)
    body = (
        f"<tr><td>{escape(row['group'])}</td><td>{escape(row['topic'])}</td>"
        f'<td class="n">{row["partition"]}</td><td class="n">{number(row["offset"])}</td>'
        f'<td class="n">{number(row["end_offset"])}</td>'
        f'<td class="n{" behind" if row["lag"] else ""}">{number(row["lag"])}</td>'
        f'<td class="t">{instant(row["commit_timestamp_ms"])}</td>{_metadata(row["metadata"] or "")}</tr>'
        for row in rows[:ROWS_MAX]
    )
    return f"<h2>Offsets</h2>{_left_out(len(rows), ROWS_MAX, 'rows')}{_table(head, body)}"


def _metadata(text: str) -> str:
    """Return a cell with commit metadata: its first characters, and all of it as a tooltip."""
    if len(text) <= METADATA_LENGTH_MAX:
        return f"<td>{escape(text)}</td>"
    return f'<td title="{escape(text)}">{escape(text[:METADATA_LENGTH_MAX])}\N{HORIZONTAL ELLIPSIS}</td>'


def _rebalances(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return '<h2>Rebalances</h2><p class="soft">No group has left a trace here.</p>'
    shown = sorted({row["group"] for row in rows})[:TIMELINES_MAX]
    head = groups.heads("Completed (UTC)", "Group", "Event", right=("Generation", "Members"), last=("Joined", "Left"))
    head += groups.heads(right=("Took",))
    body = (
        f'<tr><td class="t">{instant(row["completed_at_ms"])}</td><td>{escape(row["group"])}</td>'
        f'<td class="t">{row["event"]}</td>'
        f'<td class="n">{number(row["generation"])}</td><td class="n">{len(row["members"])}</td>'
        f"<td>{_members(row['joined'])}</td><td>{_members(row['left'])}</td>"
        f'<td class="n">{rebalance_duration(row)}</td></tr>'
        for row in rows[:ROWS_MAX]
    )
    picture = timeline([row for row in rows if row["group"] in set(shown)])
    return (
        f'<h2>Rebalances</h2><p class="soft">How long a rebalance of a classic group took is known whole for its first one'
        f" only; of the others the log tells the last phase.</p>"
        f'<div class="card scroll wide">{picture}</div>{_left_out(len(rows), ROWS_MAX, "rows")}{_table(head, body)}'
    )


def _transactions(statistics: Sequence[dict[str, Any]], open_: Sequence[dict[str, Any]]) -> str:
    """Return the statistics per transactional id, the longest durations first; empty without transactions."""
    if not statistics:
        return ""
    counts = ("Transactions", "Aborted", "Timed out", "Fenced", "P50", "P95", "Longest")
    head = groups.heads("Transactional id", right=counts)
    slowest_first = sorted(statistics, key=lambda row: (-(row["duration_max_ms"] or 0), row["transactional_id"]))
    body = (
        f"<tr><td>{escape(row['transactional_id'])}</td>"
        + "".join(f'<td class="n">{number(row[name])}</td>' for name in _COUNTS)
        + "".join(f'<td class="n">{duration(row[name])}</td>' for name in _DURATIONS)
        + "</tr>"
        for row in slowest_first[:ROWS_MAX]
    )
    shown = f"{_left_out(len(statistics), ROWS_MAX, 'transactional ids, the slowest')}{_table(head, body)}"
    bars = duration_bars(slowest_first)
    picture = f'<div class="card scroll wide">{bars}</div>' if bars else ""
    return f"<h2>Transactions</h2>{_open_transactions(open_)}{picture}{shown}"


def _open_transactions(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return '<p class="soft">None was open at the end.</p>'
    head = groups.heads("Held back", "Transactional id", "State", "Begun (UTC)", right=("Age", "Timeout"))
    body = (
        f"<tr><td>{escape(_place(row))}</td><td>{escape(row['transactional_id'])}</td>"
        f'<td class="t">{escape(row["state"])}</td><td class="t">{instant(row["start_ms"])}</td>'
        f'<td class="n{" behind" if row["is_overdue"] else ""}">{duration(row["age_ms"])}</td>'
        f'<td class="n">{duration(row["timeout_ms"])}</td></tr>'
        for row in rows[:ROWS_MAX]
    )
    told = "Open at the end: consumers with read_committed wait for these."
    return f'<p class="soft">{told}</p>{_left_out(len(rows), ROWS_MAX, "rows")}{_table(head, body)}'


def _place(row: dict[str, Any]) -> str:
    return "\N{EN DASH}" if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _members(members: Sequence[dict[str, Any]] | None) -> str:
    if members is None:
        return "?"
    return ", ".join(escape(member["instance_id"] or member["client_id"]) for member in members)


def _table(head: str, body: Iterable[str]) -> str:
    return f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _left_out(count: int, shown: int, what: str) -> str:
    return "" if count <= shown else f'<p class="soft">The first {shown} of {number(count)} {what}.</p>'
