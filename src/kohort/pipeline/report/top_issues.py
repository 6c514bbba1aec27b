"""
The top issues: incidents, and below them the worst few of each other kind, one line each. The partitions of a group share a
line.

The other kinds are closed where the screen is narrow, so that the incidents fit it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from kohort.pipeline.report.formatting import duration, instant, number, place_name
from kohort.pipeline.tables.burrow.verdicts import WARN

SHOWN = 3

Row: TypeAlias = dict[str, Any]


class Weighed(NamedTuple):
    """Rows of one group, partition or transactional id, and how bad they are."""

    weight: tuple[int, ...]
    rows: list[Row]


def top_issues(
    *,
    lag: Sequence[Row],
    verdicts: Sequence[Row],
    flapping: Sequence[Row],
    unowned: Sequence[Row],
    statistics: Sequence[Row],
    blocking: Sequence[Row],
    incidents: str = "",
    rebalancing: Sequence[Row] = (),
    at_ms: int = 0,
    links: Mapping[str, str] | None = None,
) -> str:
    """
    Return a card with incidents and the worst rows of each table; empty if there are none.

    Args:
        incidents: of `incidents.incidents`.
        verdicts: rows of `tables.burrow.verdicts`.
        rebalancing: rebalances that have not completed.
        at_ms: the instant of the tables.
        links: the address of the section of each group.
    """
    # A page may have 100,000 partitions, so rows are not copied.
    rising = (row for row in verdicts if row["verdict"] == WARN)
    late = (row for row in blocking if row["verdict"] != "ongoing")
    going_on = _groups(rebalancing, partial(_lasting_ms, at_ms), of=max)
    known = links or {}
    kinds = [
        _kind("Growing lag", _groups(rising, itemgetter("lag")), _behind, known),
        _kind("Transactions that block readers", _each(late, "duration_ms"), _blocking, known),
        _kind("Rebalances in progress", going_on, partial(_rebalancing, at_ms), known),
        _kind("Largest lag", _groups(lag, itemgetter("lag")), _behind, known),
        _kind("Longest waiting", _groups(verdicts, itemgetter("time_lag_ms"), of=max), _waiting, known),
        _kind("Without owner", _still_first(_groups(unowned, itemgetter("unowned_ms"), of=max)), _unowned, known),
        _kind("Frequent changes of owner", _groups(flapping, itemgetter("moves")), _moving, known),
        _kind("Aborted transactions", _each(statistics, "aborted"), _aborting, known),
    ]
    found = "".join(kinds)
    if not found and not incidents:
        return ""
    return f'<h2 id="issues">Top issues</h2><div class="card">{incidents}{_others(found)}</div>'


def _others(kinds: str) -> str:
    if not kinds:
        return ""
    titles = ", ".join(title.lower() for title in re.findall(r"<dt>([^<]*)</dt>", kinds))
    told = f'<span class="soft">{titles}</span>'
    return f'<details class="wide-open"><summary>More: {told}</summary><dl class="issues">{kinds}</dl></details>'


def _kind(
    title: str,
    weighed: Iterable[Weighed],
    sentence: Callable[[list[Row]], str],
    links: Mapping[str, str],
) -> str:
    """Return the worst of a kind, and the number of the others."""
    found = ((tuple(-one for one in weight), sentence(rows), rows) for weight, rows in weighed if weight[-1])
    worst = sorted(found, key=lambda one: one[:2])
    if not worst:
        return ""
    lines = "".join(_line(text, rows[0].get("group"), links) for _, text, rows in worst[:SHOWN])
    more = len(worst) - SHOWN
    more_line = f'<dd class="soft">and {number(more)} more</dd>' if more > 0 else ""
    return f"<div><dt>{title}</dt>{lines}{more_line}</div>"


def _line(sentence: str, group: str | None, links: Mapping[str, str]) -> str:
    """Return a line. The group at its start leads to its section."""
    if group is None or group not in links:
        return f"<dd>{escape(sentence)}</dd>"
    return f'<dd><a href="{links[group]}">{escape(group)}</a>{escape(sentence.removeprefix(group))}</dd>'


def _groups(
    rows: Iterable[Row], weigh: Callable[[Row], int | None], *, of: Callable[[Iterable[int]], int] = sum
) -> Iterator[Weighed]:
    """Yield the rows of each group that have a weight, the worst first, with their total weight."""
    by_group: dict[str, list[tuple[int, Row]]] = {}
    for row in rows:
        if weight := weigh(row):
            by_group.setdefault(row["group"], []).append((weight, row))
    for some in by_group.values():
        worst = sorted(some, key=lambda one: (-one[0], _name(one[1])))
        yield Weighed((of(weight for weight, _ in some),), [row for _, row in worst])


def _name(row: Row) -> str:
    return place_name(row) if "partition" in row else ""


def _still_first(weighed: Iterable[Weighed]) -> Iterator[Weighed]:
    """Put groups first that have a partition without owner now."""
    for weight, rows in weighed:
        yield Weighed((int(any(row["until_ms"] is None for row in rows)), *weight), rows)


def _each(rows: Iterable[Row], column: str) -> Iterator[Weighed]:
    yield from (Weighed((row[column] or 0,), [row]) for row in rows)


def _behind(rows: list[Row]) -> str:
    total, most = number(sum(row["lag"] for row in rows)), rows[0]
    if len(rows) == 1:
        return f"{most['group']}: {total} records in {place_name(most)}"
    return f"{most['group']}: {total} records in {len(rows)} partitions, {number(most['lag'])} of them in {place_name(most)}"


def _waiting(rows: list[Row]) -> str:
    return f"{rows[0]['group']}: {duration(rows[0]['time_lag_ms'])} in {place_name(rows[0])}"


def _lasting_ms(at_ms: int, row: Row) -> int:
    return max(at_ms - int(row["began_at_ms"]), 1)


def _rebalancing(at_ms: int, rows: list[Row]) -> str:
    row = rows[0]
    why = f" ({', '.join(row['why'])})" if row.get("why") else ""
    return f"{row['group']}: for {duration(_lasting_ms(at_ms, row))}, {len(row['members'])} members{why}"


def _moving(rows: list[Row]) -> str:
    moves, returns = (number(sum(row[name] for row in rows)) for name in ("moves", "returns"))
    return f"{rows[0]['group']}: {moves} moves of {_partitions(rows)}, {returns} of them back"


def _unowned(rows: list[Row]) -> str:
    now = [row for row in rows if row["until_ms"] is None]
    told = now or rows
    places = {place_name(row) for row in told}
    which = min(places) if len(places) == 1 else f"{len(places)} partitions"
    when = "until now" if now else f"the last until {instant(max(row['until_ms'] for row in told))[:19]}"
    return f"{rows[0]['group']}: {which} for up to {duration(max(row['unowned_ms'] for row in told))}, {when}"


def _aborting(rows: list[Row]) -> str:
    (row,) = rows
    return f"{row['transactional_id']}: {number(row['aborted'])} of {number(row['transactions'])} aborted"


def _blocking(rows: list[Row]) -> str:
    (row,) = rows
    return f"{place_name(row)}: {row['verdict']} for {duration(row['duration_ms'])}"


def _partitions(rows: list[Row]) -> str:
    return place_name(rows[0]) if len(rows) == 1 else f"{len(rows)} partitions"
