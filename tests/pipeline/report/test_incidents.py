"""Who is behind, since when, why, and what to do next: at the top of the page, on a phone, too."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.report.formatting import moment, rate
from kohort.pipeline.report.group_page import GroupPage
from kohort.pipeline.report.incidents import SHOWN
from kohort.pipeline.report.page import ReportData, render

T = 1_795_252_834_000
AT = T + 36_000_000
"""The instant of the tables: ten hours after T, 09:20:34."""
PLACE: dict[str, Any] = {"group": "g", "topic": "orders", "partition": 0}


def lag(**other: Any) -> dict[str, Any]:
    row = PLACE | {"offset": 3, "leader_epoch": 0, "metadata": "", "commit_timestamp_ms": T + 5000, "end_offset": 10}
    return row | {"lag": 7, "next_produced_at_ms": T, "time_lag_ms": AT - T, "records_lost": 0} | other


def status(name: str, **other: Any) -> dict[str, Any]:
    row = PLACE | {"status": name, "basis": name, "lag": 7, "commits": 10, "last_commit_ms": T + 5000}
    return row | {"is_rising": False} | other


def member(name: str) -> dict[str, Any]:
    row = {"group": "g", "member_id": name, "instance_id": None, "client_id": name, "client_host": "/10.0.0.1"}
    return row | {"since_ms": T + 1000, "until_ms": None}


def change(event: str, at: int, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"group": "g", "group_type": "consumer", "log_offset": at, "event": event, "generation": 1}
    row |= {"began_at_ms": T + at, "completed_at_ms": T + at, "members": [], "joined": [], "left": [], "why": []}
    return row | {"sync_ms": None, "duration_ms": None, "moved": 0, "lag_cost": None} | other


def stay(name: str) -> dict[str, Any]:
    row = PLACE | {"group_type": "consumer", "member_id": name, "topic_id": None, "subtopology": None, "role": None}
    return row | {"since_ms": T + 1000, "until_ms": None}


def point(timestamp_ms: int, lag: int) -> dict[str, Any]:
    return {"group": "g", "timestamp_ms": timestamp_ms, "lag": lag, "lag_max": lag}


JOINED = change("rebalanced", 1000, members=[member("billing")], joined=[member("billing")])
EMPTIED = change("emptied", 9000, left=[member("billing")])
OPEN: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "producer_id": 7,
    "transactional_id": "pay",
    "start_offset": 3,
}
OPEN |= {"duration_ms": 60_000, "blocked_records": 7, "verdict": "long", "start_ms": T}
OWNED: dict[str, Any] = {"rebalances": [JOINED], "members": [member("billing")], "assignments": [stay("billing")]}
NO_STATUS: dict[str, Any] = {"status": []}

# What the tables hold, the verdict, since when, why, and the next step.
CASES: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "without members": (
        {"rebalances": [JOINED, EMPTIED]},
        "STOP",
        "09:20:43",
        "no member since 09:20:43, when billing on /10.0.0.1 left; last commit at 09:20:39",
        "start billing on /10.0.0.1 again",
    ),
    "silent": (
        OWNED,
        "STOP",
        "09:20:39",
        "no commit since 09:20:39; billing on /10.0.0.1 has orders-0",
        "look at billing on /10.0.0.1: in the group, but without a commit",
    ),
    "silent without owner": (
        OWNED | {"assignments": []},
        "STOP",
        "09:20:39",
        "no commit since 09:20:39; no member has orders-0",
        "find out why no member has orders-0: subscription or assignor",
    ),
    "without known members": (
        {},
        "STOP",
        "09:20:39",
        "no commit since 09:20:39; members are not known",
        "look at the program that commits for it: the log knows no members",
    ),
    "rebalancing": (
        OWNED | {"rebalances": [JOINED, change("rebalanced", 7000, completed_at_ms=None, members=[member("billing")])]},
        "STOP",
        "09:20:39",
        "no commit since 09:20:39; billing on /10.0.0.1 has orders-0; a rebalance is in progress since 09:20:41",
        "find the member that does not join again: its poll takes too long, or it is gone",
    ),
    "one offset": (
        OWNED | {"status": [status("STALL")]},
        "STALL",
        "09:20:34",
        "billing on /10.0.0.1 goes on committing offset 3, the last time at 09:20:39",
        "read the record at offset 3 of orders-0: the consumer does not get past it",
    ),
    "one commit": (
        OWNED | {"status": [status("STALL", commits=1)]},
        "STALL",
        "09:20:39",
        "one commit, of offset 3 at 09:20:39, and none since; billing on /10.0.0.1 has orders-0",
        "look at billing on /10.0.0.1: in the group, but without a commit",
    ),
    "back": (
        OWNED | {"status": [status("REWIND")]},
        "REWIND",
        "09:20:34",
        "the committed offset went back, it is 3 now; last commit at 09:20:39",
        "find who set the offset back: a reset by a tool, or a consumer that seeks",
    ),
    "open transaction": (
        OWNED | {"status": [status("STALL")], "blocking_transactions": [OPEN]},
        "STALL",
        "09:20:34",
        (
            "billing on /10.0.0.1 goes on committing offset 3, the last time at 09:20:39; it waits at the long transaction of"
            " pay, open for 1.0 min"
        ),
        "look at the program of pay: it neither commits nor aborts",
    ),
    "hanging transaction": (
        OWNED | {"blocking_transactions": [OPEN | {"verdict": "hanging", "transactional_id": None}]},
        "STOP",
        "09:20:39",
        (
            "no commit since 09:20:39; billing on /10.0.0.1 has orders-0; it waits at the hanging transaction of producer 7,"
            " open for 1.0 min"
        ),
        "end the transaction: kohort transactions abort --topic orders --partition 0 --start-offset 3",
    ),
    "never": (
        OWNED | NO_STATUS | {"lag": [lag(offset=None, lag=None, commit_timestamp_ms=None)]},
        "STOP",
        "09:20:35",
        "billing on /10.0.0.1 has had orders-0 since 09:20:35 and has never committed",
        "look at billing on /10.0.0.1: in the group, but without a commit",
    ),
    "lost": (
        OWNED | {"lag": [lag(records_lost=2)]},
        "LOST",
        "09:20:34",
        "2 records were deleted before the group read them",
        "raise the retention of orders until the group has caught up",
    ),
    "lost and in front of a transaction": (
        OWNED | {"lag": [lag(records_lost=2)], "blocking_transactions": [OPEN | {"verdict": "unknown"}]},
        "LOST",
        "09:20:34",
        "2 records were deleted before the group read them; it waits at the open transaction of pay, open for 1.0 min",
        "look at the program of pay: it neither commits nor aborts",
    ),
    "lost without members": (
        {"rebalances": [JOINED, EMPTIED], "lag": [lag(records_lost=2)]},
        "LOST",
        "09:20:43",
        "2 records were deleted before the group read them; no member since 09:20:43",
        "start billing on /10.0.0.1 again, before retention deletes more",
    ),
    "lost and nothing behind": (
        OWNED | {"lag": [lag(records_lost=7, time_lag_ms=0)]},
        "LOST",
        "09:20:39",
        "7 records were deleted before the group read them; nothing else waits",
        "take the lost records from their source again if they are needed: no reader gets them here",
    ),
    "beyond the end": (
        OWNED | {"lag": [lag(offset=12, lag=0, time_lag_ms=0)]},
        "LOST",
        "09:20:39",
        "the committed offset 12 is beyond the log end offset 10; nothing else waits",
        "find out why the log of orders-0 is shorter than it was, as after the topic was made again",
    ),
    "unknown": (
        OWNED | {"lag": [lag(end_offset=None, lag=None, time_lag_ms=None)]},
        "UNKNOWN",
        "09:20:39",
        "the log of orders-0 is not here; last commit at 09:20:39",
        "make the report where the log of orders-0 is, or of the cluster: kafka://HOST:PORT",
    ),
    "growing": (
        OWNED | {"status": [status("WARN")], "lag_picture": [point(T, 0), point(AT, 3600)]},
        "WARN",
        "09:20:34",
        "commits advance, and the lag does not shrink: it rises 1.0/s",
        "make the work per record faster: more members have nothing to read",
    ),
}


def told(text: str) -> list[tuple[str, ...]]:
    """Return the incidents of a page: group, verdicts, since when, where and why, the next step."""
    found = re.findall(
        r'<li><p class="who"><a[^>]*>([^<]*)</a>: <b[^>]*>([^<]*)</b>([^<]*)</p><p class="told">([^<]*)</p>'
        r'<p class="told"><b>Next:</b> ([^<]*)</p></li>',
        text,
    )
    return [tuple(map(unescape, one)) for one in found]


@pytest.mark.parametrize("case", CASES)
def test_each_group_has_its_own_reason_and_step(case: str) -> None:
    tables, verdict, since, why, step = CASES[case]
    text = render(ReportData("/", AT, 1, at_ms=AT, **{"lag": [lag()], "status": [status("STOP")], **tables}))
    ((group, verdicts, when, where, next_step),) = told(text)
    assert (group, verdicts, next_step) == ("g", verdict, step)
    assert when.startswith(f" since {since} (")
    assert where.startswith("orders-0")
    assert where.endswith(f": {why}")
    # The same in the table of groups and in the section of the group.
    assert f'<td class="why">{why}</td>' in text
    assert f"({why})" in text[text.index("<section") :]


def test_what_waits_for_ten_hours_comes_before_what_is_lost() -> None:
    """A group that lost records and has nothing behind it comes after all that wait, the longest first."""
    rows = [
        lag(group="lost", records_lost=7, time_lag_ms=0),
        lag(group="minute", lag=90, time_lag_ms=60_000),
        lag(group="hours", lag=2),
        lag(group="lost-and-behind", records_lost=1, time_lag_ms=7_200_000),
        lag(group="unknown", end_offset=None, lag=None, time_lag_ms=None),
        lag(group="fine", lag=0, time_lag_ms=0),
    ]
    text = render(ReportData("/", AT, 1, at_ms=AT, lag=rows))
    order = ["hours", "lost-and-behind", "minute", "lost", "unknown"]
    assert [one[0] for one in told(text)] == order[:SHOWN]
    index = text[text.index('id="index"') :].partition("</table>")[0]
    assert re.findall(r'<td><a href="#[^"]*">([^<]*)<', index) == [*order, "fine"]
    offsets = text[text.index('<h2 id="offsets">') :].partition("</table>")[0]
    assert re.findall(r'<td><a href="#[^"]*">([^<]*)<', offsets) == [*order, "fine"]


def test_a_graver_partition_of_a_group_is_named() -> None:
    rows = [lag(), lag(partition=1, records_lost=7, time_lag_ms=0)]
    ((_, verdicts, _, where, _),) = told(render(ReportData("/", AT, 1, at_ms=AT, lag=rows)))
    assert verdicts == "LOST, STOP"
    assert where.startswith("orders-0 and 1 more, 14 records behind, the oldest for 10.0 h: no commit since")
    assert where.endswith("; orders-1 is LOST: 7 records were deleted before the group read them")


def test_a_page_has_no_more_incidents_than_fit_a_phone() -> None:
    rows = [lag(group=f"g{at}") for at in range(SHOWN + 2)]
    text = render(ReportData("/", AT, 1, at_ms=AT, lag=rows))
    assert len(told(text)) == SHOWN
    assert '<a href="#groups">and 2 more</a>' in text
    assert told(render(ReportData("/", AT, 1, at_ms=AT, lag=[lag(lag=0, time_lag_ms=0)]))) == []


def test_the_table_of_groups_has_topic_owner_and_trend() -> None:
    series = [point(AT - 7_200_000, 1), point(AT - 9, 7201)]
    tables = OWNED | {"lag": [lag(lag=7201), lag(topic="other", time_lag_ms=5)]}
    text = render(ReportData("/", AT, 1, at_ms=AT, status=[status("STOP")], lag_picture=series, **tables))
    index = text[text.index('id="index"') :].partition("</table>")[0]
    titles = re.findall(r"<th [^>]*>([^<]*)<", index)
    cells = re.findall(r"<td[^>]*>(?:<a[^>]*>)?([^<]*)<", index)
    row = dict(zip(titles, cells, strict=True))
    assert (row["Topic"], row["Owner"]) == ("orders +1", "billing")
    assert (row["Since"], row["Trend"], row["Waiting"]) == ("09:20:39", "rises 2.0/s", "10.0 h")


def test_a_trend_is_that_of_the_last_hour() -> None:
    def page(*points: tuple[int, int]) -> GroupPage:
        return GroupPage("g", lag=[lag()], picture=[{"timestamp_ms": AT - ago, "lag": of} for ago, of in points])

    assert page((7_200_000, 1900), (3_700_000, 100), (3_500_000, 5), (10, 3700)).trend(AT) == "rises 1.0/s"
    assert page((60_000, 70), (5, 10)).trend(AT) == "falls 1.0/s"
    assert page((999, 0), (5, 10)).trend(AT) == ""
    assert page().trend(AT) == ""


RATES = [(0.0, "steady"), (1.25, "rises 1.2/s"), (-0.5, "falls 30.0/min"), (0.001, "rises 3.6/h")]


@pytest.mark.parametrize(("per_second", "text"), RATES)
def test_a_rate_has_the_unit_that_fits(per_second: float, text: str) -> None:
    assert rate(per_second) == text


def test_a_moment_has_its_day_if_that_is_not_today() -> None:
    assert moment(T, AT) == "09:20:34"
    assert moment(T - 86_400_000, AT) == "2026-11-20 09:20:34"


def test_captions_and_landmarks() -> None:
    text = render(ReportData("/", AT, 1, at_ms=AT, lag=[lag()], **OWNED))
    assert text.count("<table") == text.count("<caption>") > 3
    (navigation,) = re.findall(r'<nav aria-label="Parts of the page">(.*?)</nav>', text)
    links = re.findall(r'href="#([^"]*)"', navigation)
    assert links == ["issues", "groups", "lag", "offsets", "rebalances"]
    assert all(f'<h2 id="{link}">' in text for link in links)
    assert text.count("<header>") == text.count("<main>") == 1


PHONE = (390, 844)
FRAMED = """<!doctype html><title>-</title><body><script>
const frame = document.createElement('iframe');
frame.width = %d; frame.height = %d; frame.srcdoc = %s; document.body.append(frame);
frame.onload = () => {
  const inner = frame.contentDocument;
  const boxes = [...inner.querySelectorAll('.incidents li')].map(li => li.getBoundingClientRect());
  const top = inner.querySelector('#top').getBoundingClientRect();
  document.title = [frame.contentWindow.innerWidth, inner.documentElement.scrollWidth, Math.ceil(top.height),
    Math.ceil(boxes[0].bottom), boxes.length].join(' ');
};
</script>"""


def test_the_top_issues_fit_the_screen_of_a_phone(tmp_path: Path) -> None:
    """With 14 stuck groups and long names; the first of them, since when, why and what to do, is on the first screen."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    topic = "payments.settlement.events.v2"
    rows = [lag(group=f"prod.payments-team.settlement-of-{at}-v2", topic=topic) for at in range(14)]
    tables = {"lag": rows, "blocking_transactions": [OPEN | {"topic": topic, "verdict": "hanging"}]}
    text = render(ReportData("kafka://broker-1.prod.example.com:9092", AT + 1, 1, at_ms=AT, **tables))
    width, height = PHONE
    page = tmp_path / "phone.html"
    page.write_text(FRAMED % (width, height, json.dumps(text).replace("</", "<\\/")), encoding="utf-8")
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}",
    )
    command = (chromium, *flags, "--window-size=1280,1200", "--dump-dom", page.as_uri())
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<title>(\d+) (\d+) (\d+) (\d+) (\d+)<", done.stdout)
    assert found is not None, done.stdout[:500]
    inner, scroll, top, first, shown = map(int, found.groups())
    assert (inner, scroll, shown) == (width, width, SHOWN)
    assert top <= height
    assert first <= height
