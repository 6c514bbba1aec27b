"""
Draw the curves of growth from the table of docs/benchmarks.md: `python tools/growth_chart.py` writes both files.

A panel is a dimension, a line a request: instructions of the processor over the size, both on logarithmic scales. A request
whose line rises by a tenth of the height of its panel costs some 1.5 times as much.
"""

import math
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from tools.speed_chart import FIGURES, IMAGES

HEAD = "| around it | sizes | request | thousands of instructions | largest step |"
THEMES = {
    "light": (
        ("#1f2328", "#d1d9e0"),
        ("#0969da", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#57606a", "#0a7f86"),
    ),
    "dark": (
        ("#e6edf3", "#3d444d"),
        ("#4493f8", "#f778ba", "#3fb950", "#d29922", "#a371f7", "#f85149", "#9198a1", "#39c5cf"),
    ),
}
"""Text and grid, and the requests in the order of their first row."""
_COLUMNS, _PANEL, _PLOT, _TOP, _HEIGHT = 4, 240, 180, 30, 230
_LOW, _HIGH = 8.0, 400.0
_LINES = (10, 30, 100, 300)


class Row(NamedTuple):
    """A row of the table: a request, with its cost at each size of a dimension."""

    dimension: str
    sizes: tuple[str, ...]
    request: str
    costs: tuple[float, ...]
    step: float


def rows_of(page: str) -> list[Row]:
    _, _, rest = page.partition(f"{HEAD}\n")
    found = []
    for line in rest.split("\n\n")[0].splitlines()[1:]:
        dimension, sizes, request, costs, step = (cell.strip() for cell in line.strip("|").split("|"))
        known = tuple(float(cost) for cost in costs.split(" / "))
        found.append(Row(dimension, tuple(sizes.split(" / ")), request, known, float(step)))
    return found


def chart(page: str, theme: str) -> str:
    """The SVG."""
    (text, grid), palette = THEMES[theme]
    rows = rows_of(page)
    colours = dict(zip(dict.fromkeys(row.request for row in rows), palette, strict=True))
    dimensions = list(dict.fromkeys(row.dimension for row in rows))
    height = _HEIGHT * -(-(len(dimensions) + 1) // _COLUMNS)
    told = "; ".join(f"{row.request}, {row.dimension} {', '.join(row.sizes)}: {row.costs}" for row in rows)
    font = f'aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="12" fill="{text}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_PANEL * _COLUMNS} {height}" role="img" {font}>',
        '<title id="t">Instructions of the processor for a request, in thousands, as what is around it grows</title>',
        f'<desc id="d">{escape(told)}</desc>',
    ]
    for number, dimension in enumerate(dimensions):
        of_panel = [row for row in rows if row.dimension == dimension]
        lines += _panel(number, of_panel, colours, grid)
    lines += _legend(len(dimensions), colours)
    return "\n".join([*lines, "</svg>", ""])


def _place(number: int) -> tuple[int, int]:
    return number % _COLUMNS * _PANEL, number // _COLUMNS * _HEIGHT


def _panel(number: int, rows: list[Row], colours: dict[str, str], grid: str) -> Iterator[str]:
    left, top = _place(number)
    x0, y0 = left + 34, top + _TOP + 140
    yield f'<text x="{x0}" y="{top + 16}" font-weight="600">{escape(rows[0].dimension)}</text>'
    for value in _LINES:
        y = _y(y0, value)
        yield f'<path d="M{x0} {y}H{x0 + _PLOT}" stroke="{grid}"/>'
        yield f'<text x="{x0 - 6}" y="{y + 4}" text-anchor="end">{value}</text>'
    xs = [x0 + 10 + index * (_PLOT - 20) // (len(rows[0].sizes) - 1) for index in range(len(rows[0].sizes))]
    for x, size in zip(xs, rows[0].sizes, strict=True):
        yield f'<text x="{x}" y="{y0 + 18}" text-anchor="middle">{size}</text>'
    for row in rows:
        points = [f"{x},{_y(y0, cost)}" for x, cost in zip(xs, row.costs, strict=True)]
        colour = colours[row.request]
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for point in points:
            x_of, y_of = point.split(",")
            yield f'<circle cx="{x_of}" cy="{y_of}" r="3" fill="{colour}"/>'


def _y(y0: int, cost: float) -> int:
    return round(y0 - 140 * math.log(cost / _LOW) / math.log(_HIGH / _LOW))


def _legend(number: int, colours: dict[str, str]) -> Iterator[str]:
    left, top = _place(number)
    for index, (request, colour) in enumerate(colours.items()):
        y = top + _TOP + 6 + index * 19
        yield f'<path d="M{left + 34} {y}h18" stroke="{colour}" stroke-width="3"/>'
        yield f'<text x="{left + 60}" y="{y + 4}">{escape(request)}</text>'


def main() -> None:
    page = FIGURES.read_text()
    for theme in THEMES:
        (IMAGES / f"growth-{theme}.svg").write_text(chart(page, theme))


if __name__ == "__main__":
    main()
