"""The example, sent with spark-submit to a cluster whose executors are processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from tests.conftest import LONG

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "stuck_groups.py"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Four Java machines start; most of what they would compile is over before it pays."""
SMALL = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.host=127.0.0.1",
    f"spark.driver.extraJavaOptions={QUICK}",
    f"spark.executor.extraJavaOptions={QUICK}",
)
RUN = "main" if LONG else "tv1"


def test_the_example_runs_on_two_executors(spark: Any, recorded: Callable[[str], Path], tmp_path: Path) -> None:
    import pyspark

    logs, target = recorded(RUN) / "logs", tmp_path / "stuck"
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    command += [word for one in SMALL for word in ("--conf", one)]
    command += [str(EXAMPLE), str(logs), str(target), "--minutes", "0"]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1_200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {(row["group"], row["topic"], row["partition"], row["lag"]) for row in pq.read_table(target).to_pylist()}
    rows = publish.rows(Tables(Reading(spark, logs)).lag, "lag")
    assert found == {(row["group"], row["topic"], row["partition"], row["lag"]) for row in rows if row["lag"]}
    assert done.stdout.endswith(f"{len(found)} stuck\n")
