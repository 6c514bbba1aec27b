"""Columns of the tables: one list of types and descriptions, in the docs, on the command line and in what is written."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.model.errors import ConfigError
from kohort.pipeline import typed
from kohort.pipeline.jobs import publish
from kohort.pipeline.tables.contract import COLUMNS, columns_of, page

PAGE = Path(__file__).parents[3] / "docs" / "pipeline-columns.md"
AT_MS = 1_795_252_834_123


def test_every_column_is_described() -> None:
    for table, names in COLUMNS.items():
        assert tuple(one.name for one in columns_of(table)) == names
        assert all(one.comment for one in columns_of(table))


def test_the_page_is_made_of_the_descriptions() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_command_prints_them() -> None:
    done = CliRunner().invoke(app, ["schema", "lag_over_time"])
    assert done.exit_code == 0
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["COLUMN", "group", "timestamp_ms", "lag"]
    found = json.loads(CliRunner().invoke(app, ["schema", "--json"]).stdout)
    assert list(found) == list(COLUMNS)
    assert found["lag_over_time"][1] == {
        "name": "timestamp_ms",
        "type": "bigint",
        "kind": "instant",
        "comment": "when the lag changed",
    }


def series(spark: Any) -> Any:
    schema = pa.schema([("group", pa.string()), ("timestamp_ms", pa.int64()), ("lag", pa.int64())])
    return spark.createDataFrame(pa.Table.from_pylist([{"group": "g", "timestamp_ms": AT_MS, "lag": 7}], schema))


@pytest.mark.spark
def test_instants_become_timestamps(spark: Any) -> None:
    found = typed(series(spark), "lag_over_time")
    assert [(one.name, one.dataType.simpleString()) for one in found.schema.fields] == [
        ("group", "string"),
        ("timestamp", "timestamp"),
        ("lag", "bigint"),
    ]
    (row,) = found.toArrow().to_pylist()
    assert row["timestamp"].isoformat() == "2026-11-21T09:20:34.123000+00:00"


@pytest.mark.spark
def test_what_is_written_carries_comments(spark: Any, tmp_path: Path) -> None:
    """As files of a format that Spark has, and as a table of its catalog."""
    frame, comments = series(spark), [one.comment for one in columns_of("lag_over_time")]
    for file_format in ("parquet", "orc"):
        out = str(tmp_path / file_format)
        assert publish.write_table(frame, out, "lag_over_time", file_format=file_format) == f"{out}/lag_over_time"
        assert publish.count(spark, f"{out}/lag_over_time", file_format=file_format) == 1
    told = spark.read.parquet(str(tmp_path / "parquet" / "lag_over_time")).schema.fields
    assert [one.metadata["comment"] for one in told] == comments
    spark.sql(f"CREATE DATABASE kafka LOCATION '{tmp_path / 'catalog'}'")
    try:
        for _ in range(2):
            assert publish.write_table(frame, "table:kafka", "lag_over_time") == "kafka.lag_over_time"
        assert [one.description for one in spark.catalog.listColumns("kafka.lag_over_time")] == comments
        assert publish.count(spark, "kafka.lag_over_time", is_table=True) == 1
    finally:
        spark.sql("DROP DATABASE kafka CASCADE")


@pytest.mark.spark
def test_a_format_that_spark_does_not_have(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Spark has no format 'delta'; name its package in PYSPARK_SUBMIT_ARGS"):
        publish.write_table(series(spark), str(tmp_path), "lag_over_time", file_format="delta")


def test_a_package_of_a_format_for_another_spark() -> None:
    """As Apache Iceberg's runtime for Spark 4.1 fails with Spark 4.3; other failures are not about the package."""
    failure = (
        "An error occurred while calling o331.saveAsTable.\n: java.lang.IncompatibleClassChangeError: class"
        " org.apache.iceberg.spark.source.SparkView can not implement org.apache.spark.sql.connector.catalog.View"
    )
    told = publish.format_problem(failure, "iceberg")
    assert told is not None
    assert told.startswith(
        "the package of format 'iceberg' was made for another version than this Spark (java.lang.Incompat"
    )
    assert publish.format_problem("java.lang.IllegalStateException: x", "iceberg") is None
