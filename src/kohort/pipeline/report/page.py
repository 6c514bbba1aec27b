"""The report: lag of every group over time, offsets, rebalances, and transactions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeAlias

from kohort.pipeline.report import groups
from kohort.pipeline.report.chart import Point, lag_chart
from kohort.pipeline.report.durations import duration_bars
from kohort.pipeline.report.formatting import duration, instant, number, rebalance_duration, size
from kohort.pipeline.report.script import SCRIPT
from kohort.pipeline.report.style import STYLE
from kohort.pipeline.report.timeline import most_changed, timeline
from kohort.pipeline.report.top_issues import top_issues
from kohort.pipeline.tables.burrow.verdicts import verdicts as partition_verdicts
from kohort.pipeline.tables.groups.group_history import changed_at_ms, took_ms

Row: TypeAlias = dict[str, Any]

METADATA_LENGTH_MAX = 60
CHARTS_MAX = 6
"""The number of charts in the overview; every group has its own chart in its section."""
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
    time_lag_over_time: Sequence[dict[str, Any]] = ()


def render(data: ReportData) -> str:
    """Return the page as HTML."""
    verdicts = partition_verdicts(data.lag, data.status, data.rebalances)
    listed = _groups(data, verdicts)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Kohort: {escape(data.directory)}</title><style>{STYLE}</style></head><body>",
            '<a class="skip" href="#groups">To the groups</a><main><h1>Consumer groups</h1>',
            _source(data),
            _tiles(data, listed),
            _damage(data.damage),
            _top_issues(data, listed, verdicts),
            groups.index(listed) if listed else "",
            _charts(data, listed),
            _offsets(data.lag, verdicts),
            _rebalances(data.rebalances),
            _transactions(data.transaction_statistics, data.open_transactions),
            groups.parts(listed, until_ms=data.at_ms),
            f"</main><script>{SCRIPT}</script></body></html>",
        ]
    )


def _source(data: ReportData) -> str:
    as_of = f", as of {instant(data.at_ms)} UTC" if data.at_ms else ""
    where = f"From the logs in <code>{escape(data.directory)}</code>"
    return f'<p class="soft">{where}{as_of}, read {instant(data.made_at_ms)} UTC</p>'


def _top_issues(data: ReportData, listed: Sequence[groups.GroupPage], verdicts: Sequence[Row]) -> str:
    return top_issues(
        links=groups.links(listed),
        lag=(*data.lag, *data.share_state),
        verdicts=verdicts,
        flapping=data.partition_flapping,
        unowned=_relevant_gaps(data),
        statistics=data.transaction_statistics,
        blocking=data.blocking_transactions,
    )


def _relevant_gaps(data: ReportData) -> list[dict[str, Any]]:
    """Return intervals without owner that ended, or of groups with members: partitions of an empty group have no owner."""
    with_members = {row["group"] for row in data.members if row["until_ms"] is None}
    return [row for row in data.time_without_owner if row["until_ms"] is not None or row["group"] in with_members]


def _groups(data: ReportData, verdicts: Sequence[Row]) -> list[groups.GroupPage]:
    return groups.pages(
        lag=data.lag,
        picture=data.lag_picture,
        waits=data.time_lag_over_time,
        rebalances=data.rebalances,
        stays=data.assignments,
        members=data.members,
        verdicts=verdicts,
        share=data.share_state,
    )


def _tiles(data: ReportData, listed: Sequence[groups.GroupPage]) -> str:
    total_lag = sum(row["lag"] or 0 for row in (*data.lag, *data.share_state))
    finished = sum(row["event"] == "rebalanced" for row in data.rebalances)
    facts = (
        ("groups", number(sum(not group.is_deleted for group in listed))),
        ("committed partitions", number(len(data.lag))),
        ("records behind", number(total_lag)),
        ("rebalances", number(finished)),
        *([("of coordinator log", size(data.log_bytes))] if data.log_bytes else []),
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


def _charts(data: ReportData, listed: Sequence[groups.GroupPage]) -> str:
    """Return the lag charts of the groups with the largest lag, now or ever."""
    series = {page.name: page.picture for page in listed if page.picture}
    if not series:
        return '<h2>Lag over time</h2><p class="soft">No group has committed to a topic whose log is in this directory.</p>'
    peaks = {group: max(row["lag_max"] for row in rows) for group, rows in series.items()}
    worst_first = sorted(series, key=lambda group: (-series[group][-1]["lag"], -peaks[group], group))
    addresses = groups.links(listed)
    # All charts have the same time axis.
    since_ms = min(rows[0]["timestamp_ms"] for rows in series.values())
    until_ms = max(data.at_ms, *(rows[-1]["timestamp_ms"] for rows in series.values()))
    cards = "".join(
        _chart(group, series[group], addresses.get(group), since_ms, until_ms) for group in worst_first[:CHARTS_MAX]
    )
    left_out = _left_out(len(series), CHARTS_MAX, "groups, by lag")
    return f'<h2>Lag over time</h2>{left_out}<div class="pair">{cards}</div>'


def _chart(group: str, rows: Sequence[Row], address: str | None, since_ms: int, until_ms: int) -> str:
    points = [Point(row["timestamp_ms"], row["lag"], row["lag_max"]) for row in rows]
    chart = lag_chart(points, label=f"Lag of group {group} over time", until_ms=until_ms, since_ms=since_ms)
    name = escape(group) if address is None else f'<a href="{address}">{escape(group)}</a>'
    return f'<div class="card"><h3>{name}</h3>{chart}</div>'


def _offsets(rows: Sequence[Row], verdicts: Sequence[Row]) -> str:
    """Return the committed offsets, the worst first."""
    by_place = {(row["group"], row["topic"], row["partition"]): row for row in rows}
    worst_first = [(by_place[row["group"], row["topic"], row["partition"]], row) for row in verdicts[:ROWS_MAX]]
    last = ("Committed (UTC)", "Metadata")
    numbers = ("Partition", "Offset", "End", "Lag", "Waiting")
    head = groups.heads("Verdict", "Group", "Topic", right=numbers, last=last)
    body = (
        f"<tr>{groups.verdict_cell(verdict['verdict'], verdict['why'])}<td>{escape(row['group'])}</td>"
        f'<td>{escape(row["topic"])}</td><td class="n">{row["partition"]}</td><td class="n">{number(row["offset"])}</td>'
        f'<td class="n">{number(row["end_offset"])}</td>'
        f'<td class="n{" behind" if row["lag"] else ""}">{number(row["lag"])}</td>{groups.wait_cell(row.get("time_lag_ms"))}'
        f'<td class="t">{instant(row["commit_timestamp_ms"])}</td>{_metadata(row["metadata"] or "")}</tr>'
        for row, verdict in worst_first
    )
    return f"<h2>Offsets</h2>{_left_out(len(rows), ROWS_MAX, 'rows, the worst')}{_table(head, body, finds=True)}"


def _metadata(text: str) -> str:
    """Return a cell with commit metadata: its first characters, and all of it as a tooltip."""
    if len(text) <= METADATA_LENGTH_MAX:
        return f"<td>{escape(text)}</td>"
    return f'<td title="{escape(text)}">{escape(text[:METADATA_LENGTH_MAX])}\N{HORIZONTAL ELLIPSIS}</td>'


def _rebalances(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return '<h2>Rebalances</h2><p class="soft">No group has left a trace here.</p>'
    shown = most_changed(rows)[:TIMELINES_MAX]
    head = groups.heads(
        "Completed (UTC)", "Group", "Event", right=("Generation", "Members", "Took", "Lag"), last=("Joined", "Left")
    )
    newest_first = sorted(rows, key=changed_at_ms, reverse=True)
    body = (
        f'<tr><td class="t">{instant(row["completed_at_ms"])}</td><td>{escape(row["group"])}</td>'
        f'<td class="t">{row["event"]}</td>'
        f'<td class="n">{number(row["generation"])}</td><td class="n">{len(row["members"])}</td>'
        f'<td class="n" data-v="{-1 if (known := took_ms(row)) is None else known}">{rebalance_duration(row)}</td>'
        f'<td class="n" data-v="{row.get("lag_cost") or 0}">{groups.cost(row)}</td>'
        f"<td>{_members(row['joined'])}</td><td>{_members(row['left'])}</td></tr>"
        for row in newest_first[:ROWS_MAX]
    )
    left_out = _left_out(len(rows), ROWS_MAX, "rows, the newest")
    picture = timeline([row for row in rows if row["group"] in set(shown)])
    return (
        f'<h2>Rebalances</h2><p class="soft">How long a rebalance of a classic group took is known whole for its first one'
        f" only; of the others the log tells the last phase.</p>"
        f'<div class="card scroll wide">{picture}</div>{left_out}{_table(head, body, finds=True)}'
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


def _table(head: str, body: Iterable[str], *, finds: bool = False) -> str:
    """Return a table that can be sorted, and with `finds` searched."""
    kinds = "sorts finds" if finds else "sorts"
    table = f'<table class="{kinds}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    return f'<div class="card scroll">{table}</div>'


def _left_out(count: int, shown: int, what: str) -> str:
    return "" if count <= shown else f'<p class="soft">The first {shown} of {number(count)} {what}.</p>'
