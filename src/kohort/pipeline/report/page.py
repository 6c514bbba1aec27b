"""The report: lag of every group over time, offsets, rebalances, and transactions."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from kohort.pipeline.report import groups, incidents
from kohort.pipeline.report.cells import DASH, heads, lag_cell, left_out, table, verdict_cell, wait_cell
from kohort.pipeline.report.chart import Point, lag_chart
from kohort.pipeline.report.durations import duration_bars
from kohort.pipeline.report.formatting import duration, instant, moment, number, size
from kohort.pipeline.report.group_page import GroupPage, pages
from kohort.pipeline.report.group_tables import cost_cell, took_cell
from kohort.pipeline.report.script import SCRIPT
from kohort.pipeline.report.style import STYLE
from kohort.pipeline.report.timeline import in_progress, most_changed, state, timeline
from kohort.pipeline.report.top_issues import top_issues
from kohort.pipeline.report.urgency import ranked, urgency
from kohort.pipeline.tables.burrow.verdicts import BAD, SEVERITIES, UNKNOWN, WARN
from kohort.pipeline.tables.burrow.verdicts import verdicts as partition_verdicts
from kohort.pipeline.tables.groups.group_history import changed_at_ms

Row: TypeAlias = dict[str, Any]

METADATA_LENGTH_MAX = 60
CHARTS_MAX = 6
"""The number of charts in the overview; every group has its own chart in its section."""
ROWS_MAX = 2000
TIMELINES_MAX = 60
"""Limits of the page, which tells how much it omits; the Parquet tables have all rows."""
STALE_MS = 60_000
"""The age of the data from which the page warns of it."""
RECENT_MS = 3_600_000
_COUNTS = ("transactions", "aborted", "timed_out", "fenced")
_DURATIONS = ("duration_p50_ms", "duration_p95_ms", "duration_max_ms")


@dataclass(frozen=True, slots=True)
class ReportData:
    """
    The rows of the tables that a report shows, each in its order.

    The tables are read in this order. Log end offsets are read right after the commits: in a running cluster each second
    between them is more lag.

    Attributes:
        directory: the source.
        made_at_ms: when they were read.
        log_bytes: the size of the coordinator's log; 0 if it is unknown.
        at_ms: the instant of the tables.
    """

    directory: str
    made_at_ms: int
    log_bytes: int
    at_ms: int = 0
    lag: Sequence[Row] = ()
    rebalances: Sequence[Row] = ()
    status: Sequence[Row] = ()
    members: Sequence[Row] = ()
    assignments: Sequence[Row] = ()
    partition_flapping: Sequence[Row] = ()
    time_without_owner: Sequence[Row] = ()
    share_state: Sequence[Row] = ()
    time_lag_over_time: Sequence[Row] = ()
    blocking_transactions: Sequence[Row] = ()
    open_transactions: Sequence[Row] = ()
    transaction_statistics: Sequence[Row] = ()
    lag_picture: Sequence[Row] = ()
    spark_queries: Sequence[Row] = ()
    damage: Sequence[Row] = ()


def render(data: ReportData) -> str:
    """Return the page as HTML."""
    verdicts = _verdicts(data)
    listed = ranked(_groups(data, verdicts), data.at_ms)
    verdicts.sort(key=lambda row: urgency(row, data.at_ms))
    now = incidents.moment_of(data.at_ms, data.blocking_transactions)
    body = "".join(
        [
            f'<main><div id="top">{_damage(data.damage)}{_top_issues(data, listed, verdicts, now)}</div>',
            groups.index(listed, now) if listed else "",
            _charts(data, listed),
            _offsets(data.lag, verdicts, groups.links(listed)),
            _rebalances(data),
            _transactions(data),
            groups.parts(listed, now),
            "</main>",
        ]
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Kohort: {escape(data.directory)}</title><style>{STYLE}</style></head><body>",
            '<a class="skip" href="#groups">To the groups</a>',
            f"<header><h1>Consumer groups</h1>{_source(data)}{_tiles(data, listed)}</header>{_navigation(body)}{body}",
            f"<script>{SCRIPT}</script></body></html>",
        ]
    )


def _navigation(body: str) -> str:
    """Return links to the titles of the overview, which have ids."""
    found = re.findall(r'<h2 id="([a-z-]+)">([^<]+)</h2>', body)
    links = " ".join(f'<a href="#{at}">{title}</a>' for at, title in found)
    return f'<nav aria-label="Parts of the page">{links}</nav>'


def _source(data: ReportData) -> str:
    as_of = f", as of {instant(data.at_ms)} UTC" if data.at_ms else ""
    log = f", {size(data.log_bytes)} of coordinator log" if data.log_bytes else ""
    told = f'<p class="soft">From <code>{escape(data.directory)}</code>{as_of}, read {instant(data.made_at_ms)} UTC{log}</p>'
    age_ms = data.made_at_ms - data.at_ms
    if not data.at_ms or age_ms < STALE_MS:
        return told
    return f'{told}<p class="warned">The data was {duration(age_ms)} old when this page was made.</p>'


def _verdicts(data: ReportData) -> list[Row]:
    """Return the verdict of each partition."""
    return partition_verdicts(
        data.lag,
        data.status,
        data.rebalances,
        share=data.share_state,
        blocking=data.blocking_transactions,
        owned=data.assignments,
        queries=data.spark_queries,
        at_ms=data.at_ms,
    )


def _top_issues(data: ReportData, listed: Sequence[GroupPage], verdicts: Sequence[Row], now: incidents.Moment) -> str:
    return top_issues(
        incidents=incidents.incidents(listed, groups.links(listed), now),
        links=groups.links(listed),
        lag=(*data.lag, *data.share_state),
        verdicts=verdicts,
        flapping=data.partition_flapping,
        unowned=_relevant_gaps(data),
        statistics=data.transaction_statistics,
        blocking=data.blocking_transactions,
        rebalancing=in_progress(data.rebalances),
        at_ms=data.at_ms,
    )


def _relevant_gaps(data: ReportData) -> list[dict[str, Any]]:
    """Return intervals without owner that ended, or of groups with members: partitions of an empty group have no owner."""
    with_members = {row["group"] for row in data.members if row["until_ms"] is None}
    return [row for row in data.time_without_owner if row["until_ms"] is not None or row["group"] in with_members]


def _groups(data: ReportData, verdicts: Sequence[Row]) -> list[GroupPage]:
    return pages(
        lag=data.lag,
        picture=data.lag_picture,
        waits=data.time_lag_over_time,
        rebalances=data.rebalances,
        stays=data.assignments,
        members=data.members,
        verdicts=verdicts,
        share=data.share_state,
        queries=data.spark_queries,
    )


def _tiles(data: ReportData, listed: Sequence[GroupPage]) -> str:
    """Return the first answer of the page: how many groups are in trouble, and how much."""
    standing = Counter(group.worst for group in listed)
    stuck = sum(standing[name] for name in BAD)
    of = ", ".join(f"{standing[name]} {name}" for name in reversed(SEVERITIES) if name in BAD and standing[name])
    total_lag = sum(row["lag"] or 0 for row in (*data.lag, *data.share_state))
    # Where nothing is known, 0 would be an answer.
    is_told = not standing[UNKNOWN] or any(name not in ("", UNKNOWN) for name in standing)
    waits = [group.time_lag_ms for group in listed if group.time_lag_ms is not None]
    since = [group.since_ms for group in listed if group.worst in BAD and group.since_ms is not None]
    recent = sum(
        row["event"] == "rebalanced" and changed_at_ms(row) > data.at_ms - RECENT_MS for row in data.rebalances
    )
    facts = [
        (
            "behind" if stuck else "",
            number(stuck if is_told else None),
            f"stuck groups ({of})" if of else "stuck groups",
        ),
        ("warned" if standing[WARN] else "", number(standing[WARN] if is_told else None), "groups with growing lag"),
        *([("warned", number(standing[UNKNOWN]), "groups of unknown lag")] if standing[UNKNOWN] else []),
        ("", number(sum(not group.is_deleted for group in listed)), "groups"),
        ("", number(total_lag if is_told else None), "records behind"),
        *([("behind", moment(min(since), data.at_ms), "stuck since (UTC), the first")] if since else []),
        ("", duration(max(waits, default=None)), "longest wait"),
        ("", number(recent), "rebalances in the last hour"),
    ]
    cards = "".join(f'<div class="card"><b class="{kind}">{value}</b>{name}</div>' for kind, value, name in facts)
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
        f'<h2 id="unreadable">Unreadable</h2>{left_out(len(rows), ROWS_MAX, "parts")}'
        f'<div class="card"><p>These parts of the log could not be read:</p><ul>{items}</ul></div>'
    )


def _charts(data: ReportData, listed: Sequence[GroupPage]) -> str:
    """Return the lag charts of the groups with the largest lag, now or ever."""
    series = {page.name: page for page in listed if page.picture}
    if not series:
        none = "No group has committed to a topic whose log is in this directory."
        return f'<h2 id="lag">Lag over time</h2><p class="soft">{none}</p>'
    peaks = {group: max(row["lag_max"] for row in page.picture) for group, page in series.items()}
    worst_first = sorted(series, key=lambda group: (-series[group].picture[-1]["lag"], -peaks[group], group))
    addresses = groups.links(listed)
    shown = [series[group] for group in worst_first[:CHARTS_MAX]]
    # All charts have the same time axis.
    since_ms = min(page.picture[0]["timestamp_ms"] for page in shown)
    until_ms = max(data.at_ms, *(page.picture[-1]["timestamp_ms"] for page in shown))
    cards = "".join(_chart(page, addresses.get(page.name), since_ms, until_ms) for page in shown)
    note = left_out(len(series), CHARTS_MAX, "groups, by lag")
    return f'<h2 id="lag">Lag over time</h2>{note}<div class="pair">{cards}</div>'


def _chart(page: GroupPage, address: str | None, since_ms: int, until_ms: int) -> str:
    points = [Point(row["timestamp_ms"], row["lag"], row["lag_max"]) for row in page.picture]
    label, marks = f"Lag of group {page.name} over time", groups.marks_of(page)
    chart = lag_chart(points, label=label, until_ms=until_ms, since_ms=since_ms, marks=marks)
    return f'<div class="card"><h3 title="{escape(page.name)}">{_linked(page.name, address)}</h3>{chart}</div>'


def _linked(group: str, address: str | None) -> str:
    return escape(group) if address is None else f'<a href="{address}">{escape(group)}</a>'


def _offsets(rows: Sequence[Row], verdicts: Sequence[Row], links: dict[str, str]) -> str:
    """Return the committed offsets, the worst first."""
    if not rows:
        return '<h2 id="offsets">Offsets</h2><p class="soft">No group has a committed offset.</p>'
    by_place = {(row["group"], row["topic"], row["partition"]): row for row in rows}
    places = ((by_place.get((row["group"], row["topic"], row["partition"])), row) for row in verdicts)
    worst_first = [(row, verdict) for row, verdict in places if row is not None][:ROWS_MAX]
    last = ("Committed (UTC)", "Metadata")
    numbers = ("Partition", "Offset", "End", "Lag", "Waiting")
    head = heads("Verdict", "Group", "Topic", right=numbers, last=last)
    body = (
        f"<tr>{verdict_cell(verdict['verdict'], verdict['why'])}<td>{_linked(row['group'], links.get(row['group']))}</td>"
        f'<td>{escape(row["topic"])}</td><td class="n">{row["partition"]}</td><td class="n">{number(row["offset"])}</td>'
        f'<td class="n">{number(row["end_offset"])}</td>'
        f"{lag_cell(row['lag'], verdict['verdict'])}{wait_cell(row.get('time_lag_ms'))}"
        f'<td class="t">{instant(row["commit_timestamp_ms"])}</td>{_metadata(row["metadata"] or "")}</tr>'
        for row, verdict in worst_first
    )
    note = left_out(len(rows), ROWS_MAX, "rows, the worst")
    return f'<h2 id="offsets">Offsets</h2>{note}{_table(head, body, label="Offsets, the worst first", finds=True)}'


def _metadata(text: str) -> str:
    """Return a cell with commit metadata: its first characters, and all of it as a tooltip."""
    if len(text) <= METADATA_LENGTH_MAX:
        return f"<td>{escape(text)}</td>"
    return f'<td title="{escape(text)}">{escape(text[:METADATA_LENGTH_MAX])}\N{HORIZONTAL ELLIPSIS}</td>'


def _rebalances(data: ReportData) -> str:
    rows = data.rebalances
    if not rows:
        return '<h2 id="rebalances">Rebalances</h2><p class="soft">No group has left a trace here.</p>'
    changed = most_changed(rows)
    shown = set(changed[:TIMELINES_MAX])
    last = {row["group"]: row["log_offset"] for row in sorted(rows, key=lambda row: int(row["log_offset"]))}
    head = heads(
        "When (UTC)", "Group", "Event", right=("Generation", "Members", "Took", "Lag"), last=("Joined", "Left")
    )
    newest_first = sorted(rows, key=changed_at_ms, reverse=True)
    body = (
        f'<tr><td class="t">{instant(changed_at_ms(row))}</td><td>{escape(row["group"])}</td>'
        f'<td class="t">{state(row, is_last=last[row["group"]] == row["log_offset"])}</td>'
        f'<td class="n">{number(row["generation"])}</td><td class="n">{len(row["members"])}</td>'
        f"{took_cell(row)}{cost_cell(row)}"
        f"<td>{_members(row['joined'])}</td><td>{_members(row['left'])}</td></tr>"
        for row in newest_first[:ROWS_MAX]
    )
    note = left_out(len(rows), ROWS_MAX, "rows, the newest")
    picture = timeline([row for row in rows if row["group"] in shown], until_ms=data.at_ms)
    return (
        f'<h2 id="rebalances">Rebalances</h2><p class="soft">How long a rebalance of a classic group took is known whole for'
        f" its first one only; of the others the log tells the last phase.</p>"
        f"{left_out(len(changed), TIMELINES_MAX, 'groups, those with the most changes')}"
        f'<div class="card scroll wide">{picture}</div>{note}'
        f"{_table(head, body, label='Rebalances, the newest first', finds=True)}"
    )


def _transactions(data: ReportData) -> str:
    """Return what is open, and statistics per transactional id, the longest durations first; empty without transactions."""
    statistics = data.transaction_statistics
    if not statistics and not data.blocking_transactions:
        return ""
    counts = ("Transactions", "Aborted", "Timed out", "Fenced", "P50", "P95", "Longest")
    head = heads("Transactional id", right=counts)
    slowest_first = sorted(statistics, key=lambda row: (-(row["duration_max_ms"] or 0), row["transactional_id"]))
    body = (
        f"<tr><td>{escape(row['transactional_id'])}</td>"
        + "".join(f'<td class="n">{number(row[name])}</td>' for name in _COUNTS)
        + "".join(wait_cell(row[name]) for name in _DURATIONS)
        + "</tr>"
        for row in slowest_first[:ROWS_MAX]
    )
    shown = _table(head, body, label="Transactions by transactional id, the slowest first") if statistics else ""
    note = left_out(len(statistics), ROWS_MAX, "transactional ids, the slowest")
    bars = duration_bars(slowest_first)
    picture = f'<div class="card scroll wide">{bars}</div>' if bars else ""
    opened = f"{_blocking(data.blocking_transactions)}{_open_transactions(data.open_transactions)}"
    return f'<h2 id="transactions">Transactions</h2>{opened}{picture}{note}{shown}'


def _blocking(rows: Sequence[Row]) -> str:
    """Return the transactions that are open in the logs of topics, hanging ones first, then the oldest."""
    if not rows:
        return ""
    order = {"hanging": 0, "long": 1}
    head = heads(
        "Partition", "State", "Transactional id", right=("Producer", "Start offset", "Open for", "Records held back")
    )
    body = (
        f'<tr><td>{escape(_place(row))}</td><td class="t{_colour_of(row["verdict"])}">{escape(row["verdict"])}</td>'
        f'<td>{escape(row["transactional_id"] or DASH)}</td><td class="n">{row["producer_id"]}</td>'
        f'<td class="n">{number(row["start_offset"])}</td>{wait_cell(row["duration_ms"])}'
        f'<td class="n">{number(row["blocked_records"])}</td></tr>'
        for row in sorted(rows, key=lambda row: (order.get(row["verdict"], 2), -row["duration_ms"], _place(row)))[
            :ROWS_MAX
        ]
    )
    told = (
        "Open in the logs of topics: readers with read_committed wait at the start offset. No coordinator will end a hanging"
        " one: <code>kohort transactions abort --topic TOPIC --partition N --start-offset OFFSET</code>."
    )
    shown = _table(head, body, label="Transactions that hold readers back, hanging ones first")
    return f'<p class="soft">{told}</p>{left_out(len(rows), ROWS_MAX, "rows")}{shown}'


def _colour_of(verdict: str) -> str:
    return {"hanging": " behind", "long": " warned"}.get(verdict, "")


def _open_transactions(rows: Sequence[dict[str, Any]]) -> str:
    """Return the transactions that are open by their coordinator, the oldest first."""
    if not rows:
        return '<p class="soft">The coordinator has no open transaction.</p>'
    head = heads("Partition", "Transactional id", "State", "Begun (UTC)", right=("Age", "Timeout"))
    body = (
        f"<tr><td>{escape(_place(row))}</td><td>{escape(row['transactional_id'])}</td>"
        f'<td class="t">{escape(row["state"])}</td><td class="t">{instant(row["start_ms"])}</td>'
        f'<td class="n{" behind" if row["is_overdue"] else ""}" data-v="{row["age_ms"] or 0}">{duration(row["age_ms"])}</td>'
        f"{wait_cell(row['timeout_ms'])}</tr>"
        for row in sorted(rows, key=lambda row: (-(row["age_ms"] or 0), row["transactional_id"], _place(row)))[
            :ROWS_MAX
        ]
    )
    told = "Open by the coordinator, the oldest first. Red: older than its timeout."
    shown = _table(head, body, label="Open transactions, the oldest first")
    return f'<p class="soft">{told}</p>{left_out(len(rows), ROWS_MAX, "rows")}{shown}'


def _place(row: dict[str, Any]) -> str:
    return DASH if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _members(members: Sequence[dict[str, Any]] | None) -> str:
    if members is None:
        return "?"
    return ", ".join(escape(member["instance_id"] or member["client_id"]) for member in members)


def _table(head: str, body: Iterable[str], *, label: str, finds: bool = False) -> str:
    return f'<div class="card scroll">{table(head, body, label=label, finds=finds)}</div>'
