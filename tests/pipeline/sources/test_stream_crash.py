"""Streams that are killed at any moment: what the sinks hold in the end is what a batch read gives."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.clients.waiting import wait_until
from tests.conftest import LONG, NIGHTLY
from tests.pipeline import frames
from tests.pipeline.sources.growing import GrowingLog, start_process, written_rows

pytestmark = [pytest.mark.spark, NIGHTLY]

KILLS = 4 if LONG else 1
RECORDS = 240 if LONG else 96
COLUMNS = "log_partition,log_offset,kind,group,topic,partition,offset,control"
TIMEOUT_S = 300.0
STARTS = 3
TRIPPED = "Task serialization failed"
"""Spark says so now and then, when it writes a task while another of its threads changes it; it is started anew."""

# Two queries over the same logs: Spark's file sink, and foreachBatch that writes one directory a batch.
CODE = """
import sys
from kohort.pipeline.spark_session import session

logs, out, columns = sys.argv[1:]
with session("local[2]", shuffle_partitions=1) as spark:
    def query(name):
        stream = spark.readStream.format("kohort").option("columns", columns).option("maxRecordsPerTrigger", "30")
        writer = stream.load(logs).writeStream.option("checkpointLocation", f"{out}/{name}-checkpoint")
        return writer.trigger(availableNow=True)

    def write(frame, batch_id):
        frame.write.mode("overwrite").json(f"{out}/batches/batch_id={batch_id}")

    queries = [
        query("files").format("json").start(f"{out}/files"),
        query("batches").foreachBatch(write).start(),
    ]
    for one in queries:
        one.awaitTermination()
        assert one.exception() is None
"""


def begun(out: Path) -> int:
    """Micro-batches that have begun, of both queries."""
    return sum(len(list(checkpoint.glob("offsets/[0-9]*"))) for checkpoint in out.glob("*-checkpoint"))


def killed_under_way(logs: Path, out: Path, *, after: int) -> None:
    """Start, and kill with everything it started when `after` micro-batches more have begun; or it died by itself."""
    before = begun(out)
    process = start_process(CODE, str(logs), str(out), COLUMNS)
    wait_until(
        lambda: begun(out) >= before + after or process.poll() is not None,
        what=f"{after} micro-batches",
        interval_s=0.005,
    )
    died = process.poll() is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    told, _ = process.communicate(timeout=TIMEOUT_S)
    assert not died or TRIPPED in told, told


def run_to_its_end(logs: Path, out: Path) -> None:
    """Start, again where Spark tripped over itself, until everything is written."""
    told = ""
    for _ in range(STARTS):
        process = start_process(CODE, str(logs), str(out), COLUMNS)
        told, _ = process.communicate(timeout=TIMEOUT_S)
        if process.returncode == 0:
            return
        assert TRIPPED in told, told
    raise AssertionError(told)


def test_sinks_hold_everything_once(spark: Any, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    first, second = GrowingLog(logs), GrowingLog(logs, partition=1)
    first.commits(RECORDS // 2)
    second.commits(RECORDS // 2, producer_id=5)
    second.marker(5, committed=True)
    for kill in range(KILLS):
        killed_under_way(logs, out, after=2 + kill)
        first.commits(10)
    run_to_its_end(logs, out)
    frame = spark.read.format("kohort").option("columns", COLUMNS).load(str(logs))
    expected = [
        {name: value for name, value in row.items() if value is not None}
        for row in frames.rows_of(frame, "log_partition", "log_offset")
    ]
    assert len(expected) == RECORDS + 1 + 10 * KILLS
    assert written_rows(out / "batches") == expected
    # A file sink leaves files of killed attempts, which readers of its metadata do not count.
    files = spark.read.json(str(out / "files")).orderBy("log_partition", "log_offset").toArrow().to_pylist()
    assert [{name: value for name, value in row.items() if value is not None} for row in files] == [
        dict(sorted(row.items())) for row in expected
    ]
