"""The benchmark runs. What it measures is nobody's business here: a test that looks at a clock fails on a busy machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load needs epoll")


def bench(*arguments: str) -> str:
    done = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-m", "bench", "--quick", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_load_runs_against_a_server_that_does_nothing() -> None:
    assert "constant answer, 64 connections" in bench("--ceiling")


def test_every_measure_runs(tmp_path: Path) -> None:
    told = bench("--out", str(tmp_path))
    assert "first answer" in told
    assert "resident when idle" in told
    (written,) = tmp_path.glob("*.json")
    results = json.loads(written.read_text())["results"]
    assert {(it["measure"]["flush"], it["measure"]["name"], it["measure"]["connections"]) for it in results} == {
        (flush, name, connections)
        for flush in ("os", "commit")
        for name, connections in (("heartbeat", 64), ("commit", 1), ("commit", 8), ("commit", 64))
    }
