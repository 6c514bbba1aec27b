"""A lag curve as SVG, in steps: the lag is constant between two events."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from kohort.pipeline.report.formatting import brief, clock, instant, number

Scale: TypeAlias = Callable[[int], float]

WIDTH = 720
HEIGHT = 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 26, 26
_TIME_LABELS_MAX = 4


@dataclass(frozen=True, slots=True)
class Point:
    """The lag after an event (or an interval), and the greatest lag in the interval."""

    timestamp_ms: int
    lag: int
    lag_max: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at an instant, with its text."""

    at_ms: int
    text: str


def lag_chart(
    points: Sequence[Point],
    *,
    label: str,
    until_ms: int = 0,
    since_ms: int | None = None,
    left: int = _LEFT,
    marks: Sequence[Mark] = (),
) -> str:
    """
    Args:
        points: at least one, by ascending time.
        label: a description for screen readers.
        until_ms: the end of the time axis; after the last event the lag is constant.
        since_ms: the start of the time axis; by default the first point.
        left: where the time axis begins, in units of the picture. Charts with the same axis lie below each other.
        marks: rebalances.
    """
    first_ms, last_ms = points[0].timestamp_ms, max(points[-1].timestamp_ms, until_ms)
    first_ms = first_ms if since_ms is None else min(since_ms, first_ms)
    span_ms = max(last_ms - first_ms, 1)
    top = round_up(max(point.lag_max for point in points))
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def x(timestamp_ms: int) -> float:
        return left + (timestamp_ms - first_ms) / span_ms * (right - left)

    def y(lag: int) -> float:
        return bottom - lag / top * (bottom - _TOP)

    line = _steps([(x(point.timestamp_ms), y(point.lag_max), y(point.lag)) for point in points], right)
    area = f"{line}V{bottom}H{x(points[0].timestamp_ms):.1f}Z"
    last = points[-1]
    axis = f"{first_ms} {first_ms + span_ms} {left} {right} {top} {_TOP} {bottom}"
    described = escape(_described(label, points))
    told = f'data-axis="{axis}" data-points="{_told(points)}"'
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{described}" {told}>',
        *_grid(top, y, left),
        *(_mark(x(one.at_ms), bottom, one) for one in marks if first_ms <= one.at_ms <= last_ms),
        *_times(first_ms, last_ms, x),
        f'<path class="area" d="{area}"/>',
        f'<path class="line" d="{line}"/>',
        f'<text class="now" x="{right:.1f}" y="{y(last.lag) - 6:.1f}" text-anchor="end">{number(last.lag)}</text>',
        "</svg>",
    ]
    return "".join(parts)


def round_up(value: int) -> int:
    """Return the smallest round number (1, 2 or 5 times a power of ten) not below `value`, at least 1."""
    if value <= 1:
        return 1
    power = int(10 ** math.floor(math.log10(value)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _steps(corners: list[tuple[float, float, float]], right: float) -> str:
    x0, _, y0 = corners[0]
    path = [f"M{x0:.1f} {y0:.1f}"]
    for x, peak, y in corners[1:]:
        path.append(f"H{x:.1f}V{peak:.1f}V{y:.1f}")
    path.append(f"H{right:.1f}")
    return "".join(path)


def ticks(top: int) -> list[int]:
    """Return round, equidistant values from zero to `top` (a result of `round_up`), in one, two or five steps."""
    leading = int(str(top)[0])
    parts = {1: 1 if top == 1 else 2, 2: 2}.get(leading, 5)
    return [top * part // parts for part in range(parts + 1)]


def _grid(top: int, y: Scale, left: int) -> list[str]:
    return [
        f'<line class="grid" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text class="tick" x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{brief(value)}</text>'
        for value in ticks(top)
    ]


def _times(first_ms: int, last_ms: int, x: Scale) -> list[str]:
    """Return the labels of the time axis; a span of a few milliseconds has one label per millisecond."""
    span_ms = last_ms - first_ms
    last = min(_TIME_LABELS_MAX - 1, span_ms)
    labels = []
    for step in range(last + 1):
        at_ms = first_ms + (span_ms * step // last if last else 0)
        anchor, middle = "middle", " middle"
        if step in (0, last):
            anchor, middle = ("start" if step == 0 else "end"), ""
        labels.append(
            f'<text class="tick{middle}" x="{x(at_ms):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">'
            f"{clock(at_ms, span_ms=span_ms)}</text>"
        )
    return labels


def _mark(x: float, bottom: int, mark: Mark) -> str:
    """Return a line with a tooltip, and a wide invisible one over it that is easier to hit."""
    return (
        f'<g class="rebalance"><title>{escape(mark.text)}</title><line class="change" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}"'
        f' y2="{bottom}"/><line class="hit" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/></g>'
    )


def _told(points: Sequence[Point]) -> str:
    """Return the points for the script of the page: milliseconds since the first one, lag, greatest lag."""
    base = points[0].timestamp_ms
    return f"{base} " + " ".join(f"{point.timestamp_ms - base}:{point.lag}:{point.lag_max}" for point in points)


def _described(label: str, points: Sequence[Point]) -> str:
    peak = max(points, key=lambda point: point.lag_max)
    return (
        f"{label}: {number(points[-1].lag)} records at the end, at most {number(peak.lag_max)} at"
        f" {instant(peak.timestamp_ms)}"
    )
