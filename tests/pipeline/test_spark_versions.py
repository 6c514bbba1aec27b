"""
A job on a standalone cluster of a master and two workers, whose Python has PySpark, pyarrow, pandas and numpy and nothing else.

By default it is the PySpark of this environment. `make spark-versions` installs others from the package index, see `platforms`.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.sources.options import SourceOptions
from kohort_lab.history import History
from tests.conftest import NIGHTLY
from tests.pipeline.platforms import Platform, bare_python, installed_python, standalone
from tests.pipeline.spark_jobs import tables
from tests.pipeline.zipped import write_zip

pytestmark = [pytest.mark.spark, NIGHTLY]

ROOT = Path(__file__).parents[2]
OWN = "own"
VERSIONS = os.environ.get("KOHORT_SPARK_VERSIONS", OWN).split()
WORK = ROOT / "build" / "pyspark"
BY_LIBRARY = {"lag", "share_state"}
"""Functions that make frames of their own, which only Spark has; `test_library.py` compares them with the commands."""


@pytest.fixture(scope="module", params=VERSIONS)
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Platform:
    version = request.param
    return bare_python(tmp_path_factory.mktemp("bare")) if version == OWN else installed_python(version, WORK)


def expected(logs: Path) -> dict[str, list[str]]:
    """The tables of the local engine, by name."""
    with LocalSession() as session:

        def read(**options: str) -> Any:
            return session.frame_of(SourceOptions.parse({"path": str(logs), **options}))

        records, batches = read().persist(), read(**tables.BATCHES).persist()
        chosen = {name: table for name, table in tables.TABLES.items() if name not in BY_LIBRARY}
        found = {name: table(records, batches) for name, table in chosen.items()}
        found |= dict.fromkeys(("read", "format", "stream"), records.select(*tables.PLACE))
        return {name: tables.told(frame.toArrow().to_pylist()) for name, frame in found.items()}


def test_a_job_on_a_cluster_without_kohort(platform: Platform, tmp_path: Path) -> None:
    logs, archive = tmp_path / "logs", write_zip(tmp_path / "kohort.zip")
    History(3).write(logs)
    with standalone(platform, tmp_path, workers=2) as master:
        arguments = (str(Path(tables.__file__)), str(logs), str(tmp_path / "checkpoint"))
        done = platform.submit(*arguments, master=master, kohort=archive)
    assert done.returncode == 0, done.stderr[-3000:]
    first, *others = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert first["kohort"] == "./kohort.zip/kohort/__init__.py"
    found = {one["table"]: one["rows"] for one in others}
    assert all(found[name] for name in BY_LIBRARY)
    of_spark = {name: rows for name, rows in found.items() if name not in BY_LIBRARY}
    # PySpark 3.5 has no sources in Python.
    missing = {"format", "stream"} if first["pyspark"].startswith("3.") else set()
    assert of_spark == {name: rows for name, rows in expected(logs).items() if name not in missing}


@pytest.mark.skipif(VERSIONS == [OWN], reason="make spark-versions: it needs the package index")
def test_an_installation_replaces_nothing_of_the_platform(platform: Platform) -> None:
    done = subprocess.run(
        [platform.python, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", f"{ROOT}[spark]"],
        env={**os.environ, "KOHORT_BUILD": "plain"},
        capture_output=True,
        text=True,
        check=True,
    )
    names = {one["metadata"]["name"].lower() for one in json.loads(done.stdout)["install"]}
    assert "kohort" in names
    assert names.isdisjoint({"pyspark", "py4j", "pyarrow", "pandas", "numpy"})
