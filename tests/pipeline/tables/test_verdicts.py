"""The verdicts of partitions, a table of cases: what Burrow's status misses, and what it has right."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.pipeline.jobs import published
from kohort.pipeline.tables import contract
from kohort.pipeline.tables.burrow.verdicts import (
    SEVERITIES,
    PartitionFacts,
    is_rising,
    judge,
    last_changes,
    owned_since,
    verdicts,
    worst,
)

T = 1_795_252_834_123


UNCOMMITTED = {"status": None, "lag": None, "end_offset": 200, "has_members": True}
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    # case                                    facts                                                        verdict   why
    ("nothing is left to read", {"status": "OK", "lag": 0}, "OK", ""),
    ("nothing is left to read, no members", {"status": "OK", "lag": 0, "has_members": False}, "OK", ""),
    ("caught up and silent", {"status": "STOP", "lag": 0}, "OK", ""),
    ("markers are left, no members", {"status": "STOP", "lag": 3, "has_members": False, "is_all_read": True}, "OK", ""),
    (
        "markers are left of lost records",
        {"status": "OK", "lag": 3, "is_all_read": True, "records_lost": 2},
        "LOST",
        "2",
    ),
    ("the lag is allowed", {"status": "STOP", "lag": 5, "allowed_lag": 5}, "OK", ""),
    ("Burrow's STOP", {"status": "STOP", "lag": 9, "has_members": True}, "STOP", "no commit for"),
    (
        "Burrow's STALL without members",
        {"status": "STALL", "lag": 9, "has_members": False},
        "STOP",
        "no members",
    ),
    ("Burrow's STALL", {"status": "STALL", "lag": 9}, "STALL", "repeat one offset"),
    ("Burrow's REWIND", {"status": "REWIND", "lag": 9}, "REWIND", "went back"),
    ("a dead group, silent for a short time", {"status": "OK", "lag": 9, "has_members": False}, "STOP", "no members"),
    ("a dead group that Burrow warns of", {"status": "WARN", "lag": 9, "has_members": False}, "STOP", "no members"),
    ("a group dead for more than a week", {"status": None, "lag": 9, "has_members": None}, "STOP", "has expired"),
    ("members are unknown", {"status": "OK", "lag": 9, "has_members": None}, "OK", ""),
    ("Burrow's WARN", {"status": "WARN", "lag": 9, "has_members": True}, "WARN", "does not shrink"),
    ("the lag rises for hours", {"status": "OK", "lag": 9, "is_rising": True}, "WARN", "rises"),
    ("records were deleted unread", {"status": "OK", "lag": 9, "records_lost": 4}, "LOST", "4 records"),
    ("a commit beyond the end", {"status": "OK", "lag": 0, "offset": 9, "end_offset": 5}, "LOST", "beyond"),
    ("a commit at the end", {"status": "OK", "lag": 0, "offset": 5, "end_offset": 5}, "OK", ""),
    ("the log is unknown", {"status": None, "lag": None, "offset": 5}, "UNKNOWN", "not here"),
    (
        "the log is unknown, no members",
        {"status": None, "lag": None, "offset": 5, "has_members": False},
        "UNKNOWN",
        "not here; the group has no members",
    ),
    ("never committed for long", {**UNCOMMITTED, "owned_ms": 60_000}, "STOP", "no commit for 1.0 min"),
    ("never committed, and nothing to read", {**UNCOMMITTED, "owned_ms": 60_000, "is_all_read": True}, "OK", ""),
    ("never committed, and an empty log", {**UNCOMMITTED, "owned_ms": 60_000, "end_offset": 0}, "OK", ""),
    ("never committed, and the log is unknown", {**UNCOMMITTED, "owned_ms": 60_000, "end_offset": None}, "UNKNOWN", ""),
    ("commits once, then stands", {"status": "STALL", "lag": 9, "commits": 1}, "STALL", "no commit since the first"),
    (
        "stands at an open transaction",
        {"status": "STALL", "lag": 9, "waits_at": "the ongoing transaction of tx"},
        "STALL",
        "one offset; it waits at the ongoing transaction of tx",
    ),
    (
        "goes on to an open transaction",
        {"status": "OK", "lag": 9, "waits_at": "the ongoing transaction of tx"},
        "OK",
        "",
    ),
]

LAGS: list[tuple[list[int | None], bool]] = [
    ([5, 6, 7, 8], True),
    ([5, 9, 7, 12, 11, 20], True),  # single decreases, which reset Burrow's WARN
    ([0, 90, 0, 90, 0, 90], False),  # a batch job that catches up each time
    ([5, 5, 5, 5], False),
    ([9, 8, 7, 6], False),
    ([5, 9, 7, 5], False),
    ([5, 6, 5, 20], False),  # a peak, from the same low-water mark
    ([5, None, 6, 7], False),  # too few to tell
    ([None, 5, None, 6, 7, 8], True),
    ([], False),
]


@pytest.mark.parametrize(("case", "facts", "verdict", "why"), CASES, ids=[case[0] for case in CASES])
def test_rules(case: str, facts: dict[str, Any], verdict: str, why: str) -> None:
    found = judge(PartitionFacts(**facts))
    assert found.name == verdict
    assert why in found.why
    assert bool(found.why) == (verdict != "OK")


# facts of a partition that is OK for a reason that the reader wants to know
CALM: list[tuple[dict[str, Any], str]] = [
    ({**UNCOMMITTED, "owned_ms": 59_999}, "no commit yet, for 60.0 s"),
    ({"status": "STOP", "lag": 9, "has_members": True, "is_subscribed": False}, "no member subscribes"),
    (
        {"status": "OK", "lag": 9, "has_members": True, "is_subscribed": False, "records_lost": 4},
        "no member subscribes",
    ),
]


@pytest.mark.parametrize(("facts", "why"), CALM)
def test_what_looks_stuck_and_is_not(facts: dict[str, Any], why: str) -> None:
    found = judge(PartitionFacts(**facts))
    assert (found.name, found.why[: len(why)]) == ("OK", why)


@pytest.mark.parametrize("subscribed", [None, True])
def test_a_topic_counts_as_read_unless_all_subscriptions_are_known(subscribed: bool | None) -> None:
    facts = PartitionFacts(status="STOP", lag=9, has_members=True, is_subscribed=subscribed)
    assert judge(facts).name == "STOP"


def stay(since_ms: int, until_ms: int | None, group: str = "g", partition: int = 0) -> dict[str, Any]:
    return {"group": group, "topic": "t", "partition": partition, "since_ms": since_ms, "until_ms": until_ms}


# the stays of a partition with its owners: since when it has one
STAYS: list[tuple[list[dict[str, Any]], int | None]] = [
    ([stay(5, None)], 5),
    ([stay(5, 9)], None),
    ([stay(5, 9), stay(9, None)], 5),
    ([stay(9, None), stay(5, 9)], 5),
    # A member that crashes and comes back, again and again.
    ([stay(0, 50_000), stay(80_000, 120_000), stay(420_000, None)], 0),
    ([stay(0, 50_000), stay(80_000, 119_999), stay(420_000, None)], 420_000),
]


@pytest.mark.parametrize(("stays", "since_ms"), STAYS)
def test_since_when_a_partition_is_owned(stays: list[dict[str, Any]], since_ms: int | None) -> None:
    assert owned_since(stays) == ({} if since_ms is None else {("g", "t", 0): since_ms})


@pytest.mark.parametrize(("lags", "expected"), LAGS)
def test_a_rising_low_water_mark(lags: list[int | None], expected: bool) -> None:
    assert is_rising(lags) == expected


def test_the_worst_of_some_verdicts() -> None:
    assert worst(SEVERITIES) == "LOST"
    assert worst(["STOP", "OK"]) == "STOP"
    assert worst([]) == ""


def change(group: str, log_offset: int, *members: str, event: str = "rebalanced") -> dict[str, Any]:
    return {"group": group, "log_offset": log_offset, "event": event, "members": list(members)}


def test_the_last_change_tells_the_members() -> None:
    rows = [change("a", 9), change("a", 3, "one"), change("b", 4), change("b", 7, "two")]
    assert last_changes(rows) == {"a": rows[0], "b": rows[3]}


def lag(group: str, partition: int, offset: int, end: int | None = 100, **other: Any) -> dict[str, Any]:
    row = {"group": group, "topic": "t", "partition": partition, "offset": offset, "leader_epoch": 0, "metadata": ""}
    row |= {"commit_timestamp_ms": T, "end_offset": end, "lag": None if end is None else max(end - offset, 0)}
    return row | {"next_produced_at_ms": None, "time_lag_ms": 1000, "records_lost": 0} | other


def status(group: str, partition: int, name: str, **other: Any) -> dict[str, Any]:
    row = {"group": group, "topic": "t", "partition": partition, "status": name, "basis": name, "lag": 1, "commits": 3}
    return row | {"last_commit_ms": T + 5, "is_rising": False} | other


LAG = [lag("alive", 0, 100), lag("alive", 1, 60), lag("dead", 0, 90), lag("dead", 1, 50), lag("gone", 0, 1)]
STATUS = [
    status("alive", 0, "OK"),
    status("alive", 1, "OK", is_rising=True),
    status("dead", 0, "OK"),
    status("dead", 1, "OK"),
]
REBALANCES = [change("alive", 1, "m"), change("dead", 2, "m"), change("dead", 3, event="emptied")]


def test_a_share_group_without_members_is_stuck() -> None:
    """As the exporter says. A share group commits no offsets, so Burrow says nothing; an unknown topic has its id as name."""
    state = {"topic": "t", "topic_id": "id", "partition": 0, "lag": 3, "written_at_ms": T}
    state |= {"start_offset": 5, "end_offset": 8, "state_epoch": 1}
    rows = [state | {"group": "alive"}, state | {"group": "dead"}, state | {"group": "dead", "topic": None, "lag": 0}]
    rows += [state | {"group": "alive", "topic": "gone", "end_offset": None, "lag": None}]
    # A partition that the group has not begun is none.
    rows += [state | {"group": "dead", "topic": "new", "start_offset": None, "lag": None}]
    found = verdicts([], [], REBALANCES, share=rows)
    assert [(row["group"], row["topic"], row["verdict"], row["why"], row["status"]) for row in found] == [
        ("dead", "t", "STOP", "the group has no members", None),
        ("alive", "gone", "UNKNOWN", "the log of the partition is not here", None),
        ("alive", "t", "OK", "", None),
        ("dead", "id", "OK", "", None),
    ]


LEFT = [{"instance_id": instance, "client_id": f"c{number}"} for number, instance in enumerate([None, "i", None, None])]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (LEFT[:1], ": c0 left, or expired, at 09:27:14"),
        (LEFT[:2], ": c0, i left, or expired, at 09:27:14"),
        (LEFT, ": c0, c2, c3 and 1 more left, or expired, at 09:27:14"),
        ([], ""),
    ],
)
def test_the_reason_names_who_left_and_when(left: list[dict[str, Any]], why: str) -> None:
    emptied = change("dead", 3, event="emptied") | {"left": left, "completed_at_ms": T + 400_000}
    (found,) = verdicts([lag("dead", 0, 90)], [status("dead", 0, "OK")], [emptied], at_ms=T + 500_000)
    assert (found["verdict"], found["why"], found["since_ms"]) == (
        "STOP",
        f"the group has no members{why}",
        T + 400_000,
    )


def test_since_when_a_verdict_holds() -> None:
    rows = [lag("alive", 0, 100), lag("alive", 1, 60), lag("alive", 2, 60), lag("alive", 3, 60)]
    rows.append(lag("alive", 4, 0) | {"offset": None, "lag": None, "time_lag_ms": None, "next_produced_at_ms": T})
    rows[-1]["commit_timestamp_ms"] = None
    states = [status("alive", number, name) for number, name in enumerate(["STOP", "STOP", "STALL", "WARN"])]
    owned = [{"group": "alive", "topic": "t", "partition": 4, "since_ms": T, "until_ms": None}]
    found = verdicts(rows, states, [change("alive", 1, "m")], owned=owned, at_ms=T + 100_000)
    assert {row["partition"]: (row["verdict"], row["since_ms"]) for row in found} == {
        0: ("OK", None),
        1: ("STOP", T + 5),
        2: ("STALL", None),
        3: ("WARN", None),
        4: ("STOP", T),
    }


def test_the_worst_come_first() -> None:
    rows = verdicts(LAG, STATUS, REBALANCES)
    assert [(row["group"], row["partition"], row["verdict"], row["status"], row["lag"]) for row in rows] == [
        ("gone", 0, "STOP", None, 99),
        ("dead", 1, "STOP", "OK", 50),
        ("dead", 0, "STOP", "OK", 10),
        ("alive", 1, "WARN", "OK", 40),
        ("alive", 0, "OK", "OK", 0),
    ]
    assert [row["last_commit_ms"] for row in rows][:2] == [T, T + 5]


# time lag, when the oldest unread record was produced, verdict
UNREAD = [
    (0, None, "OK"),  # nothing that a reader gets
    (0, T + 9, "STOP"),  # a record of a clock that is ahead
    (5, T, "STOP"),
    (None, None, "STOP"),  # not known
]


@pytest.mark.parametrize(("time_lag_ms", "produced_ms", "verdict"), UNREAD)
def test_lag_without_a_record_to_read_is_none(time_lag_ms: int | None, produced_ms: int | None, verdict: str) -> None:
    row = lag("dead", 0, 90, time_lag_ms=time_lag_ms, next_produced_at_ms=produced_ms)
    (found,) = verdicts([row], [], REBALANCES)
    assert (found["verdict"], found["lag"]) == (verdict, 10)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Published tables."""
    tables = {"time_lag": LAG, "status": STATUS, "rebalances": REBALANCES}
    tables |= {"offset_commits": [], "members": [{"group": "alive"}], "share_state": []}
    tables |= {"assignments": [], "blocking_transactions": []}

    def write(directory: Path) -> None:
        for name, rows in tables.items():
            (directory / name).mkdir()
            columns = {column: [row.get(column) for row in rows] for column in contract.COLUMNS[name]}
            table = pa.table(columns) if rows else pa.table({column: pa.array([], pa.string()) for column in columns})
            pq.write_table(table, directory / name / "part-0.parquet")

    published.publish(tmp_path / "out", "/a/source", write, made_of={})
    return tmp_path / "out"


EXITS = [
    # options                                exit  groups that are printed
    ((), 0, ["gone", "dead", "dead", "alive", "alive"]),
    (("--fail-on", "WARN"), 1, ["gone", "dead", "dead", "alive"]),
    (("--fail-on", "stop"), 1, ["gone", "dead", "dead"]),
    (("--fail-on", "STALL"), 0, []),
    (("--fail-on", "STOP", "--group", "alive"), 0, []),
    (("--fail-on", "WARN", "--group", "alive"), 1, ["alive"]),
]


@pytest.mark.parametrize(("options", "code", "groups"), EXITS)
def test_the_exit_code_and_what_is_printed(out: Path, options: tuple[str, ...], code: int, groups: list[str]) -> None:
    """Nothing is printed if nothing is wrong, as cron likes it."""
    done = CliRunner().invoke(app, ["status", str(out), *options])
    assert done.exit_code == code, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == groups
    done = CliRunner().invoke(app, ["status", str(out), *options, "--json"])
    assert done.exit_code == code
    assert [row["group"] for row in json.loads(done.stdout)] == groups


def test_fail_on_of_logs_in_this_process(
    recorded: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without Spark and Java; the exit code 2 tells that the logs could not be read, which is not the answer 0 or 1."""
    logs = str(recorded("main") / "logs")

    def status(source: str, *options: str) -> tuple[int, list[tuple[str, str, int]], list[str]]:
        done = CliRunner().invoke(app, ["status", source, "--engine", "local", "--json", *options])
        rows = json.loads(done.stdout or "[]")
        return (
            done.exit_code,
            [(row["group"], row["topic"], row["partition"]) for row in rows],
            [row["verdict"] for row in rows],
        )

    code, places, found = status(logs)
    assert code == 0
    assert {"OK", "STOP"} <= set(found)
    for verdict in ("STOP", "LOST"):
        least = SEVERITIES.index(verdict)
        expected = [place for place, one in zip(places, found, strict=True) if SEVERITIES.index(one) >= least]
        assert status(logs, "--fail-on", verdict)[:2] == (int(bool(expected)), expected)
    assert status(logs, "--fail-on", "WARN", "--group", "nobody")[:2] == (2, [])
    assert "has no group 'nobody'" in capfd.readouterr().err
    assert status(str(tmp_path), "--fail-on", "WARN")[:2] == (2, [])
    assert "holds no log of a group coordinator" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fail-on", "OK"), "'OK' is no verdict; verdicts are WARN, UNKNOWN, STOP, STALL, REWIND, LOST"),
        (("--allow-unknown",), "use it with --fail-on VERDICT"),
        (("--fail-on", "STOP", "--history"), "cannot be used with --history"),
    ],
)
def test_what_cannot_be_meant(
    out: Path, options: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert CliRunner().invoke(app, ["status", str(out), *options]).exit_code == 2
    assert sentence in capfd.readouterr().err


def test_what_cannot_be_judged_does_not_pass(recorded: Callable[[str], Path], tmp_path: Path) -> None:
    """A copy of the coordinator's log alone: no verdict is OK, and one line names the logs that are not there."""
    for name in ("__consumer_offsets-0", "clock-0"):
        shutil.copytree(recorded("odd") / "deleted-records" / name, tmp_path / name)

    def run(*options: str) -> tuple[int, set[str], str]:
        done = CliRunner().invoke(app, ["status", str(tmp_path), "--engine", "local", "--json", *options])
        return done.exit_code, {row["verdict"] for row in json.loads(done.stdout or "[]")}, done.stderr

    missing = "has no logs of trimmed-0, trimmed-1, trimmed-2, trimmed-3, so the lag there is unknown"
    code, verdicts, told = run()
    assert (code, verdicts) == (0, {"UNKNOWN", "OK"})
    assert missing in told
    assert re.search(r"(?m)^As of 2026-11-\d\d [\d:.]+ UTC, [\d.]+ \w+ (ago|ahead of this machine's clock)$", told)
    code, verdicts, told = run("--fail-on", "LOST")
    assert (code, verdicts) == (1, {"UNKNOWN"})
    assert missing in told
    assert run("--fail-on", "STOP", "--allow-unknown") == (0, set(), "")
    assert run("--fail-on", "WARN", "--allow-unknown")[:2] == (0, set())
    done = CliRunner().invoke(app, ["lag", str(tmp_path), "--engine", "local"])
    assert (done.exit_code, missing in done.stderr) == (0, True)
