"""The top issues: the worst few of each kind, one line each; the partitions of a group share a line."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, TypeAlias

from kohort.pipeline.report.formatting import duration, number
from kohort.pipeline.report.partition_names import place_name

SHOWN = 3

_STUCK = ("STOP", "STALL", "REWIND")

Row: TypeAlias = dict[str, Any]
Weighed: TypeAlias = tuple[int, list[Row]]
"""A weight, and the rows it is the weight of."""


def top_issues(
    *,
    lag: Sequence[Row],
    status: Sequence[Row],
    flapping: Sequence[Row],
    unowned: Sequence[Row],
    statistics: Sequence[Row],
    blocking: Sequence[Row],
) -> str:
    """Return a card with the worst rows of each table; empty if there are none."""
    stuck = [row for row in status if row["status"] in _STUCK]
    late = [row | {"late_ms": row["duration_ms"]} for row in blocking if row["verdict"] != "ongoing"]
    lines = [
        *_worst(_groups(lag, "lag"), "Largest lag", _behind),
        *_worst(_groups(stuck, "lag"), "Stuck", _stuck),
        *_worst(_groups(flapping, "moves"), "Frequent changes of owner", _moving),
        *_worst(_groups(unowned, "unowned_ms", of=max), "Without owner", _unowned),
        *_worst(_each(statistics, "aborted"), "Aborted transactions", _aborting),
        *_worst(_each(late, "late_ms"), "Transactions that block readers", _blocking),
    ]
    if not lines:
        return ""
    return f'<h2>Top issues</h2><div class="card"><dl>{"".join(lines)}</dl></div>'


def _worst(weighed: Iterable[Weighed], title: str, sentence: Callable[[list[Row]], str]) -> list[str]:
    worst = sorted(((-weight, sentence(rows)) for weight, rows in weighed if weight))[:SHOWN]
    return [f"<dt>{title}</dt>", *(f"<dd>{escape(text)}</dd>" for _, text in worst)] if worst else []


def _groups(rows: Iterable[Row], column: str, *, of: Callable[[Iterable[int]], int] = sum) -> Iterator[Weighed]:
    """Yield the rows of each group with a value in a column, the worst first, with their total weight."""
    by_group: dict[str, list[Row]] = {}
    for row in rows:
        if row[column]:
            by_group.setdefault(row["group"], []).append(row)
    for some in by_group.values():
        yield of(row[column] for row in some), sorted(some, key=lambda row: (-row[column], place_name(row)))


def _each(rows: Iterable[Row], column: str) -> Iterator[Weighed]:
    yield from ((row[column] or 0, [row]) for row in rows)


def _behind(rows: list[Row]) -> str:
    total, most = number(sum(row["lag"] for row in rows)), rows[0]
    if len(rows) == 1:
        return f"{most['group']}: {total} records in {place_name(most)}"
    return f"{most['group']}: {total} records in {len(rows)} partitions, {number(most['lag'])} of them in {place_name(most)}"


def _stuck(rows: list[Row]) -> str:
    statuses = ", ".join(sorted({row["status"] for row in rows}))
    return (
        f"{rows[0]['group']}: {statuses}, {_partitions(rows)}, {number(sum(row['lag'] for row in rows))} records behind"
    )


def _moving(rows: list[Row]) -> str:
    moves, returns = (number(sum(row[name] for row in rows)) for name in ("moves", "returns"))
    return f"{rows[0]['group']}: {moves} moves of {_partitions(rows)}, {returns} of them back"


def _unowned(rows: list[Row]) -> str:
    places = {place_name(row) for row in rows}
    which = min(places) if len(places) == 1 else f"{len(places)} partitions"
    return f"{rows[0]['group']}: {which} for up to {duration(rows[0]['unowned_ms'])}"


def _aborting(rows: list[Row]) -> str:
    (row,) = rows
    return f"{row['transactional_id']}: {number(row['aborted'])} of {number(row['transactions'])}"


def _blocking(rows: list[Row]) -> str:
    (row,) = rows
    return f"{place_name(row)}: {row['verdict']} for {duration(row['duration_ms'])}"


def _partitions(rows: list[Row]) -> str:
    return place_name(rows[0]) if len(rows) == 1 else f"{len(rows)} partitions"
