"""
The lag of a group after every event: exact, from the timestamps in both logs, without polling.

The lag of a partition changes when records are appended to it and when the group commits (for a transactional commit: when the
transaction completes). The lag of the group is the sum over its partitions, each from its first commit on.

Each appended batch is an event of every group that reads its partition. Of a partition with many batches, the series has the
last one before each commit of the group, and the last one of each of 1,000 equal intervals: otherwise one topic with 200,000
batches and 20 groups makes four million rows. The lag of a partition is exact after each commit. In the sum, another partition
may be late by an interval.

Compacted commits and deleted records are missing. Appended records count from the greatest timestamp of their batch, so wrong
producer clocks distort the result.
"""

from typing import Any

from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.incarnations import INCARNATION, last_end
from kohort.pipeline.tables.offsets.offset_commits import counting

_PARTITION = ("group", "topic", "partition")
POINTS = 1_000
"""Appended batches of a partition that every group has as events."""
CHART_POINTS = 300
"""Rows of a group in a series for a chart."""
ORDER = ("timestamp_ms", "order", INCARNATION, "end_offset")
"""The order of the events of a partition of a group. A log that never began again has no incarnation."""


@over_frames
def lag_over_time(commits: Any, batches: Any, *, points: int = POINTS) -> Any:
    """
    Return the lag of each group after its events: `group`, `timestamp_ms`, `lag`.

    Args:
        commits: as `offset_commits` returns them.
        batches: `BATCH_COLUMNS` of the topics that groups commit to; partitions without any are ignored.
        points: of a partition with more batches, the last of each of so many equal intervals; and the last before each commit.
    """
    return _sums(_partition_steps(_with_lag(_events(commits, batches, points=points))))


@over_frames
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
    return _with_lag(_events(commits, batches))


def _with_lag(events: Any) -> Any:
    so_far = _in_order(events).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    end_offset = fn.coalesce(last_end(events, "end_offset", over=so_far), fn.lit(0))
    last = fn.max_by("committed", "order").over(so_far)
    behind = fn.greatest(end_offset - last["offset"], fn.lit(0).cast("bigint"))
    known = events.withColumn("behind", fn.when(last["offset"].isNotNull(), behind))
    is_late = fn.col("committed").isNotNull() & (fn.col("order") < fn.max("order").over(so_far))
    return known.withColumn("begun", last.isNotNull()).withColumn("is_late", is_late)


def _events(commits: Any, batches: Any, *, points: int | None = None) -> Any:
    """
    Return commits and appended batches in one frame; `committed` is a struct, so that a tombstone is not null.

    Args:
        points: see `lag_over_time`; None for every batch.
    """
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
    if points is not None:
        committed = _at_their_ends(committed, appended)
        appended = _last_of_intervals(appended, points)
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


def _at_their_ends(committed: Any, appended: Any) -> Any:
    """
    Add the log end offset to commits, and for each commit the last batch before it as an event. Batches and commits of a
    partition are sorted once, however many groups there are.
    """
    batches = appended.select(*appended.columns, fn.lit(-1).cast("bigint").alias("order"))
    events = committed.drop("end_offset").unionByName(batches, allowMissingColumns=True)
    so_far = Window.partitionBy("topic", "partition").orderBy(*order(events))
    so_far = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    columns = [column for column in (INCARNATION, "end_offset") if column in events.columns]
    last = fn.max(fn.struct(*columns)).over(so_far)
    produced_ms = fn.max(fn.when(fn.col("committed").isNull(), fn.col("timestamp_ms"))).over(so_far)
    known = events.withColumns({"last": last, "produced_ms": produced_ms}).where(fn.col("committed").isNotNull())
    known = known.withColumns({column: fn.col("last")[column] for column in columns}).drop("last")
    before = known.where(fn.col("produced_ms").isNotNull()).withColumns(
        {
            "timestamp_ms": fn.col("produced_ms"),
            "order": fn.lit(-1).cast("bigint"),
            "committed": fn.lit(None).cast("struct<offset:bigint>"),
        }
    )
    return known.unionByName(before).drop("produced_ms")


def _last_of_intervals(appended: Any, points: int) -> Any:
    """Return all batches of a partition, or the last of each of `points` equal intervals if there are more."""
    keys = ["topic", "partition"]
    spans = appended.groupBy(*keys).agg(
        fn.count("*").alias("batches"),
        fn.min("timestamp_ms").alias("first_ms"),
        fn.max("timestamp_ms").alias("last_ms"),
    )
    width = fn.col("last_ms") - fn.col("first_ms") + 1
    interval = fn.floor((fn.col("timestamp_ms") - fn.col("first_ms")) * points / width)
    is_whole = fn.col("batches") <= points
    together = [*keys, "interval", "single", *(column for column in appended.columns if column == INCARNATION)]
    return (
        appended.join(spans, on=keys)
        .withColumn("interval", fn.when(~is_whole, interval))
        .withColumn("single", fn.when(is_whole, fn.struct("timestamp_ms", "end_offset")))
        .groupBy(*together)
        .agg(fn.max("timestamp_ms").alias("timestamp_ms"), fn.max("end_offset").alias("end_offset"))
        .drop("interval", "single")
    )


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


@over_frames
def thinned(series: Any, *, points: int = CHART_POINTS) -> Any:
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
