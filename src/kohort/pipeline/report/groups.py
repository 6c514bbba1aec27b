"""The section of the page for each group: verdict, lag, topics, members, owners of partitions, causes of rebalances."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any

from kohort.pipeline.report.chart import Mark, Point, lag_chart
from kohort.pipeline.report.formatting import duration, instant, number
from kohort.pipeline.report.owners import LEFT, owners
from kohort.pipeline.report.partition_names import place_name
from kohort.pipeline.report.time_lag_chart import has_waited, time_lag_chart
from kohort.pipeline.report.timeline import told
from kohort.pipeline.tables.burrow.verdicts import BAD, SEVERITIES, worst

GROUPS_MAX = 5000
SECTIONS_INLINE = 10
"""Sections that are part of the page; those of further groups are inserted when they are asked for."""
PARTITIONS_MAX = 500
REBALANCES_MAX = 50
_DASH = "\N{EN DASH}"

Row = dict[str, Any]


@dataclass(slots=True)
class GroupPage:
    """The rows of one group, of each table."""

    name: str
    lag: list[Row] = field(default_factory=list)
    picture: list[Row] = field(default_factory=list)
    waits: list[Row] = field(default_factory=list)
    rebalances: list[Row] = field(default_factory=list)
    stays: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    verdicts: list[Row] = field(default_factory=list)
    share: list[Row] = field(default_factory=list)

    @property
    def total_lag(self) -> int:
        return sum(row["lag"] or 0 for row in (*self.lag, *self.share))

    @property
    def time_lag_ms(self) -> int | None:
        """The time lag of the worst partition; None if none is known."""
        return max((row["time_lag_ms"] for row in self.verdicts if row["time_lag_ms"] is not None), default=None)

    @property
    def partitions(self) -> int:
        """The number of partitions with a committed offset or share state."""
        return len(self.lag) + len(self.share)

    @property
    def worst(self) -> str:
        """The worst verdict of its partitions; empty if there is none."""
        return worst(row["verdict"] for row in self.verdicts)

    @property
    def is_deleted(self) -> bool:
        """Whether the group was deleted and only its history is left."""
        last = self.rebalances[-1]["event"] if self.rebalances else None
        return last == "deleted" and not self.lag and not self.share

    @property
    def standing(self) -> str:
        """The verdict in one word; a dash if there is no commit."""
        return self.worst or ("deleted" if self.is_deleted else "-")

    @property
    def kind(self) -> str:
        default = "share" if self.share else "simple"
        return next((row["group_type"] for row in reversed(self.rebalances)), default)

    @property
    def present(self) -> list[Row]:
        """The members of now."""
        return [row for row in self.members if row["until_ms"] is None]

    @property
    def has_known_members(self) -> bool:
        """Whether the log has any record of members: groups that only commit offsets have none."""
        return bool(self.members or self.rebalances)

    @property
    def began_ms(self) -> int | None:
        """The start of the time axis of all charts of the group."""
        series = (*self.picture[:1], *self.waits[:1])
        times = [row["timestamp_ms"] for row in series] + [row["since_ms"] for row in self.stays]
        return min(times, default=None)


def pages(**tables: Sequence[Row]) -> list[GroupPage]:
    """Return the groups of all tables, the worst first: by verdict, then by lag."""
    found: dict[str, GroupPage] = {}
    for table, rows in tables.items():
        for name, some in groupby(sorted(rows, key=lambda row: str(row["group"])), key=lambda row: str(row["group"])):
            getattr(found.setdefault(name, GroupPage(name)), table).extend(some)
    return sorted(found.values(), key=lambda page: (-_severity(page.worst), -page.total_lag, page.name))


def _severity(verdict: str) -> int:
    return SEVERITIES.index(verdict) if verdict else 0


def heads(*left: str, right: Sequence[str] = (), last: Sequence[str] = ()) -> str:
    """Return the column titles of a table: text, numbers, text."""
    numbers = "".join(f'<th scope="col" class="n">{name}</th>' for name in right)
    return (
        "".join(f'<th scope="col">{name}</th>' for name in left)
        + numbers
        + "".join(f'<th scope="col">{name}</th>' for name in last)
    )


def wait_cell(milliseconds: int | None) -> str:
    """Return a cell with a duration, which sorts by its value."""
    return f'<td class="n" data-v="{-1 if milliseconds is None else milliseconds}">{duration(milliseconds)}</td>'


def verdict_cell(verdict: str, why: str = "") -> str:
    """Return a cell with a verdict, which sorts by its severity, and its reason as a tooltip."""
    title = f' title="{escape(why)}"' if why else ""
    at = SEVERITIES.index(verdict) if verdict in SEVERITIES else -1
    behind = " behind" if verdict in BAD else " warned" if verdict == "WARN" else ""
    return f'<td class="t{behind}" data-v="{at}"{title}>{escape(verdict)}</td>'


def links(listed: Sequence[GroupPage]) -> dict[str, str]:
    """Return the address of the section of each group."""
    return {page.name: f"#group-{at}" for at, page in enumerate(listed[:GROUPS_MAX])}


def index(listed: Sequence[GroupPage]) -> str:
    """Return the index: a line for each group, the worst first, with a link to its section."""
    head = heads("Group", "Kind", "Verdict", right=("Lag", "Waiting", "Members", "Rebalances"))
    body = "".join(
        f'<tr><td><a href="#group-{at}">{escape(page.name)}</a></td><td class="t">{escape(page.kind)}</td>'
        f'{verdict_cell(page.standing, _why(page))}<td class="n">{number(page.total_lag)}</td>{wait_cell(page.time_lag_ms)}'
        f'<td class="n">{len(page.present) if page.has_known_members else _DASH}</td>'
        f'<td class="n">{sum(row["event"] == "rebalanced" for row in page.rebalances)}</td></tr>'
        for at, page in enumerate(listed[:GROUPS_MAX])
    )
    left_out = (
        "" if len(listed) <= GROUPS_MAX else f'<p class="soft">The first {GROUPS_MAX} of {len(listed)} groups.</p>'
    )
    search = (
        '<p class="search"><label>Search <input type="search" id="search" placeholder="group, kind, verdict or topic"'
        ' autocomplete="off"></label> <span id="found" class="soft" role="status"></span></p>'
    )
    table = f'<table class="sorts finds"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<h2 id="groups">Groups</h2>{left_out}{search}<div class="card scroll" id="index">{table}</div>'


def _why(page: GroupPage) -> str:
    return next((row["why"] for row in page.verdicts if row["verdict"] == page.worst), "")


def parts(listed: Sequence[GroupPage], *, until_ms: int) -> str:
    """Return the sections: the first ones as they are, the others compressed, for the script of the page."""
    if not listed:
        return ""
    inline = "".join(_part(at, page, until_ms) for at, page in enumerate(listed[:SECTIONS_INLINE]))
    rest = {
        at: base64.b64encode(zlib.compress(_part(at, page, until_ms).encode())).decode()
        for at, page in enumerate(listed[:GROUPS_MAX])
        if at >= SECTIONS_INLINE
    }
    note = (
        f'<noscript><p class="soft">The details of {len(rest)} more groups need a script.</p></noscript>'
        if rest
        else ""
    )
    more = f'<script type="application/json" id="more">{json.dumps(rest)}</script>' if rest else ""
    return f'<div id="details">{inline}</div>{note}{more}'


def _part(at: int, page: GroupPage, until_ms: int) -> str:
    partitions = "1 partition" if page.partitions == 1 else f"{page.partitions} partitions"
    facts = f"{page.kind} group"
    facts += f", {number(page.total_lag)} records behind in {partitions}" if page.partitions else ""
    why = _why(page)
    status = f', <b class="{"behind" if page.worst in BAD else ""}">{page.worst}</b>' if page.worst else ""
    status += f" ({escape(why)})" if why else ""
    return (
        f'<section id="group-{at}" aria-labelledby="name-{at}"><h2 id="name-{at}">{escape(page.name)}</h2>'
        f'<p class="soft">{escape(facts)}{status}. <a href="#groups">All groups</a></p>'
        f"{_lag(page, until_ms)}{_owners(page, until_ms)}{_topics(page)}{_partitions(page)}{_share(page)}{_members(page)}"
        f"{_rebalances(page)}</section>"
    )


def _lag(page: GroupPage, until_ms: int) -> str:
    if not page.picture:
        return ""
    points = [Point(row["timestamp_ms"], row["lag"], row["lag_max"]) for row in page.picture]
    marks = [Mark(row["completed_at_ms"] or row["began_at_ms"], told(row)) for row in page.rebalances]
    # Both charts have the same time axis.
    since_ms = page.began_ms or 0
    until_ms = max(until_ms, *(row["timestamp_ms"] for row in (*page.picture[-1:], *page.waits[-1:])))
    chart = lag_chart(
        points,
        label=f"Lag of group {page.name}",
        until_ms=until_ms,
        since_ms=since_ms,
        left=LEFT,
        marks=marks[-REBALANCES_MAX:],
    )
    if has_waited(page.waits, until_ms=until_ms):
        waiting = time_lag_chart(
            page.waits,
            label=f"Time lag of group {page.name}",
            until_ms=until_ms,
            since_ms=since_ms,
            left=LEFT,
            marks=marks[-REBALANCES_MAX:],
        )
        chart += f"<h3>Waiting</h3>{waiting}"
    note = '<p class="soft">Dashed lines are changes of the group.</p>' if marks else ""
    return f'<div class="card scroll wide"><h3>Lag</h3>{chart}{note}</div>'


def _topics(page: GroupPage) -> str:
    if not page.verdicts:
        return ""
    by_topic: dict[str, list[Row]] = {}
    for row in page.verdicts:
        by_topic.setdefault(row["topic"], []).append(row)
    rows = sorted(by_topic.items(), key=lambda item: (-sum(row["lag"] or 0 for row in item[1]), item[0]))
    head = heads("Topic", "Verdict", right=("Partitions", "Lag", "Waiting"))
    body = "".join(
        f"<tr><td>{escape(topic)}</td>{verdict_cell(worst(row['verdict'] for row in some))}"
        f'<td class="n">{len(some)}</td><td class="n">{number(sum(row["lag"] or 0 for row in some))}</td>'
        f"{wait_cell(max((row['time_lag_ms'] for row in some if row['time_lag_ms'] is not None), default=None))}</tr>"
        for topic, some in rows
    )
    return _card("Topics", head, body)


def _partitions(page: GroupPage) -> str:
    if not page.verdicts:
        return ""
    owned = _owned_now(page)
    head = heads("Partition", "Verdict", right=("Lag", "Waiting"), last=("Last commit (UTC)", "Owner", "Why"))
    body = "".join(
        f"<tr><td>{escape(place_name(row))}</td>{verdict_cell(row['verdict'])}"
        f'<td class="n{" behind" if row["lag"] else ""}">{number(row["lag"])}</td>{wait_cell(row["time_lag_ms"])}'
        f'<td class="t">{instant(row["last_commit_ms"])}</td><td>{escape(_owner(owned, row))}</td>'
        f"<td>{escape(row['why'])}</td></tr>"
        for row in page.verdicts[:PARTITIONS_MAX]
    )
    more = len(page.verdicts) - PARTITIONS_MAX
    left_out = f'<p class="soft">The worst {PARTITIONS_MAX}; {number(more)} more.</p>' if more > 0 else ""
    return _card("Partitions", head, body, left_out)


def _members(page: GroupPage) -> str:
    if not page.has_known_members:
        return (
            '<div class="card"><h3>Members</h3><p class="soft">None known: the log has commits of this group and no record of'
            " members. Its consumers choose their partitions themselves, or only a tool has committed.</p></div>"
        )
    if not page.present:
        return '<div class="card"><h3>Members</h3><p class="soft">The group has no members.</p></div>'
    lag = {(row["topic"], row["partition"]): row["lag"] or 0 for row in page.lag}
    owned: dict[str, list[Row]] = {}
    for stay in page.stays:
        if stay["until_ms"] is None:
            owned.setdefault(stay["member_id"], []).append(stay)
    rows = [
        (sum(lag.get((stay["topic"], stay["partition"]), 0) for stay in owned.get(member["member_id"], ())), member)
        for member in page.present
    ]
    head = heads("Member", "Host", right=("Lag", "Partitions"), last=("Since (UTC)", "Owns"))
    body = "".join(
        f'<tr><td title="{escape(member["member_id"])}">{escape(member["instance_id"] or member["client_id"])}</td>'
        f'<td>{escape(member["client_host"] or _DASH)}</td><td class="n{" behind" if behind else ""}">{number(behind)}</td>'
        f'<td class="n">{len(owned.get(member["member_id"], ()))}</td><td class="t">{instant(member["since_ms"])}</td>'
        f"<td>{escape(_listed(owned.get(member['member_id'], ())))}</td></tr>"
        for behind, member in sorted(rows, key=lambda row: (-row[0], row[1]["client_id"], row[1]["member_id"]))
    )
    return _card("Members", head, body)


def _listed(stays: Sequence[Row]) -> str:
    names = sorted(place_name(stay) for stay in stays)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _owned_now(page: GroupPage) -> dict[tuple[str | None, int], str]:
    names = _names(page)
    return {
        (stay["topic"], stay["partition"]): names.get(stay["member_id"], str(stay["member_id"]))
        for stay in page.stays
        if stay["until_ms"] is None
    }


def _owner(owned: Mapping[tuple[str | None, int], str], row: Row) -> str:
    return owned.get((row["topic"], row["partition"]), _DASH)


def _names(page: GroupPage) -> dict[str, str]:
    return {row["member_id"]: str(row["instance_id"] or row["client_id"]) for row in page.members}


def _card(title: str, head: str, body: str, note: str = "") -> str:
    table = f'<table class="sorts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="card scroll"><h3>{title}</h3>{note}{table}</div>'


def _share(page: GroupPage) -> str:
    """Return the state of a share group. Records from the start on are complete, wait for redelivery, or are undelivered."""
    if not page.share:
        return ""
    head = heads("Partition", right=("Start", "End", "Lag", "Done", "Again", "Deliveries"), last=("Written (UTC)",))
    body = "".join(
        f'<tr><td>{escape(place_name(row))}</td><td class="n">{number(_start(row))}</td>'
        f'<td class="n">{number(row["end_offset"])}</td>'
        f'<td class="n{" behind" if row["lag"] else ""}">{number(row["lag"])}</td>'
        f'<td class="n">{number(max(row["delivery_complete_count"], 0))}</td><td class="n">{number(_again(row))}</td>'
        f'<td class="n">{number(max((one["deliveries"] for one in row["batches"]), default=None))}</td>'
        f'<td class="t">{instant(row["written_at_ms"])}</td></tr>'
        for row in page.share
    )
    note = "Again: records that wait for redelivery. Deliveries: the greatest delivery count of a record."
    return _card("Share state", head, body, f'<p class="soft">{note}</p>')


def _start(row: Row) -> int | None:
    """Return the start offset; None if nothing was read yet."""
    start: int = row["start_offset"]
    return start if start >= 0 else None


def _again(row: Row) -> int:
    return sum(one["last_offset"] - one["first_offset"] + 1 for one in row["batches"] if one["state"] == "available")


def _owners(page: GroupPage, until_ms: int) -> str:
    if not page.stays:
        return ""
    changes = [row["completed_at_ms"] or row["began_at_ms"] for row in page.rebalances if row["event"] == "rebalanced"]
    since_ms = page.began_ms if page.picture else None
    picture = owners(page.stays, changes, until_ms=until_ms, names=_names(page), since_ms=since_ms)
    return f'<div class="card scroll wide"><h3>Owners of partitions</h3>{picture}</div>'


def _rebalances(page: GroupPage) -> str:
    if not page.rebalances:
        return ""
    newest = page.rebalances[-REBALANCES_MAX:][::-1]
    head = heads("When (UTC)", "Event", "Why", "Who", right=("Moved", "Took", "Lag"))
    body = "".join(
        f'<tr><td class="t">{instant(row["completed_at_ms"] or row["began_at_ms"])}</td><td class="t">{row["event"]}</td>'
        f"<td>{', '.join(row.get('why') or ())}</td><td>{_who(row)}</td>"
        f'<td class="n">{number(row.get("moved"))}</td>{wait_cell(row["duration_ms"])}'
        f'<td class="n" data-v="{row.get("lag_cost") or 0}">{cost(row)}</td></tr>'
        for row in newest
    )
    more = len(page.rebalances) - len(newest)
    left_out = f'<p class="soft">The newest {len(newest)}; {number(more)} before.</p>' if more else ""
    return _card("Rebalances", head, body, left_out)


def _who(row: Row) -> str:
    def named(members: Iterable[Row] | None) -> str:
        return ", ".join(escape(one["instance_id"] or one["client_id"]) for one in members or ())

    told = [
        f"{sign}{named(row[column])}" for sign, column in (("+ ", "joined"), ("\N{MINUS SIGN} ", "left")) if row[column]
    ]
    return "; ".join(told)


def cost(row: Row) -> str:
    """Return the growth of the lag during a rebalance; a dash if it is unknown."""
    grown = row.get("lag_cost")
    return "\N{EN DASH}" if grown is None else f"{grown:+,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
