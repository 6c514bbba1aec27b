"""An example job, submitted with spark-submit to a cluster whose executors are separate processes."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kohort.model.ids import CONSUMER_OFFSETS
from kohort_lab.history import History
from kohort_lab.history.expected_tables import ExpectedTables
from tests.conftest import LONG, NIGHTLY
from tests.pipeline.conftest import QUICK
from tests.pipeline.platforms import SHORT_JVM, bare_python, own_python
from tests.pipeline.zipped import write_zip

pytestmark = [pytest.mark.spark, NIGHTLY]

EXAMPLE = Path(__file__).parents[2] / "examples" / "stuck_groups.py"
SETTINGS = {
    "spark.driver.extraJavaOptions": SHORT_JVM,
    "spark.executor.extraJavaOptions": SHORT_JVM,
    **({} if LONG else QUICK),
}
EXECUTORS, SEEDS = (2, range(8)) if LONG else (1, (3,))


def last_ms(histories: list[History]) -> int:
    """When the last batch was written to a coordinator's log: the instant that the example stands for."""
    return max(batch.at_ms for history in histories for batch in history.world.log(CONSUMER_OFFSETS).batches)


def lags(history: History, *, at_ms: int) -> set[tuple[str, str, int, int]]:
    """Group, topic, partition and lag, where there is one."""
    found = set()
    for row in ExpectedTables(history, at_ms).offsets():
        batches = history.world.logs[row["topic"], row["partition"]].batches
        end = max((batch.last_offset + 1 for batch in batches if batch.at_ms <= at_ms), default=0)
        found.add((row["group"], row["topic"], row["partition"], end - row["offset"]))
    return {one for one in found if one[3] > 0}


ZIPPED_JOB = """
import json
import sys
from importlib.util import find_spec

import kohort
from kohort.pipeline import register
from pyspark.sql import SparkSession

def asked(_):
    return __import__("kohort").__file__, [name for name in ("msgspec", "crc32c", "cramjam") if find_spec(name)]

spark = SparkSession.builder.getOrCreate()
register(spark)
records = spark.read.format("kohort").load(sys.argv[1])
kinds = sorted(row["kind"] for row in records.select("kind").distinct().collect())
there, lacking = spark.sparkContext.parallelize([0], 1).map(asked).collect()[0]
print(json.dumps({"kohort": [kohort.__file__, there], "lacking": lacking, "kinds": kinds}))
"""


def test_kohort_ships_as_a_zip_file(tmp_path: Path) -> None:
    """Neither driver nor executors have Kohort or its requirements; Spark then does not find the format by itself."""
    job, archive = tmp_path / "job.py", write_zip(tmp_path / "kohort.zip")
    job.write_text(ZIPPED_JOB)
    History(3).write(tmp_path / "logs")
    done = bare_python(tmp_path / "bare").submit(
        "--py-files",
        str(archive),
        str(job),
        str(tmp_path / "logs"),
        master="local-cluster[1,1,1024]",
        settings=SETTINGS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["lacking"] == []
    assert [path.rpartition("kohort.zip/")[2] for path in told["kohort"]] == ["kohort/__init__.py"] * 2
    assert {"coordinator", "offset_commit", "transaction"} <= set(told["kinds"])


def test_the_example_runs_on_executors(tmp_path: Path) -> None:
    """The short version has one executor and one history; the long tier has two executors and Spark's defaults."""
    logs, target = tmp_path / "logs", tmp_path / "stuck"
    histories = [History(seed, partition=at) for at, seed in enumerate(SEEDS)]
    for history in histories:
        history.write(logs)
    arguments = (str(EXAMPLE), str(logs), str(target), "--minutes", "0")
    done = own_python().submit(*arguments, master=f"local-cluster[{EXECUTORS},1,1024]", settings=SETTINGS)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {row for history in histories for row in lags(history, at_ms=last_ms(histories))}
    assert expected
    rows = pq.read_table(target).to_pylist()
    assert {tuple(row[name] for name in ("group", "topic", "partition", "lag")) for row in rows} == expected
    assert done.stdout.endswith(f"{len(expected)} stuck\n")
