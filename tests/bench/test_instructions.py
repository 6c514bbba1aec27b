"""The requests of `make instructions` succeed; counting them needs valgrind, and is not a test."""

import subprocess
import sys


def test_every_way_is_served_without_an_error() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench.instructions", "--dry"], check=True, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.splitlines()[::4] == ["Heartbeat", "OffsetCommit, 1 partition, 10 groups", "Transaction"]
