"""Group pages, owners, offenders and durations of the report; the whole of it in a real browser."""

import base64
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.report.axis import Mark
from kohort.pipeline.report.durations import duration_bars
from kohort.pipeline.report.group_page import GroupPage
from kohort.pipeline.report.group_tables import listed
from kohort.pipeline.report.groups import SECTIONS_INLINE
from kohort.pipeline.report.owners import BARS_MAX, LANES_MAX, owners
from kohort.pipeline.report.page import ReportData, render
from kohort.pipeline.report.timeline import most_changed, timeline
from kohort.pipeline.report.top_issues import top_issues
from tests.conftest import LONG

T = 1_795_252_834_123
MEASURE = """{
document.title = [document.documentElement.scrollWidth, innerWidth, document.querySelectorAll('rect').length,
  getComputedStyle(document.body).backgroundColor].join(' ');
const key = (e, key) => e.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
const names = () => [...document.querySelectorAll('#index tbody tr')].filter(row => !row.hidden)
  .map(row => row.cells[0].textContent.length);
const told = [];
document.querySelector('#index th button').click(); told.push(names());
document.querySelector('#index th button').click(); told.push(names());
for (const _ of 'ab') { document.querySelectorAll('#index th button')[10].click(); told.push(names()); }
key(document.body, '/'); told.push(document.activeElement.id);
for (const words of ['CONSUMER stop', 'orders', 'nothing', 'members', '1']) {
  search.value = words; search.oninput(); told.push(names()); told.push(found.textContent);
}
const charts = document.querySelectorAll('section svg.chart');
for (const chart of charts) {
  key(chart, 'Home'); told.push(chart.nextElementSibling.textContent);
  key(chart, 'ArrowRight'); told.push(chart.nextElementSibling.textContent);
}
key(charts[1], 'End'); told.push(charts[1].nextElementSibling.textContent);
const axis = charts[1].dataset.axis.split(' ').map(Number);
const box = charts[1].getBoundingClientRect(), x = box.left + box.width * (axis[2] + (axis[3] - axis[2]) * 6.02 / 9) / 720;
charts[1].dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: box.top + 50, bubbles: true}));
told.push(charts[1].nextElementSibling.textContent.slice(24));
document.body.dataset.told = JSON.stringify(told);
}"""
ACTED = (
    "[[28,1],[1,28],[1,28],[28,1],&quot;search&quot;,"
    "[1],&quot;1 group&quot;,[28,1],&quot;2 groups&quot;,"
    "[],&quot;0 groups&quot;,[],&quot;0 groups&quot;,[],&quot;0 groups&quot;,"
    "&quot;2026-11-21 09:20:34.123 UTC: 0 records behind, up to 1 just before&quot;,"
    "&quot;2026-11-21 09:20:34.173 UTC: 50 records behind, up to 51 just before&quot;,"
    "&quot;2026-11-21 09:20:34.123 UTC: waiting for 2.0 s&quot;,"
    "&quot;2026-11-21 09:20:37.123 UTC: nothing waits, up to 5.0 s just before&quot;,"
    "&quot;2026-11-21 09:20:43.123 UTC: waiting for 5.0 s&quot;,"
    "&quot;UTC: waiting for 2.0 s&quot;]"
)
"""
Lengths of the groups' names after two clicks on their title, and two on that of the rebalances; the focus after `/`; the names
that a search leaves, and its count: by kind and verdict, by topic, by a word that nothing has, by one that only a reason has,
and by a number; the charts under the keys, and that of the time lag under the pointer.
"""


def plain(text: str) -> str:
    """Return a page without links."""
    return re.sub(r"</?a[^>]*>", "", text)


STATUSES = ("STOP", "WARN", "REWIND")
EVIL = '<script>alert("x")</script>&'
EVIL_TEXT = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;"


def stay(member: str, since: int, until: int | None, *, partition: int = 0, kind: str = "consumer") -> dict[str, Any]:
    row: dict[str, Any] = {"group": "g", "group_type": kind, "member_id": member, "topic": "orders", "topic_id": None}
    row |= {"partition": partition, "subtopology": None, "role": None}
    return row | {"since_ms": T + since, "until_ms": None if until is None else T + until}


def member(member_id: str, name: str, until: int | None = None) -> dict[str, Any]:
    row = {"group": "g", "member_id": member_id, "instance_id": None, "client_id": name, "client_host": "/h"}
    return row | {"since_ms": T, "until_ms": until}


def change(at: int, **other: Any) -> dict[str, Any]:
    row = {
        "group": "g",
        "group_type": "consumer",
        "log_offset": at,
        "began_at_ms": T + at,
        "completed_at_ms": T + at + 1,
    }
    row |= {
        "event": "rebalanced",
        "generation": 1,
        "members": [],
        "joined": [],
        "left": [],
        "why": ["joined"],
        "moved": 1,
    }
    return row | {"sync_ms": None, "duration_ms": 1, "lag_cost": 12} | other


def bars(text: str) -> list[tuple[str, float, float]]:
    found = re.findall(r'<rect class="(m\w+)" x="([\d.]+)" y="\d+" width="([\d.]+)"', text)
    return [(colour, float(x), float(width)) for colour, x, width in found]


def test_tasks_and_their_copies_have_lines_of_their_own() -> None:
    task = {"topic": None, "subtopology": "0", "group_type": "streams"}
    stays = [
        stay("a", 0, None, partition=10) | task | {"role": "active"},
        stay("b", 0, 400, partition=10) | task | {"role": "warmup"},
        stay("b", 400, None, partition=10) | task | {"role": "standby"},
        stay("b", 0, None, partition=2) | task | {"role": "active"},
    ]
    text = owners(stays, [], until_ms=T + 1000, names={})
    assert re.findall(r'class="name"[^>]*>([^<]*)<', text) == ["0_2", "0_10", "0_10 standby", "0_10 warmup"]
    assert len(bars(text)) == 4


def test_a_bar_for_each_stay_of_a_member() -> None:
    stays = [stay("a", 0, 500), stay("b", 500, None), stay("a", 0, 250, partition=1)]
    text = owners(stays, [Mark(T + 500, "rebalanced")], until_ms=T + 1000, names={"a": "first", "b": "second"})
    assert bars(text) == [("m0", 56.0, 326.0), ("m1", 382.0, 326.0), ("m0", 56.0, 163.0)]
    assert "first: 2026-11-21 09:20:34.123 to 2026-11-21 09:20:34.623, 500 ms" in text
    assert text.count('class="change"') == 1
    # The topic is a title, its partitions have numbers.
    assert re.findall(r'class="name[^>]*>([^<]*)<', text) == ["orders", "0", "1"]


def test_a_static_member_keeps_its_colour_under_every_id() -> None:
    text = owners([stay("a", 0, 500), stay("b", 500, None)], [], until_ms=T + 1000, names={"a": "same", "b": "same"})
    assert [colour for colour, _, _ in bars(text)] == ["m0", "m0"]
    assert text.count("<span>") == 1


def test_owners_of_a_share_group_have_a_line_each() -> None:
    stays = [stay("a", 0, None, kind="share"), stay("b", 0, None, kind="share")]
    assert owners(stays, [], until_ms=T + 10, names={}).count(">0<") == 2


def test_of_too_many_partitions_the_worst_are_shown() -> None:
    stays = [stay("a", 0, None, partition=partition) for partition in range(LANES_MAX + 2)]
    stays.append(stay("b", 0, 1, partition=LANES_MAX))
    text = owners(stays, [], until_ms=T + 10, names={}, weights={("orders", LANES_MAX + 1): 7})
    assert f"The worst {LANES_MAX} of {LANES_MAX + 2} partitions" in text
    # One is behind, one has changed its owner; the first ones of the others follow.
    lanes = re.findall(r'class="name" [^>]*>([^<]*)<', text)
    assert lanes == [str(partition) for partition in (*range(LANES_MAX - 2), LANES_MAX, LANES_MAX + 1)]


def test_owners_that_change_all_the_time_share_bars() -> None:
    stays = [
        stay(f"m{at % 2}", at, at + 1, partition=partition) for partition in range(LANES_MAX) for at in range(1000)
    ]
    text = owners([*stays, stay("m0", 1000, 9000)], [], until_ms=T + 9000, names={})
    assert len(bars(text)) <= BARS_MAX
    assert "intervals of 2 owners, 2026-11-21" in text
    # A long interval keeps its bar.
    assert "m0: 2026-11-21 09:20:35.123 to 2026-11-21 09:20:43.123, 8.0 s" in text


def test_the_worst_come_first_and_three_of_a_kind() -> None:
    """A line for each group: three partitions of one do not hide the others."""
    lag = [{"group": f"g{at % 5}", "topic": "t", "partition": at, "lag": at} for at in range(6)]
    nothing: dict[str, Any] = {"verdicts": (), "flapping": (), "unowned": (), "statistics": (), "blocking": ()}
    assert re.findall(r"<dd[^>]*>(.*?)</dd>", top_issues(lag=lag, **nothing)) == [
        "g0: 5 records in t-5",
        "g4: 4 records in t-4",
        "g3: 3 records in t-3",
        "and 2 more",
    ]
    two = [row | {"group": "g"} for row in lag[4:]]
    assert "<dd>g: 9 records in 2 partitions, 5 of them in t-5</dd>" in top_issues(lag=two, **nothing)
    assert top_issues(lag=lag[:1], **nothing) == ""
    stuck = [
        {"group": "g", "topic": "t", "partition": at, "lag": 2, "verdict": name, "why": "", "time_lag_ms": 90_000}
        for at, name in enumerate(STATUSES)
    ]
    told = top_issues(lag=(), **nothing | {"verdicts": stuck})
    assert '<summary>More: <span class="soft">growing lag, longest waiting</span></summary>' in told
    assert "<dt>Growing lag</dt><dd>g: 2 records in t-1</dd>" in told
    assert "<dt>Longest waiting</dt><dd>g: 1.5 min in t-0</dd>" in told
    # The group leads to its section.
    linked = top_issues(lag=lag[5:], **nothing, links={"g0": "#group-7"})
    assert '<dd><a href="#group-7">g0</a>: 5 records in t-5</dd>' in linked
    open_ = {"topic": "t", "partition": 0, "verdict": "ongoing", "duration_ms": 5}
    blocking = [open_, open_ | {"partition": 1, "verdict": "hanging"}]
    assert re.findall(r"<dd>(.*?)</dd>", top_issues(lag=(), **nothing | {"blocking": blocking})) == [
        "t-1: hanging for 5 ms"
    ]


def test_an_empty_group_is_not_without_owners() -> None:
    gap = {"group": "g", "topic": "t", "partition": 0, "since_ms": T, "until_ms": None, "unowned_ms": 9000}
    told = "<dd>g: t-0 for up to 9.0 s, "
    for members, until_ms, is_told in (([], None, False), ([], T + 9000, True), ([member("a", "x")], None, True)):
        data = ReportData("/", T, 1, members=members, time_without_owner=[gap | {"until_ms": until_ms}])
        assert (told in plain(render(data))) == is_told


def test_what_has_no_owner_now_comes_before_what_had_none() -> None:
    gap = {"topic": "t", "partition": 0, "since_ms": T}
    now = gap | {"group": "now", "until_ms": None, "unowned_ms": 5}
    unowned = [gap | {"group": "then", "until_ms": T + 9000, "unowned_ms": 9000}, now]
    nothing: dict[str, Any] = {"lag": (), "verdicts": (), "flapping": (), "statistics": (), "blocking": ()}
    assert re.findall(r"<dd>(.*?)</dd>", top_issues(unowned=unowned, **nothing)) == [
        "now: t-0 for up to 5 ms, until now",
        "then: t-0 for up to 9.0 s, the last until 2026-11-21 09:20:43",
    ]


def test_a_rebalance_that_goes_on_is_an_issue_and_an_overtaken_one_is_none() -> None:
    rows = [change(0, completed_at_ms=None), change(500, completed_at_ms=None)]
    text = plain(render(ReportData("/", T, 1, at_ms=T + 60_500, rebalances=rows)))
    assert "<dt>Rebalances in progress</dt><dd>g: for 1.0 min, 0 members (joined)</dd>" in text
    for table in (text[text.index(">Rebalances</h2>") :], text[text.index("<section") :]):
        events = re.findall(r'<td class="t">(in progress|overtaken|rebalanced)</td>', table)
        assert events[:2] == ["in progress", "overtaken"]
    done = [*rows, change(900)]
    assert "Rebalances in progress" not in render(ReportData("/", T, 1, at_ms=T + 60_500, rebalances=done))


def test_durations_from_the_median_to_the_longest() -> None:
    row = {"transactional_id": EVIL, "duration_p50_ms": 250, "duration_p95_ms": 500, "duration_max_ms": 1000}
    text = duration_bars([row, row | {"duration_max_ms": None}])
    assert 'x="305.0"' in text
    assert "median 250 ms, 95% within 500 ms, longest 1.0 s" in text
    assert "<script" not in text
    assert duration_bars([row | {"duration_max_ms": None}]) == ""


def waiting(at: int, since: int | None, time_lag: int, greatest: int) -> dict[str, Any]:
    row = {"group": "g", "timestamp_ms": T + at, "waiting_since_ms": None if since is None else T + since}
    return row | {"time_lag_ms": time_lag, "time_lag_max_ms": greatest}


def whole() -> ReportData:
    lag = {"group": "g", "topic": "orders", "partition": 0, "offset": 3, "leader_epoch": 0, "metadata": EVIL}
    lag |= {"commit_timestamp_ms": T, "end_offset": 1234, "lag": 1231}
    lag |= {"next_produced_at_ms": T, "time_lag_ms": 7_200_000, "records_lost": 0}
    status = {"group": "g", "topic": "orders", "partition": 0, "status": "STOP", "lag": 1231, "commits": 3}
    status |= {"last_commit_ms": T, "is_rising": False, "basis": status["status"]}
    return ReportData(
        directory="/logs",
        made_at_ms=T,
        log_bytes=1,
        at_ms=T + 9000,
        lag=[lag, lag | {"group": EVIL}],
        lag_picture=[{"group": "g", "timestamp_ms": T + at, "lag": at, "lag_max": at + 1} for at in (0, 50, 9000)],
        time_lag_over_time=[
            waiting(0, -2000, 2000, 2000),
            waiting(3020, None, 0, 5000),
            waiting(9000, 4000, 5000, 5000),
        ],
        rebalances=[
            change(0, joined=[member("a", EVIL)]),
            change(500, completed_at_ms=None, moved=None, lag_cost=None),
        ],
        members=[member("a", EVIL), member("b", "second")],
        assignments=[stay("a", 0, 500), stay("b", 500, None)],
        status=[status],
    )


def test_every_group_has_its_part_and_the_index_leads_there() -> None:
    text = render(whole())
    ids = re.findall(r'<section id="([^"]+)"', text)
    index = text[text.index('id="index"') :].partition("</table>")[0]
    # The address is the name, so that a link holds on the next page, too; what is in trouble comes first.
    evil = "group:%3Cscript%3Ealert%28%22x%22%29%3C%2Fscript%3E%26"
    assert re.findall(r'href="#([^"]+)"', index) == ids == [evil, "group:g"]
    assert re.findall(r"<section[^>]*><h2>([^<]*)<", text) == [EVIL_TEXT, "g"]
    assert all(target.startswith("#") for target in re.findall(r'(?:href|src)="([^"]*)"', text))
    assert text.count("<script") == 1
    assert "+12" in text


def shared(partition: int, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"group": "jobs", "topic": "orders", "topic_id": "id", "partition": partition}
    row |= {
        "start_offset": 10,
        "end_offset": 31,
        "lag": 20,
        "delivery_complete_count": 1,
        "written_at_ms": T,
        "state_epoch": 1,
    }
    return row | {"batches": [{"first_offset": 12, "last_offset": 14, "state": "available", "deliveries": 3}]} | other


def tiles(text: str) -> dict[str, str]:
    return {name: value for value, name in re.findall(r'<div class="card"><b class="\w*">([^<]*)</b>([^<]*)<', text)}


def test_a_share_group_is_behind_too() -> None:
    """In its part, in the index, among the offenders and in the sum; one that has committed nothing has no other place."""
    unread = shared(1, topic=None, start_offset=None, end_offset=None, lag=None, batches=[])
    text = render(ReportData("/", T, 1, share_state=[shared(0), unread]))
    assert tiles(text)["records behind"] == "20"
    assert tiles(text)["groups"] == "1"
    assert "<dt>Largest lag</dt><dd>jobs: 20 records in orders-0</dd>" in plain(text)
    index = text[text.index('id="groups"') : text.index("<section")]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", index)[:4] == ["OK", "\N{EN DASH}", "20", "\N{EN DASH}"]
    part = text[text.index("<section") :]
    assert "share group, 20 records behind in 2 partitions" in part
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", part[part.index("Share state") :])
    assert cells[:7] == ["orders-0", "10", "31", "20", "1", "3", "3"]
    assert cells[8:15] == ["id-1", *"\N{EN DASH}" * 3, "1", "0", "\N{EN DASH}"]


def test_a_deleted_group_is_not_one_of_those_that_there_are() -> None:
    """It has its part, for what it was; made again, or with offsets since, it is there."""
    gone = [change(0), change(1, event="deleted")]
    there = [row | {"group": "h"} for row in (*gone, change(2, event="created"))]
    text = render(ReportData("/", T, 1, rebalances=[*gone, *there], members=[member("a", "x", T)]))
    assert tiles(text)["groups"] == "1"
    index = text[text.index('id="groups"') :].partition("</table>")[0]
    assert re.findall(r'<td class="t"[^>]*>([^<]*)</td>', index) == ["deleted", "consumer", "-", "consumer"]
    lag = {"group": "g", "topic": "t", "partition": 0, "offset": 3, "leader_epoch": 0, "metadata": ""}
    lag |= {"commit_timestamp_ms": T, "end_offset": 3, "lag": 0}
    assert tiles(render(ReportData("/", T, 1, rebalances=[*gone, *there], lag=[lag])))["groups"] == "2"


def test_the_instant_that_the_tables_stand_for_is_said() -> None:
    assert "as of 2026-11-21 09:20:34.123 UTC" in render(ReportData("/", T + 60_000, 1, at_ms=T))
    assert "as of" not in render(ReportData("/", T, 1))


STATES = [(390, False), (1280, True), *([(390, True), (1280, False)] if LONG else [])]


@pytest.mark.parametrize(("width", "dark"), STATES)
def test_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing is wider than the screen but what scrolls in itself, and the picture is neither empty nor of one colour."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    text = render(whole()).replace("</body>", f"<script>{MEASURE}</script></body>")
    if dark:
        text = text.replace("(prefers-color-scheme: dark)", "all")
    page = tmp_path / "report.html"
    page.write_text(text, encoding="utf-8")
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}",
    )
    command = (chromium, *flags, f"--window-size={width},1200")
    picture = tmp_path / "report.png"
    for more in (("--dump-dom",), (f"--screenshot={picture}",)):
        done = subprocess.run(
            (*command, *more, page.as_uri()), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        if more == ("--dump-dom",):
            assert ACTED in done.stdout, done.stdout.partition('data-told="')[2][:500]
            found = re.search(r"<title>(\d+) (\d+) (\d+) rgb\((\d+)", done.stdout)
            assert found is not None, done.stdout[:500]
            scroll, inner, rects, red = map(int, found.groups())
            assert scroll <= max(inner, width)
            # Two intervals of ownership, two rebalances.
            assert rects == 4
            assert (red < 64) == dark
    assert picture.stat().st_size > 10_000


def test_details_of_many_groups_are_compressed_and_inserted_on_demand() -> None:
    """The page of a thousand groups stays small: what nobody opens is neither markup nor parsed."""
    picture = [
        {"group": f"g{n:04}", "timestamp_ms": T + at, "lag": n, "lag_max": n}
        for n in range(1000)
        for at in range(0, 900, 9)
    ]
    text = render(ReportData("/", T, 1, lag_picture=picture))
    assert text.count("<section") == SECTIONS_INLINE
    assert text.count('href="#group:') >= 1000
    more = json.loads(text.partition('id="more">')[2].partition("</script>")[0])
    assert sorted(more) == [f"group:g{n:04}" for n in range(SECTIONS_INLINE, 1000)]
    inflated = zlib.decompress(base64.b64decode(more["group:g0999"])).decode()
    assert inflated.startswith('<section id="group:g0999"')
    assert "Lag of group g0999" in inflated
    assert len(text) < 3_000_000


def test_charts_of_a_group_have_one_time_axis() -> None:
    """Lag, time lag and owners begin and end at the same instant, at the same place of the picture."""
    text = render(whole())
    part = text[text.index('<section id="group:g"') :].partition("</section>")[0]
    lag, time_lag = re.findall(r'data-axis="(\d+) (\d+) (\d+) (\d+)', part)
    assert lag == time_lag
    first, last, left, right = lag
    assert (int(first), int(last)) == (T, T + 9000)
    axis = re.findall(r'<line class="grid" x1="(\d+)" x2="(\d+)"', part)
    assert {(left, right)} == set(axis)
    charts = re.findall(r"<svg.*?</svg>", part)
    ticks = [re.findall(r'<path class="time" d="M([\d.]+)', chart) for chart in charts]
    assert len(ticks) == 3
    assert ticks[0] == ticks[1] == ticks[2] != []
    # A rebalance is a mark on each chart, with its text.
    marks = [re.findall(r'<g class="rebalance"><title>(2026-11-21 [\d:.]+)', chart) for chart in charts]
    assert marks == [["2026-11-21 09:20:34.124", "2026-11-21 09:20:34.623"]] * 3


def test_the_time_axis_of_a_group_ends_at_its_last_event() -> None:
    """A running cluster goes on while it is read."""
    page = GroupPage("g", picture=[{"timestamp_ms": T + 5}], stays=[{"since_ms": T, "until_ms": T + 9}])
    assert [page.began_ms, page.ended_ms(T + 7), page.ended_ms(T + 11)] == [T, T + 9, T + 11]
    assert GroupPage("g").ended_ms(T) == T


def test_a_group_without_known_members_has_a_section() -> None:
    lag = whole().lag[:1]
    text = render(ReportData("/", T, 1, lag=lag, at_ms=T))
    part = text[text.index("<section") :]
    assert "None known: the log has commits of this group and no record of members." in part
    assert '<td class="n">\N{EN DASH}</td>' in text[: text.index("<section")]


def test_a_lag_that_is_unknown_is_no_zero() -> None:
    """A group that has never committed, and one whose topics are on another broker."""
    elsewhere = whole().lag[0] | {"group": "elsewhere", "end_offset": None, "lag": None, "time_lag_ms": None}
    never = change(0, members=[1]) | {"group": "never"}
    text = render(ReportData("/", T, 1, lag=[elsewhere], rebalances=[never], at_ms=T))
    index = text[text.index('id="index"') :].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in plain(index).split("<tr data-s")[1:]]
    dash = "\N{EN DASH}"
    assert rows == [
        ["elsewhere", "UNKNOWN", "09:20:34", *[dash] * 3, "orders", dash, "simple", dash, "0", rows[0][11]],
        ["never", "-", *[dash] * 6, "consumer", "0", "1", "no committed offset"],
    ]
    assert rows[0][11] == "the log of orders-0 is not here; last commit at 09:20:34"
    assert "lag in 1 partition unknown: the logs of the topics are not here" in text
    assert tiles(text)["stuck groups"] == dash
    assert tiles(text)["groups of unknown lag"] == "1"


def test_a_partition_that_was_never_committed_is_stuck_with_an_unknown_lag() -> None:
    row = whole().lag[0] | {"group": "never", "offset": None, "lag": None, "time_lag_ms": None, "metadata": None}
    row |= {"commit_timestamp_ms": None, "is_exact": True, "records_lost": None}
    stay = {
        "group": "never",
        "group_type": "consumer",
        "topic": "orders",
        "topic_id": None,
        "partition": 0,
        "role": None,
    }
    stay |= {"subtopology": None, "member_id": "m", "since_ms": T - 60_000, "until_ms": None, "first_log_offset": 0}
    text = plain(
        render(ReportData("/", T, 1, lag=[row], rebalances=[change(0, members=[1])], assignments=[stay], at_ms=T))
    )
    assert '<p class="who">never: <b class="behind">STOP</b> since 09:19:34 (1.0 min)</p>' in text
    assert (
        '<p class="told">orders-0, lag unknown: a member has had orders-0 since 09:19:34 and has never committed</p>'
        in text
    )
    assert tiles(text)["stuck groups (1 STOP)"] == "1"


def test_lag_has_the_colour_of_its_verdict() -> None:
    """A healthy group has a lag, too: what is red is wrong."""
    lag, status = whole().lag[0] | {"group": "g"}, whole().status[0]
    for name, colour in (("OK", ""), ("WARN", " warned"), ("STOP", " behind")):
        text = render(ReportData("/", T, 1, lag=[lag], status=[status | {"basis": name}], at_ms=T))
        assert set(re.findall(r'<td class="n([\w ]*)">1\N{NARROW NO-BREAK SPACE}231<', text)) == {colour}


def test_what_a_group_waits_for() -> None:
    """A read_committed group that is not read on stands at an open transaction: the reason names it."""
    lag = whole().lag[0] | {"group": "g", "offset": 3}
    open_ = {"topic": "orders", "partition": 0, "producer_id": 7, "transactional_id": None, "start_offset": 3}
    open_ |= {"verdict": "hanging", "duration_ms": 5, "blocked_records": 9}
    for offset, why in ((3, "; it waits at the hanging transaction of producer 7, open for 5 ms"), (4, "")):
        data = ReportData("/", T, 1, lag=[lag | {"offset": offset}], status=whole().status, at_ms=T)
        text = render(replace(data, blocking_transactions=[open_, open_ | {"start_offset": 8}]))
        told = "no commit since 09:20:34; members are not known"
        assert f"STOP</b> since 09:20:34 (0 ms) ({told}{why})" in text
        step = "end the transaction: kohort transactions abort --topic orders --partition 0 --start-offset 3"
        assert (f"<b>Next:</b> {step}<" in text) == bool(why)


def test_the_first_answer_is_how_many_groups_are_stuck() -> None:
    text = render(whole())
    assert tiles(text) == {
        "stuck groups (2 STOP)": "2",
        "groups with growing lag": "0",
        "groups": "2",
        "records behind": "2\N{NARROW NO-BREAK SPACE}462",
        "longest wait": "2.0 h",
        "rebalances in the last hour": "2",
        "stuck since (UTC), the first": "09:20:34",
    }


def test_where_no_lag_is_known_none_is_told() -> None:
    """0 stuck groups would be an answer. With a log of one partition, the groups that are known are counted."""
    unread = shared(0, start_offset=None, end_offset=None, lag=None, batches=None, state_epoch=None)
    unread |= {"delivery_complete_count": None, "written_at_ms": None}
    text = render(ReportData("/", T, 1, share_state=[unread]))
    dash = "\N{EN DASH}"
    told = {name: tiles(text)[name] for name in ("stuck groups", "groups with growing lag", "records behind")}
    assert told == dict.fromkeys(told, dash)
    assert tiles(text)["groups of unknown lag"] == "1"
    assert "the log of the share coordinator is not here" in text
    assert "make the report where the log of the share coordinator is, or of the cluster" in text
    text = render(ReportData("/", T, 1, lag=whole().lag, status=whole().status, share_state=[unread], at_ms=T))
    assert tiles(text)["stuck groups (2 STOP)"] == "2"


def test_old_data_is_said_to_be_old() -> None:
    data = whole()
    assert "was 2.0 h old" in render(replace(data, made_at_ms=data.at_ms + 7_200_000))
    assert " old when" not in render(data)


def test_partitions_are_named_in_ranges() -> None:
    stays = [stay("a", 0, None, partition=partition) for partition in (0, 10, 2, 1, 7)]
    tasks = [{**stays[0], "topic": None, "subtopology": "1", "partition": at} for at in (0, 1)]
    assert listed(stays[:1]) == "orders-0"
    assert listed([*stays, *tasks]) == "subtopology 1: 0\N{EN DASH}1; orders: 0\N{EN DASH}2, 7, 10"


def test_a_dead_group_with_lag_is_not_ok() -> None:
    lag = whole().lag[0] | {"group": "g"}
    status = whole().status[0] | {"status": "OK"}
    gone = change(5, event="emptied", members=[])
    text = render(ReportData("/", T, 1, lag=[lag], status=[status], rebalances=[change(0, members=[1]), gone], at_ms=T))
    assert "STOP</b> since 09:20:34 (0 ms) (no member since 09:20:34; last commit at 09:20:34)" in text
    assert '<li><p class="who">g: <b class="behind">STOP</b> since 09:20:34' in plain(text)


def test_offsets_are_the_worst_first() -> None:
    lag = whole().lag[0]
    rows = [
        lag | {"group": name, "lag": at, "offset": 100 - at, "end_offset": 100}
        for name, at in (("a", 0), ("b", 5), ("c", 9))
    ]
    text = render(ReportData("/", T, 1, lag=rows, at_ms=T))
    table = plain(text)[plain(text).index(">Offsets</h2>") :].partition("</table>")[0]
    assert re.findall(r"</td><td>(\w)</td><td>orders", table) == ["c", "b", "a"]


def test_views_by_topic_and_by_member() -> None:
    data = whole()
    text = render(data)
    part = text[text.index('<section id="group:g"') :].partition("</section>")[0]
    cards = dict(
        re.findall(r"<h3>(\w+)</h3><table[^>]*><caption>\1 of g</caption><thead>.*?</thead><tbody>(.*?)</tbody>", part)
    )
    cells = {title: re.findall(r"<td[^>]*>([^<]*)</td>", body) for title, body in cards.items()}
    assert cells["Topics"] == ["orders", "STOP", "1", "1\N{NARROW NO-BREAK SPACE}231", "2.0 h"]
    assert cells["Members"][:4] == ["second", "/h", "1\N{NARROW NO-BREAK SPACE}231", "1"]
    assert cells["Members"][5] == "orders-0"


def test_the_timeline_has_the_most_changed_groups_first() -> None:
    rows = [change(at) | {"group": name} for name, count in (("a", 1), ("b", 3), ("c", 2)) for at in range(count)]
    assert most_changed(rows) == ["b", "c", "a"]
    assert re.findall(r'class="name"[^>]*>(\w)<', timeline(rows)) == ["b", "c", "a"]
