"""Times and numbers as people read them."""

from datetime import UTC, datetime

_MINUTE_MS = 60_000
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (_MINUTE_MS, "min"), (1000, "s"))
_LETTERS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def instant(timestamp_ms: int | None) -> str:
    """A point in time in UTC, to the millisecond; a dash where there is none."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "\N{EN DASH}"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def clock(timestamp_ms: int, *, span_ms: int) -> str:
    """A label of a time axis that spans `span_ms`."""
    text = instant(timestamp_ms)
    if span_ms < 2 * _MINUTE_MS:
        return text[11:]
    return text[11:19] if span_ms < 86_400_000 else text[:16]


def duration(milliseconds: int | None) -> str:
    """A length of time in its largest fitting unit; a dash where it is not known."""
    if milliseconds is None:
        return "\N{EN DASH}"
    for unit_ms, unit in _UNITS:
        if milliseconds >= unit_ms:
            return f"{milliseconds / unit_ms:.1f} {unit}"
    return f"{milliseconds} ms"


def number(value: int | None) -> str:
    """Thousands apart by a thin space; a dash where there is none."""
    return "\N{EN DASH}" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def brief(value: int) -> str:
    """A round number in few characters, for an axis."""
    for unit, letter in _LETTERS:
        if value >= unit:
            return f"{value / unit:g}\N{NARROW NO-BREAK SPACE}{letter}"
    return str(value)


def size(size_bytes: int) -> str:
    """An amount of bytes in its largest fitting decimal unit."""
    for unit, letter in _LETTERS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f}\N{NARROW NO-BREAK SPACE}{letter}B"
    return f"{size_bytes}\N{NARROW NO-BREAK SPACE}B"


def rebalance_duration(row: dict[str, int | None]) -> str:
    """The whole of a rebalance where it is known, else that it took at least its sync phase."""
    if row["duration_ms"] is not None:
        return duration(row["duration_ms"])
    known = duration(row["sync_ms"])
    return known if row["sync_ms"] is None else f"\N{GREATER-THAN OR EQUAL TO} {known}"
