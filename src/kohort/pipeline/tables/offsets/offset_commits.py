"""
OffsetCommit records and the outcome of their transactions, by the rules of `fates`.
"""

from typing import Any

from kohort.pipeline.decode.schemas import MARKER, OFFSET_COMMIT
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.offsets.fates import (
    ABORTED,
    COMMITTED,
    FATE_COLUMNS,
    PENDING,
    PLAIN,
    TAKES_EFFECT,
    is_commit_marker,
)

__all__ = ["ABORTED", "COMMITTED", "INPUT_COLUMNS", "PENDING", "PLAIN", "counting", "offset_commits"]

INPUT_COLUMNS = ("log_topic", *FATE_COLUMNS, "leader_epoch", "metadata", "commit_timestamp_ms")
"""Columns to read of `kind` offset_commit and marker."""


@over_frames
def offset_commits(records: Any) -> Any:
    """
    Return every offset commit and tombstone with its `fate`, and `visible_at_ms`: when it took effect; null if it did not.

    Args:
        records: `INPUT_COLUMNS` of offset commits and markers.
    """
    is_commit = fn.col("kind") == OFFSET_COMMIT
    plain = records.where(is_commit & ~fn.col("transactional")).select(
        "*", fn.lit(PLAIN).alias("fate"), fn.col("timestamp_ms").alias("visible_at_ms")
    )
    of_producer = Window.partitionBy("log_topic", "log_partition", "producer_id").orderBy(fn.col("log_offset").desc())
    # In descending order each row is visited once; a frame from each row to the end would be quadratic.
    behind = of_producer.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marker = fn.when(fn.col("kind") == MARKER, fn.struct("control", "timestamp_ms"))
    decided = (
        records.where((is_commit & fn.col("transactional")) | (fn.col("kind") == MARKER))
        .withColumn("marker", fn.last(marker, ignorenulls=True).over(behind))
        .where(is_commit)
    )
    is_committed = is_commit_marker(fn.col("marker.control"))
    fate = fn.when(fn.col("marker").isNull(), PENDING).when(is_committed, COMMITTED).otherwise(ABORTED)
    visible_at_ms = fn.when(is_committed, fn.col("marker.timestamp_ms"))
    inside = decided.select("*", fate.alias("fate"), visible_at_ms.alias("visible_at_ms")).drop("marker")
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


@over_frames
def counting(commits: Any) -> Any:
    """Select the commits and tombstones that took effect."""
    return commits.where(fn.col("fate").isin(*TAKES_EFFECT))
