"""`spark.read.format("kohort")`, found by Spark itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.schemas import KINDS, SCHEMA
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.coordinator_log import LogReader
from kohort.pipeline.sources.directory import SliceTask
from kohort.pipeline.sources.options import SourceOptions
from tests.pipeline import frames
from tests.pipeline.logbytes import decode_directory

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(recorded: Callable[[str], Path]) -> Path:
    return recorded("main") / "logs"


def test_spark_sees_what_the_decoder_gives(spark: Any, logs: Path) -> None:
    frame = spark.read.format("kohort").option("kinds", ",".join(KINDS)).option("bytesPerTask", "20000").load(str(logs))
    decoded = decode_directory(list_segments(logs, topics=INTERNAL_TOPICS), Decoder(kinds=KINDS))
    by = ("kind", "log_topic", "log_partition", "log_offset")
    order = [(column, "ascending") for column in by]
    assert frame.columns == SCHEMA.names
    assert frames.rows_of(frame, *by) == decoded.sort_by(order).to_pylist()


def test_a_schema_chooses_columns(spark: Any, logs: Path) -> None:
    source = spark.read.format("kohort").option("kinds", "marker").schema("control string, log_offset bigint")
    frame = source.load(str(logs))
    assert frame.columns == ["control", "log_offset"]
    assert {row["control"] for row in frames.rows_of(frame, "log_offset")} == {"COMMIT", "ABORT"}


def test_a_schema_with_another_type_is_refused(spark: Any, logs: Path) -> None:
    with pytest.raises(Exception, match="column 'offset' is int64, not string"):
        spark.read.format("kohort").schema("offset string").load(str(logs)).collect()


def test_no_segment_makes_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    assert spark.read.format("kohort").load(str(tmp_path)).count() == 0


def test_tasks_are_packs_of_segments(logs: Path) -> None:
    def sizes(**options: Any) -> list[int]:
        reader = LogReader(SourceOptions(path=str(logs), **options))
        return [len(cast("SliceTask", partition.value).slices) for partition in reader.partitions()]

    assert sizes() == [10]
    assert sizes(pack_bytes=1, topics=frozenset({"__consumer_offsets"})) == [1, 1, 1, 1]
    assert sizes(pack_bytes=1, partitions=frozenset({2})) == [1, 1]
    assert sizes(topics=frozenset({"d-segments"}), newest=True, pack_bytes=1) == [1]


def test_min_partitions_and_patterns_choose_tasks(logs: Path) -> None:
    def sizes(**options: str) -> list[int]:
        reader = LogReader(SourceOptions.parse({"path": str(logs), **options}))
        return [len(cast("SliceTask", partition.value).slices) for partition in reader.partitions()]

    assert len(sizes(minPartitions="3")) >= 3
    assert sizes(subscribePattern="d-seg.*", bytesPerTask="1", newest="true") == [1]


def test_a_table_of_the_catalog_is_read_with_its_options(spark: Any, logs: Path) -> None:
    """Spark gives readers of a table no options. The warehouse of the session is a temporary directory."""
    spark.sql(f"CREATE TABLE coordinator_log USING kohort OPTIONS (path '{logs}', kinds 'marker')")
    try:
        told = spark.sql("SELECT kind, control, log_offset FROM coordinator_log")
        assert {row["kind"] for row in frames.rows_of(told, "log_offset")} == {"marker"}
    finally:
        spark.sql("DROP TABLE coordinator_log")


def test_a_stream_or_batch_with_an_unknown_option_is_refused(spark: Any, logs: Path) -> None:
    with pytest.raises(Exception, match="unknown option subscribed; there are"):
        spark.read.format("kohort").option("subscribed", "__consumer_offsets").load(str(logs))
