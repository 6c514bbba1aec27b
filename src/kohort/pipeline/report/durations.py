"""Durations of transactions per transactional id, as SVG: from the median to the longest, with the 95th percentile."""

from collections.abc import Sequence
from html import escape
from typing import Any

from kohort.pipeline.report.chart import round_up
from kohort.pipeline.report.formatting import duration

WIDTH = 720
IDS_MAX = 20
_ROW = 22
_LEFT, _RIGHT, _TOP, _BOTTOM = 190, 70, 6, 24
_NAME_LENGTH_MAX = 26


def duration_bars(rows: Sequence[dict[str, Any]]) -> str:
    """
    Args:
        rows: of `transaction_statistics`, the slowest first; those without a finished transaction are left out.
    """
    known = [row for row in rows if row["duration_max_ms"] is not None][:IDS_MAX]
    if not known:
        return ""
    top = round_up(max(row["duration_max_ms"] for row in known))
    height = _TOP + _ROW * len(known) + _BOTTOM

    def x(took_ms: int) -> float:
        return _LEFT + took_ms / top * (WIDTH - _RIGHT - _LEFT)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="How long transactions took, by transactional id">',
        f'<line class="grid" x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP}" y2="{height - _BOTTOM}"/>',
    ]
    for index, row in enumerate(known):
        y = _TOP + _ROW * index + _ROW / 2
        p50, p95, longest = (row[name] for name in ("duration_p50_ms", "duration_p95_ms", "duration_max_ms"))
        name = row["transactional_id"]
        name = name if len(name) <= _NAME_LENGTH_MAX else f"{name[: _NAME_LENGTH_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
        told = f"median {duration(p50)}, 95% within {duration(p95)}, longest {duration(longest)}"
        parts.append(
            f'<g><title>{escape(told)}</title><text class="name" x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">'
            f'{escape(name)}</text><line class="grid" x1="{_LEFT}" x2="{x(p50):.1f}" y1="{y}" y2="{y}"/>'
            f'<rect class="m0" x="{x(p50):.1f}" y="{y - 5}" width="{max(x(longest) - x(p50), 2):.1f}" height="10" rx="2"/>'
            f'<line class="mark" x1="{x(p95):.1f}" x2="{x(p95):.1f}" y1="{y - 8}" y2="{y + 8}"/>'
            f'<text class="tick" x="{x(longest) + 6:.1f}" y="{y + 4:.1f}">{duration(longest)}</text></g>'
        )
    for at, anchor in ((0, "start"), (top, "end")):
        parts.append(
            f'<text class="tick" x="{x(at):.1f}" y="{height - 6}" text-anchor="{anchor}">{duration(at)}</text>'
        )
    return "".join([*parts, "</svg>"])
