"""The report needs nothing but itself, and believes no name."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.pipeline.report.axis import TICKS_MAX, Mark, round_times, time_labels
from kohort.pipeline.report.chart import Point, lag_chart, round_up, ticks
from kohort.pipeline.report.formatting import brief, duration, instant, number, rebalance_duration, size
from kohort.pipeline.report.page import ReportData, render
from kohort.pipeline.report.style import STYLE
from kohort.pipeline.tables.groups.group_history import CONVERTED, CREATED, DELETED, EMPTIED, REBALANCED, REPLACED

EVIL = '<script>alert("x")</script>&'
T = 1_795_252_834_123


class Page(HTMLParser):
    """Checks that tags nest, and keeps what a page refers to."""

    VOID = frozenset({"meta", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def member(name: str) -> dict[str, Any]:
    return {"member_id": name, "instance_id": None, "client_id": name, "client_host": "/h"}


def data(**other: Any) -> ReportData:
    lag = {"group": EVIL, "topic": "t", "partition": 0, "offset": 3, "leader_epoch": 0, "metadata": EVIL}
    lag |= {"commit_timestamp_ms": T, "end_offset": 1234, "lag": 1231}
    unknown = lag | {"partition": 1, "end_offset": None, "lag": None, "metadata": None}
    event = {
        "group": EVIL,
        "group_type": "consumer",
        "log_offset": 1,
        "began_at_ms": T,
        "completed_at_ms": T,
        "event": "rebalanced",
        "generation": 1,
        "members": [member(EVIL)],
    }
    event |= {"members": [member(EVIL)], "joined": [member(EVIL)], "left": None, "sync_ms": 4, "duration_ms": None}
    deleted = event | {"event": "deleted", "generation": None, "members": [], "joined": [], "left": [], "sync_ms": None}
    fields: dict[str, Any] = {
        "lag": [lag, unknown],
        "lag_picture": [{"group": EVIL, "timestamp_ms": T + at, "lag": at, "lag_max": at + 1} for at in (0, 50, 9000)],
        "rebalances": [event, deleted],
        "damage": [
            {"log_topic": "t", "log_partition": 0, "segment": EVIL, "position": 1, "size_bytes": 2, "problem": EVIL}
        ],
    }
    return ReportData(directory=EVIL, made_at_ms=T, log_bytes=12_345_678, **{**fields, **other})


def test_the_page_is_whole_and_refers_to_nothing() -> None:
    text = render(data())
    page = Page(text)
    assert page.open == []
    assert {one for one in page.references if not one.startswith("#")} == set()
    # The lag in the overview and in the section of the group, and the rebalances.
    assert page.tags.count("svg") == 3
    assert "url(" not in text


OPEN = {
    "topic": EVIL,
    "partition": 0,
    "transactional_id": EVIL,
    "state": "Ongoing",
    "start_ms": T,
    "age_ms": 90_000,
    "timeout_ms": 60_000,
    "is_overdue": True,
}
STATISTICS = dict.fromkeys(("transactions", "aborted", "timed_out", "fenced"), 3) | dict.fromkeys(
    ("duration_p50_ms", "duration_p95_ms", "duration_max_ms"), 1500
)


def test_transactions_slowest_first_and_what_is_open() -> None:
    slow = STATISTICS | {"transactional_id": "slow", "duration_max_ms": 9000}
    quick = STATISTICS | {"transactional_id": EVIL}
    never = STATISTICS | {"transactional_id": "never", "duration_max_ms": None}
    text = render(data(transaction_statistics=[never, quick, slow], open_transactions=[OPEN, OPEN | {"topic": None}]))
    page = Page(text)
    assert page.open == []
    assert page.tags.count("script") == 1
    assert text.index(">slow<") < text.index("1.5 s</td></tr>") < text.index(">never<")
    assert '<td class="n behind" data-v="90000">1.5 min</td>' in text
    assert "The coordinator has no open transaction." in render(data(transaction_statistics=[quick]))
    assert "Transactions</h2>" not in render(data())


def test_names_are_only_text() -> None:
    page = Page(render(data()))
    assert page.tags.count("script") == 1
    assert "&lt;script&gt;" in render(data())


def test_long_metadata_does_not_stretch_the_table() -> None:
    lag = data().lag[0]
    text = render(data(lag=[lag | {"metadata": "<" * 4000}]))
    assert f"<td>{'&lt;' * 60}\N{HORIZONTAL ELLIPSIS}</td>" in re.sub(r' title="[^"]*"', "", text)
    assert f'title="{"&lt;" * 4000}"' in text


def test_an_empty_directory_makes_a_page_too() -> None:
    page = Page(render(data(lag=[], lag_picture=[], rebalances=[], damage=[])))
    assert page.open == []
    assert "svg" not in page.tags


def test_what_does_not_fit_is_said() -> None:
    picture = [{"group": f"g{n}", "timestamp_ms": T, "lag": n, "lag_max": n} for n in range(60)]
    text = render(data(lag_picture=picture))
    assert "The first 6 of 60 groups" in text
    charts = re.findall(r'<h3 title="g\d+"><a href="#group:g\d+">(g\d+)</a></h3>', text)
    assert charts == ["g59", "g58", "g57", "g56", "g55", "g54"]


AXES = [(0, 1), (1, 1), (2, 2), (3, 5), (5, 5), (6, 10), (10, 10), (11, 20), (10**12 + 1, 2 * 10**12)]


@pytest.mark.parametrize(("value", "top"), AXES)
def test_axes_end_at_round_numbers(value: int, top: int) -> None:
    assert round_up(value) == top


TICKS = {
    1: [0, 1],
    2: [0, 1, 2],
    5: [0, 1, 2, 3, 4, 5],
    10: [0, 5, 10],
    5000: [0, 1000, 2000, 3000, 4000, 5000],
    2 * 10**12: [0, 10**12, 2 * 10**12],
}


@pytest.mark.parametrize("top", TICKS)
def test_ticks_are_round_numbers(top: int) -> None:
    assert ticks(top) == TICKS[top]


# fmt: off
TIME_AXES = [
    # from            to                 labels
    (T,               T,                 ["11-21 09:20:34.123"]),
    (T,               T + 3,             ["11-21 09:20:34.123", "09:20:34.124", "09:20:34.125", "09:20:34.126"]),
    (T,               T + 12_000,        ["11-21 09:20:35", "09:20:40", "09:20:45"]),
    (T,               T + 3_600_000,     ["11-21 09:30", "09:45", "10:00", "10:15"]),
    # Midnight is in between: the label tells the day.
    (T,               T + 86_400_000,    ["11-21 12:00", "18:00", "11-22 00:00", "06:00"]),
    (T,               T + 5 * 86_400_000, ["2026-11-22", "2026-11-23", "2026-11-24", "2026-11-25", "2026-11-26"]),
]
# fmt: on


@pytest.mark.parametrize(("first_ms", "last_ms", "labels"), TIME_AXES)
def test_a_time_axis_has_round_instants(first_ms: int, last_ms: int, labels: list[str]) -> None:
    times = round_times(first_ms, last_ms)
    assert time_labels(times) == labels
    assert all(first_ms <= at_ms <= last_ms for at_ms in times)
    text = lag_chart([Point(first_ms, 1, 1), Point(last_ms, 0, 0)], label="lag")
    assert re.findall(r'y="162" text-anchor="\w+">([^<]+)<', text) == labels


@given(first_ms=st.integers(0, 2**42), span_ms=st.integers(0, 2**42))
def test_a_time_axis_has_few_labels_and_never_none(first_ms: int, span_ms: int) -> None:
    times = round_times(first_ms, first_ms + span_ms)
    assert 1 <= len(times) <= TICKS_MAX
    assert len(set(times)) == len(time_labels(times))


def test_marks_that_fall_together_become_one() -> None:
    """A chart of thousands of rebalances is small, and each of them is counted."""
    marks = [Mark(at, f"change {at}") for at in range(1000)]
    text = lag_chart([Point(0, 1, 1), Point(999, 0, 0)], label="lag", marks=marks)
    titles = re.findall(r"<title>([^<]*)</title>", text)
    assert len(titles) <= 720 / 4
    assert sum(int(title.split()[0]) for title in titles) == 1000
    assert titles[0].splitlines()[:2] == [f"{titles[0].split()[0]} changes:", "change 0"]
    alone = lag_chart([Point(0, 1, 1), Point(999, 0, 0)], label="lag", marks=[marks[0], marks[500]])
    assert re.findall(r"<title>([^<]*)</title>", alone) == ["change 0", "change 500"]


def test_lag_is_drawn_in_steps() -> None:
    text = lag_chart([Point(0, 0, 0), Point(50, 10, 10), Point(100, 0, 0)], label="lag")
    # Zero until half of the time, then ten at once, then zero again.
    assert 'd="M56 144h326v-118h326v118"' in text


def test_a_single_point_is_a_picture() -> None:
    assert Page(lag_chart([Point(5, 0, 0)], label="lag")).open == []


# fmt: off
TEXTS = [
    (instant(T),                                                "2026-11-21 09:20:34.123"),
    (instant(None),                                             "\N{EN DASH}"),
    (instant(-1),                                               "\N{EN DASH}"),
    (instant(2**62),                                            str(2**62)),
    (duration(999),                                             "999 ms"),
    (duration(1000),                                            "1.0 s"),
    (duration(90_000),                                          "1.5 min"),
    (duration(None),                                            "\N{EN DASH}"),
    (number(1_234_567),                                         "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"),
    (brief(500),                                                "500"),
    (brief(20_000),                                             "20\N{NARROW NO-BREAK SPACE}k"),
    (brief(5_000_000),                                          "5\N{NARROW NO-BREAK SPACE}M"),
    (size(12_345_678),                                          "12.3\N{NARROW NO-BREAK SPACE}MB"),
    (size(999),                                                 "999\N{NARROW NO-BREAK SPACE}B"),
    (number(None),                                              "\N{EN DASH}"),
    (rebalance_duration({"duration_ms": 3000, "sync_ms": 4}),   "3.0 s"),
    (rebalance_duration({"duration_ms": None, "sync_ms": 4}),   "\N{GREATER-THAN OR EQUAL TO} 4 ms"),
    (rebalance_duration({"duration_ms": None, "sync_ms": None}), "\N{EN DASH}"),
]
# fmt: on


@pytest.mark.parametrize(("got", "expected"), TEXTS)
def test_times_and_numbers_as_people_read_them(got: str, expected: str) -> None:
    assert got == expected


def test_events_have_colours_of_their_own() -> None:
    colours = dict(re.findall(r"\.legend \.(\w+) { --c: (var\(--\w+\)); }", STYLE))
    assert set(colours) == {CREATED, REBALANCED, EMPTIED, REPLACED, CONVERTED, DELETED}
    assert len(set(colours.values())) == len(colours)
