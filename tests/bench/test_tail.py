"""The works of `make tail` are done; how long heartbeats wait beside them is no matter of a test."""

import subprocess
import sys

import pytest

from bench.tail import WORKS
from tests.conftest import NIGHTLY


@NIGHTLY
@pytest.mark.parametrize("turns", [False, True], ids=["latencies", "turns"])
def test_every_work_is_done(*, turns: bool) -> None:
    options = ["--turns"] if turns else ["--rate", "200"]
    run = subprocess.run(
        [sys.executable, "-m", "bench.tail", "--quick", *options],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in run.stdout.splitlines() if not line.startswith("beside")]
    assert [line[:32].strip() for line in lines] == [work.name for work in WORKS]
