"""The curves of docs/benchmarks.md are those of its table, and the table keeps the goal."""

from xml.etree import ElementTree as ET

import pytest

from bench.growth import DIMENSIONS, STEP_MAX
from tools import growth_chart, speed_chart

PAGE = speed_chart.FIGURES.read_text()
ROWS = growth_chart.rows_of(PAGE)


@pytest.mark.parametrize("theme", growth_chart.THEMES)
def test_the_curves_are_those_of_the_table(theme: str) -> None:
    drawn = (speed_chart.IMAGES / f"growth-{theme}.svg").read_text()
    assert drawn == growth_chart.chart(PAGE, theme), "run: make charts"
    assert len(ET.fromstring(drawn).findall("{*}polyline")) == len(ROWS)


def test_the_table_has_every_dimension_at_its_sizes_and_keeps_the_goal() -> None:
    sizes = {row.dimension: tuple(int(size.replace(",", "")) for size in row.sizes) for row in ROWS}
    assert sizes == {each.name: each.sizes for each in DIMENSIONS}
    assert all(row.step <= STEP_MAX for row in ROWS)


def test_a_known_row() -> None:
    page = f"{growth_chart.HEAD}\n|---|---|---|---|---|\n| topics | 1 / 10 | Fetch | 8.0 / 400.0 | 50.00 |\n\nmore"
    (row,) = growth_chart.rows_of(page)
    assert row == ("topics", ("1", "10"), "Fetch", (8.0, 400.0), 50.0)
