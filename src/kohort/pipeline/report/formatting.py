"""Times, numbers, and names of partitions and tasks, for readers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_MINUTE_MS = 60_000
STEADY = "steady"
"""The rate of a lag that does not change."""
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (_MINUTE_MS, "min"), (1000, "s"))
_LETTERS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def instant(timestamp_ms: int | None) -> str:
    """Format an instant in UTC, with milliseconds; None is a dash."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "\N{EN DASH}"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def moment(timestamp_ms: int | None, at_ms: int) -> str:
    """Format an instant in UTC for a sentence: to the second, without the day if that is the day of `at_ms`; None is a dash."""
    told, today = instant(timestamp_ms)[:19], instant(at_ms)[:10]
    return told.removeprefix(f"{today} ")


def rate(per_second: float) -> str:
    """Format the growth of a lag in the smallest unit of time in which it is one record or more."""
    if not per_second:
        return STEADY
    verb, size = "rises" if per_second > 0 else "falls", abs(per_second)
    for seconds, unit in ((1, "s"), (60, "min")):
        if size * seconds >= 1:
            return f"{verb} {size * seconds:,.1f}/{unit}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{verb} {size * 3600:.1f}/h"


def duration(milliseconds: int | None) -> str:
    """Format a duration in its largest fitting unit; None is a dash."""
    if milliseconds is None:
        return "\N{EN DASH}"
    for unit_ms, unit in _UNITS:
        if milliseconds >= unit_ms:
            return f"{milliseconds / unit_ms:.1f} {unit}"
    return f"{milliseconds} ms"


def brief_duration(milliseconds: int) -> str:
    """Format a round duration briefly, for an axis: in the largest unit of which it is a multiple."""
    for unit_ms, unit in _UNITS:
        if milliseconds and milliseconds % unit_ms == 0:
            return f"{milliseconds // unit_ms}\N{NARROW NO-BREAK SPACE}{unit}"
    return f"{milliseconds}\N{NARROW NO-BREAK SPACE}ms" if milliseconds else "0"


def number(value: int | None) -> str:
    """Format a number with thin spaces between thousands; None is a dash."""
    return "\N{EN DASH}" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def brief(value: int) -> str:
    """Format a round number briefly, for an axis."""
    for unit, letter in _LETTERS:
        if value >= unit:
            return f"{value / unit:g}\N{NARROW NO-BREAK SPACE}{letter}"
    return str(value)


def size(size_bytes: int) -> str:
    """Format a number of bytes in its largest fitting decimal unit."""
    for unit, letter in _LETTERS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f}\N{NARROW NO-BREAK SPACE}{letter}B"
    return f"{size_bytes}\N{NARROW NO-BREAK SPACE}B"


def rebalance_duration(row: dict[str, int | None]) -> str:
    """Format the duration of a rebalance if it is known, else the sync phase as its minimum."""
    # Every command formats times, and this import brings Arrow.
    from kohort.pipeline.tables.groups.group_history import took_ms

    known = duration(took_ms(row))
    is_minimum = row["duration_ms"] is None and row["sync_ms"] is not None
    return f"\N{GREATER-THAN OR EQUAL TO} {known}" if is_minimum else known


def place_name(row: Mapping[str, Any]) -> str:
    """Return `orders-3`, with the topic id if the name is unknown; tasks as in Kafka Streams, `0_3`."""
    return f"{place_stem(row)}{row['partition']}"


def place_stem(row: Mapping[str, Any]) -> str:
    """Return the name without the partition number."""
    subtopology = row.get("subtopology")
    return f"{row['topic'] or row['topic_id']}-" if subtopology is None else f"{subtopology}_"
