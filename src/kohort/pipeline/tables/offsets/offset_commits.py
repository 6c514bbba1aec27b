"""
OffsetCommit records and what became of them.

A commit inside a transaction counts only once the COMMIT marker of its producer has followed it in the same log partition;
ABORT drops it, and without a marker it is pending. Markers name a producer id alone, so the next marker of the producer
decides, whatever epochs it has.

Source: Kafka GroupCoordinatorShard.replayEndTransactionMarker, OffsetMetadataManager; KIP-447, KIP-890.
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.decode.schemas import COMMIT, MARKER, OFFSET_COMMIT

PLAIN = "plain"
COMMITTED = "committed"
ABORTED = "aborted"
PENDING = "pending"

INPUT_COLUMNS = (
    "kind",
    "log_topic",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "producer_id",
    "transactional",
    "group",
    "tombstone",
    "topic",
    "partition",
    "offset",
    "leader_epoch",
    "metadata",
    "commit_timestamp_ms",
    "control",
)
"""What has to be read of `kind` offset_commit and marker."""


def offset_commits(records: Any) -> Any:
    """
    Every offset commit and tombstone with its `fate`, and `visible_at_ms`: when it began to count, null when it did not.

    Args:
        records: `INPUT_COLUMNS` of offset commits and markers.
    """
    is_commit = fn.col("kind") == OFFSET_COMMIT
    plain = records.where(is_commit & ~fn.col("transactional")).select(
        "*", fn.lit(PLAIN).alias("fate"), fn.col("timestamp_ms").alias("visible_at_ms")
    )
    of_producer = Window.partitionBy("log_topic", "log_partition", "producer_id").orderBy(fn.col("log_offset").desc())
    # Running from the end backwards costs each row once; a frame that begins at each row would cost all that follow it.
    behind = of_producer.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marker = fn.when(fn.col("kind") == MARKER, fn.struct("control", "timestamp_ms"))
    judged = (
        records.where((is_commit & fn.col("transactional")) | (fn.col("kind") == MARKER))
        .withColumn("marker", fn.last(marker, ignorenulls=True).over(behind))
        .where(is_commit)
    )
    is_committed = fn.col("marker.control") == COMMIT
    fate = fn.when(fn.col("marker").isNull(), PENDING).when(is_committed, COMMITTED).otherwise(ABORTED)
    visible_at_ms = fn.when(is_committed, fn.col("marker.timestamp_ms"))
    inside = judged.select("*", fate.alias("fate"), visible_at_ms.alias("visible_at_ms")).drop("marker")
    return plain.unionByName(inside).select(
        "log_partition",
        "log_offset",
        "group",
        "topic",
        "partition",
        "tombstone",
        "offset",
        "leader_epoch",
        "metadata",
        "commit_timestamp_ms",
        "fate",
        "visible_at_ms",
    )


def counting(commits: Any) -> Any:
    """The commits and tombstones that count."""
    return commits.where(fn.col("fate").isin(PLAIN, COMMITTED))
