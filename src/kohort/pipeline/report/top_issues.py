"""The top issues: the worst few of each kind, one line each; the partitions of a group share a line."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from kohort.pipeline.report.formatting import duration, number
from kohort.pipeline.report.partition_names import place_name
from kohort.pipeline.tables.burrow.verdicts import BAD, SEVERITIES, WARN

SHOWN = 3

Row: TypeAlias = dict[str, Any]
Weighed: TypeAlias = tuple[int, list[Row]]
"""A weight, and the rows it is the weight of."""
Line: TypeAlias = str | tuple[str, str | None]
"""A title, or a sentence and the group that it begins with."""


def top_issues(
    *,
    lag: Sequence[Row],
    verdicts: Sequence[Row],
    flapping: Sequence[Row],
    unowned: Sequence[Row],
    statistics: Sequence[Row],
    blocking: Sequence[Row],
    links: Mapping[str, str] | None = None,
) -> str:
    """
    Return a card with the worst rows of each table; empty if there are none.

    Args:
        verdicts: rows of `tables.burrow.verdicts`.
        links: the address of the section of each group.
    """
    stuck = [row for row in verdicts if row["verdict"] in BAD]
    rising = [row for row in verdicts if row["verdict"] == WARN]
    stuck = [row | {"weight": (row["lag"] or 0) + 1} for row in stuck]
    late = [row | {"late_ms": row["duration_ms"]} for row in blocking if row["verdict"] != "ongoing"]
    lines = [
        *_worst(_groups(stuck, "weight"), "Stuck", _stuck),
        *_worst(_groups(lag, "lag"), "Largest lag", _behind),
        *_worst(_groups(verdicts, "time_lag_ms", of=max), "Longest waiting", _waiting),
        *_worst(_groups(rising, "lag"), "Growing lag", _behind),
        *_worst(_groups(flapping, "moves"), "Frequent changes of owner", _moving),
        *_worst(_groups(unowned, "unowned_ms", of=max), "Without owner", _unowned),
        *_worst(_each(statistics, "aborted"), "Aborted transactions", _aborting),
        *_worst(_each(late, "late_ms"), "Transactions that block readers", _blocking),
    ]
    if not lines:
        return ""
    shown = "".join(line if isinstance(line, str) else _linked(*line, links or {}) for line in lines)
    return f'<h2>Top issues</h2><div class="card"><dl>{shown}</dl></div>'


def _linked(sentence: str, group: str | None, links: Mapping[str, str]) -> str:
    """Return a line; the group at its start leads to its section."""
    if group is None or group not in links:
        return f"<dd>{escape(sentence)}</dd>"
    return f'<dd><a href="{links[group]}">{escape(group)}</a>{escape(sentence.removeprefix(group))}</dd>'


def _worst(weighed: Iterable[Weighed], title: str, sentence: Callable[[list[Row]], str]) -> list[Line]:
    worst = sorted(((-weight, sentence(rows), rows) for weight, rows in weighed if weight), key=lambda one: one[:2])
    shown = [(text, rows[0].get("group")) for _, text, rows in worst[:SHOWN]]
    return [f"<dt>{title}</dt>", *shown] if shown else []


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
    names = sorted({row["verdict"] for row in rows}, key=SEVERITIES.index, reverse=True)
    reasons = {row["why"] for row in rows if row["why"]}
    why = f" ({reasons.pop()})" if len(reasons) == 1 else ""
    behind = number(sum(row["lag"] or 0 for row in rows))
    return f"{rows[0]['group']}: {', '.join(names)}, {_partitions(rows)}, {behind} records behind{why}"


def _waiting(rows: list[Row]) -> str:
    return f"{rows[0]['group']}: {duration(rows[0]['time_lag_ms'])} in {place_name(rows[0])}"


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
