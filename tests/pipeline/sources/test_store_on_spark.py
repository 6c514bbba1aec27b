"""Spark over a store in PostgreSQL: batches, streams with checkpoints, runs; what its plans and tables show."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline import read
from kohort.pipeline.jobs import published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.runs.run import Run, Source
from kohort.pipeline.runs.state import RunRequest
from kohort.pipeline.tables.contract import COLUMNS
from tests.conftest import NIGHTLY
from tests.pipeline import frames
from tests.pipeline.sources.growing import written_rows
from tests.pipeline.stored import GrowingRows, load, new_store

pytestmark = pytest.mark.spark

BY = ("kind", "log_topic", "log_partition", "log_offset")
OF_FILES = ("segment", "position", "size_bytes")


@pytest.fixture
def url() -> Iterator[str]:
    with new_store() as made:
        yield made


def test_a_batch_read_is_that_of_the_directory(spark: Any, recorded: Callable[[str], Path], url: str) -> None:
    logs = recorded("expiry-4.4.0") / "logs"
    load(url, logs)
    options = {"kinds": "offset_commit,group_metadata,coordinator,transaction,marker,batch", "topics": "*"}

    def rows(path: str, **more: str) -> list[dict[str, Any]]:
        frame = spark.read.format("kohort").options(**options, **more).load(path)
        return frames.rows_of(frame.drop(*OF_FILES), *BY)

    found = rows(url, bytesPerTask="2000")
    assert found == rows(str(logs))
    assert frames.rows_of(read(spark, url, options).drop(*OF_FILES), *BY) == found
    assert spark.read.format("kohort").options(**options, bytesPerTask="2000").load(url).rdd.getNumPartitions() > 3


@NIGHTLY
@pytest.mark.parametrize("run", ["expiry-4.4.0", "unclean", "tv1"])
def test_tables_are_those_of_the_directory(spark: Any, recorded: Callable[[str], Path], url: str, run: str) -> None:
    logs = recorded(run) / "logs"
    load(url, logs)
    frames.check_equal((*COLUMNS, "lag_picture"), Tables(Reading(spark, url)), Tables(Reading(spark, logs)))


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path, url: str) -> None:
    logs = [GrowingRows(url, partition) for partition in range(2)]

    def run() -> list[tuple[int, int]]:
        stream = spark.readStream.format("kohort").option("maxRecordsPerTrigger", 10).load(url)
        kept = stream.select("log_partition", "log_offset", "kind").writeStream.format("json")
        query = kept.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "out"))
        query.trigger(availableNow=True).start().awaitTermination()
        return [(row["log_partition"], row["log_offset"]) for row in written_rows(tmp_path / "out")]

    logs[0].commits(20)
    assert run() == [(0, offset) for offset in range(20)]
    logs[0].commits(7)
    logs[0].update("leader_epoch = 5")
    logs[1].commits(4)
    expected = [*((0, offset) for offset in range(27)), *((1, offset) for offset in range(4))]
    assert run() == expected
    assert run() == expected
    for log in logs:
        log.close()


@NIGHTLY
def test_a_run_publishes_the_tables_of_a_store(
    spark: Any, tmp_path: Path, recorded: Callable[[str], Path], url: str
) -> None:
    logs = recorded("expiry-4.4.0") / "logs"
    load(url, logs)
    tables = ("offsets", "lag", "time_lag", "rebalances", "status")
    outcomes = []
    for source, out in ((url, "store"), (str(logs), "directory")):
        run = Run(Source(source), tmp_path / out, RunRequest(tables=tables), lambda _: nullcontext(spark))
        outcomes.append((run.once().rows_read, run.once().is_new))
    assert outcomes[0] == outcomes[1]
    assert not outcomes[0][1]
    for name in tables:
        assert published.rows(tmp_path / "store", name) == published.rows(tmp_path / "directory", name), name
    assert published.instant_of(tmp_path / "store") == published.instant_of(tmp_path / "directory")


def test_plans_and_tables_show_no_password(spark: Any, url: str, capfd: pytest.CaptureFixture[str]) -> None:
    secret = url.replace("kohort@", "kohort:secret@")
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: read(spark, secret),
        lambda: spark.read.format("kohort").load(secret).collect(),
        lambda: spark.sql(f"CREATE TABLE stored USING kohort OPTIONS (path '{secret}')"),
    )
    for attempt in attempts:
        with pytest.raises(Exception, match="the address of a source has no password") as refused:
            attempt()
        assert isinstance(refused.value, ConfigError) or "ConfigError" in str(refused.value)
    read(spark, url).explain(extended=True)
    assert f"kohort {url}: 0 logs" in capfd.readouterr().out
