"""
Offset commits, which of them take effect, and which of them is the last: the rules of the tables and of the exporter.

A transactional commit takes effect with the COMMIT marker of its producer in the same log partition. ABORT drops it; without a
marker it is pending. Markers identify a producer by its id only, so the next marker of the producer id decides, for all epochs.

Source: Kafka GroupCoordinatorShard.replayEndTransactionMarker, OffsetMetadataManager; KIP-447, KIP-890.
"""

from typing import Any

from kohort.pipeline.decode.schemas import COMMIT, MARKER, OFFSET_COMMIT
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS

PLAIN = "plain"
COMMITTED = "committed"
ABORTED = "aborted"
PENDING = "pending"
TAKES_EFFECT = (PLAIN, COMMITTED)
"""The fates of commits that count."""

FATE_COLUMNS = (
    "kind",
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
    "control",
)
"""Columns of `kind` offset_commit and marker that the rules and their result need."""
INPUT_COLUMNS = ("log_topic", *FATE_COLUMNS, "leader_epoch", "metadata", "commit_timestamp_ms")
"""Columns to read of `kind` offset_commit and marker."""


def is_commit_marker(control: Any) -> Any:
    """Tell whether a marker lets the commits of its producer take effect; any other marker drops them. Also for columns."""
    return control == COMMIT


def replaces(log_offset: int, last_log_offset: int) -> bool:
    """
    Tell whether a commit that takes effect replaces the last one of its key: if its record is behind in the log.

    A commit of a transaction that ended after a later plain commit does not move the group back.

    Source: Kafka OffsetMetadataManager.replayEndTransactionMarker (the pending record replaces an older one only).
    """
    return log_offset >= last_log_offset


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
    return plain.unionByName(inside).select(*COLUMNS["offset_commits"])


@over_frames
def counting(commits: Any) -> Any:
    """Select the commits and tombstones that took effect."""
    return commits.where(fn.col("fate").isin(*TAKES_EFFECT))


@over_frames
def commits_as_of(commits: Any, *, at_ms: int) -> Any:
    """Select the commits and tombstones in effect at an instant, as far as compaction has left them."""
    return commits.where(fn.col("visible_at_ms") <= at_ms)
