"""The index of groups, and the section of the page for each group: verdict, charts on one time axis, tables."""

import base64
import json
import zlib
from collections.abc import Sequence
from html import escape

from kohort.pipeline.report.axis import Mark
from kohort.pipeline.report.cells import DASH, colour, heads, lag_cell, left_out, table, verdict_cell, wait_cell
from kohort.pipeline.report.chart import Point, lag_chart
from kohort.pipeline.report.formatting import duration, moment, number
from kohort.pipeline.report.group_page import GroupPage
from kohort.pipeline.report.group_tables import members, partitions, rebalances, share, topics
from kohort.pipeline.report.incidents import Moment, reason, step
from kohort.pipeline.report.owners import LEFT_MIN, label_width, owners
from kohort.pipeline.report.spark_queries import query_card
from kohort.pipeline.report.time_lag_chart import has_waited, time_lag_chart
from kohort.pipeline.report.timeline import told
from kohort.pipeline.tables.burrow.verdicts import SEVERITIES
from kohort.pipeline.tables.groups.group_history import changed_at_ms

GROUPS_MAX = 5000
SECTIONS_INLINE = 10
"""Sections that are part of the page; those of further groups are inserted when they are asked for."""
_SEARCHED_MAX = 2000
"""Characters of names of topics by which the search finds a group."""


def links(listed: Sequence[GroupPage]) -> dict[str, str]:
    """Return the address of the section of each group."""
    return {page.name: f"#{page.address}" for page in listed[:GROUPS_MAX]}


def index(listed: Sequence[GroupPage], now: Moment) -> str:
    """Return the index: a line for each group, the worst first, with a link to its section."""
    head = heads("Group", "Verdict", right=("Since", "Lag", "Trend", "Waiting"), last=("Topic", "Owner", "Kind"))
    head += heads(right=("Members", "Rebalances"), last=("Why",))
    body = (
        f'<tr data-s="{escape(" ".join(page.topics)[:_SEARCHED_MAX])}">'
        f'<td><a href="#{page.address}">{escape(page.name)}</a></td>{verdict_cell(page.standing)}'
        f"{_since_cell(page, now)}{lag_cell(page.total_lag, page.worst)}{_trend_cell(page, now)}{wait_cell(page.time_lag_ms)}"
        f"<td>{escape(_topic(page))}</td><td>{escape(_owner(page))}</td>"
        f'<td class="t">{escape(page.kind)}</td>'
        f'<td class="n">{number(len(page.present)) if page.has_known_members else DASH}</td>'
        f'<td class="n">{number(page.finished_rebalances)}</td><td class="why">{escape(reason(page, now))}</td></tr>'
        for page in listed[:GROUPS_MAX]
    )
    search = (
        '<p class="search"><label>Search <input type="search" id="search" placeholder="group, kind, verdict or topic"'
        ' autocomplete="off" aria-keyshortcuts="/"></label> <span id="found" class="soft" role="status"></span></p>'
    )
    shown = table(head, body, label="Groups, the worst first", finds=True)
    return (
        f'<h2 id="groups">Groups</h2>{left_out(len(listed), GROUPS_MAX, "groups, the worst")}{search}'
        f'<div class="card scroll" id="index">{shown}</div>'
    )


def _since_cell(page: GroupPage, now: Moment) -> str:
    return f'<td class="n" data-v="{page.since_ms or -1}">{moment(page.since_ms, now.at_ms)}</td>'


def _trend_cell(page: GroupPage, now: Moment) -> str:
    return f'<td class="n" data-v="{page.growth(now.at_ms) or 0}">{page.trend(now.at_ms) or DASH}</td>'


def _topic(page: GroupPage) -> str:
    """Name the topic that the verdict is of, and count the others."""
    if page.leading is None:
        return _and_more(page.topics)
    first = page.leading["topic"]
    return _and_more([first, *(topic for topic in page.topics if topic != first)])


def _owner(page: GroupPage) -> str:
    """Name the members that have the partition that the verdict is of."""
    members = page.present if page.leading is None else page.members_of(page.leading)
    return _and_more(sorted({page.names[member["member_id"]] for member in members}))


def _and_more(names: Sequence[str]) -> str:
    if not names:
        return DASH
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def parts(listed: Sequence[GroupPage], now: Moment) -> str:
    """Return the sections: the first ones as they are, the others compressed, for the script of the page."""
    if not listed:
        return ""
    inline = "".join(_part(page, now) for page in listed[:SECTIONS_INLINE])
    rest = {
        page.address: base64.b64encode(zlib.compress(_part(page, now).encode())).decode()
        for page in listed[SECTIONS_INLINE:GROUPS_MAX]
    }
    note = (
        f'<noscript><p class="soft">The details of {number(len(rest))} more groups need a script.</p></noscript>'
        '<p class="soft printed">Details of further groups are printed if they were opened before.</p>'
        if rest
        else ""
    )
    more = f'<script type="application/json" id="more">{json.dumps(rest)}</script>' if rest else ""
    return f'<div id="details">{inline}</div>{note}{more}'


def _part(page: GroupPage, now: Moment) -> str:
    until_ms = now.at_ms
    return (
        f'<section id="{page.address}" aria-label="Group {escape(page.name)}"><h2>{escape(page.name)}</h2>'
        f'<p class="soft">{escape(_facts(page))}{_status(page, now)}. <a href="#groups">All groups</a></p>{_next(page, now)}'
        f"{query_card(page.query) if page.query else ''}"
        f"{_lag(page, until_ms)}{_owners(page, until_ms)}{topics(page)}{partitions(page)}{share(page)}{members(page)}"
        f"{rebalances(page)}</section>"
    )


def _facts(page: GroupPage) -> str:
    of = "1 partition" if page.partitions == 1 else f"{number(page.partitions)} partitions"
    told = page.kind if page.query else f"{page.kind} group"
    if page.partitions and page.total_lag is None:
        told += f", lag in {of} unknown: the logs of the topics are not here"
    elif page.partitions:
        told += f", {number(page.total_lag)} records behind in {of}"
    return f"{told}, the oldest waits {duration(page.time_lag_ms)}" if page.time_lag_ms else told


def _status(page: GroupPage, now: Moment) -> str:
    if not page.worst:
        return ""
    since, why = now.since(page.since_ms), reason(page, now)
    return f', <b class="{colour(page.worst).strip()}">{page.worst}</b>{since}' + (f" ({escape(why)})" if why else "")


def _next(page: GroupPage, now: Moment) -> str:
    told = step(page, now)
    return f"<p><b>Next:</b> {escape(told)}</p>" if told else ""


def _left(page: GroupPage) -> int:
    """Return where the time axis of all charts of the group begins."""
    return label_width(page.stays) if page.stays else LEFT_MIN


def marks_of(page: GroupPage) -> list[Mark]:
    """Return the changes of the group."""
    return [Mark(changed_at_ms(row), told(row)) for row in page.rebalances]


def _lag(page: GroupPage, until_ms: int) -> str:
    if not page.picture:
        return ""
    points = [Point(row["timestamp_ms"], row["lag"], row["lag_max"]) for row in page.picture]
    marks = marks_of(page)
    ended_ms, began_ms = page.ended_ms(until_ms), page.began_ms or 0
    chart = lag_chart(
        points,
        label=f"Lag of group {page.name}",
        until_ms=ended_ms,
        since_ms=began_ms,
        left=_left(page),
        marks=marks,
    )
    if has_waited(page.waits, until_ms=ended_ms):
        waiting = time_lag_chart(
            page.waits,
            label=f"Time lag of group {page.name}",
            until_ms=ended_ms,
            since_ms=began_ms,
            left=_left(page),
            marks=marks,
        )
        chart += f"<h3>Waiting</h3>{waiting}"
    note = '<p class="soft">Dashed lines are changes of the group.</p>' if marks else ""
    return f'<div class="card"><h3>Lag</h3>{chart}{note}</div>'


def _owners(page: GroupPage, until_ms: int) -> str:
    if not page.stays:
        return ""
    changes = [Mark(changed_at_ms(row), told(row)) for row in page.rebalances if row["event"] == "rebalanced"]
    weights = {
        (row["topic"], row["partition"]): (SEVERITIES.index(row["verdict"]) << 60) + (row["lag"] or 0)
        for row in page.verdicts
    }
    picture = owners(
        page.stays,
        changes,
        until_ms=page.ended_ms(until_ms),
        names=page.names,
        since_ms=page.began_ms,
        weights=weights,
    )
    return f'<div class="card"><h3>Owners of partitions</h3>{picture}</div>'
