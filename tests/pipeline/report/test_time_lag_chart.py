"""The time lag as a line: where it falls, how it is drawn, and when there is a chart."""

import re
from typing import Any

import pytest

from kohort.pipeline.report.formatting import brief_duration
from kohort.pipeline.report.page import ReportData, render
from kohort.pipeline.report.time_lag_chart import Corner, corners, has_waited, time_lag_chart

T = 1_795_252_834_123
S, MIN, H, D = 1000, 60_000, 3_600_000, 86_400_000


def row(at: int, since: int | None, greatest: int | None = None) -> dict[str, Any]:
    """The row of an instant. By default the greatest time lag of its interval is that at its end."""
    time_lag = 0 if since is None else at - since
    told = {"timestamp_ms": at, "waiting_since_ms": since, "time_lag_ms": time_lag}
    return told | {"group": "g", "time_lag_max_ms": time_lag if greatest is None else greatest}


# fmt: off
CORNERS: list[tuple[str, list[dict[str, Any]], list[Corner]]] = [
    ("a line that only goes on",            [row(10, 0), row(50, 0)],             [Corner(10, 0)]),
    ("nothing waits",                       [row(10, None), row(50, None)],       [Corner(10, None)]),
    ("it fell before the end",              [row(10, 0), row(50, 30, 45)],        [Corner(10, 0), Corner(45, 30)]),
    ("it fell to nothing",                  [row(10, 0), row(50, None, 45)],      [Corner(10, 0), Corner(45, None)]),
    ("and to a record that came later",     [row(10, 0), row(50, 48, 45)],        [Corner(10, 0), Corner(45, 48)]),
    ("it fell by less than it grew since",  [row(10, 0), row(50, 20, 30)],        [Corner(10, 0), Corner(30, 20)]),
    ("a record comes",                      [row(10, None), row(50, 30)],         [Corner(10, 30)]),
    ("a record comes and goes",             [row(10, None), row(50, None, 7)],    [Corner(10, None), Corner(50, None, 7)]),
    ("records come and go, one stays",      [row(10, None), row(50, 45, 7)],      [Corner(10, None), Corner(50, 45, 7)]),
    ("the group goes back",                 [row(10, 5), row(50, 0)],             [Corner(10, 5), Corner(50, 0)]),
    ("one that had read all goes back",     [row(10, None), row(50, 0)],          [Corner(10, None), Corner(50, 0)]),
    ("it goes back and on again",           [row(10, 5), row(50, 5, 90)],         [Corner(10, 5), Corner(50, 5, 90)]),
    ("it goes back, and further on",        [row(10, 5), row(50, 20, 90)],        [Corner(10, 5), Corner(50, 20, 90)]),
]
# fmt: on


@pytest.mark.parametrize("case", CORNERS, ids=lambda case: case[0])
def test_where_the_line_turns(case: Any) -> None:
    _, rows, expected = case
    assert corners(rows) == expected


def drawn(rows: list[dict[str, Any]], *, until: int, since: int = 0) -> str:
    return time_lag_chart(rows, label="Time lag", until_ms=until, since_ms=since)


def path_of(text: str) -> str:
    found = re.search(r'<path class="line" d="([^"]*)"', text)
    assert found is not None
    return found[1]


def test_it_rises_and_falls_at_once() -> None:
    """652 units for 100 ms, 118 for the axis of 100 ms."""
    rows = [row(0, None), row(50, 40, 50), row(60, None, 20)]
    rows[0] = row(0, 0)
    text = drawn(rows, until=100)
    # Up to 50 ms at the instant 50, down to 10, on to 20, and nothing waits from then on.
    assert path_of(text) == "M56 144l326 -118v94.4l65.2 -23.6v47.2h260.8"
    assert 'data-kind="time" data-points="0 0:0 50:10 10: 40:"' in text
    assert 'aria-label="Time lag: 0 ms at the end, at most 50 ms at 1970-01-01 00:00:00.050"' in text


def test_the_line_goes_on_to_the_end_of_the_axis() -> None:
    text = drawn([row(0, 0), row(20, 0)], until=100)
    assert path_of(text) == "M56 144l652 -118"
    assert 'text-anchor="end">100 ms</text>' in text
    assert "at most 100 ms at 1970-01-01 00:00:00.100" in text
    # The record comes after the last row.
    assert path_of(drawn([row(0, 50), row(1, 50)], until=100)) == "M56 144h326l326 -118"


def test_narrow_teeth_are_joined_at_their_tips() -> None:
    """A commit every millisecond of a thousand: 0.7 units. The axis of 10 ms is full to a half."""
    rows = [row(0, -5)] + [row(at, at - 4, 5) for at in range(1, 500)]
    text = drawn(rows, until=1000)
    path = path_of(text)
    # No step between two tips is steeper than rounding makes it. The last tooth is wide.
    assert set(re.findall(r"[vhl][^vhl]*", path)[1:-3]) <= {"h0.6", "h0.7"}
    assert "just before them" in text
    assert "just before them" not in drawn(rows[:2], until=1000)


# fmt: off
AXES = [  # greatest, labels
    (1,             ["0", "1 ms"]),
    (3,             ["0", "1 ms", "2 ms", "3 ms", "4 ms", "5 ms"]),
    (700,           ["0", "500 ms", "1 s"]),
    (25 * S,        ["0", "10 s", "20 s", "30 s"]),
    (31 * S,        ["0", "30 s", "1 min"]),
    (4 * MIN,       ["0", "1 min", "2 min", "3 min", "4 min", "5 min"]),
    (40 * MIN,      ["0", "30 min", "1 h"]),
    (4 * H,         ["0", "1 h", "2 h", "3 h", "4 h"]),
    (13 * H,        ["0", "12 h", "1 d"]),
    (9 * D,         ["0", "5 d", "10 d"]),
    (2500 * D,      ["0", "1000 d", "2000 d", "3000 d", "4000 d", "5000 d"]),
]
# fmt: on


@pytest.mark.parametrize(("greatest", "labels"), AXES)
def test_axes_have_round_durations(greatest: int, labels: list[str]) -> None:
    text = drawn([row(0, 0), row(greatest, 0)], until=greatest)
    found = re.findall(r'<text class="tick" x="50" [^>]*>([^<]*)<', text)
    assert found == [label.replace(" ", "\N{NARROW NO-BREAK SPACE}") for label in labels]


def test_a_duration_that_no_axis_has() -> None:
    assert 'class="line"' in drawn([row(0, 0), row(10**18, 0)], until=10**18)
    assert brief_duration(90 * S) == "90\N{NARROW NO-BREAK SPACE}s"


def test_only_groups_that_have_waited_have_a_chart() -> None:
    assert not has_waited([], until_ms=100)
    assert not has_waited([row(10, None), row(50, None)], until_ms=100)
    assert not has_waited([row(10, None), row(50, 50)], until_ms=50)
    assert has_waited([row(10, None), row(50, 50)], until_ms=51)
    assert has_waited([row(10, None), row(50, None, 1)], until_ms=100)


@pytest.mark.parametrize("has_time_lag", [True, False])
def test_a_section_has_both_charts(has_time_lag: bool) -> None:
    picture = [{"group": "g", "timestamp_ms": T + at, "lag": at, "lag_max": at} for at in (0, 900)]
    rows = [row(T, None), row(T + 900, None, 400 if has_time_lag else None)]
    text = render(ReportData("/", T, 1, lag_picture=picture, time_lag_over_time=rows, at_ms=T + 500))
    part = text[text.index("<section") :].partition("</section>")[0]
    assert part.count('<svg class="chart"') == 1 + has_time_lag
    assert ("<h3>Waiting</h3>" in part) == has_time_lag
    # Both end at the last event, which is later than the instant of the tables.
    assert set(re.findall(r'data-axis="(\d+ \d+)', part)) == {f"{T} {T + 900}"}
