"""The benchmark runs. What it measures is nobody's business here: a test that looks at a clock fails on a busy machine."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.load.requests import batch
from bench.measures import MEASURES
from bench.servers.rivals import AbsentRivalError, ready_kfake
from kohort.wire.batches import read_header
from tests.conftest import NIGHTLY

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load needs epoll"), NIGHTLY]


def bench(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_load_runs_against_a_server_that_does_nothing() -> None:
    told = bench("--ceiling")
    assert "constant answer, 64 connections" in told
    assert "at 2,000/s" in told


def test_no_server_deletes_what_is_produced_while_it_is_measured() -> None:
    """Of what is older than a week, the first look at retention after a start moves the log start that answers tell."""
    assert abs(time.time() - read_header(batch()).max_timestamp / 1000) < 86_400


@pytest.mark.parametrize("flush", ["memory", "os", "commit"])
def test_every_measure_runs(flush: str, tmp_path: Path) -> None:
    bench("--rivals", "kohort", "--flush", flush, "--no-growth", "--no-start", "--out", str(tmp_path))
    (written,) = tmp_path.glob("*.json")
    run = json.loads(written.read_text())
    assert run["refused"] == []
    assert [it["title"] for it in run["results"]] == [it.title() for it in MEASURES if it.flush == flush]
    (page,) = tmp_path.glob("*.html")
    assert "<svg" in page.read_text()


def test_starts_are_measured() -> None:
    told = bench("--rivals", "kohort", "--flush", "commit", "--only", "heartbeat", "--no-growth")
    assert "first answer ms" in told
    assert "100 offsets ms" in told


def test_a_rival_is_measured_beside_us() -> None:
    try:
        ready_kfake()
    except AbsentRivalError as error:
        pytest.skip(str(error))
    told = bench(
        "--rivals",
        "kohort,kfake",
        "--flush",
        "os",
        "--only",
        "commit",
        "--connections",
        "8",
        "--no-growth",
        "--no-start",
    )
    assert "kfake" in told
    assert "refused" not in told


def test_one_measure_under_the_profiler() -> None:
    told = bench("--profile", "--flush", "os", "--only", "heartbeat", "--seconds", "0.05", "--no-growth")
    assert "requests/s under the profiler" in told
    assert "tottime" in told


def test_what_is_taken_once_is_measured(tmp_path: Path) -> None:
    bench("--rivals", "kohort", "--only", "figures", "--out", str(tmp_path))
    (written,) = tmp_path.glob("*.json")
    figures = json.loads(written.read_text())["figures"]
    assert [it["reason"] for it in figures if it["value"] is None] == []
    assert {it["name"] for it in figures} >= {
        "rebalance storm of 3 groups of 3: from there until all are stable",
        "one OffsetFetch of 300 offsets",
        "resident memory with 20 open transactions",
        "start on a clean directory of 20 partitions",
        "start after a kill, 2 MB not flushed",
    }


def test_consumer_groups_settle() -> None:
    command = [sys.executable, "-m", "bench.consumer_groups", "--members", "20", "--partitions", "100", "--json"]
    done = subprocess.run([*command, "--rivals", "kohort"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["joined"][1] >= 20
    assert figures["stall_ms"] > 0
