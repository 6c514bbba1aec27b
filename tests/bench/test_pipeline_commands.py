"""The costs of pipeline commands are measured; the logs for it are those of a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.pipeline_commands import watched
from bench.pipeline_logs import write_logs, write_topics
from kohort.pipeline.jobs.local import local_table
from tests.conftest import NIGHTLY

ROOT = Path(__file__).parents[2]


def test_each_key_is_in_one_partition_and_has_a_lag(tmp_path: Path) -> None:
    write_logs(tmp_path, size_bytes=200_000, groups=8)
    write_topics(tmp_path)
    rows = local_table(str(tmp_path), "lag").to_pylist()
    keys = [(row["group"], row["topic"], row["partition"]) for row in rows]
    assert len(set(keys)) == len(keys) > 200
    assert all(row["lag"] == (1 << 40) - row["offset"] for row in rows)


@NIGHTLY
def test_commands_are_measured() -> None:
    command = [sys.executable, "-m", "bench.pipeline_commands", "--only", "questions,growth,engines"]
    command += ["--mib", "1", "--rounds", "1", "--millions", "0.01"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    told = json.loads(done.stdout)
    assert set(told["questions"]) == {"6000 keys", "60000 keys"}
    measured = [*told["questions"]["6000 keys"].values(), *(told["growth"][0][word] for word in ("offsets", "run"))]
    measured += [one for word in ("offsets", "rebalances") for one in told["engines"][0][word].values()]
    assert all(one["seconds"] > 0 and one["memory_mib"] > 0 for one in measured)


@NIGHTLY
@pytest.mark.java
@pytest.mark.maven
def test_both_engines_are_measured_beside_a_plain_job() -> None:
    command = [sys.executable, "-m", "bench.pipeline_connector", "--millions", "0.01"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=True)
    told = json.loads(done.stdout)
    measured = [told[name] for name in ("offsets, local", "offsets, spark", "connector, count", "connector, decode")]
    assert all(one["seconds"] > 0 and one["memory_mib"] > 0 for one in measured)


def test_a_command_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"nowhere is not a directory(?s:.*)offsets .*/nowhere ended with exit code 2"):
        watched(["offsets", str(tmp_path / "nowhere")])
