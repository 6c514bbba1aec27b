"""The program of docs/howto/spark-queries.md commits the positions of a real query, and its commands answer."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort, kohort_json
from tests.conftest import NIGHTLY
from tests.pipeline.checkpoints.test_real_queries import WORK, produce
from tests.pipeline.platforms import kafka_jars, own_python

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "spark-queries.md"


@NIGHTLY
@pytest.mark.spark
@pytest.mark.clients
@pytest.mark.timeout(300)
def test_the_program_of_the_page(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "billing.py").write_text(program)
    platform, checkpoint = own_python(), tmp_path / "checkpoint"
    settings = {"spark.ui.enabled": "false", "spark.jars": ",".join(map(str, kafka_jars(platform, WORK)))}
    command = [str(platform.spark_home / "bin" / "spark-submit"), "--master", "local[1]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with ServedKohort(tmp_path / "broker") as broker:
        kohort("topics", "create", "orders", "--partitions", "2", bootstrap=broker.bootstrap)
        for records in (10, 20):
            produce(broker.bootstrap, "orders", 2, records)
            environment = platform.environment() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
            arguments = [str(tmp_path / "billing.py"), broker.bootstrap, str(checkpoint)]
            done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
        rows = kohort_json("groups", "export", "billing", bootstrap=broker.bootstrap)
        assert [(row["partition"], row["offset"]) for row in rows] == [(0, 15), (1, 15)]
        assert all(re.fullmatch(r"spark query \S+ batch 1", row["metadata"]) for row in rows)
        words = ("pipeline", "queries", f"kafka://{broker.bootstrap}", "--checkpoint", f"a={checkpoint}", "--json")
        (query,) = json.loads(kohort(*words).stdout)
        assert (query["state"], query["batch"], query["lag"]) == ("waiting for data", 1, 0)
