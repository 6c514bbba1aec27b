"""Burrow's statuses for any instant of the past: its window is filled from the logs, as if it had been running then."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.tables import as_of, lag_over_time
from kohort.pipeline.tables.burrow import INTERVALS, REFRESH_MS, Commit, evaluate, window

_PARTITION = ("group", "topic", "partition")
_SCHEMA = "group string, topic string, partition int, status string, lag bigint, commits int, last_commit_ms bigint"


def burrow_status(commits: Any, batches: Any, *, at_ms: int, intervals: int = INTERVALS, allowed_lag: int = 0) -> Any:
    """
    The status of every partition with a committed offset at `at_ms`: `group`, `topic`, `partition`, `status`, `lag`, `commits`
    (in the window), `last_commit_ms`.

    Unlike in Burrow, what an aborted transaction committed is no commit, and a tombstone ends a window: a partition whose
    offset was deleted or has expired is not listed.

    Args:
        commits: as `offset_commits` returns them.
        batches: `lag_over_time.INPUT_COLUMNS` of the topics that groups commit to.
    """
    past = batches.where(fn.col("timestamp_ms") <= at_ms)
    events = lag_over_time.partition_lag(as_of.commits_as_of(commits, at_ms=at_ms), past)
    windows = _windows(events, intervals)
    oldest = as_of.ends_as_of(batches, at_ms=at_ms - (intervals - 1) * REFRESH_MS)
    now = as_of.ends_as_of(batches, at_ms=at_ms).withColumnRenamed("end_offset", "end_now")
    place = ["topic", "partition"]
    joined = windows.join(now, on=place, how="left").join(oldest, on=place, how="left")

    def judge(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            rows = [_judged(row, at_ms, intervals, allowed_lag) for row in part.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_arrow_schema())

    return joined.mapInArrow(judge, _SCHEMA)


def _windows(events: Any, intervals: int) -> Any:
    """The last commits of each partition, since its last tombstone."""
    backwards = Window.partitionBy(*_PARTITION).orderBy(fn.desc("order"))
    committed = events.where(fn.col("committed").isNotNull())
    is_over = fn.max(fn.col("committed.offset").isNull()).over(backwards)
    commit = fn.struct(
        "order", fn.col("committed.offset").alias("offset"), "timestamp_ms", fn.col("behind").alias("lag")
    )
    return (
        committed.withColumn("is_over", is_over)
        .where(~fn.col("is_over"))
        .withColumn("place", fn.row_number().over(backwards))
        .where(fn.col("place") <= intervals)
        .groupBy(*_PARTITION)
        .agg(fn.sort_array(fn.collect_list(commit)).alias("window"))
    )


def _judged(row: dict[str, Any], at_ms: int, intervals: int, allowed_lag: int) -> dict[str, Any]:
    commits = window(
        (Commit(one["offset"], one["timestamp_ms"], one["lag"]) for one in row["window"]), intervals=intervals
    )
    lag = max((row["end_now"] or 0) - commits[-1].offset, 0)
    ends = () if row["end_offset"] is None else (row["end_offset"],)
    status = evaluate(commits, current_lag=lag, now_ms=at_ms, ends=ends, allowed_lag=allowed_lag, intervals=intervals)
    return {
        **{name: row[name] for name in _PARTITION},
        "status": status.name,
        "lag": lag,
        "commits": len(commits),
        "last_commit_ms": commits[-1].timestamp_ms,
    }


def _arrow_schema() -> pa.Schema:
    return pa.schema(
        [
            ("group", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("status", pa.string()),
            ("lag", pa.int64()),
            ("commits", pa.int32()),
            ("last_commit_ms", pa.int64()),
        ]
    )
