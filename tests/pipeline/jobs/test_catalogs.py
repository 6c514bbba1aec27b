"""Published tables in Spark's catalog: each version is written once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import published
from kohort.pipeline.jobs.catalogs import Catalog, catalog, publish
from kohort.pipeline.jobs.pointer import Published
from kohort.pipeline.tables.contract import arrow_schema
from tests.pipeline import frames


class Sessions:
    """One session, and how often it was asked for."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.asked = 0

    @contextmanager
    def session(self, _log_bytes: int) -> Iterator[Any]:
        self.asked += 1
        yield self.spark


def made(directory: Path, lags: dict[str, int]) -> Published:
    """A version of two tables, of which one is empty."""

    def write(path: Path) -> None:
        rows = [{"group": group, "timestamp_ms": 5, "lag": lag} for group, lag in lags.items()]
        for name, some in (("lag_over_time", rows), ("damage", [])):
            (path / name).mkdir()
            pq.write_table(pa.Table.from_pylist(some, arrow_schema(name)), path / name / "part-0.parquet")

    return published.publish(directory, "/logs", write, made_of={"lags": lags})


@pytest.mark.spark
def test_each_version_is_written_once(spark: Any, tmp_path: Path) -> None:
    target, sessions = Catalog("table:default", "parquet"), Sessions(spark)
    try:
        for lags in ({"one": 1}, {"one": 2, "two": 3}):
            version = made(tmp_path, lags)
            assert [publish(target, version, sessions) for _ in range(2)] == [True, False]
            found = dict(frames.tuples(spark.table("default.lag_over_time"), "group", "lag"))
            assert found == lags
            assert spark.table("default.damage").count() == 0
        assert sessions.asked == 2
        orc = Catalog(f"file://{tmp_path}/orc", "orc")
        assert publish(orc, published.current(tmp_path), sessions)
        assert spark.read.orc(f"{tmp_path}/orc/lag_over_time").count() == 2
    finally:
        for name in ("lag_over_time", "damage"):
            spark.sql(f"drop table if exists default.{name}")


def test_which_targets_spark_writes() -> None:
    assert catalog("s3://bucket/kohort", None) is None
    assert catalog("s3a://bucket/kohort", "delta") == Catalog("s3a://bucket/kohort", "delta")
    assert catalog("table:lake.kafka", None) == Catalog("table:lake.kafka", "parquet")
    with pytest.raises(ConfigError, match="Spark replaces Parquet files one by one"):
        catalog("s3://bucket/kohort", "parquet")
