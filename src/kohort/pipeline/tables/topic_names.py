"""
Names of topics by topic id: records of consumer, share and streams groups identify topics by id.

Offset commits carry both since Apache Kafka 4.1 (value version 4), as do the records of initialised share group topics.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kohort.pipeline.decode.schemas import COORDINATOR, OFFSET_COMMIT
from kohort.pipeline.engines.dispatch import fn, over_frames
from kohort.pipeline.tables.shares.share_history import INITIALISED

INPUT_COLUMNS = ("kind", "topic", "topic_id", "record_type", "tombstone", "value", "log_partition", "log_offset")
"""Columns to read of `kind` offset_commit and coordinator."""

_SCHEMA = pa.schema([("topic_id", pa.string()), ("topic", pa.string())])
_TOPIC = "array<struct<topicId:string,topicName:string>>"
_VALUE = f"struct<initializingTopics:{_TOPIC},initializedTopics:{_TOPIC}>"


@over_frames
def topic_names(records: Any) -> Any:
    """
    Return `topic_id` and `topic`, one row per id.

    Args:
        records: `INPUT_COLUMNS`; without `topic` and `topic_id` commits name no topics.
    """
    value = fn.from_json("value", _VALUE)
    listed = fn.concat(
        fn.coalesce(value["initializingTopics"], fn.array().cast(_TOPIC)),
        fn.coalesce(value["initializedTopics"], fn.array().cast(_TOPIC)),
    )
    shared = (
        records.where((fn.col("kind") == COORDINATOR) & (fn.col("record_type") == INITIALISED))
        .where(~fn.col("tombstone"))
        .select(fn.explode(listed).alias("named"))
        .select(fn.col("named.topicId").alias("topic_id"), fn.col("named.topicName").alias("topic"))
    )
    both = shared
    if "topic_id" in records.columns:
        committed = records.where((fn.col("kind") == OFFSET_COMMIT) & fn.col("topic_id").isNotNull())
        both = committed.select("topic_id", "topic").unionByName(shared)
    # A topic is never renamed. Two names of one id would be a forgery; either will do.
    return both.where(fn.col("topic").isNotNull()).groupBy("topic_id").agg(fn.min("topic").alias("topic"))


def with_known(names: Any, known: Mapping[str, str]) -> Any:
    """
    Add names that the source knows; they replace those of the records.

    Args:
        names: as `topic_names` returns them.
        known: names by topic id.
    """
    if not known:
        return names
    rows = [{"topic_id": topic_id, "topic": topic} for topic_id, topic in sorted(known.items())]
    now = names.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))
    return now.unionByName(names.join(now, on="topic_id", how="left_anti"))


@over_frames
def named(frame: Any, names: Any) -> Any:
    """Fill in the column `topic` of a frame with `topic` and `topic_id`, as far as the names are known."""
    known = names.withColumnRenamed("topic", "known_topic")
    return (
        frame.join(fn.broadcast(known), on="topic_id", how="left")
        .withColumn("topic", fn.coalesce("topic", "known_topic"))
        .select(*frame.columns)
    )
