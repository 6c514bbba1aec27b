"""
How far a group was behind at every moment: exact, from the times in both logs, without polling.

The lag of a partition changes when records are produced to it and when the group commits (or, in a transaction, when the
transaction completes). Between these events it stands still. The lag of the group is the sum over its partitions, each from
its first commit on.

What the logs no longer hold cannot be told: commits that were compacted away, records that were deleted. Produced records
count from the greatest timestamp of their batch, so producers that set wild timestamps make a wild picture.
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.tables.incarnations import INCARNATION, last_end
from kohort.pipeline.tables.offsets.offset_commits import counting

INPUT_COLUMNS = ("log_topic", "log_partition", "timestamp_ms", "next_offset")
"""What has to be read of `kind` batch."""

_PARTITION = ("group", "topic", "partition")
ORDER = ("timestamp_ms", "order", INCARNATION, "end_offset")
"""Of what happens to a partition of a group; a log that was never made again has no life."""


def lag_over_time(commits: Any, batches: Any) -> Any:
    """
    The lag of each group after every event: `group`, `timestamp_ms`, `lag`.

    Args:
        commits: as `offset_commits` returns them.
        batches: `INPUT_COLUMNS` of the topics that groups commit to; partitions without any are left out.
    """
    return _sums(_partition_steps(partition_lag(commits, batches)))


def partition_lag(commits: Any, batches: Any) -> Any:
    """
    Each partition of a group at every event that concerns it: `group`, `topic`, `partition`, `timestamp_ms`, `order` (offset
    in the coordinator's log, -1 for what was produced), `committed` (null for what was produced; `committed.offset` is null in
    a tombstone), `begun` (there was a commit or tombstone already), `behind` (the lag; null without an offset), `is_late` (a
    commit that lies in the log before one that counted already: its transaction completed later, or the clock went back. The
    group stays where it stands then, see `latest_offsets`).

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
    """Commits and produced batches in one frame; `committed` is a struct, so that a tombstone is not nothing."""
    appended = batches.where(fn.col("timestamp_ms") >= 0).select(
        fn.col("log_topic").alias("topic"),
        fn.col("log_partition").alias("partition"),
        fn.col("timestamp_ms"),
        fn.col("next_offset").alias("end_offset"),
        *(column for column in batches.columns if column == INCARNATION),
    )
    told = counting(commits).join(appended.select("topic", "partition").distinct(), ["topic", "partition"], "left_semi")
    committed = told.select(
        *_PARTITION,
        fn.col("visible_at_ms").alias("timestamp_ms"),
        fn.col("log_offset").alias("order"),
        fn.struct(fn.when(~fn.col("tombstone"), fn.col("offset")).alias("offset")).alias("committed"),
        fn.lit(None).cast("bigint").alias("end_offset"),
    )
    produced = (
        told.select(*_PARTITION)
        .distinct()
        .join(appended, on=["topic", "partition"], how="inner")
        .select(
            *_PARTITION,
            "timestamp_ms",
            # What was produced in the same millisecond came before: a group commits what it has read.
            fn.lit(-1).cast("bigint").alias("order"),
            fn.lit(None).cast("struct<offset:bigint>").alias("committed"),
            "end_offset",
            *(column for column in appended.columns if column == INCARNATION),
        )
    )
    return committed.unionByName(produced, allowMissingColumns=True)


def _partition_steps(known: Any) -> Any:
    """By how much the lag of a partition changes at each event."""
    before = fn.lag("behind").over(_in_order(known))
    return known.select(
        "group",
        "timestamp_ms",
        "begun",
        (fn.coalesce("behind", fn.lit(0)) - fn.coalesce(before, fn.lit(0))).alias("step"),
    )


def order(events: Any) -> list[str]:
    """The columns that sort the events of a partition of a group."""
    return [column for column in ORDER if column in events.columns]


def _in_order(events: Any) -> Any:
    return Window.partitionBy(*_PARTITION).orderBy(*order(events))


def _sums(steps: Any) -> Any:
    """The running sum of all partitions of a group, from its first commit on."""
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
    At most `points` points a group, evenly over its time: the last lag of each stretch, and its greatest as `lag_max`.
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
