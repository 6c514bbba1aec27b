"""The charts of README are those of the figures in docs/benchmarks.md, and so are its five rows."""

import re
from xml.etree import ElementTree as ET

import pytest

from tools import speed_chart

PAGE = speed_chart.FIGURES.read_text()
README = (speed_chart.ROOT / "README.md").read_text()


@pytest.mark.parametrize("theme", speed_chart.THEMES)
def test_the_chart_is_that_of_the_figures(theme: str) -> None:
    drawn = (speed_chart.IMAGES / f"speed-{theme}.svg").read_text()
    assert drawn == speed_chart.chart(PAGE, theme), "run: python tools/speed_chart.py"
    assert len(ET.fromstring(drawn).findall("{*}rect")) == 3 * (1 + len(speed_chart.ROWS))


def test_a_row_of_known_figures() -> None:
    page = re.sub(r"(\| heartbeats, 64 connections \|) [\d,]+ \| [\d,]+ \|", r"\1 1 | 100,000 |", PAGE)
    heartbeats, commits, _, start, _ = speed_chart.rows_of(page)
    assert heartbeats.figures[:2] == ("1", "100,000")
    assert heartbeats.shares[:2] == (0.00001, 1.0)
    assert commits.figures[0] == speed_chart.table(page)["commits flushed, 1 / 8 / 64 connections"][0].split(" / ")[-1]
    assert start.figures[0].endswith(" ms")


def test_the_rows_of_readme_are_rows_of_the_figures() -> None:
    rows = speed_chart.table(README)
    assert rows.keys() == speed_chart.ROWS.keys()
    assert rows.items() <= speed_chart.table(PAGE).items()


def test_every_picture_of_readme_is_there() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(pictures) == 4
    assert all((speed_chart.ROOT / picture).stat().st_size for picture in pictures)
