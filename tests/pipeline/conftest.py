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

ARCHIVES = Path(__file__).parent.parent / "data" / "pipeline"

Recorded = Callable[[str], Path]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Unpacks a recorded run: `logs/`, `records/`, `summary.json`."""
    root = tmp_path_factory.mktemp("recorded")

    @cache
    def unpack(run: str) -> Path:
        with tarfile.open(ARCHIVES / f"{run}.tar.xz") as archive:
            archive.extractall(root / run, filter="data")
        return root / run

    return unpack


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session, tuned for small frames; skips where there is no Java."""
    from kohort.pipeline.session import find_java, session

    try:
        find_java()
    except ConfigError as exc:
        pytest.skip(str(exc))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # What PySpark and its dependencies warn of among themselves is not ours to mend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with session("local[2]", app_name="kohort-tests", shuffle_partitions=1) as running:
            yield running


@pytest.fixture
def interpreted(spark: Any) -> Iterator[Any]:
    """Spark without compiling its plans, which takes a third of the time where each is run once; what they say is the same."""
    chosen = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
