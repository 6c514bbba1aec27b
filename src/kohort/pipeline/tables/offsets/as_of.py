"""
Offsets and log ends at an instant of the past: later records are ignored.

The answer is exact as far as the logs reach back: compaction removes older commits, retention older records.
"""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames
from kohort.pipeline.tables.incarnations import current

BATCH_COLUMNS = (
    "log_topic",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "producer_id",
    "transactional",
    "control",
    "next_offset",
    "is_control",
    "first_timestamp_ms",
    "record_count",
)
"""Columns to read of `kind` batch, for all tables that need the logs of topics."""


@over_frames
def commits_as_of(commits: Any, *, at_ms: int) -> Any:
    """Select the commits and tombstones in effect at `at_ms`; `commits` as `offset_commits` returns them."""
    return commits.where(fn.col("visible_at_ms") <= at_ms)


@over_frames
def ends_as_of(batches: Any, *, at_ms: int) -> Any:
    """
    Return the log end offsets at `at_ms`: `topic`, `partition`, `end_offset`, by the greatest timestamp of each batch.

    Args:
        batches: `log_topic`, `log_partition`, `timestamp_ms` and `next_offset` of `BATCH_COLUMNS`.
    """
    return (
        current(batches, at_ms=at_ms)
        .where(fn.col("timestamp_ms") <= at_ms)
        .groupBy(fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"))
        .agg(fn.max("next_offset").alias("end_offset"))
    )
