"""Tables that follow a source: after kills of the driver or of workers, they are those of one read of everything."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.runs.follow import end_of_batch
from kohort.pipeline.runs.incarnations import limited
from kohort.pipeline.runs.state import RunState
from kohort.pipeline.sources.streams.offsets import StreamPosition
from tests.clients.waiting import wait_until
from tests.conftest import LONG, NIGHTLY
from tests.pipeline.sources.growing import GrowingLog, start_process

TABLES = ("offsets", "lag", "offset_commits", "damage")
KILLS = 8 if LONG else 3
RECORDS = 600 if LONG else 200
TIMEOUT_S = 300.0

CODE = """
import sys
from contextlib import nullcontext
from pathlib import Path
from kohort.pipeline.runs.follow import Follower
from kohort.pipeline.runs.run import Run, Source
from kohort.pipeline.runs.state import RunRequest
from kohort.pipeline.spark_session import session

logs, out, tables = sys.argv[1:]
with session("local[2,4]", shuffle_partitions=1) as spark:
    request = RunRequest(None, None, tuple(tables.split(",")))
    running = Run(Source(logs), Path(out), request, lambda _: nullcontext(spark))
    follower = Follower(running, lambda outcome: print("batch", outcome.version, outcome.rows_read, flush=True), 40)
    query = follower.start(spark, {"availableNow": True})
    query.awaitTermination()
    assert query.exception() is None
"""


def workers_of(group: int) -> list[int]:
    """The Python workers of Spark in a process group: children of the daemon."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
            if int(words[2]) == group and b"worker_daemon" in command:
                found.append((int(words[1]), int(entry.name)))
    daemons = {pid for _, pid in found}
    return [pid for parent, pid in found if parent in daemons]


def killed_under_way(logs: Path, out: Path, rng: Random, *, is_worker: bool) -> str:
    """Follow, and kill the driver with everything it started, or one worker, somewhere in the first micro-batches."""
    process = start_process(CODE, str(logs), str(out), ",".join(TABLES))
    wanted = rng.randrange(3)
    before = set((out / "stream" / "commits").glob("[0-9]*"))

    def is_time() -> bool:
        done = len(set((out / "stream" / "commits").glob("[0-9]*")) - before)
        return done >= wanted and (not is_worker or bool(workers_of(process.pid)))

    wait_until(lambda: is_time() or process.poll() is not None, what=f"{wanted} micro-batches", interval_s=0.005)
    if is_worker:
        for worker in workers_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    told, _ = process.communicate(timeout=TIMEOUT_S)
    return told


@pytest.mark.spark
@pytest.mark.timeout(900)
@NIGHTLY
def test_every_record_counts_once(spark: Any, tmp_path: Path) -> None:
    logs, out, rng = tmp_path / "logs", tmp_path / "out", Random(7)
    first, second = GrowingLog(logs), GrowingLog(logs, partition=1)
    first.commits(RECORDS // 2)
    second.commits(RECORDS // 2, producer_id=5)
    second.marker(5, committed=True)
    for kill in range(KILLS):
        killed_under_way(logs, out, rng, is_worker=kill % 3 == 2)
        first.commits(30)
        second.commits(10)
    process = start_process(CODE, str(logs), str(out), ",".join(TABLES))
    told, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, told
    tables = Tables(Reading(spark, logs))
    for name in TABLES:
        assert published.rows(out, name) == publish.rows(getattr(tables, name), name), name
    rows = [(row["log_partition"], row["log_offset"]) for row in published.rows(out, "offset_commits")]
    assert len(rows) == len(set(rows)) == RECORDS + 40 * KILLS
    # The state of the query is bounded, however long it runs.
    assert len(list((out / "stream" / "offsets").glob("[0-9]*"))) <= 12


def position(**ends: int) -> StreamPosition:
    return StreamPosition({("t", 0): ends["t"], ("u", 0): ends["u"]}, {"t": "id-t", "u": "id-u"})


IDS = {"t": "id-t", "u": "id-u"}

# fmt: off
LIMITED = [
    # case                             bounds of t, u      ids                        read of t   limited bounds of t, u
    ("a part of the logs",             (0, 90), (0, 50),   IDS,                       0,          {"t": (0, 40), "u": (0, 50)}),
    ("read further already",           (0, 90), (0, 50),   IDS,                       60,         {"t": (0, 60), "u": (0, 50)}),
    ("truncated below what was read",  (0, 20), (0, 50),   IDS,                       60,         {"t": (0, 20), "u": (0, 50)}),
    ("deleted up to beyond the end",   (70, 90), (0, 50),  IDS,                       0,        {"t": (70, 70), "u": (0, 50)}),
    ("created again since",            (0, 90), (0, 50),   IDS | {"t": "id-new"},     0,          {"u": (0, 50)}),
]
# fmt: on


@pytest.mark.parametrize(("case", "t", "u", "ids", "read", "expected"), LIMITED, ids=[one[0] for one in LIMITED])
def test_bounds_of_a_batch_that_was_planned_before(
    case: str, t: tuple[int, int], u: tuple[int, int], ids: dict[str, str], read: int, expected: dict[str, Any]
) -> None:
    state = RunState(positions={("t", 0): read}, topic_ids=IDS)
    bounds, found = limited({("t", 0): t, ("u", 0): u, ("new", 0): (0, 9)}, ids, state, position(t=40, u=99))
    assert bounds == {(topic, 0): one for topic, one in expected.items()}
    assert set(found) == set(expected)


def test_the_end_of_a_batch_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text('v1\n{"batchWatermarkMs":0}\n{"t": {"0": 40, "id": "id-t"}}')
    assert end_of_batch(tmp_path, 7) == StreamPosition({("t", 0): 40}, {"t": "id-t"})
    with pytest.raises(ConfigError, match=re.escape(f"delete {tmp_path} to begin a new query")):
        end_of_batch(tmp_path, 8)
