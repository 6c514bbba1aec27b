"""Recorded logs, and one Spark session for all tests of the pipeline."""

import os
import sys
import tarfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from tests.conftest import LONG, NIGHTLY

ARCHIVES = Path(__file__).parent.parent / "data" / "pipeline"

Recorded = Callable[[str], Path]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Unpack a recorded run: `logs/`, `records/`, `summary.json`."""
    root = tmp_path_factory.mktemp("recorded")

    @cache
    def unpack(run: str) -> Path:
        with tarfile.open(ARCHIVES / f"{run}.tar.xz") as archive:
            archive.extractall(root / run, filter="data")
        return root / run

    return unpack


QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Interpreted plans, planned once: most plans in the tests run once, over a few rows. Compiling them and planning them again
after each stage takes a third of the time. The long tier keeps Spark's defaults, as do the tests of the commands."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session per test process, tuned for small frames; the tests are skipped if there is no Java."""
    from kohort.pipeline.spark_session import find_java, session

    try:
        find_java()
    except ConfigError as exc:
        pytest.skip(str(exc))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # PySpark and its dependencies warn about each other.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with session("local[2]", app_name="kohort-tests", shuffle_partitions=1) as running:
            for name, value in () if LONG else QUICK.items():
                running.conf.set(name, value)
            yield running


@pytest.fixture(scope="module", autouse=True)
def forgotten_frames() -> Iterator[None]:
    """Drop the frames that the tests of a module have persisted: all modules of a process share one small heap."""
    yield
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            active.catalog.clearCache()


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=[NIGHTLY, pytest.mark.spark])])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session of each engine; in `.ci/run` of the local one only. `engines/test_equal.py` compares both there."""
    if request.param == "spark":
        yield request.getfixturevalue("spark")
        return
    from kohort.pipeline.engines.local.session import LocalSession

    with LocalSession() as session:
        yield session
