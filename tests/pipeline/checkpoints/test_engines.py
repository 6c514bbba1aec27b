"""Both engines and all ways to files give the same rows of checkpoints."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from kohort.model.errors import ConfigError
from kohort.pipeline import offsets, read
from kohort.pipeline.checkpoints.named import Named, read_named
from kohort.pipeline.decode.schemas import SCHEMA
from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource
from tests.pipeline import logbytes
from tests.pipeline.checkpoints.written import BEGAN_MS, Checkpoint, write_topic
from tests.pipeline.frames import check_equal, rows_of

pytestmark = pytest.mark.spark

TABLES = ("lag", "time_lag", "lag_over_time", "status", "commit_frequency", "spark_queries", "lag_picture")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A directory of three checkpoints: one in a batch, one with a torn plan, one without a batch."""
    for name in ("billing", "shipping", "new"):
        query = Checkpoint(tmp_path / "lake" / name)
        query.start({"orders": {0: 3, 1: 0}})
        for number in range(0 if name == "new" else 5):
            at_ms = BEGAN_MS + (number + 1) * 10_000
            is_finished = number < 4 or name == "shipping"
            position = {"orders": {0: number * 8, 1: number * 5}}
            query.batch(number, position, at_ms=at_ms, finished_ms=at_ms + 900 if is_finished else None)
    (tmp_path / "lake" / "shipping" / "offsets" / "4").write_text("v1\n")
    write_topic(tmp_path / "logs", "orders", (60, 40))
    return tmp_path


def test_tables_are_equal(spark: Any, lake: Path) -> None:
    remote, local = Named("lake", f"file://{lake}/lake"), Named("lake", f"file://{lake}/lake")
    with LocalSession() as session:
        of_spark = Tables(Reading(spark, lake / "logs", checkpoints=[remote]))
        check_equal(TABLES, Tables(Reading(session, lake / "logs", checkpoints=[local])), of_spark)
        assert of_spark.reading.queries.problems


def test_all_ways_to_files_find_the_same(spark: Any, lake: Path) -> None:
    uri = f"file://{lake}/lake"
    with LocalSession() as session:
        by_python = read_named([Named(None, f"{lake}/lake")], None)
        by_arrow = read_named([Named(None, uri)], session)
    by_hadoop = read_named([Named(None, uri)], spark)
    for found in (by_arrow, by_hadoop):
        for one in found.checkpoints:
            one.path = one.path.removeprefix("file://")
        assert found.checkpoints == by_python.checkpoints
        assert found.problems == by_python.problems
    with pytest.raises(ConfigError, match="no files in it"):
        read_named([Named(None, f"{uri}/nowhere")], spark)


def test_a_query_has_a_name_of_its_own(spark: Any, lake: Path) -> None:
    value = logbytes.offset_value(3)
    written = logbytes.batch(0, [(logbytes.offset_key("billing", "orders", 0), value)])
    log = lake / "logs" / "__consumer_offsets-0"
    log.mkdir()
    (log / f"{0:020}.log").write_bytes(written)
    named = [Named("billing", f"{lake}/lake/shipping")]
    with LocalSession() as session:
        for engine in (session, spark):
            for is_latest_only in (True, False):
                reading = Reading(engine, lake / "logs", checkpoints=named, is_latest_only=is_latest_only)
                with pytest.raises(ConfigError, match="has a group 'billing', too"):
                    Tables(reading).lag.toArrow()
    exporter = Exporter(str(lake / "logs"), checkpoints=named)
    assert exporter.poll().problems[-1] == "the cluster has a group 'billing', too; give the checkpoint another name"


def test_checkpoints_as_an_option_of_the_source(spark: Any, lake: Path) -> None:
    options = {"checkpoints": f"lake=file://{lake}/lake", "topics": "__consumer_offsets"}
    by_read = offsets(read(spark, str(lake / "logs"), options))
    by_format = offsets(spark.read.format("kohort").options(**options).load(str(lake / "logs")))
    with LocalSession() as session:
        by_tables = Tables(Reading(session, lake / "logs", checkpoints=[Named("lake", f"{lake}/lake")])).offsets
        expected = rows_of(by_tables, "group", "partition")
    assert len(expected) == 6
    assert rows_of(by_read, "group", "partition") == rows_of(by_format, "group", "partition") == expected
    past = read(spark, str(lake / "logs"), {**options, "to": str(BEGAN_MS + 1)})
    assert {row["group"] for row in rows_of(offsets(past), "group")} == {"lake/new"}
    with pytest.raises(ConfigError, match="a stream has no checkpoints"):
        CoordinatorLogSource({**options, "path": str(lake / "logs")}).streamReader(from_arrow_schema(SCHEMA))
