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


def lag_chart(points: Sequence[Point], *, label: str, until_ms: int = 0) -> str:
    """
    Args:
        points: at least one, by ascending time.
        label: a description for screen readers.
        until_ms: the end of the time axis; after the last event the lag is constant.
    """
    first_ms, last_ms = points[0].timestamp_ms, max(points[-1].timestamp_ms, until_ms)
    span_ms = max(last_ms - first_ms, 1)
    top = round_up(max(point.lag_max for point in points))
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def x(timestamp_ms: int) -> float:
        return _LEFT + (timestamp_ms - first_ms) / span_ms * (right - _LEFT)

    def y(lag: int) -> float:
        return bottom - lag / top * (bottom - _TOP)

    line = _steps([(x(point.timestamp_ms), y(point.lag_max), y(point.lag)) for point in points], right)
    area = f"{line}V{bottom}H{x(first_ms):.1f}Z"
    last = points[-1]
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
        *_grid(top, y),
        *_times(first_ms, last_ms, x),
        f'<path class="area" d="{area}"/>',
        f'<path class="line" d="{line}"/>',
        *(_spot(x(point.timestamp_ms), y(point.lag), point) for point in points),
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


def _grid(top: int, y: Scale) -> list[str]:
    return [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{brief(value)}</text>'
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


def _spot(x: float, y: float, point: Point) -> str:
    """Return an invisible shape with a tooltip."""
    tooltip = f"{instant(point.timestamp_ms)}: lag {number(point.lag)}"
    return f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{tooltip}</title></circle>'
