"""Group pages, owners, offenders and durations of the report; the whole of it in a real browser."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.report.durations import duration_bars
from kohort.pipeline.report.owners import LANES_MAX, owners
from kohort.pipeline.report.page import ReportData, render
from kohort.pipeline.report.top_issues import top_issues

T = 1_795_252_834_123
STATUSES = ("STOP", "WARN", "REWIND")
EVIL = '<script>alert("x")</script>&'


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
    found = re.findall(r'<rect class="(m\d)" x="([\d.]+)" y="\d+" width="([\d.]+)"', text)
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
    text = owners(stays, [T + 500], until_ms=T + 1000, names={"a": "first", "b": "second"})
    assert bars(text) == [("m0", 190.0, 258.0), ("m1", 448.0, 258.0), ("m0", 190.0, 129.0)]
    assert "first: 2026-11-21 09:20:34.123 to 2026-11-21 09:20:34.623, 500 ms" in text
    assert text.count('class="change"') == 1
    assert text.index("orders-0") < text.index("orders-1")


def test_a_static_member_keeps_its_colour_under_every_id() -> None:
    text = owners([stay("a", 0, 500), stay("b", 500, None)], [], until_ms=T + 1000, names={"a": "same", "b": "same"})
    assert [colour for colour, _, _ in bars(text)] == ["m0", "m0"]
    assert text.count("<span>") == 1


def test_owners_of_a_share_group_have_a_line_each() -> None:
    stays = [stay("a", 0, None, kind="share"), stay("b", 0, None, kind="share")]
    assert owners(stays, [], until_ms=T + 10, names={}).count(">orders-0<") == 2


def test_too_many_partitions_are_said() -> None:
    stays = [stay("a", 0, None, partition=partition) for partition in range(LANES_MAX + 1)]
    text = owners(stays, [], until_ms=T + 10, names={})
    assert f"The first {LANES_MAX} of {LANES_MAX + 1} partitions" in text
    assert len(bars(text)) == LANES_MAX


def test_the_worst_come_first_and_three_of_a_kind() -> None:
    """A line for each group: three partitions of one do not hide the others."""
    lag = [{"group": f"g{at % 5}", "topic": "t", "partition": at, "lag": at} for at in range(6)]
    nothing: dict[str, Any] = {"status": (), "flapping": (), "unowned": (), "statistics": (), "blocking": ()}
    assert re.findall(r"<dd>(.*?)</dd>", top_issues(lag=lag, **nothing)) == [
        "g0: 5 records in t-5",
        "g4: 4 records in t-4",
        "g3: 3 records in t-3",
    ]
    two = [row | {"group": "g"} for row in lag[4:]]
    assert "<dd>g: 9 records in 2 partitions, 5 of them in t-5</dd>" in top_issues(lag=two, **nothing)
    assert top_issues(lag=lag[:1], **nothing) == ""
    stuck = [
        {"group": "g", "topic": "t", "partition": at, "lag": 2, "status": name} for at, name in enumerate(STATUSES)
    ]
    assert "<dd>g: REWIND, STOP, 2 partitions, 4 records behind</dd>" in top_issues(
        lag=(), **nothing | {"status": stuck}
    )
    open_ = {"topic": "t", "partition": 0, "verdict": "ongoing", "duration_ms": 5}
    blocking = [open_, open_ | {"partition": 1, "verdict": "hanging"}]
    assert re.findall(r"<dd>(.*?)</dd>", top_issues(lag=(), **nothing | {"blocking": blocking})) == [
        "t-1: hanging for 5 ms"
    ]


def test_an_empty_group_is_not_without_owners() -> None:
    gap = {"group": "g", "topic": "t", "partition": 0, "since_ms": T, "until_ms": None, "unowned_ms": 9000}
    told = "<dd>g: t-0 for up to 9.0 s</dd>"
    for members, until_ms, is_told in (([], None, False), ([], T + 9000, True), ([member("a", "x")], None, True)):
        data = ReportData("/", T, 1, members=members, time_without_owner=[gap | {"until_ms": until_ms}])
        assert (told in render(data)) == is_told


def test_durations_from_the_median_to_the_longest() -> None:
    row = {"transactional_id": EVIL, "duration_p50_ms": 250, "duration_p95_ms": 500, "duration_max_ms": 1000}
    text = duration_bars([row, row | {"duration_max_ms": None}])
    assert bars(text.replace('.0" width', '" width')) or 'x="305.0"' in text
    assert "median 250 ms, 95% within 500 ms, longest 1.0 s" in text
    assert "<script" not in text
    assert duration_bars([row | {"duration_max_ms": None}]) == ""


def whole() -> ReportData:
    lag = {"group": "g", "topic": "orders", "partition": 0, "offset": 3, "leader_epoch": 0, "metadata": EVIL}
    lag |= {"commit_timestamp_ms": T, "end_offset": 1234, "lag": 1231}
    status = {"group": "g", "topic": "orders", "partition": 0, "status": "STOP", "lag": 1231}
    return ReportData(
        directory="/logs",
        made_at_ms=T,
        log_bytes=1,
        at_ms=T + 9000,
        lag=[lag, lag | {"group": EVIL}],
        lag_picture=[{"group": "g", "timestamp_ms": T + at, "lag": at, "lag_max": at + 1} for at in (0, 50, 9000)],
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
    ids = re.findall(r'<section id="(group-\d+)">', text)
    assert re.findall(r'href="#(group-\d+)"', text) == ids
    # What is in trouble comes first.
    assert ids[0] == "group-0"
    assert text.index('<section id="group-0"><h2>g</h2>') < text.index('<section id="group-1">')
    assert all(target.startswith("#") for target in re.findall(r'(?:href|src)="([^"]*)"', text))
    assert "<script" not in text
    assert "+12" in text


def shared(partition: int, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"group": "jobs", "topic": "orders", "topic_id": "id", "partition": partition}
    row |= {"start_offset": 10, "end_offset": 31, "lag": 20, "delivery_complete_count": 1, "written_at_ms": T}
    return row | {"batches": [{"first_offset": 12, "last_offset": 14, "state": "available", "deliveries": 3}]} | other


def test_a_share_group_is_behind_too() -> None:
    """In its part, in the index, among the offenders and in the sum; one that has committed nothing has no other place."""
    unread = shared(1, topic=None, start_offset=-1, end_offset=None, lag=None, batches=[])
    text = render(ReportData("/", T, 1, share_state=[shared(0), unread]))
    assert "<b>20</b>records behind" in text
    assert "<b>1</b>groups" in text
    assert "<dt>Largest lag</dt><dd>jobs: 20 records in orders-0</dd>" in text
    index = text[text.index('id="groups"') : text.index("<section")]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", index)[:3] == ["share", "-", "20"]
    part = text[text.index("<section") :]
    assert "share group, 20 records behind in 2 partitions" in part
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", part)
    assert cells[:7] == ["orders-0", "10", "31", "20", "1", "3", "3"]
    assert cells[8:15] == ["id-1", *"\N{EN DASH}" * 3, "1", "0", "\N{EN DASH}"]


def test_a_deleted_group_is_not_one_of_those_that_there_are() -> None:
    """It has its part, for what it was; made again, or with offsets since, it is there."""
    gone = [change(0), change(1, event="deleted")]
    there = [row | {"group": "h"} for row in (*gone, change(2, event="created"))]
    text = render(ReportData("/", T, 1, rebalances=[*gone, *there], members=[member("a", "x", T)]))
    assert "<b>1</b>groups" in text
    index = text[text.index('id="groups"') :].partition("</table>")[0]
    assert re.findall(r'<td class="t">([^<]*)</td>', index) == ["consumer", "deleted", "consumer", "-"]
    lag = {"group": "g", "topic": "t", "partition": 0, "offset": 3, "leader_epoch": 0, "metadata": ""}
    lag |= {"commit_timestamp_ms": T, "end_offset": 3, "lag": 0}
    assert "<b>2</b>groups" in render(ReportData("/", T, 1, rebalances=[*gone, *there], lag=[lag]))


def test_the_instant_that_the_tables_stand_for_is_said() -> None:
    assert "as of 2026-11-21 09:20:34.123 UTC" in render(ReportData("/", T + 60_000, 1, at_ms=T))
    assert "as of" not in render(ReportData("/", T, 1))


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1000, True)])
def test_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing is wider than the screen but what scrolls in itself, and the picture is neither empty nor of one colour."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    measure = (
        "<script>document.title = [document.documentElement.scrollWidth, innerWidth, document.querySelectorAll('rect').length,"
        " getComputedStyle(document.body).backgroundColor].join(' ')</script>"
    )
    text = render(whole()).replace("</body>", f"{measure}</body>")
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
            found = re.search(r"<title>(\d+) (\d+) (\d+) rgb\((\d+)", done.stdout)
            assert found is not None, done.stdout[:500]
            scroll, inner, rects, red = map(int, found.groups())
            assert scroll <= max(inner, width)
            assert rects == 2
            assert (red < 64) == dark
    assert picture.stat().st_size > 10_000
