"""
The lag of a group after every event: exact, from the timestamps in both logs, without polling.

The lag of a partition changes when records are appended to it and when the group commits (for a transactional commit: when the
transaction completes). The lag of the group is the sum over its partitions, each from its first commit on.

Compacted commits and deleted records are missing. Appended records count from the greatest timestamp of their batch, so wrong
producer clocks distort the result.
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.tables.incarnations import INCARNATION, last_end
from kohort.pipeline.tables.offsets.offset_commits import counting

INPUT_COLUMNS = ("log_topic", "log_partition", "timestamp_ms", "next_offset")
"""Columns to read of `kind` batch."""

_PARTITION = ("group", "topic", "partition")
ORDER = ("timestamp_ms", "order", INCARNATION, "end_offset")
"""The order of the events of a partition of a group. A log that never began again has no incarnation."""


def lag_over_time(commits: Any, batches: Any) -> Any:
    """
    Return the lag of each group after every event: `group`, `timestamp_ms`, `lag`.

    Args:
        commits: as `offset_commits` returns them.
        batches: `INPUT_COLUMNS` of the topics that groups commit to; partitions without any are ignored.
    """
    return _sums(_partition_steps(partition_lag(commits, batches)))


def partition_lag(commits: Any, batches: Any) -> Any:
    """
    Return the events of each partition of a group.

    Columns: `group`, `topic`, `partition`, `timestamp_ms`, `order` (offset in the coordinator's log; -1 for appended batches),
    `committed` (null for appended batches; `committed.offset` is null in a tombstone), `begun` (a commit or tombstone came
    before), `behind` (the lag; null without an offset), `is_late` (the commit took effect after one with a greater log offset:
    its transaction completed later, or the clock went back; it does not move the group, see `latest_offsets`).

    Args:
        commits, batches: as for `lag_over_time`.
    """
    events = _events(commits, batches)
    so_far = _in_order(events).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    end_offset = fn.coalesce(last_end(events, "end_offset", over=so_far), fn.lit(0))
    last = fn.max_by("committed", "order").over(so_far)
    behind = fn.greatest(end_offset - last["offset"], fn.lit(0).cast("bigint"))
    known = events.withColumn("behind", fn.when(last["offset"].isNotNull(), behind))
    is_late = fn.col("committed").isNotNull() & (fn.col("order") < fn.max("order").over(so_far))
    return known.withColumn("begun", last.isNotNull()).withColumn("is_late", is_late)


def _events(commits: Any, batches: Any) -> Any:
    """Return commits and appended batches in one frame; `committed` is a struct, so that a tombstone is not null."""
    appended = batches.where(fn.col("timestamp_ms") >= 0).select(
        fn.col("log_topic").alias("topic"),
        fn.col("log_partition").alias("partition"),
        fn.col("timestamp_ms"),
        fn.col("next_offset").alias("end_offset"),
        *(column for column in batches.columns if column == INCARNATION),
    )
    effective = counting(commits).join(
        appended.select("topic", "partition").distinct(), ["topic", "partition"], "left_semi"
    )
    committed = effective.select(
        *_PARTITION,
        fn.col("visible_at_ms").alias("timestamp_ms"),
        fn.col("log_offset").alias("order"),
        fn.struct(fn.when(~fn.col("tombstone"), fn.col("offset")).alias("offset")).alias("committed"),
        fn.lit(None).cast("bigint").alias("end_offset"),
    )
    produced = (
        effective.select(*_PARTITION)
        .distinct()
        .join(appended, on=["topic", "partition"], how="inner")
        .select(
            *_PARTITION,
            "timestamp_ms",
            # Batches of the same millisecond come before commits: a group commits what it has read.
            fn.lit(-1).cast("bigint").alias("order"),
            fn.lit(None).cast("struct<offset:bigint>").alias("committed"),
            "end_offset",
            *(column for column in appended.columns if column == INCARNATION),
        )
    )
    return committed.unionByName(produced, allowMissingColumns=True)


def _partition_steps(known: Any) -> Any:
    """Return the change of the lag of a partition at each event."""
    before = fn.lag("behind").over(_in_order(known))
    return known.select(
        "group",
        "timestamp_ms",
        "begun",
        (fn.coalesce("behind", fn.lit(0)) - fn.coalesce(before, fn.lit(0))).alias("step"),
    )


def order(events: Any) -> list[str]:
    """Return the columns that sort the events of a partition of a group."""
    return [column for column in ORDER if column in events.columns]


def _in_order(events: Any) -> Any:
    return Window.partitionBy(*_PARTITION).orderBy(*order(events))


def _sums(steps: Any) -> Any:
    """Return the running sum over all partitions of a group, from its first commit on."""
    in_order = Window.partitionBy("group").orderBy("timestamp_ms")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        steps.where("begun")
        .groupBy("group", "timestamp_ms")
        .agg(fn.sum("step").alias("step"))
        .select("group", "timestamp_ms", fn.sum("step").over(so_far).cast("bigint").alias("lag"))
    )


def thinned(series: Any, *, points: int) -> Any:
    """
    Reduce a series to at most `points` equal intervals per group: the last lag of each, and the greatest as `lag_max`.
    """
    whole = Window.partitionBy("group").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    first, last = fn.min("timestamp_ms").over(whole), fn.max("timestamp_ms").over(whole)
    stretch = fn.floor((fn.col("timestamp_ms") - first) * fn.lit(points) / (last - first + 1))
    return (
        series.withColumn("stretch", stretch)
        .groupBy("group", "stretch")
        .agg(
            fn.max("timestamp_ms").alias("timestamp_ms"),
            fn.max_by("lag", "timestamp_ms").alias("lag"),
            fn.max("lag").alias("lag_max"),
        )
        .select("group", "timestamp_ms", "lag", "lag_max")
    )
