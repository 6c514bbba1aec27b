"""A lag curve as SVG, in steps: the lag is constant between two events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import ClassVar

from kohort.pipeline.report.axis import Mark, mark_lines, time_axis
from kohort.pipeline.report.formatting import brief, instant, number

WIDTH = 720
HEIGHT = 170
LEFT = 56
_RIGHT, _TOP, _BOTTOM = 12, 26, 26


@dataclass(frozen=True, slots=True)
class Point:
    """The lag after an event (or an interval), and the greatest lag in the interval."""

    timestamp_ms: int
    lag: int
    lag_max: int


@dataclass(frozen=True, slots=True)
class Axes:
    """
    The axes of a chart.

    Attributes:
        first_ms, last_ms: the begin and the end of the time axis.
        top: the greatest value.
        labels: of values, with their texts.
        left: where the time axis begins, in units of the picture. Charts with the same axis lie below each other.
    """

    first_ms: int
    last_ms: int
    top: int
    labels: Sequence[tuple[int, str]]
    left: int = LEFT

    right: ClassVar[int] = WIDTH - _RIGHT
    bottom: ClassVar[int] = HEIGHT - _BOTTOM

    def x(self, at_ms: int) -> float:
        span_ms = max(self.last_ms - self.first_ms, 1)
        return self.left + (at_ms - self.first_ms) / span_ms * (self.right - self.left)

    def y(self, value: int) -> float:
        return self.bottom - value / self.top * (self.bottom - _TOP)


class Path:
    """
    A path of SVG in relative steps, which are short: a page has hundreds of thousands of them. Places are rounded to tenths.
    """

    def __init__(self, x: float, y: float) -> None:
        self._x, self._y = round(x * 10), round(y * 10)
        self._steps = [f"M{_tenths(self._x)} {_tenths(self._y)}"]

    def to(self, x: float, y: float) -> None:
        """Draw a line."""
        at_x, at_y = round(x * 10), round(y * 10)
        right, down = _tenths(at_x - self._x), _tenths(at_y - self._y)
        if at_x != self._x and at_y != self._y:
            self._steps.append(f"l{right} {down}")
        elif at_x != self._x:
            self._steps.append(f"h{right}")
        elif at_y != self._y:
            self._steps.append(f"v{down}")
        self._x, self._y = at_x, at_y

    def __str__(self) -> str:
        return "".join(self._steps)


def _tenths(number: int) -> str:
    return str(number // 10) if number % 10 == 0 else f"{number / 10}"


def lag_chart(
    points: Sequence[Point],
    *,
    label: str,
    until_ms: int = 0,
    since_ms: int | None = None,
    left: int = LEFT,
    marks: Sequence[Mark] = (),
) -> str:
    """
    Args:
        points: at least one, by ascending time.
        label: a description for screen readers.
        until_ms: the end of the time axis; after the last event the lag is constant.
        since_ms: the start of the time axis; by default the first point.
        left: as for `Axes`.
        marks: rebalances.
    """
    first_ms, last_ms = points[0].timestamp_ms, max(points[-1].timestamp_ms, until_ms)
    first_ms = first_ms if since_ms is None else min(since_ms, first_ms)
    top = round_up(max(point.lag_max for point in points))
    axes = Axes(first_ms, last_ms, top, [(value, brief(value)) for value in ticks(top)], left)
    last = points[-1]
    return picture(
        axes,
        _steps(points, axes),
        begin_ms=points[0].timestamp_ms,
        described=_described(label, points),
        told=f'data-points="{_told(points)}"',
        now=(last.lag, number(last.lag)),
        marks=marks,
    )


def picture(
    axes: Axes,
    line: Path,
    *,
    begin_ms: int,
    described: str,
    told: str,
    now: tuple[int, str],
    marks: Sequence[Mark],
) -> str:
    """
    Return a chart.

    Args:
        line: the curve, which ends at the right.
        begin_ms: where the curve begins.
        described: a description for screen readers.
        told: attributes for the script of the page.
        now: the last value, and its text.
    """
    span_ms = max(axes.last_ms - axes.first_ms, 1)
    axis = f"{axes.first_ms} {axes.first_ms + span_ms} {axes.left} {axes.right} {axes.top} {_TOP} {axes.bottom}"
    area = f"{line}V{axes.bottom}H{axes.x(begin_ms):.1f}Z"
    value, text = now
    label = f'role="img" aria-label="{escape(described)}"'
    within = (one for one in marks if axes.first_ms <= one.at_ms <= axes.last_ms)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" {label} data-axis="{axis}" {told}>',
        *_grid(axes),
        *time_axis(axes.first_ms, axes.last_ms, axes.x, top=_TOP, bottom=axes.bottom),
        f'<path class="area" d="{area}"/>',
        f'<path class="line" d="{line}"/>',
        *mark_lines(within, axes.x, top=_TOP, bottom=axes.bottom),
        f'<text class="now" x="{axes.right:.1f}" y="{axes.y(value) - 6:.1f}" text-anchor="end">{text}</text>',
        "</svg>",
    ]
    return "".join(parts)


def round_up(value: int) -> int:
    """Return the smallest round number (1, 2 or 5 times a power of ten) not below `value`, at least 1."""
    if value <= 1:
        return 1
    power = int(10 ** math.floor(math.log10(value)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _steps(points: Sequence[Point], axes: Axes) -> Path:
    path = Path(axes.x(points[0].timestamp_ms), axes.y(points[0].lag))
    for before, point in pairwise(points):
        x = axes.x(point.timestamp_ms)
        for lag in (before.lag, point.lag_max, point.lag):
            path.to(x, axes.y(lag))
    path.to(axes.right, axes.y(points[-1].lag))
    return path


def ticks(top: int) -> list[int]:
    """Return round, equidistant values from zero to `top` (a result of `round_up`), in one, two or five steps."""
    leading = int(str(top)[0])
    parts = {1: 1 if top == 1 else 2, 2: 2}.get(leading, 5)
    return [top * part // parts for part in range(parts + 1)]


def _grid(axes: Axes) -> list[str]:
    return [
        f'<line class="grid" x1="{axes.left}" x2="{axes.right}" y1="{axes.y(value):.1f}" y2="{axes.y(value):.1f}"/>'
        f'<text class="tick" x="{axes.left - 6}" y="{axes.y(value) + 4:.1f}" text-anchor="end">{text}</text>'
        for value, text in axes.labels
    ]


def _told(points: Sequence[Point]) -> str:
    """
    Return the points for the script of the page: milliseconds since the one before, lag, and the greatest lag if it is another
    one. Differences are short, and the page has thousands of them.
    """
    told, before_ms = [f"{points[0].timestamp_ms}"], points[0].timestamp_ms
    for point in points:
        greatest = f":{point.lag_max}" if point.lag_max != point.lag else ""
        told.append(f"{point.timestamp_ms - before_ms}:{point.lag}{greatest}")
        before_ms = point.timestamp_ms
    return " ".join(told)


def _described(label: str, points: Sequence[Point]) -> str:
    peak = max(points, key=lambda point: point.lag_max)
    return (
        f"{label}: {number(points[-1].lag)} records at the end, at most {number(peak.lag_max)} at"
        f" {instant(peak.timestamp_ms)}"
    )
