"""
Decoding of frames of Spark's Kafka connector: `decode_kv(spark.read.format("kafka")...load())`.

The connector silently omits internal topics, in `subscribe`, `subscribePattern` and `assign`, unless
`spark.sql.streaming.kafka.useDeprecatedOffsetFetching=true`. It does not show transaction markers, producer ids, or whether a
commit was transactional. Read with `kafka.isolation.level=read_committed`: then every commit counts, from its own timestamp on
rather than from that of its marker.

Source: Spark 4.2, ConsumerStrategy.retrieveAllPartitions, KafkaRecordToRowConverter.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.records import PADDING_BYTES, Records, Window
from kohort.pipeline.decode.segments import Segment
from kohort.wire.columnar.layout import HEADER_DTYPE
from kohort.wire.columnar.vectors import Bytes, Ints

INPUT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
_SEGMENT = "kafka"
"""The name of the segment in rows; there is no file."""
_ABSENT = -1


def decode_kv(frame: Any) -> Any:
    """
    Decode the records of coordinators into the columns of Kohort's own source (`decode.schemas`).

    Records of other topics are skipped. `producer_id` is -1 and `transactional` false in every row; there are no markers.
    Unreadable records are rows of kind damage.

    Args:
        frame: `INPUT_COLUMNS`, a stream or not.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    def decode(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from decode_batch(part)

    return frame.select(*INPUT_COLUMNS).mapInArrow(decode, from_arrow_schema(schemas.SCHEMA))


def decode_batch(part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Decode one Arrow batch of the connector's columns."""
    topics = part.column("topic").dictionary_encode()
    partitions = part.column("partition").to_numpy(zero_copy_only=False)
    codes = topics.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        for partition in np.unique(partitions[codes == code]).tolist() if topic in INTERNAL_TOPICS else ():
            chosen = np.flatnonzero((codes == code) & (partitions == partition))
            rows = part if len(chosen) == part.num_rows else part.take(pa.array(chosen))
            yield from Decoder().decode_records(_records(rows), Segment(topic, partition, 0, _SEGMENT, 0))


def _records(rows: pa.RecordBatch) -> Records:
    """Return records as if each had a batch of its own; keys and values are in one array of bytes."""
    key, key_at, key_bytes = _slices(rows.column("key"))
    value, value_at, value_bytes = _slices(rows.column("value"))
    data = np.concatenate([key, value, np.zeros(PADDING_BYTES, np.uint8)])
    count = rows.num_rows
    offset = rows.column("offset").to_numpy(zero_copy_only=False).astype(np.int64)
    timestamp_ms = rows.column("timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    headers = np.zeros(count, HEADER_DTYPE)
    headers["base_offset"] = offset
    headers["producer_id"] = headers["producer_epoch"] = _ABSENT
    nowhere = np.zeros(count, np.int64)
    window = Window(data, nowhere, nowhere, headers, nowhere)
    return Records(
        window,
        np.arange(count),
        offset,
        timestamp_ms.to_numpy(zero_copy_only=False),
        key_at,
        key_bytes,
        value_at + len(key),
        value_bytes,
        [],
    )


def _slices(column: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """Return the bytes of a binary column, and the position and size of each value; size -1 for null."""
    column = column.cast(pa.large_binary())
    _, bounds, data = column.buffers()
    at = np.frombuffer(bounds, np.int64)[column.offset : column.offset + len(column) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    size = np.diff(at)
    return raw, at[:-1].copy(), np.where(column.is_null().to_numpy(zero_copy_only=False), _ABSENT, size)
