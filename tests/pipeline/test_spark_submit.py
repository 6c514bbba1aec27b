"""An example job, submitted with spark-submit to a cluster whose executors are separate processes."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.session import find_java
from kohort_lab.history import History
from kohort_lab.history.expected_tables import ExpectedTables
from tests.conftest import LONG, NIGHTLY
from tests.pipeline.conftest import QUICK
from tests.pipeline.zipped import write_zip

pytestmark = [pytest.mark.spark, NIGHTLY]

EXAMPLE = Path(__file__).parents[2] / "examples" / "stuck_groups.py"
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The launcher, the driver and each executor are JVMs that end within seconds."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
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


def submitted(directory: Path, *arguments: str, master: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit in a directory."""
    try:
        find_java()
    except ConfigError as exc:
        pytest.skip(str(exc))
    import pyspark

    submit = str(Path(sys.executable).parent / "spark-submit")
    command = [submit, "--master", master]
    command += [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": SHORT_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # Kohort comes from the installation, or from the zip file.
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [*command, *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )


ZIPPED_JOB = """
import sys
import kohort
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
records = spark.read.format("kohort").load(sys.argv[1])
kinds = sorted(row["kind"] for row in records.select("kind").distinct().collect())
there = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("kohort").__file__).collect()
print(kohort.__file__, *there, *kinds, sep="\\n")
"""


def test_kohort_ships_as_a_zip_file(tmp_path: Path) -> None:
    """Driver and executors import Kohort from the file of --py-files; it takes some 20 s."""
    job, archive = tmp_path / "job.py", write_zip(tmp_path / "kohort.zip")
    job.write_text(ZIPPED_JOB)
    History(3).write(tmp_path / "logs")
    done = submitted(
        tmp_path, "--py-files", str(archive), str(job), str(tmp_path / "logs"), master="local-cluster[1,1,1024]"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    driver, executor, *kinds = done.stdout.splitlines()[-10:]
    assert "kohort.zip/kohort/__init__.py" in driver
    assert "kohort.zip/kohort/__init__.py" in executor
    assert {"coordinator", "offset_commit", "transaction"} <= set(kinds)


def test_the_example_runs_on_executors(tmp_path: Path) -> None:
    """The short version has one executor and one history; the long tier has two executors and Spark's defaults."""
    logs, target = tmp_path / "logs", tmp_path / "stuck"
    histories = [History(seed, partition=at) for at, seed in enumerate(SEEDS)]
    for history in histories:
        history.write(logs)
    arguments = (str(EXAMPLE), str(logs), str(target), "--minutes", "0")
    done = submitted(tmp_path, *arguments, master=f"local-cluster[{EXECUTORS},1,1024]")
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {row for history in histories for row in lags(history, at_ms=last_ms(histories))}
    assert expected
    rows = pq.read_table(target).to_pylist()
    assert {tuple(row[name] for name in ("group", "topic", "partition", "lag")) for row in rows} == expected
    assert done.stdout.endswith(f"{len(expected)} stuck\n")
