"""Spark's own connector for Kafka reads and writes, in batches and as a stream."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.testing.kafka import ROOT, UnavailableKafkaError, maven_jars
from tests.clients.conftest import Broker
from tests.clients.frameworks.spark_job import BATCH
from tests.clients.waiting import PATIENCE_S
from tests.conftest import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.java, pytest.mark.maven]

POM = Path(__file__).with_name("spark.xml")
CONNECTOR = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""The jars that PySpark does not bring."""


def test_batches_and_streams(broker: Broker, make_topic: Callable[..., str], tmp_path: Path) -> None:
    try:
        jars = maven_jars(POM, ROOT / "build" / "spark")
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    paths = ",".join(str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(CONNECTOR))
    done = subprocess.run(
        (
            *(sys.executable, "-m", "tests.clients.frameworks.spark_job"),
            paths,
            broker.bootstrap,
            make_topic(2),
            str(tmp_path),
        ),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    numbers = range(BATCH)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "rows": sorted([number % 2, number // 2, f"k{number}", f"v{number}"] for number in numbers),
        "headers": [["from", "spark"]],
        "from offset": 5 + 2,
        "of a partition": BATCH // 2,
        "split": BATCH,
        "of the future": "refused, then 0 rows",
        "copied": [BATCH, BATCH],
        "copies": sorted(f"v{number}" for number in range(2 * BATCH)),
    }
