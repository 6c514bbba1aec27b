"""Rebalances on a line per group, as SVG."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from kohort.pipeline.report.formatting import clock, instant, rebalance_duration
from kohort.pipeline.tables.groups.group_history import changed_at_ms, took_ms

WIDTH = 720
_ROW = 26
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 14, 8, 26
_NAME_LENGTH_MAX = 26


def timeline(rows: Sequence[dict[str, Any]]) -> str:
    """
    Args:
        rows: of the table of rebalances, at least one.
    """
    groups = most_changed(rows)
    first_ms = min(changed_at_ms(row) for row in rows)
    span_ms = max(max(changed_at_ms(row) for row in rows) - first_ms, 1)
    height = _TOP + _ROW * len(groups) + _BOTTOM
    lines = {group: _TOP + _ROW * index + _ROW / 2 for index, group in enumerate(groups)}
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Rebalances of {len(groups)} groups over time">'
    ]
    for group, y in lines.items():
        name = group if len(group) <= _NAME_LENGTH_MAX else f"{group[: _NAME_LENGTH_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
        parts.append(
            f'<text class="name" x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>'
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
    for row in rows:
        x = _LEFT + (changed_at_ms(row) - first_ms) / span_ms * (WIDTH - _RIGHT - _LEFT)
        parts.append(
            f'<circle class="event {row["event"]}" cx="{x:.1f}" cy="{lines[row["group"]]:.1f}" r="5">'
            f"<title>{escape(told(row))}</title></circle>"
        )
    for at_ms, anchor, x in (
        (first_ms, "start", _LEFT),
        (first_ms + span_ms, "end", WIDTH - _RIGHT),
    ):
        text = clock(at_ms, span_ms=span_ms)
        parts.append(f'<text class="tick" x="{x}" y="{height - 8}" text-anchor="{anchor}">{text}</text>')
    return "".join([*parts, "</svg>", _legend(rows)])


def most_changed(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the groups of rows of the table of rebalances, those with the most changes first."""
    counts = Counter(row["group"] for row in rows)
    return sorted(counts, key=lambda group: (-counts[group], group))


def _legend(rows: Sequence[dict[str, Any]]) -> str:
    told = (f'<span><i class="{event}"></i>{event}</span>' for event in sorted({row["event"] for row in rows}))
    return f'<p class="legend">{" ".join(told)}</p>'


def told(row: dict[str, Any]) -> str:
    """Describe a rebalance in a sentence."""
    generation = "" if row["generation"] is None else f", generation {row['generation']}"
    changes = [
        f"{word} {', '.join(member['client_id'] for member in row[word])}" for word in ("joined", "left") if row[word]
    ]
    took = "" if took_ms(row) is None else f", took {rebalance_duration(row)}"
    return f"{instant(changed_at_ms(row))} {row['event']}{generation}: {'; '.join(changes) or 'same members'}{took}"
