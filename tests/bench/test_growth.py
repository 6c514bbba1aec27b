"""The table of `make growth`, and that the requests which it counts succeed."""

import subprocess
import sys

from bench.growth import STEP_MAX, step, table
from tests.conftest import NIGHTLY


def test_the_table_has_the_larger_step_of_each_request() -> None:
    counts = {"topics|Fetch|10": 10.0, "topics|Fetch|1000": 12.0, "topics|Fetch|100": 8.0, "groups|Fetch|1": 5.0}
    assert table(counts) == [
        "| topics | 10 / 100 / 1,000 | Fetch | 10.0 / 8.0 / 12.0 | 1.50 |",
        "| groups | 1 | Fetch | 5.0 | 1.00 |",
    ]
    assert step({1: 1.0, 10: STEP_MAX, 100: 1.0}) == STEP_MAX


@NIGHTLY
def test_the_requests_of_a_dimension_are_answered() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.growth", "--times", "--only", "topics"],
        check=False,  # times of a busy machine may be above the goal
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert [line.split("|")[3].strip() for line in run.stdout.splitlines()] == [
        "ConsumerGroupHeartbeat",
        "OffsetCommit",
        "Produce",
        "Fetch",
        "Metadata",
    ], run.stderr
