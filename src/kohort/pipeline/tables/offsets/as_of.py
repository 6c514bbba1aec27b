"""
Where everything stood at an instant of the past: what began to count later is left out.

The answer is exact as long as the logs reach back: compaction takes older commits, retention older records.
"""

from typing import Any

from pyspark.sql import functions as fn

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
"""What has to be read of `kind` batch, so that all that looks at the logs of topics reads them once."""


def commits_as_of(commits: Any, *, at_ms: int) -> Any:
    """The commits and tombstones that had begun to count by `at_ms`; `commits` as `offset_commits` returns them."""
    return commits.where(fn.col("visible_at_ms") <= at_ms)


def ends_as_of(batches: Any, *, at_ms: int) -> Any:
    """
    The ends of logs at `at_ms`: `topic`, `partition`, `end_offset`, by the greatest timestamp of each batch.

    Args:
        batches: `log_topic`, `log_partition`, `timestamp_ms` and `next_offset` of `BATCH_COLUMNS`.
    """
    return (
        current(batches, at_ms=at_ms)
        .where(fn.col("timestamp_ms") <= at_ms)
        .groupBy(fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"))
        .agg(fn.max("next_offset").alias("end_offset"))
    )
