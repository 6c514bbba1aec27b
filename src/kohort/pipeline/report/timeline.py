"""Rebalances on a line per group, as SVG."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from kohort.pipeline.report.axis import Mark, Scale, merged, time_axis
from kohort.pipeline.report.formatting import instant, rebalance_duration
from kohort.pipeline.tables.groups.group_history import changed_at_ms, took_ms

Row = dict[str, Any]

WIDTH = 720
OVERTAKEN, IN_PROGRESS = "overtaken", "in progress"
"""The fate of a rebalance that has not completed: a newer one began, or it goes on."""
_ROW = 26
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 14, 8, 26
_NAME_LENGTH_MAX = 26
_CLOSE = 7
"""Events of one kind that are less than this apart share a mark."""


def timeline(rows: Sequence[Row], *, since_ms: int | None = None, until_ms: int = 0) -> str:
    """
    Args:
        rows: of the table of rebalances, at least one.
        since_ms: the start of the time axis; by default the first event.
        until_ms: the end of the time axis, unless an event is later.
    """
    groups = most_changed(rows)
    first_ms = min(changed_at_ms(row) for row in rows)
    first_ms = first_ms if since_ms is None else min(first_ms, since_ms)
    last_ms = max(until_ms, *(changed_at_ms(row) for row in rows))
    span_ms = max(last_ms - first_ms, 1)
    bottom = _TOP + _ROW * len(groups)
    lines = {group: _TOP + _ROW * index + _ROW / 2 for index, group in enumerate(groups)}

    def x(at_ms: int) -> float:
        return _LEFT + (at_ms - first_ms) / span_ms * (WIDTH - _RIGHT - _LEFT)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {bottom + _BOTTOM}" role="img" aria-label="Rebalances of {len(groups)} groups over time">',
        *time_axis(first_ms, last_ms, x, top=_TOP, bottom=bottom),
    ]
    for group, y in lines.items():
        name = group if len(group) <= _NAME_LENGTH_MAX else f"{group[: _NAME_LENGTH_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
        parts.append(
            f'<text class="name" x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>'
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
    for group, some in groupby(sorted(rows, key=lambda row: str(row["group"])), key=lambda row: str(row["group"])):
        parts += _events(list(some), x, lines[group])
    return "".join([*parts, "</svg>", _legend(rows)])


def _events(rows: Sequence[Row], x: Scale, y: float) -> Iterator[str]:
    """Yield the marks of one group. The creation is below the first rebalance, and rarer events are on top of all."""
    order = {"created": 0, "rebalanced": 1}
    for event in sorted({row["event"] for row in rows}, key=lambda event: (order.get(event, 2), event)):
        marks = [Mark(changed_at_ms(row), told(row)) for row in rows if row["event"] == event]
        for at, until, text in merged(marks, x, width=_CLOSE):
            yield (
                f'<rect class="event {event}" x="{at - 5:.1f}" y="{y - 5:.1f}" width="{until - at + 10:.1f}" height="10"'
                f' rx="5"><title>{escape(text)}</title></rect>'
            )


def most_changed(rows: Sequence[Row]) -> list[str]:
    """Return the groups of rows of the table of rebalances, those with the most changes first."""
    counts = Counter(row["group"] for row in rows)
    return sorted(counts, key=lambda group: (-counts[group], group))


def _legend(rows: Sequence[Row]) -> str:
    told = (f'<span><i class="{event}"></i>{event}</span>' for event in sorted({row["event"] for row in rows}))
    return f'<p class="legend">{" ".join(told)}</p>'


def state(row: Row, *, is_last: bool) -> str:
    """
    Return what an event of the table is called: its name; if a rebalance has not completed, what became of it.

    Args:
        is_last: whether it is the last one of its group.
    """
    if row["event"] != "rebalanced" or row["completed_at_ms"] is not None:
        return str(row["event"])
    return IN_PROGRESS if is_last else OVERTAKEN


def told(row: Row) -> str:
    """Describe a rebalance in a sentence."""
    generation = "" if row["generation"] is None else f", generation {row['generation']}"
    changes = [
        f"{word} {', '.join(member['client_id'] for member in row[word])}" for word in ("joined", "left") if row[word]
    ]
    took = "" if took_ms(row) is None else f", took {rebalance_duration(row)}"
    return f"{instant(changed_at_ms(row))} {row['event']}{generation}: {'; '.join(changes) or 'same members'}{took}"


def in_progress(rows: Sequence[Row]) -> list[Row]:
    """Return the last event of each group whose rebalance has not completed."""
    last: dict[str, Row] = {}
    for row in rows:
        if row["group"] not in last or row["log_offset"] >= last[row["group"]]["log_offset"]:
            last[row["group"]] = row
    return [row for row in last.values() if state(row, is_last=True) == IN_PROGRESS]
