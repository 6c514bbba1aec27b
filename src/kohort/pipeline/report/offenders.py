"""What deserves a look first: the worst few of each kind of trouble, each a line."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from kohort.pipeline.report.moments import duration, number
from kohort.pipeline.report.places import place_name

SHOWN = 3

Row = dict[str, Any]


def offenders(
    *,
    lag: Sequence[Row],
    status: Sequence[Row],
    flapping: Sequence[Row],
    unowned: Sequence[Row],
    statistics: Sequence[Row],
    blocking: Sequence[Row],
) -> str:
    """A card with the worst of each table; nothing where all is well."""
    lines = [
        *_worst(lag, "lag", "Furthest behind", lambda row: f"{_place(row)}: {number(row['lag'])} records"),
        *_worst(
            [row | {"is_bad": row["lag"] if row["status"] in ("STOP", "STALL", "REWIND") else 0} for row in status],
            "is_bad",
            "Not moving",
            lambda row: f"{_place(row)}: {row['status']}, {number(row['lag'])} records behind",
        ),
        *_worst(
            flapping,
            "moves",
            "Changing hands",
            lambda row: f"{_place(row)}: {number(row['moves'])} moves, {number(row['returns'])} of them back",
        ),
        *_worst(unowned, "unowned_ms", "Without an owner", lambda row: f"{_place(row)}: {duration(row['unowned_ms'])}"),
        *_worst(
            statistics,
            "aborted",
            "Aborting",
            lambda row: f"{row['transactional_id']}: {number(row['aborted'])} of {number(row['transactions'])}",
        ),
        *_worst(
            [row | {"is_bad": row["duration_ms"] if row["verdict"] != "ongoing" else 0} for row in blocking],
            "is_bad",
            "Blocking readers",
            lambda row: f"{row['topic']}-{row['partition']}: {row['verdict']} for {duration(row['duration_ms'])}",
        ),
    ]
    if not lines:
        return ""
    return f'<h2>Look here first</h2><div class="card"><dl>{"".join(lines)}</dl></div>'


def _worst(rows: Iterable[Row], column: str, title: str, told: Callable[[Row], str]) -> list[str]:
    bad = sorted((row for row in rows if row[column]), key=lambda row: (-row[column], told(row)))[:SHOWN]
    return [f"<dt>{title}</dt>", *(f"<dd>{escape(told(row))}</dd>" for row in bad)] if bad else []


def _place(row: Row) -> str:
    return f"{row['group']}, {place_name(row)}"
