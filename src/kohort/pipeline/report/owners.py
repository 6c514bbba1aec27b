"""
Owners of the partitions of a group over time, as SVG: a line for each partition, a bar for each interval of ownership.

Tasks have the names of Kafka Streams; copies of their state have lines of their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from kohort.pipeline.report.axis import Mark, Scale, mark_lines, time_axis
from kohort.pipeline.report.formatting import duration, instant, place_stem

Row = dict[str, Any]

WIDTH = 720
LANES_MAX = 40
COLOURS = 8
BARS_MAX = 4000
"""Of a group whose partitions change owners all the time, bars that lie close together become one."""
LEFT_MIN, LEFT_MAX = 56, 150
"""The begin of the time axis: after the labels of the lines. All charts of a group begin there."""
_ROW, _BAR, _TITLE = 18, 11, 20
_RIGHT, _TOP, _BOTTOM = 12, 8, 26
_CHARACTER = 6.4
"""The width of a character of a label."""
_LABEL_LENGTH_MAX = 20
_LEGEND_MAX = 24


class Lane(NamedTuple):
    """A line: topic or subtopology, partition, role of a copy, and the member if the line belongs to one."""

    stem: str
    partition: int
    role: str
    member: str

    @property
    def title(self) -> str:
        """The title of the lines of a topic; the labels of tasks need none."""
        return "" if self.stem.endswith("_") else self.stem.removesuffix("-")

    @property
    def label(self) -> str:
        name = f"{'' if self.title else self.stem}{self.partition} {self.role}".rstrip()
        return name if len(name) <= _LABEL_LENGTH_MAX else f"\N{HORIZONTAL ELLIPSIS}{name[1 - _LABEL_LENGTH_MAX :]}"


class Bar(NamedTuple):
    """A bar of a line: a stay, or several short ones that lie close together."""

    left: float
    right: float
    stays: list[Row]


def owners(
    stays: Sequence[Row],
    changes: Iterable[Mark],
    *,
    until_ms: int,
    names: Mapping[str, str],
    since_ms: int | None = None,
    weights: Mapping[tuple[str | None, int], Any] | None = None,
) -> str:
    """
    Args:
        stays: rows of `assignments` of one group, at least one.
        changes: rebalances, drawn as vertical lines.
        until_ms: the end of the time axis, unless an interval ended later.
        since_ms: the start of the time axis; by default the first interval.
        names: names of members, by member id.
        weights: how bad a partition is. If not all can be shown, the worst ones are.
    """
    lanes = sorted({_lane(stay) for stay in stays})
    shown = _worst(stays, lanes, weights or {})
    first_ms = min(stay["since_ms"] for stay in stays)
    first_ms = first_ms if since_ms is None else min(since_ms, first_ms)
    last_ms = max(until_ms, *(stay["until_ms"] or 0 for stay in stays))
    span_ms, left = max(last_ms - first_ms, 1), label_width(stays)

    def x(at_ms: int) -> float:
        share: float = min(max(at_ms - first_ms, 0), span_ms) / span_ms
        return left + share * (WIDTH - _RIGHT - left)

    rows, titles, bottom = _placed(shown)
    height = bottom + _BOTTOM
    colours = _colours(stays, names)
    label = f"Owners of {len(lanes)} partitions over time"
    parts = [
        f'<svg class="lanes" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">',
        *time_axis(first_ms, last_ms, x, top=_TOP, bottom=bottom),
        *titles,
        *(_label(lane, y, left) for lane, y in rows.items()),
    ]
    by_lane: dict[Lane, list[Row]] = {lane: [] for lane in shown}
    for stay in stays:
        if (lane := _lane(stay)) in by_lane:
            by_lane[lane].append(stay)
    close = (WIDTH - left) * len(shown) / BARS_MAX if sum(map(len, by_lane.values())) > BARS_MAX else 0
    for lane, theirs in by_lane.items():
        parts += (_bar(bar, rows[lane] + 3, colours, names, last_ms) for bar in _bars(theirs, x, last_ms, close))
    parts += mark_lines((one for one in changes if first_ms <= one.at_ms <= last_ms), x, top=_TOP, bottom=bottom)
    return "".join([*parts, "</svg>", _legend(len(lanes), colours)])


def label_width(stays: Sequence[Row]) -> int:
    """Return where the time axis begins, after the labels of the lines."""
    longest = max((len(_lane(stay).label) for stay in stays), default=0)
    return round(min(max(longest * _CHARACTER + 20, LEFT_MIN), LEFT_MAX))


def _worst(stays: Sequence[Row], lanes: Sequence[Lane], weights: Mapping[tuple[str | None, int], Any]) -> list[Lane]:
    """Return the lines that are shown, in the order of their names: the worst ones, then those with the most intervals."""
    if len(lanes) <= LANES_MAX:
        return list(lanes)
    count = Counter(map(_lane, stays))
    worst = {_lane(stay): weights.get((stay["topic"], stay["partition"]), 0) for stay in stays}
    return sorted(sorted(lanes, key=lambda lane: (-worst[lane], -count[lane], lane))[:LANES_MAX])


def _placed(lanes: Sequence[Lane]) -> tuple[dict[Lane, int], list[str], int]:
    """Return the position of each line, the titles of topics, and the end of all."""
    rows, titles, y = {}, [], _TOP
    for title, some in groupby(lanes, key=lambda lane: lane.title):
        if title:
            titles.append(f'<text class="name topic" x="8" y="{y + 14}">{escape(title)}</text>')
            y += _TITLE
        for lane in some:
            rows[lane] = y
            y += _ROW
    return rows, titles, y


def _bars(stays: Sequence[Row], x: Scale, last_ms: int, close: float) -> Iterator[Bar]:
    """Yield the bars of a line. Stays that are shorter than `close`, and begin less than that apart, share a bar."""
    short: list[Row] = []
    for stay in sorted(stays, key=lambda stay: stay["since_ms"]):
        left, right = x(stay["since_ms"]), x(_end(stay, last_ms))
        if short and (right - left >= close or left - x(short[0]["since_ms"]) >= close):
            yield _merged(short, x, last_ms)
            short = []
        if right - left < close:
            short.append(stay)
        else:
            yield Bar(left, right, [stay])
    if short:
        yield _merged(short, x, last_ms)


def _merged(stays: list[Row], x: Scale, last_ms: int) -> Bar:
    return Bar(x(stays[0]["since_ms"]), max(x(_end(stay, last_ms)) for stay in stays), stays)


def _end(stay: Row, last_ms: int) -> int:
    return last_ms if stay["until_ms"] is None else int(stay["until_ms"])


def _bar(bar: Bar, y: int, colours: Mapping[str, int], names: Mapping[str, str], last_ms: int) -> str:
    first = bar.stays[0]
    if len(bar.stays) == 1:
        kind, text = f"m{colours[_name(first['member_id'], names)]}", _told(first, names, last_ms)
    else:
        last = max(_end(stay, last_ms) for stay in bar.stays)
        count = len({_name(stay["member_id"], names) for stay in bar.stays})
        kind = "mixed"
        text = f"{len(bar.stays)} intervals of {count} owners, {instant(first['since_ms'])} to {instant(last)}"
    width = max(bar.right - bar.left, 1.5)
    return (
        f'<rect class="{kind}" x="{bar.left:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2">'
        f"<title>{escape(text)}</title></rect>"
    )


def _lane(stay: Row) -> Lane:
    """Return the line of an interval. Share group partitions and copies of tasks have a line per member."""
    role = "" if stay["role"] in (None, "active") else stay["role"]
    member = stay["member_id"] if stay["group_type"] == "share" or role else ""
    return Lane(place_stem(stay), stay["partition"], role, member)


def _colours(stays: Sequence[Row], names: Mapping[str, str]) -> dict[str, int]:
    """Assign a colour to each name, by first appearance; a static member keeps its colour under every member id."""
    found: dict[str, int] = {}
    for stay in sorted(stays, key=lambda stay: (stay["since_ms"], stay["member_id"])):
        found.setdefault(_name(stay["member_id"], names), len(found) % COLOURS)
    return found


def _name(member_id: str, names: Mapping[str, str]) -> str:
    return names.get(member_id, member_id)


def _label(lane: Lane, y: int, left: int) -> str:
    middle = y + _ROW / 2
    return (
        f'<text class="name" x="{left - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(lane.label)}</text>'
        f'<line class="grid" x1="{left}" x2="{WIDTH - _RIGHT}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
    )


def _told(stay: Row, names: Mapping[str, str], last_ms: int) -> str:
    until = "now" if stay["until_ms"] is None else instant(stay["until_ms"])
    held = duration(max(_end(stay, last_ms) - stay["since_ms"], 0))
    return f"{_name(stay['member_id'], names)}: {instant(stay['since_ms'])} to {until}, {held}"


def _legend(lanes: int, colours: Mapping[str, int]) -> str:
    known = [
        f'<span><i class="m{colour}"></i><bdi>{escape(name)}</bdi></span>'
        for name, colour in list(colours.items())[:_LEGEND_MAX]
    ]
    if len(colours) > _LEGEND_MAX:
        known.append(f"<span>and {len(colours) - _LEGEND_MAX} more</span>")
    left_out = "" if lanes <= LANES_MAX else f'<p class="soft">The worst {LANES_MAX} of {lanes} partitions.</p>'
    return f'<p class="legend">{" ".join(known)}</p>{left_out}'
