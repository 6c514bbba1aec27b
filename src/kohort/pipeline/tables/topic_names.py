"""
What topics are called whose ids are in records: groups that the coordinator assigns name their partitions by topic id alone.

Offset commits carry both since Apache Kafka 4.1 (value version 4), and so do the records of what share groups have initialised.
"""

from typing import Any

from pyspark.sql import functions as fn

from kohort.pipeline.decode.schemas import COORDINATOR, OFFSET_COMMIT

INPUT_COLUMNS = ("kind", "topic", "topic_id", "record_type", "tombstone", "value", "log_partition", "log_offset")
"""What has to be read of `kind` offset_commit and coordinator."""

_SHARE_TOPICS = "ShareGroupStatePartitionMetadata"
_TOPIC = "array<struct<topicId:string,topicName:string>>"
_VALUE = f"struct<initializingTopics:{_TOPIC},initializedTopics:{_TOPIC}>"


def topic_names(records: Any) -> Any:
    """
    `topic_id` and `topic`, each id once.

    Args:
        records: `INPUT_COLUMNS`.
    """
    committed = records.where((fn.col("kind") == OFFSET_COMMIT) & fn.col("topic_id").isNotNull())
    told = fn.from_json("value", _VALUE)
    listed = fn.concat(
        fn.coalesce(told["initializingTopics"], fn.array().cast(_TOPIC)),
        fn.coalesce(told["initializedTopics"], fn.array().cast(_TOPIC)),
    )
    shared = (
        records.where((fn.col("kind") == COORDINATOR) & (fn.col("record_type") == _SHARE_TOPICS))
        .where(~fn.col("tombstone"))
        .select(fn.explode(listed).alias("told"))
        .select(fn.col("told.topicId").alias("topic_id"), fn.col("told.topicName").alias("topic"))
    )
    both = committed.select("topic_id", "topic").unionByName(shared)
    # A topic keeps its name for ever; that an id has two would be somebody's forgery, and one of them is as good.
    return both.where(fn.col("topic").isNotNull()).groupBy("topic_id").agg(fn.min("topic").alias("topic"))


def named(frame: Any, names: Any) -> Any:
    """A frame with `topic` and `topic_id`, its topics named where their ids are known."""
    known = names.withColumnRenamed("topic", "known_topic")
    return (
        frame.join(fn.broadcast(known), on="topic_id", how="left")
        .withColumn("topic", fn.coalesce("topic", "known_topic"))
        .select(*frame.columns)
    )
