"""What the parts say by themselves is read as figures."""

import json
import subprocess
import sys

import pytest

from bench import alone
from bench.figures import Figure


def test_the_log_by_itself() -> None:
    command = [sys.executable, "-m", "bench.storage", "--json", "--megabytes", "1", "--partitions", "3"]
    told = subprocess.run(command, check=True, capture_output=True, timeout=120)
    figures = list(alone._storage(json.loads(told.stdout)))
    assert {figure.unit for figure in figures} == {"s", "MB", "MB/s"}
    assert all(figure.value and figure.goal for figure in figures)


def test_the_assignors_by_themselves() -> None:
    command = [sys.executable, "-m", "bench.assignors", "--json", "--divisor", "100"]
    told = subprocess.run(command, check=True, capture_output=True, timeout=120)
    *costs, longest = alone._assignors(json.loads(told.stdout))
    assert [figure.goal for figure in costs if figure.goal] == [150.0, 50.0]
    assert all(figure.unit == "ms" and figure.value for figure in costs)
    assert longest.goal == 20.0


def test_a_peer_stands_beside_and_steps_are_milliseconds() -> None:
    told = [
        {"name": "dict: get", "per_second": 9.0, "goal_per_second": None, "peer": None},
        {"name": "get", "per_second": 8.0, "goal_per_second": 5, "peer": "dict: get", "peer_per_second": 9.0},
        {"name": "longest step of it", "per_second": 100.0, "goal_per_second": 50, "peer": None},
    ]
    assert list(alone._runtime(told)) == [
        Figure("runtime: get", "/s", "kohort", 8.0, goal=5),
        Figure("runtime: get", "/s", "", 9.0),
        Figure("runtime: longest step of it", "ms", "kohort", 10.0, goal=20.0),
    ]


def test_a_part_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "_PARTS", (("nothing", ["bench.no_such_part"], alone._storage),))
    (figure,) = alone.alone(lambda _: None)
    assert figure.value is None
    assert figure.reason is not None
    assert figure.reason.endswith("No module named bench.no_such_part")
