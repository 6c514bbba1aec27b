"""
What the commands say of logs that Apache Kafka wrote while clocks, groups or transactions were odd (data/pipeline/README.md).

`expected.json` holds for each command the row of its answer and what a column must be, as a reader of Apache Kafka, its tools
or its Admin said when the logs were recorded. A check with a clock holds while the clock of the machine is that much ahead of
the recording, and all others hold today.
"""

import json
import shlex
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.tables.burrow.verdicts import NUMBERS, OK, STOP, WARN

CASES = (
    "markers",
    "deleted-records",
    "event-time",
    "clock-ahead",
    "instant",
    "never-committed",
    "left-topic",
    "open-transaction",
    "shares",
    "reports",
)
CLOCKS_S = {"+60s": 60, "+2h": 7_200}
TODAY = None

Check = dict[str, Any]


def answer(directory: Path, run: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the rows of a command, or the samples of the exporter."""
    if run == "export":
        return 0, scraped(directory)
    name, *options = shlex.split(run)
    done = CliRunner().invoke(app, [name, str(directory), *options, "--json", "--engine", "local"])
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout or "[]")


def scraped(directory: Path) -> list[dict[str, Any]]:
    exporter = Exporter(str(directory))
    assert exporter.poll().problems == ()
    samples = [sample for family in exporter.collect() for sample in family.samples]
    return [{"metric": sample.name, "value": sample.value, **sample.labels} for sample in samples]


def holds(check: Check, code: int, rows: list[dict[str, Any]], instant_ms: list[int]) -> bool:
    if check["column"] == "exit":
        return bool(code == check["equals"])
    wanted = check["row"] or {}
    found = [row for row in rows if all(row.get(name, "missing") == value for name, value in wanted.items())]
    if check["column"] == "rows":
        return bool(len(found) == check["equals"])
    if not found:
        return bool(check.get("or_absent", False))
    return is_right(check, found[0][check["column"]], instant_ms)


def is_right(check: Check, value: Any, instant_ms: list[int]) -> bool:
    low, high = check.get("between", instant_ms)
    rules: dict[str, Callable[[Any], bool]] = {
        "equals": lambda wanted: value == wanted,
        "in_": lambda wanted: value in wanted,
        "not_in": lambda wanted: value not in wanted,
        "contains": lambda wanted: wanted in value,
        "between": lambda _: low <= value <= high,
        # The exporter of logs at rest counts to their end, too.
        "waited_since": lambda wanted: low - wanted <= value * 1000 <= high - wanted,
    }
    (found,) = (rule(check[name]) for name, rule in rules.items() if name in check)
    return found


@pytest.fixture(scope="session")
def expected(recorded: Callable[[str], Path]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((recorded("odd") / "expected.json").read_text())
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_odd_logs(
    recorded: Callable[[str], Path], expected: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    told = expected[case]
    wrong = []
    for clock in (TODAY, *CLOCKS_S):
        ask = cache(lambda run: answer(recorded("odd") / case, run))
        with monkeypatch.context() as patched:
            if clock is not TODAY:
                ahead_s = told["recorded_ms"] / 1000 + CLOCKS_S[clock]
                patched.setattr(time, "time", lambda now_s=ahead_s: now_s)
            checks = [check for check in told["checks"] if check.get("clock") == clock]
            wrong += [check for check in checks if not holds(check, *ask(check["run"]), told["instant_ms"])]
    assert wrong == []


@pytest.mark.parametrize("case", CASES)
def test_the_exporter_judges_as_status_does(recorded: Callable[[str], Path], case: str) -> None:
    """
    Of a directory at rest. An exporter knows the lag at commits (WARN), and the ends of logs before (STOP or STALL), only of
    what it has seen.
    """
    worst: dict[str, int] = {}
    for row in answer(recorded("odd") / case, "status")[1]:
        worst[row["group"]] = max(NUMBERS[row["verdict"]], worst.get(row["group"], 0))
    samples = scraped(recorded("odd") / case)
    told = {row["group"]: row["value"] for row in samples if row["metric"] == "kohort_group_verdict"}
    seen = {NUMBERS[WARN]: NUMBERS[OK], NUMBERS["STALL"]: NUMBERS[STOP]}
    assert {group: seen.get(number, number) for group, number in told.items()} == {
        group: seen.get(number, number) for group, number in worst.items()
    }
