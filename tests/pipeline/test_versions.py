"""What each PySpark offers: `read` with any, the format with 4.0; and a sentence where something is missing."""

import re
import sys
import tomllib
from collections.abc import Callable
from importlib import reload
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pyspark_kohort
from kohort.model.errors import ConfigError
from kohort.pipeline import read, register
from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource
from tests.pipeline import frames


def test_an_older_pyspark_is_told_how_to_read() -> None:
    """A session of PySpark 3.5 has no `dataSource`."""
    with pytest.raises(
        ConfigError, match=r"needs PySpark 4\.0 or newer, .* reads with kohort\.pipeline\.read\(spark, PATH"
    ):
        register(SimpleNamespace())


def test_a_source_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looks for sources by importing them, and keeps their errors to itself."""
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "kohort.pipeline.sources.coordinator_log", None)
        source = reload(pyspark_kohort).DefaultSource
        assert source.name() == "kohort"
        with pytest.raises(
            ImportError, match=r"the format kohort cannot be used by Python 3\..*: import of kohort.*halted"
        ):
            source({}).schema()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 10, 13))
        old = reload(pyspark_kohort).DefaultSource
        with pytest.raises(ImportError, match=r"used by Python 3\.10\.13 .*: Kohort needs Python 3\.11 or newer"):
            old({}).schema()
    assert reload(pyspark_kohort).DefaultSource is CoordinatorLogSource


def test_an_installation_replaces_no_spark_of_a_platform() -> None:
    """A bound from above, or PySpark itself, would make pip exchange what a cluster runs on."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    of_platforms = {"numpy": ">=1.26", "pandas": ">=2", "pyarrow": ">=14"}
    named = {re.split(r"[<>=!~; ]", one)[0]: one for one in needed}
    assert {name: named[name].removeprefix(name) for name in of_platforms} == of_platforms
    assert not {"pyspark", "py4j"} & named.keys()


@pytest.mark.spark
def test_read_and_format_give_the_same_rows(spark: Any, recorded: Callable[[str], Path]) -> None:
    logs = str(recorded("main") / "logs")
    columns = ("kind", "log_topic", "log_partition", "log_offset", "group", "offset")
    expected = frames.tuples(spark.read.format("kohort").option("partitions", "1,2").load(logs), *columns)
    assert len(expected) > 10
    assert frames.tuples(read(spark, logs, {"partitions": "1,2"}), *columns) == expected
    with pytest.raises(ConfigError, match="unknown option partition;"):
        read(spark, logs, {"partition": "1"})
