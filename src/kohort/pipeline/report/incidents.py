"""The trouble of a group, in words: who, since when, why, and the one next step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from kohort.pipeline.report.cells import colour
from kohort.pipeline.report.formatting import STEADY, duration, moment, number, place_name
from kohort.pipeline.report.group_page import GroupPage
from kohort.pipeline.report.spark_queries import query_step
from kohort.pipeline.report.timeline import IN_PROGRESS, state
from kohort.pipeline.tables.burrow.verdicts import LOST, OK, SEVERITIES, STOP, UNKNOWN, WARN
from kohort.pipeline.tables.groups.group_history import changed_at_ms

SHOWN = 4
"""Incidents at the top of the page: as many as fit the screen of a phone, with long names, too."""
_NAMES_MAX = 3

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """
    The facts that incidents are told against.

    Attributes:
        at_ms: the instant of the tables.
        opened: the open transactions by topic, partition and start offset.
    """

    at_ms: int = 0
    opened: Mapping[tuple[str, int, int], Row] = field(default_factory=dict)

    def at(self, happened_ms: int | None) -> str:
        """Tell when something happened, in UTC."""
        return moment(happened_ms, self.at_ms)

    def since(self, begun_ms: int | None) -> str:
        """Tell since when, and for how long, with a space before it; empty if that is unknown."""
        return "" if begun_ms is None else f" since {self.at(begun_ms)} ({duration(max(self.at_ms - begun_ms, 0))})"


def moment_of(at_ms: int, blocking: Iterable[Row]) -> Moment:
    """
    Args:
        blocking: rows of `blocking_transactions`.
    """
    return Moment(at_ms, {(row["topic"], row["partition"], row.get("start_offset", -1)): row for row in blocking})


def incidents(listed: Sequence[GroupPage], links: Mapping[str, str], now: Moment) -> str:
    """
    Return the first groups with a verdict that is not OK; empty if there are none.

    Args:
        listed: groups in the order of `urgency.ranked`.
        links: the address of the section of each group.
    """
    wrong = [page for page in listed if page.worst not in ("", OK)]
    if not wrong:
        return ""
    items = "".join(_item(page, links.get(page.name), now) for page in wrong[:SHOWN])
    more = len(wrong) - SHOWN
    rest = f'<p class="soft"><a href="#groups">and {number(more)} more</a></p>' if more > 0 else ""
    return f'<ol class="incidents">{items}</ol>{rest}'


def _item(page: GroupPage, address: str | None, now: Moment) -> str:
    name = escape(page.name) if address is None else f'<a href="{address}">{escape(page.name)}</a>'
    row = page.verdicts[0]
    verdict = f'<b class="{colour(page.worst).strip()}">{_verdicts(page)}</b>'
    return (
        f'<li><p class="who">{name}: {verdict}{now.since(row["since_ms"])}</p>'
        f'<p class="told">{escape(_behind(page))}: {escape(reason(page, now))}</p>'
        f'<p class="told"><b>Next:</b> {escape(step(page, now))}</p></li>'
    )


def _verdicts(page: GroupPage) -> str:
    wrong = {row["verdict"] for row in page.verdicts} - {OK}
    names = sorted(wrong, key=SEVERITIES.index, reverse=True)
    return ", ".join(names)


def _behind(page: GroupPage) -> str:
    """Tell where and how much: of the rows with a verdict that is not OK."""
    wrong = [row for row in page.verdicts if row["verdict"] != OK]
    places = place_name(wrong[0]) if len(wrong) == 1 else f"{place_name(wrong[0])} and {number(len(wrong) - 1)} more"
    known = [row["lag"] for row in wrong if row["lag"] is not None]
    waits_ms = max((row["time_lag_ms"] or 0 for row in wrong), default=0)
    waits = f", the oldest for {duration(waits_ms)}" if waits_ms else ""
    return f"{places}, {number(sum(known))} records behind{waits}" if known else f"{places}, lag unknown"


def reason(page: GroupPage, now: Moment) -> str:
    """Return why the first partition of a group has its verdict; empty for OK in most cases."""
    row = page.leading
    if row is None:
        return "" if page.is_deleted else "no committed offset"
    if row["verdict"] == OK:
        return str(row["why"])
    told = [_why(page, row, now)]
    opened = _opened(page, row, now)
    if opened is not None:
        kind = "open" if opened["verdict"] == UNKNOWN.lower() else opened["verdict"]
        told.append(
            f"it waits at the {kind} transaction of {_producer(opened)}, open for {duration(opened['duration_ms'])}"
        )
    if (change := _rebalancing(page)) is not None:
        told.append(f"a rebalance is in progress since {now.at(changed_at_ms(change))}")
    if row["verdict"] != page.worst:
        worst = next(one for one in page.verdicts if one["verdict"] == page.worst)
        told.append(f"{place_name(worst)} is {page.worst}: {worst['why']}")
    return "; ".join(told)


def _why(page: GroupPage, row: Row, now: Moment) -> str:
    verdict, committed = row["verdict"], _committed(row, now)
    # The reason of the verdict, without the transaction, of which `reason` tells more.
    stock = str(row["why"]).partition("; it waits at ")[0]
    if verdict == UNKNOWN:
        absent = f", no member since {now.at(page.emptied_ms)}" if page.emptied_ms is not None else ""
        return f"{_log(row)} is not here{absent}{committed}"
    if verdict == LOST:
        absent = f"; no member since {now.at(page.emptied_ms)}" if page.emptied_ms is not None else ""
        waits = "" if row["is_behind"] else "; nothing else waits"
        return f"{stock}{waits}{absent}"
    if page.query is not None:
        return stock
    if page.emptied_ms is not None:
        left = _left(page)
        return f"no member since {now.at(page.emptied_ms)}{f', when {left} left' if left else ''}{committed}"
    who = _owners(page, row)
    if row["last_commit_ms"] is None:
        return f"{who or 'a member'} has had {place_name(row)} since {now.at(row['since_ms'])} and has never committed"
    if verdict == STOP:
        return f"no commit since {now.at(row['last_commit_ms'])}; {_held(page, row, who)}"
    if verdict == "STALL":
        last = now.at(row["last_commit_ms"])
        if row["commits"] == 1:
            return f"one commit, of offset {_offset(page, row)} at {last}, and none since; {_held(page, row, who)}"
        return f"{who or 'the group'} goes on committing offset {_offset(page, row)}, the last time at {last}"
    if verdict == "REWIND":
        return f"the committed offset went back, it is {_offset(page, row)} now{committed}"
    trend = page.trend(now.at_ms)
    return f"{stock}: it {trend}" if trend and trend != STEADY else stock


def step(page: GroupPage, now: Moment) -> str:
    """Return the one next step; empty for groups without a verdict, and for OK."""
    row = page.leading
    if row is None or row["verdict"] == OK:
        return ""
    verdict, place = row["verdict"], place_name(row)
    opened = _opened(page, row, now)
    if opened is not None and opened["verdict"] == "hanging":
        where = f"--topic {row['topic']} --partition {row['partition']} --start-offset {opened['start_offset']}"
        return f"end the transaction: kohort transactions abort {where}"
    if opened is not None:
        return f"look at the program of {_producer(opened)}: it neither commits nor aborts"
    if verdict == UNKNOWN:
        return f"make the report where {_log(row)} is, or of the cluster: kafka://HOST:PORT"
    if page.query is not None:
        return query_step(page.query, verdict)
    if verdict == LOST and not row["is_behind"]:
        if page.lag_of(row).get("records_lost"):
            return "take the lost records from their source again if they are needed: no reader gets them here"
        return f"find out why the log of {place} is shorter than it was, as after the topic was made again"
    if page.emptied_ms is not None:
        before = ", before retention deletes more" if verdict == LOST else ""
        return f"start {_left(page) or 'a consumer of the group'} again{before}"
    if verdict == LOST:
        return f"raise the retention of {row['topic']} until the group has caught up"
    if _rebalancing(page) is not None:
        return "find the member that does not join again: its poll takes too long, or it is gone"
    return _step_of_members(page, row, place)


def _log(row: Row) -> str:
    """Name the log that is missing, from the reason of UNKNOWN."""
    return str(row["why"]).partition(" is not here")[0].replace("the partition", place_name(row))


def _step_of_members(page: GroupPage, row: Row, place: str) -> str:
    verdict, who = row["verdict"], _owners(page, row)
    if verdict == "REWIND":
        return "find who set the offset back: a reset by a tool, or a consumer that seeks"
    if verdict == "STALL" and row["commits"] != 1:
        return f"read the record at offset {_offset(page, row)} of {place}: the consumer does not get past it"
    if verdict == WARN:
        if page.present and len(page.present) < page.partitions:
            return f"add members: {len(page.present)} for {number(page.partitions)} partitions"
        return (
            "make the work per record faster: more members have nothing to read"
            if page.present
            else ("compare what it reads with what is produced")
        )
    if who:
        return f"look at {who}: in the group, but without a commit"
    if page.present:
        return f"find out why no member has {place}: subscription or assignor"
    return "look at the program that commits for it: the log knows no members"


def _committed(row: Row, now: Moment) -> str:
    last_ms = row["last_commit_ms"]
    return "" if last_ms is None else f"; last commit at {now.at(last_ms)}"


def _held(page: GroupPage, row: Row, who: str) -> str:
    if who:
        return f"{who} has {place_name(row)}"
    return f"no member has {place_name(row)}" if page.present else "members are not known"


def _owners(page: GroupPage, row: Row) -> str:
    """Name the members that have a partition, with their hosts."""
    return _listed(page.members_of(row))


def _left(page: GroupPage) -> str:
    """Name the members that left when the group became empty."""
    change = next((one for one in reversed(page.rebalances) if one["left"]), None)
    return "" if change is None else _listed(change["left"])


def _listed(members: Iterable[Mapping[str, Any]]) -> str:
    some = [
        f"{member['instance_id'] or member['client_id']}{f' on {host}' if (host := member['client_host']) else ''}"
        for member in members
    ]
    more = f" and {len(some) - _NAMES_MAX} more" if len(some) > _NAMES_MAX else ""
    return f"{', '.join(some[:_NAMES_MAX])}{more}"


def _offset(page: GroupPage, row: Row) -> str:
    return number(page.lag_of(row).get("offset"))


def _opened(page: GroupPage, row: Row, now: Moment) -> Row | None:
    return now.opened.get((row["topic"], row["partition"], page.lag_of(row).get("offset", -1)))


def _producer(opened: Row) -> str:
    return str(opened["transactional_id"] or f"producer {opened['producer_id']}")


def _rebalancing(page: GroupPage) -> Row | None:
    """Return the rebalance of a group that is in progress."""
    if page.rebalances and state(page.rebalances[-1], is_last=True) == IN_PROGRESS:
        return page.rebalances[-1]
    return None
