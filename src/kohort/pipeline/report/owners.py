"""
Owners of the partitions of a group over time, as SVG: a line for each partition, a bar for each interval of ownership.

Tasks have the names of Kafka Streams; copies of their state have lines of their own.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kohort.pipeline.report.formatting import clock, duration, instant
from kohort.pipeline.report.partition_names import place_stem

WIDTH = 720
LANES_MAX = 40
COLOURS = 8
_ROW, _BAR = 18, 11
LEFT = 190
"""Where the time axis begins."""
_LEFT, _RIGHT, _TOP, _BOTTOM = LEFT, 12, 8, 26
_NAME_LENGTH_MAX = 28

Lane = tuple[str, int, str, str]
"""A line: topic or subtopology, partition, role of a copy, and the member if the line belongs to one."""


def owners(
    stays: Sequence[dict[str, Any]],
    changes_ms: Sequence[int],
    *,
    until_ms: int,
    names: Mapping[str, str],
    since_ms: int | None = None,
) -> str:
    """
    Args:
        stays: rows of `assignments` of one group, at least one.
        changes_ms: times of rebalances, drawn as vertical lines.
        until_ms: the end of the time axis, unless all intervals ended before.
        since_ms: the start of the time axis; by default the first interval. With it the axis ends at `until_ms` in any case.
        names: names of members, by member id.
    """
    lanes = sorted({_lane(stay) for stay in stays})
    shown = {lane: _TOP + _ROW * index for index, lane in enumerate(lanes[:LANES_MAX])}
    colours = _colours(stays, names)
    first_ms = min(stay["since_ms"] for stay in stays)
    last_ms = max(until_ms if stay["until_ms"] is None else stay["until_ms"] for stay in stays)
    first_ms, until_ms = (first_ms, last_ms) if since_ms is None else (min(since_ms, first_ms), max(until_ms, last_ms))
    span_ms = max(until_ms - first_ms, 1)
    height = _TOP + _ROW * len(shown) + _BOTTOM

    def x(at_ms: int) -> float:
        share: float = min(max(at_ms - first_ms, 0), span_ms) / span_ms
        return _LEFT + share * (WIDTH - _RIGHT - _LEFT)

    bottom = _TOP + _ROW * len(shown)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Owners of {len(lanes)} partitions over time">'
    ]
    parts += [
        f'<line class="change" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        for at in sorted(set(changes_ms))
        if first_ms <= at <= until_ms
    ]
    parts += [_label(lane, y) for lane, y in shown.items()]
    for stay in stays:
        if _lane(stay) in shown:
            end_ms = until_ms if stay["until_ms"] is None else stay["until_ms"]
            left, width = x(stay["since_ms"]), max(x(end_ms) - x(stay["since_ms"]), 1.5)
            colour, y = colours[_name(stay["member_id"], names)], shown[_lane(stay)] + 3
            parts.append(
                f'<rect class="m{colour}" x="{left:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2">'
                f"<title>{escape(_told(stay, names, end_ms))}</title></rect>"
            )
    for at_ms, anchor, at in ((first_ms, "start", _LEFT), (first_ms + span_ms, "end", WIDTH - _RIGHT)):
        text = clock(at_ms, span_ms=span_ms)
        parts.append(f'<text class="tick" x="{at}" y="{height - 8}" text-anchor="{anchor}">{text}</text>')
    return "".join([*parts, "</svg>", _legend(stays, colours)])


def _lane(stay: dict[str, Any]) -> Lane:
    """Return the line of an interval. Share group partitions and copies of tasks have a line per member."""
    role = "" if stay["role"] in (None, "active") else stay["role"]
    member = stay["member_id"] if stay["group_type"] == "share" or role else ""
    return place_stem(stay), stay["partition"], role, member


def _colours(stays: Sequence[dict[str, Any]], names: Mapping[str, str]) -> dict[str, int]:
    """Assign a colour to each name, by first appearance; a static member keeps its colour under every member id."""
    found: dict[str, int] = {}
    for stay in sorted(stays, key=lambda stay: (stay["since_ms"], stay["member_id"])):
        found.setdefault(_name(stay["member_id"], names), len(found) % COLOURS)
    return found


def _name(member_id: str, names: Mapping[str, str]) -> str:
    return names.get(member_id, member_id)


def _label(lane: Lane, y: int) -> str:
    of, partition, role, _ = lane
    name = f"{of}{partition} {role}".rstrip()
    name = name if len(name) <= _NAME_LENGTH_MAX else f"\N{HORIZONTAL ELLIPSIS}{name[1 - _NAME_LENGTH_MAX :]}"
    middle = y + _ROW / 2
    return (
        f'<text class="name" x="{_LEFT - 12}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>'
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
    )


def _told(stay: dict[str, Any], names: Mapping[str, str], end_ms: int) -> str:
    until = "now" if stay["until_ms"] is None else instant(stay["until_ms"])
    held = duration(max(end_ms - stay["since_ms"], 0))
    return f"{_name(stay['member_id'], names)}: {instant(stay['since_ms'])} to {until}, {held}"


def _legend(stays: Sequence[dict[str, Any]], colours: dict[str, int]) -> str:
    lanes = len({_lane(stay) for stay in stays})
    left_out = "" if lanes <= LANES_MAX else f" The first {LANES_MAX} of {lanes} partitions."
    known = [
        f'<span><i class="m{colour}"></i>{escape(name)}</span>' for name, colour in list(colours.items())[:LANES_MAX]
    ]
    return f'<p class="legend">{" ".join(known)}{left_out}</p>'
