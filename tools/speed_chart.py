"""
Draw the chart of README from the measured figures of docs/benchmarks.md: `python tools/speed_chart.py` writes both files.

A bar is as long as its share of the largest figure of its row, since rows have different units. The figures are the labels.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
ROWS = {
    "heartbeats, 64 connections": "heartbeats a second, 64 connections",
    "commits flushed, 1 / 8 / 64 connections": "flushed commits a second, 64 connections",
    "transactions of one record with confluent-kafka, 1 / 8 / 32 producers, flushed": (
        "flushed transactions a second, 32 producers"
    ),
    "first answer after start; resident idle": "first answer after start (shorter is better)",
    "start after `kill -9` with 1 GB unflushed": "start after kill -9 with 1 GB unflushed",
}
"""The rows of the table that are drawn, with their titles."""
SERVERS = ("Kohort", "Apache Kafka 4.4.0", "kfake")
THEMES = {
    "light": ("#1f2328", ("#0969da", "#8c959f", "#bf8700")),
    "dark": ("#e6edf3", ("#4493f8", "#7d8590", "#d29922")),
}
"""Text, and the bars of the servers."""
_WIDTH, _BARS, _BAR, _ROW, _TOP = 760, 520, 13, 72, 34
_FIGURE = re.compile(r"([\d,]+(?:\.\d+)?)( ?\w+)?$")


class Row(NamedTuple):
    """A row of the chart: the figures as texts, and their shares of the largest one."""

    title: str
    figures: tuple[str, ...]
    shares: tuple[float, ...]


def table(page: str) -> dict[str, list[str]]:
    """The cells of the table of figures, by the first one."""
    _, _, rest = page.partition(f"| | {' | '.join(SERVERS)} |\n")
    lines = rest.split("\n\n")[0].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows}


def rows_of(page: str) -> list[Row]:
    known = table(page)
    found = []
    for name, title in ROWS.items():
        figures = tuple(cell.split(";")[0].split("/")[-1].strip() for cell in known[name])
        values = [_value(figure) for figure in figures]
        found.append(Row(title, figures, tuple(value / max(values) for value in values)))
    return found


def _value(figure: str) -> float:
    match = _FIGURE.match(figure)
    if match is None:
        raise ValueError(f"{figure!r} is no figure")
    return float(match[1].replace(",", "")) * (0.001 if (match[2] or "").strip() == "ms" else 1)


def chart(page: str, theme: str) -> str:
    """The SVG."""
    text, colours = THEMES[theme]
    rows = rows_of(page)
    height = _TOP + _ROW * len(rows)
    told = "; ".join(
        f"{row.title}: " + ", ".join(map(" ".join, zip(SERVERS, row.figures, strict=True))) for row in rows
    )
    font = f'font-family="system-ui, sans-serif" font-size="13" fill="{text}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t d" {font}>',
        f'<title id="t">Speed of {escape(", ".join(SERVERS))}</title>',
        f'<desc id="d">{escape(told)}</desc>',
        *_legend(colours),
    ]
    for index, row in enumerate(rows):
        top = _TOP + index * _ROW
        lines.append(f'<text x="0" y="{top + 12}" font-weight="600">{escape(row.title)}</text>')
        for number, (figure, share, colour) in enumerate(zip(row.figures, row.shares, colours, strict=True)):
            y, length = top + 19 + number * (_BAR + 2), max(2, round(_BARS * share))
            lines.append(f'<rect x="0" y="{y}" width="{length}" height="{_BAR}" rx="2" fill="{colour}"/>')
            lines.append(f'<text x="{length + 8}" y="{y + 11}">{escape(figure)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _legend(colours: tuple[str, ...]) -> Iterator[str]:
    x = 0
    for server, colour in zip(SERVERS, colours, strict=True):
        yield f'<rect x="{x}" y="2" width="13" height="13" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 19}" y="13">{escape(server)}</text>'
        x += 40 + 8 * len(server)


def main() -> None:
    page = FIGURES.read_text()
    for theme in THEMES:
        (IMAGES / f"speed-{theme}.svg").write_text(chart(page, theme))


if __name__ == "__main__":
    main()
