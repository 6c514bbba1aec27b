"""The tables in the section of a group: topics, partitions, members, share state, rebalances."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from kohort.pipeline.report.cells import DASH, card, heads, lag_cell, verdict_cell, wait_cell
from kohort.pipeline.report.formatting import instant, number, place_name, place_stem, rebalance_duration
from kohort.pipeline.report.group_page import GroupPage
from kohort.pipeline.report.timeline import state
from kohort.pipeline.tables.burrow.verdicts import worst
from kohort.pipeline.tables.groups.group_history import changed_at_ms, took_ms

PARTITIONS_MAX = 500
REBALANCES_MAX = 50
_RANGES_MAX = 12

Row = dict[str, Any]


def topics(page: GroupPage) -> str:
    """Return lag and verdict by topic, the worst first."""
    if not page.verdicts:
        return ""
    by_topic: dict[str, list[Row]] = {}
    for row in page.verdicts:
        by_topic.setdefault(row["topic"], []).append(row)
    head = heads("Topic", "Verdict", right=("Partitions", "Lag", "Waiting"))
    # The rows are sorted by verdict and lag, so topics come with their worst partition.
    body = (
        f"<tr><td>{escape(topic)}</td>{verdict_cell(verdict := worst(row['verdict'] for row in some))}"
        f'<td class="n">{number(len(some))}</td>{lag_cell(_sum(some), verdict)}'
        f"{wait_cell(max((row['time_lag_ms'] for row in some if row['time_lag_ms'] is not None), default=None))}</tr>"
        for topic, some in by_topic.items()
    )
    return card("Topics", head, body, of=page.name)


def _sum(rows: Iterable[Row]) -> int | None:
    known = [row["lag"] for row in rows if row["lag"] is not None]
    return sum(known) if known else None


def partitions(page: GroupPage) -> str:
    """Return lag, verdict and owner by partition, the worst first; those of share groups are in `share`."""
    if not page.verdicts or page.share:
        return ""
    owned = _owned_now(page)
    head = heads("Partition", "Verdict", right=("Lag", "Waiting"), last=("Last commit (UTC)", "Owner", "Why"))
    body = (
        f"<tr><td>{escape(place_name(row))}</td>{verdict_cell(row['verdict'])}"
        f"{lag_cell(row['lag'], row['verdict'])}{wait_cell(row['time_lag_ms'])}"
        f'<td class="t">{instant(row["last_commit_ms"])}</td><td>{escape(owned.get(_place(row), DASH))}</td>'
        f"<td>{escape(row['why'])}</td></tr>"
        for row in page.verdicts[:PARTITIONS_MAX]
    )
    more = len(page.verdicts) - PARTITIONS_MAX
    note = f'<p class="soft">The worst {PARTITIONS_MAX}; {number(more)} more.</p>' if more > 0 else ""
    return card("Partitions", head, body, of=page.name, note=note)


def members(page: GroupPage) -> str:
    """Return the members of now, those with the most lag first."""
    if not page.has_known_members:
        return (
            '<div class="card"><h3>Members</h3><p class="soft">None known: the log has commits of this group and no record of'
            " members. Its consumers choose their partitions themselves, or only a tool has committed.</p></div>"
        )
    if not page.present:
        return '<div class="card"><h3>Members</h3><p class="soft">The group has no members.</p></div>'
    lag = {_place(row): row["lag"] or 0 for row in page.lag}
    verdict = {_place(row): row["verdict"] for row in page.verdicts}
    owned: dict[str, list[Row]] = {}
    for stay in page.stays:
        if stay["until_ms"] is None:
            owned.setdefault(stay["member_id"], []).append(stay)
    rows = [
        (sum(lag.get(_place(stay), 0) for stay in theirs), theirs, member)
        for member in page.present
        for theirs in (owned.get(member["member_id"], []),)
    ]
    head = heads("Member", "Host", right=("Lag", "Partitions"), last=("Since (UTC)", "Owns"))
    body = (
        f'<tr><td title="{escape(member["member_id"])}">{escape(member["instance_id"] or member["client_id"])}</td>'
        f"<td>{escape(member['client_host'] or DASH)}</td>"
        f"{lag_cell(behind, worst(verdict[place] for stay in theirs if (place := _place(stay)) in verdict))}"
        f'<td class="n">{number(len(theirs))}</td><td class="t">{instant(member["since_ms"])}</td>'
        f"<td>{escape(listed(theirs))}</td></tr>"
        for behind, theirs, member in sorted(rows, key=lambda row: (-row[0], row[2]["client_id"], row[2]["member_id"]))
    )
    return card("Members", head, body, of=page.name)


def listed(stays: Iterable[Row]) -> str:
    """Name partitions and tasks: `orders-3`, or `orders: 0-5, 7` for several of a topic."""
    told = []
    for stem, some in groupby(sorted(stays, key=_by_number), key=place_stem):
        of_stem = list(some)
        name = f"subtopology {stem[:-1]}" if stem.endswith("_") else stem[:-1]
        told.append(
            place_name(of_stem[0])
            if len(of_stem) == 1
            else f"{name}: {_ranges([stay['partition'] for stay in of_stem])}"
        )
    return "; ".join(told)


def _by_number(stay: Row) -> tuple[str, int]:
    return place_stem(stay), stay["partition"]


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as ranges."""
    found: list[list[int]] = []
    for one in numbers:
        if found and one <= found[-1][1] + 1:
            found[-1][1] = one
        else:
            found.append([one, one])
    texts = [str(first) if first == last else f"{first}{DASH}{last}" for first, last in found]
    more = len(texts) - _RANGES_MAX
    return ", ".join(texts[:_RANGES_MAX]) + (f" and {more} more" if more > 0 else "")


def _owned_now(page: GroupPage) -> dict[tuple[str | None, int], str]:
    names = page.names
    return {
        _place(stay): names.get(stay["member_id"], str(stay["member_id"]))
        for stay in page.stays
        if stay["until_ms"] is None
    }


def _place(row: Mapping[str, Any]) -> tuple[str | None, int]:
    return row["topic"], row["partition"]


def share(page: GroupPage) -> str:
    """Return the state of a share group. Records from the start on are complete, wait for redelivery, or are undelivered."""
    if not page.share:
        return ""
    head = heads("Partition", right=("Start", "End", "Lag", "Done", "Again", "Deliveries"), last=("Written (UTC)",))
    body = (
        f'<tr><td>{escape(place_name(row))}</td><td class="n">{number(row["start_offset"])}</td>'
        f'<td class="n">{number(row["end_offset"])}</td>{lag_cell(row["lag"], page.worst)}'
        f'<td class="n">{number(_done(row))}</td><td class="n">{number(_again(row))}</td>'
        f'<td class="n">{number(max((one["deliveries"] for one in row["batches"] or ()), default=None))}</td>'
        f'<td class="t">{instant(row["written_at_ms"])}</td></tr>'
        for row in sorted(page.share, key=lambda row: (-(row["lag"] or 0), place_name(row)))
    )
    note = "Again: records that wait for redelivery. Deliveries: the greatest delivery count of a record."
    return card("Share state", head, body, of=page.name, note=f'<p class="soft">{note}</p>')


def _done(row: Row) -> int | None:
    count: int | None = row["delivery_complete_count"]
    return None if count is None else max(count, 0)


def _again(row: Row) -> int:
    return sum(
        one["last_offset"] - one["first_offset"] + 1 for one in row["batches"] or () if one["state"] == "available"
    )


def rebalances(page: GroupPage) -> str:
    """Return the changes of the group with causes and costs, the newest first."""
    if not page.rebalances:
        return ""
    newest = page.rebalances[-REBALANCES_MAX:][::-1]
    head = heads("When (UTC)", "Event", "Why", "Who", right=("Moved", "Took", "Lag"))
    body = (
        f'<tr><td class="t">{instant(changed_at_ms(row))}</td><td class="t">{state(row, is_last=at == 0)}</td>'
        f"<td>{', '.join(row.get('why') or ())}</td><td>{_who(row)}</td>"
        f'<td class="n">{number(row.get("moved"))}</td>{took_cell(row)}{cost_cell(row)}</tr>'
        for at, row in enumerate(newest)
    )
    more = len(page.rebalances) - len(newest)
    note = f'<p class="soft">The newest {len(newest)}; {number(more)} before.</p>' if more else ""
    return card("Rebalances", head, body, of=page.name, note=note)


def _who(row: Row) -> str:
    def named(members: Iterable[Row] | None) -> str:
        return ", ".join(escape(one["instance_id"] or one["client_id"]) for one in members or ())

    told = [
        f"{sign}{named(row[column])}" for sign, column in (("+ ", "joined"), ("\N{MINUS SIGN} ", "left")) if row[column]
    ]
    return "; ".join(told)


def took_cell(row: Row) -> str:
    """Return a cell with the duration of a rebalance."""
    known = took_ms(row)
    return f'<td class="n" data-v="{-1 if known is None else known}">{rebalance_duration(row)}</td>'


def cost_cell(row: Row) -> str:
    """Return a cell with the growth of the lag during a rebalance; a dash if it is unknown."""
    grown = row.get("lag_cost")
    told = DASH if grown is None else f"{grown:+,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f'<td class="n" data-v="{grown or 0}">{told}</td>'
