"""Frames as Spark's Kafka connector gives them, decoded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kohort.pipeline import decode_kv
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.batches import scan
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.records import parse, windows
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.frames.kafka_connector import decode_batch
from kohort.wire.batch_header import CONTROL
from tests.pipeline import frames
from tests.pipeline.logbytes import decode_directory

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
HIDDEN = ("producer_id", "producer_epoch", "transactional", "segment")
"""Columns that the connector's frames do not know."""


def as_connector(logs: Path) -> pa.Table:
    """What the connector gives of a directory's internal topics: all records but control records."""
    rows = []
    for segment in list_segments(logs, topics={"__consumer_offsets", "__transaction_state", "__share_group_state"}):
        for window in windows(scan(Path(segment.path).read_bytes())):
            found = parse(window)
            for index in range(len(found)):
                if window.headers["attributes"][found.batch[index]] & CONTROL:
                    continue
                key, value = (
                    None if size[index] < 0 else window.data[at[index] : at[index] + size[index]].tobytes()
                    for at, size in ((found.key_at, found.key_bytes), (found.value_at, found.value_bytes))
                )
                at_us = int(found.timestamp_ms[index]) * 1000
                rows.append((key, value, segment.topic, segment.partition, int(found.offset[index]), at_us))
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def expected(logs: Path) -> list[dict[str, Any]]:
    kinds = set(schemas.DEFAULT_KINDS) - {schemas.MARKER, schemas.DAMAGE}
    segments = list_segments(logs, topics={"__consumer_offsets", "__transaction_state", "__share_group_state"})
    return ordered(decode_directory(segments, Decoder(kinds=kinds)).to_pylist())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{name: value for name, value in row.items() if name not in HIDDEN} for row in rows]
    return sorted(found, key=lambda row: (row["log_topic"], row["log_partition"], row["log_offset"]))


def test_records_are_those_of_the_log(recorded: Callable[[str], Path]) -> None:
    logs = recorded("main") / "logs"
    found = [row for part in as_connector(logs).to_batches(50) for out in decode_batch(part) for row in out.to_pylist()]
    assert len(found) > 500
    assert ordered(found) == expected(logs)


def test_other_topics_and_damage() -> None:
    rows: list[dict[str, Any]] = [
        {"key": b"\0\1nonsense", "value": b"", "topic": "__consumer_offsets", "partition": 3, "offset": 7},
        {"key": b"\0\1", "value": None, "topic": "orders", "partition": 0, "offset": 1},
        {"key": None, "value": b"v", "topic": "__consumer_offsets", "partition": 3, "offset": 8},
    ]
    (part,) = pa.Table.from_pylist([{**row, "timestamp": 0} for row in rows], SCHEMA).to_batches()
    (damage,) = [row for out in decode_batch(part) for row in out.to_pylist() if row["kind"] == schemas.DAMAGE]
    assert (damage["log_partition"], damage["log_offset"], damage["problem"]) == (3, 7, "malformed OffsetCommit key")


@pytest.mark.spark
def test_a_frame(spark: Any, recorded: Callable[[str], Path]) -> None:
    logs = recorded("tv1") / "logs"
    frame = decode_kv(spark.createDataFrame(as_connector(logs)))
    assert ordered(frames.rows_of(frame, "log_topic", "log_partition", "log_offset")) == expected(logs)
