"""The time axis of charts: round instants, labels, and marks that fall together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TypeAlias

from kohort.pipeline.report.formatting import instant

Scale: TypeAlias = Callable[[int], float]

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(step * power for power in (1, 10, 100) for step in (1, 2, 5)),
    *(step * _SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * _MINUTE for step in (1, 2, 5, 10, 15, 30)),
    *(step * _HOUR for step in (1, 2, 3, 6, 12)),
    *(step * _DAY for step in (1, 2, 7, 14, 28, 91, 182, 364)),
)
TICKS_MAX = 6
_LABEL = 60
"""The place of a label, in units of the picture: one that is centred closer to the border would be cut on a narrow screen."""
_TEXTS_MAX = 6
"""Marks that a merged mark names one by one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at an instant, with its text."""

    at_ms: int
    text: str


def round_times(first_ms: int, last_ms: int) -> list[int]:
    """Return round instants (multiples of a second, a minute, a day and so on) of a span, at most `TICKS_MAX`, at least one."""
    span_ms = last_ms - first_ms
    step = next((step for step in _STEPS_MS if span_ms // step < TICKS_MAX), -(-span_ms // (TICKS_MAX - 1)))
    found = list(range(-(-first_ms // step) * step, last_ms + 1, step))
    return found or [first_ms]


def time_labels(times: Sequence[int]) -> list[str]:
    """Return a label for each instant, as precise as their distance needs. The first of each day has its date."""
    step = min((after - before for before, after in pairwise(times)), default=1)
    end = 23 if step % _SECOND else 19 if step % _MINUTE else 16
    labels, day = [], ""
    for at_ms in times:
        text = instant(at_ms)
        date, time = text[:10], text[11:end]
        labels.append(date if step >= _DAY else time if date == day else f"{date[5:]} {time}")
        day = date
    return labels


def time_axis(first_ms: int, last_ms: int, x: Scale, *, top: float, bottom: float) -> Iterator[str]:
    """
    Yield the vertical lines and the labels of an axis. Narrow screens hide the labels of class `other`.

    Args:
        bottom: of the chart; the labels are below.
    """
    right = x(last_ms)
    times = round_times(first_ms, last_ms)
    for index, (at_ms, label) in enumerate(zip(times, time_labels(times), strict=True)):
        at = x(at_ms)
        anchor = "start" if at < _LABEL else "end" if at > right + 12 - _LABEL else "middle"
        kind = "tick other" if index % 2 else "tick"
        yield (
            f'<path class="time" d="M{at:.1f} {top:g}V{bottom:g}"/>'
            f'<text class="{kind}" x="{at:.1f}" y="{bottom + 18:g}" text-anchor="{anchor}">{label}</text>'
        )


def merged(marks: Iterable[Mark], x: Scale, *, width: float) -> list[tuple[float, float, str]]:
    """
    Return marks as start, end and text; marks that are less than `width` apart become one, so that a chart of thousands of
    rebalances stays small and readable.
    """
    clusters: list[list[Mark]] = []
    for one in sorted(marks, key=lambda one: one.at_ms):
        if clusters and x(one.at_ms) - x(clusters[-1][0].at_ms) < width:
            clusters[-1].append(one)
        else:
            clusters.append([one])
    return [(x(some[0].at_ms), x(some[-1].at_ms), _text([one.text for one in some])) for some in clusters]


def mark_lines(marks: Iterable[Mark], x: Scale, *, top: float, bottom: float, width: float = 4) -> Iterator[str]:
    """Yield a dashed line with a tooltip for each mark, and a wide invisible line over it that is easier to hit."""
    for at, until, text in merged(marks, x, width=width):
        middle = (at + until) / 2
        kind = "change" if at == until else "change many"
        place = f'x1="{middle:.1f}" x2="{middle:.1f}" y1="{top:g}" y2="{bottom:g}"'
        yield (
            f'<g class="rebalance"><title>{escape(text)}</title><line class="{kind}" {place}/>'
            f'<line class="hit" {place}/></g>'
        )


def _text(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    more = [f"and {len(texts) - _TEXTS_MAX} more"] if len(texts) > _TEXTS_MAX else []
    return "\n".join([f"{len(texts)} changes:", *texts[:_TEXTS_MAX], *more])
