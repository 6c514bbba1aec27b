"""The section of the page for each group: status, lag, owners of partitions, causes of rebalances."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any

from kohort.pipeline.report.chart import Point, lag_chart
from kohort.pipeline.report.formatting import duration, instant, number
from kohort.pipeline.report.owners import owners
from kohort.pipeline.report.partition_names import place_name

GROUPS_MAX = 100
REBALANCES_MAX = 50
_BAD = ("STOP", "STALL", "REWIND")

Row = dict[str, Any]


@dataclass(slots=True)
class GroupPage:
    """The rows of one group, of each table."""

    name: str
    lag: list[Row] = field(default_factory=list)
    picture: list[Row] = field(default_factory=list)
    rebalances: list[Row] = field(default_factory=list)
    stays: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    status: list[Row] = field(default_factory=list)
    share: list[Row] = field(default_factory=list)

    @property
    def total_lag(self) -> int:
        return sum(row["lag"] or 0 for row in (*self.lag, *self.share))

    @property
    def partitions(self) -> int:
        """The number of partitions with a committed offset or share state."""
        return len(self.lag) + len(self.share)

    @property
    def worst(self) -> str:
        """The worst status of its partitions, by Burrow's severity."""
        order = ("OK", "WARN", "ERR", "STOP", "STALL", "REWIND")
        return max((row["status"] for row in self.status), key=order.index, default="")

    @property
    def is_deleted(self) -> bool:
        """Whether the group was deleted and only its history is left."""
        last = self.rebalances[-1]["event"] if self.rebalances else None
        return last == "deleted" and not self.lag and not self.share

    @property
    def standing(self) -> str:
        """The status in one word; a dash if there is no commit."""
        return self.worst or ("deleted" if self.is_deleted else "-")

    @property
    def kind(self) -> str:
        default = "share" if self.share else "simple"
        return next((row["group_type"] for row in reversed(self.rebalances)), default)


def pages(**tables: Sequence[Row]) -> list[GroupPage]:
    """Return the groups of all tables: bad statuses first, then by lag."""
    found: dict[str, GroupPage] = {}
    for table, rows in tables.items():
        for name, some in groupby(sorted(rows, key=lambda row: str(row["group"])), key=lambda row: str(row["group"])):
            getattr(found.setdefault(name, GroupPage(name)), table).extend(some)
    return sorted(found.values(), key=lambda page: (page.worst not in _BAD, -page.total_lag, page.name))


def heads(*left: str, right: Sequence[str] = (), last: Sequence[str] = ()) -> str:
    """Return the column titles of a table: text, numbers, text."""
    numbers = "".join(f'<th class="n">{name}</th>' for name in right)
    return "".join(f"<th>{name}</th>" for name in left) + numbers + "".join(f"<th>{name}</th>" for name in last)


def index(listed: Sequence[GroupPage]) -> str:
    """Return the index: a line for each group, with a link to its section."""
    head = heads("Group", "Kind", "Status", right=("Lag", "Members", "Rebalances"))
    body = "".join(
        f'<tr><td><a href="#group-{at}">{escape(page.name)}</a></td><td class="t">{escape(page.kind)}</td>'
        f'<td class="t{" behind" if page.worst in _BAD else ""}">{page.standing}</td>'
        f'<td class="n">{number(page.total_lag)}</td>'
        f'<td class="n">{sum(row["until_ms"] is None for row in page.members)}</td>'
        f'<td class="n">{sum(row["event"] == "rebalanced" for row in page.rebalances)}</td></tr>'
        for at, page in enumerate(listed[:GROUPS_MAX])
    )
    left_out = (
        "" if len(listed) <= GROUPS_MAX else f'<p class="soft">The first {GROUPS_MAX} of {len(listed)} groups.</p>'
    )
    table = f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f'<h2 id="groups">Groups</h2>{left_out}{table}'


def parts(listed: Sequence[GroupPage], *, until_ms: int) -> str:
    return "".join(_part(at, page, until_ms) for at, page in enumerate(listed[:GROUPS_MAX]))


def _part(at: int, page: GroupPage, until_ms: int) -> str:
    partitions = "1 partition" if page.partitions == 1 else f"{page.partitions} partitions"
    facts = f"{page.kind} group"
    facts += f", {number(page.total_lag)} records behind in {partitions}" if page.partitions else ""
    status = f', <b class="{"behind" if page.worst in _BAD else ""}">{page.worst}</b>' if page.worst else ""
    return (
        f'<section id="group-{at}"><h2>{escape(page.name)}</h2>'
        f'<p class="soft">{escape(facts)}{status}. <a href="#groups">All groups</a></p>'
        f"{_lag(page, until_ms)}{_share(page)}{_owners(page, until_ms)}{_rebalances(page)}</section>"
    )


def _lag(page: GroupPage, until_ms: int) -> str:
    if not page.picture:
        return ""
    points = [Point(row["timestamp_ms"], row["lag"], row["lag_max"]) for row in page.picture]
    chart = lag_chart(points, label=f"Lag of group {page.name}", until_ms=until_ms)
    return f'<div class="card"><h3>Lag</h3>{chart}</div>'


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
    told = "Again: records that wait for redelivery. Deliveries: the greatest delivery count of a record."
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="card scroll"><h3>Share state</h3><p class="soft">{told}</p>{table}</div>'


def _start(row: Row) -> int | None:
    """Return the start offset; None if nothing was read yet."""
    start: int = row["start_offset"]
    return start if start >= 0 else None


def _again(row: Row) -> int:
    return sum(one["last_offset"] - one["first_offset"] + 1 for one in row["batches"] if one["state"] == "available")


def _owners(page: GroupPage, until_ms: int) -> str:
    if not page.stays:
        return ""
    names = {row["member_id"]: row["instance_id"] or row["client_id"] for row in page.members}
    changes = [row["completed_at_ms"] or row["began_at_ms"] for row in page.rebalances if row["event"] == "rebalanced"]
    picture = owners(page.stays, changes, until_ms=until_ms, names=names)
    return f'<div class="card scroll wide"><h3>Owners of partitions</h3>{picture}</div>'


def _rebalances(page: GroupPage) -> str:
    if not page.rebalances:
        return ""
    newest = page.rebalances[-REBALANCES_MAX:]
    head = heads("When (UTC)", "Event", "Why", "Who", right=("Moved", "Took", "Lag"))
    body = "".join(
        f'<tr><td class="t">{instant(row["completed_at_ms"] or row["began_at_ms"])}</td><td class="t">{row["event"]}</td>'
        f"<td>{', '.join(row['why'] or ())}</td><td>{_who(row)}</td>"
        f'<td class="n">{number(row["moved"])}</td><td class="n">{duration(row["duration_ms"])}</td>'
        f'<td class="n">{_cost(row)}</td></tr>'
        for row in newest
    )
    more = len(page.rebalances) - len(newest)
    left_out = f'<p class="soft">The newest {len(newest)}; {number(more)} before.</p>' if more else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="card scroll"><h3>Rebalances</h3>{left_out}{table}</div>'


def _who(row: Row) -> str:
    def named(members: Iterable[Row] | None) -> str:
        return ", ".join(escape(one["instance_id"] or one["client_id"]) for one in members or ())

    told = [
        f"{sign}{named(row[column])}" for sign, column in (("+ ", "joined"), ("\N{MINUS SIGN} ", "left")) if row[column]
    ]
    return "; ".join(told)


def _cost(row: Row) -> str:
    cost = row.get("lag_cost")
    return "\N{EN DASH}" if cost is None else f"{cost:+,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
