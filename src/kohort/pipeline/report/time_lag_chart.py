"""The time lag of a group as SVG: a sawtooth, which rises as time passes and falls with commits."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kohort.pipeline.report.axis import Mark
from kohort.pipeline.report.chart import LEFT, Axes, Path, picture
from kohort.pipeline.report.formatting import brief_duration, duration, instant

Row = dict[str, Any]

_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
_DECADES = ((1, 2), (2, 2), (5, 5), (10, 2), (20, 2), (50, 5), (100, 2), (200, 2), (500, 5))
_SIXTIES = ((1, 2), (2, 2), (5, 5), (10, 2), (20, 2), (30, 3))
_HOURS = ((1, 2), (2, 2), (3, 3), (4, 4), (6, 3), (12, 3))
_TOPS = [
    (top * unit_ms, 1 if top * unit_ms == 1 else parts)
    for unit_ms, tops in (
        (1, _DECADES),
        (_S, _SIXTIES),
        (_MIN, _SIXTIES),
        (_H, _HOURS),
        (_D, _DECADES),
        (1000 * _D, _DECADES),
    )
    for top, parts in tops
]
"""Round durations at which an axis may end, and the number of its equal parts, which are round as well."""

_TOOTH_MIN = 4.0
"""Narrower teeth (in units of the picture) would fill the chart: their tips are joined instead."""
_NOTE = '<p class="soft">Where commits lie close together, the line joins the longest waits, just before them.</p>'


@dataclass(frozen=True, slots=True)
class Corner:
    """
    An instant from which another record is the oldest that waits.

    Attributes:
        since_ms: when the record was produced; None if none waits. It may be later than `at_ms`: nothing waits until then.
        peak_ms: the time lag just before, if it is known to be greater than before and after.
    """

    at_ms: int
    since_ms: int | None
    peak_ms: int = 0

    def time_lag_ms(self, at_ms: int) -> int:
        """Return the time lag at a later instant, up to the next corner."""
        return 0 if self.since_ms is None else max(at_ms - self.since_ms, 0)


def has_waited(rows: Sequence[Row], *, until_ms: int) -> bool:
    """Tell whether a group had any time lag, from its rows of `time_lag_over_time`."""
    return any(row["time_lag_max_ms"] for row in rows) or any(one.time_lag_ms(until_ms) for one in corners(rows[-1:]))


def corners(rows: Sequence[Row]) -> list[Corner]:
    """
    Return the corners of the line through rows of `time_lag_over_time`.

    A row tells of an interval that ends there. If the line fell inside, the greatest time lag tells when: the line before
    reaches this value at one instant only.
    """
    found: list[Corner] = []
    for row in rows:
        at_ms, since_ms, peak_ms = row["timestamp_ms"], row["waiting_since_ms"], row["time_lag_max_ms"]
        if not found:
            found.append(Corner(at_ms, since_ms))
            continue
        before = found[-1]
        has_peak = peak_ms > row["time_lag_ms"]
        if before.since_ms is not None and (since_ms is None or since_ms > before.since_ms):
            fell_ms = before.since_ms + peak_ms
            found.append(Corner(min(max(fell_ms, before.at_ms), at_ms), since_ms, peak_ms if fell_ms > at_ms else 0))
        elif before.since_ms is None and since_ms is not None and not has_peak and since_ms >= before.at_ms:
            found[-1] = replace(before, since_ms=since_ms)
        elif since_ms != before.since_ms or has_peak:
            found.append(Corner(at_ms, since_ms, peak_ms if has_peak else 0))
    return found


def time_lag_chart(
    rows: Sequence[Row],
    *,
    label: str,
    until_ms: int,
    since_ms: int,
    left: int = LEFT,
    marks: Sequence[Mark] = (),
) -> str:
    """
    Return the chart, with a note if it needs one.

    Args:
        rows: of `time_lag_over_time` of one group, at least one.
        label: a description for screen readers.
        until_ms, since_ms: the end and the start of the time axis; after the last row the line goes on.
        left, marks: as for `lag_chart`.
    """
    turns = corners(rows)
    turns.append(Corner(max(until_ms, turns[-1].at_ms), turns[-1].since_ms))
    now_ms = turns[-1].time_lag_ms(turns[-1].at_ms)
    greatest = max(rows, key=lambda row: row["time_lag_max_ms"])
    most_ms, most_at_ms = max((greatest["time_lag_max_ms"], greatest["timestamp_ms"]), (now_ms, turns[-1].at_ms))
    top, parts = _round_up(most_ms)
    labels = [(top * part // parts, brief_duration(top * part // parts)) for part in range(parts + 1)]
    axes = Axes(min(since_ms, turns[0].at_ms), turns[-1].at_ms, top, labels, left)
    joined = _joined(turns, axes)
    drawn = picture(
        axes,
        _line(turns, axes, joined),
        begin_ms=turns[0].at_ms,
        described=f"{label}: {duration(now_ms)} at the end, at most {duration(most_ms)} at {instant(most_at_ms)}",
        told=f'data-kind="time" data-points="{_told(turns)}"',
        now=(now_ms, duration(now_ms)),
        marks=marks,
    )
    return drawn + (_NOTE if joined else "")


def _round_up(value: int) -> tuple[int, int]:
    """Return the smallest round duration not below `value`, and the number of its parts."""
    return next(((top, parts) for top, parts in _TOPS if top >= value), (value, 1))


def _line(turns: Sequence[Corner], axes: Axes, joined: Collection[int]) -> Path:
    path = Path(axes.x(turns[0].at_ms), axes.y(turns[0].time_lag_ms(turns[0].at_ms)))
    for at, (before, turn) in enumerate(pairwise(turns)):
        rises_ms = turn.at_ms if before.since_ms is None else before.since_ms
        if rises_ms > before.at_ms and at not in joined:
            path.to(axes.x(min(rises_ms, turn.at_ms)), axes.bottom)
        x, value_ms, after_ms = axes.x(turn.at_ms), before.time_lag_ms(turn.at_ms), turn.time_lag_ms(turn.at_ms)
        top_ms = max(value_ms, turn.peak_ms, after_ms)
        if at not in joined:
            path.to(x, axes.y(value_ms))
        path.to(x, axes.y(top_ms))
        if at + 1 not in joined:
            path.to(x, axes.y(after_ms))
    return path


def _joined(turns: Sequence[Corner], axes: Axes) -> set[int]:
    """Return the corners after which the line goes on to the next tip at once."""
    widths = (axes.x(turn.at_ms) - axes.x(before.at_ms) for before, turn in pairwise(turns))
    return {at for at, width in enumerate(widths) if at and width < _TOOTH_MIN}


def _told(turns: Sequence[Corner]) -> str:
    """
    Return the corners for the script of the page: milliseconds since the one before, the time lag (negative if the record comes
    later, nothing if none waits), and `peak_ms` if it is known. Differences are short, and the page has thousands of them.
    """
    told, before_ms = [f"{turns[0].at_ms}"], turns[0].at_ms
    for turn in turns:
        value = "" if turn.since_ms is None else turn.at_ms - turn.since_ms
        told.append(f"{turn.at_ms - before_ms}:{value}" + (f":{turn.peak_ms}" if turn.peak_ms else ""))
        before_ms = turn.at_ms
    return " ".join(told)
