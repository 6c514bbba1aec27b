"""
The time lag of a group over time: how long its oldest unread record has waited, as a sawtooth.

Between two commits of a partition its oldest unread record stays the same. So the time lag grows as fast as time passes: it is
the instant minus the time at which that record was produced, and 0 before that time. The record depends on the committed
offset and the log only, so commits are the events; batches need none. The time lag of a group is the greatest one of its
partitions.

The time from the first commit on is cut into equal intervals. A row is the end of an interval: the oldest record that waits
there, and the greatest time lag inside. Rows that only continue the line are left out. After the last row the line goes on: the
time lag grows if a record waits. So the table does not depend on the instant at which it is read, and its end equals the table
`time_lag` over the same batches.

Approximations:

- Records wait by the rules of `time_lag`. Those of an aborted transaction never wait, also not before its marker. Records below
  the log start never wait, also not before they were deleted.
- Compacted commits are missing.
- Inside a batch the greatest timestamp counts: records are not read, so the line may end below the table `time_lag`.
- If the clock of a producer goes back, the first unread record by offset counts, also while its timestamp is in the future.
"""

from typing import Any

from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.incarnations import INCARNATION, current, since
from kohort.pipeline.tables.lag.lag_over_time import CHART_POINTS
from kohort.pipeline.tables.lag.time_lag import first_unread, headers, waiting
from kohort.pipeline.tables.offsets.offset_commits import counting

_PLACE = ("topic", "partition")
_PARTITION = ("group", *_PLACE)


@over_frames
def time_lag_over_time(
    commits: Any, batches: Any, *, at_ms: int, begins: Any = None, points: int = CHART_POINTS
) -> Any:
    """
    Return the time lag of each group.

    Columns: `group`, `timestamp_ms` (the end of an interval), `waiting_since_ms` (when the oldest record that waits there was
    produced; null if none waits), `time_lag_ms` (there) and `time_lag_max_ms` (the greatest in the interval, also just before a
    commit). The first row is the first commit; the last one is the last event: a commit that moved the group, a new incarnation
    of a log, or the production of the record that has waited since.

    Args:
        commits: as `offset_commits` returns them.
        batches: `BATCH_COLUMNS` of the topics that groups commit to; partitions without any are ignored.
        at_ms: the instant of both. Records with a later timestamp wait from there on: the clock of their producer was ahead.
        begins: log start offsets, as for `time_lag`.
        points: rows of a group at most, at least two. So many intervals less one are spread over its time.
    """
    kept = batches if begins is None else _above_starts(batches, begins)
    stretches = first_unread(_stretches(counting(commits), batches), waiting(headers(kept)))
    since_ms = fn.least("next_produced_at_ms", fn.lit(at_ms).cast("bigint"))
    known = stretches.withColumn("next_produced_at_ms", fn.when(fn.col("next_produced_at_ms").isNotNull(), since_ms))
    return _without_continuations(_at_ends(_in_intervals(known, points)))


def _above_starts(batches: Any, begins: Any) -> Any:
    """Remove the batches below the log start; logs that have ended have no start any more."""
    newest = current(batches)
    if INCARNATION not in batches.columns:
        return since(newest, begins)
    place = ["log_topic", "log_partition", INCARNATION]
    ended = batches.join(newest.select(*place).distinct(), on=place, how="left_anti")
    return since(newest, begins).unionByName(ended)


def _stretches(commits: Any, batches: Any) -> Any:
    """
    Return the intervals in which the committed offset of a partition stayed the same: `offset` (null after a tombstone),
    `begin_ms`, `end_ms` (exclusive; null for the last one), and the incarnation of the log if batches have any.

    Commits that change nothing are no events. At an instant with several events the last one counts.
    """
    logs = batches.select(fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"))
    events = commits.join(logs.distinct(), on=[*_PLACE], how="left_semi").select(
        *_PARTITION,
        fn.col("visible_at_ms").alias("begin_ms"),
        fn.col("log_offset").alias("order"),
        fn.struct(fn.when(~fn.col("tombstone"), fn.col("offset")).alias("offset")).alias("committed"),
    )
    if INCARNATION in batches.columns:
        begun = events.select(*_PARTITION).distinct().join(_incarnations(batches), on=[*_PLACE])
        events = events.unionByName(begun.withColumn("order", fn.lit(-1).cast("bigint")), allowMissingColumns=True)
    in_order = Window.partitionBy(*_PARTITION).orderBy("begin_ms", "order")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # By the offset in the log: a late commit does not move the group, see `lag_over_time.partition_lag`.
    events = events.withColumn("committed", fn.max_by("committed", "order").over(so_far))
    state = ["offset"]
    if INCARNATION in events.columns:
        events = events.withColumn(INCARNATION, fn.max(INCARNATION).over(so_far))
        state.append(INCARNATION)
    events = events.where(fn.col("committed").isNotNull()).withColumn("offset", fn.col("committed.offset"))
    events = events.withColumn("state", fn.struct(*state))
    events = events.withColumn("before", fn.lag("state").over(in_order))
    events = events.where(~fn.col("state").eqNullSafe(fn.col("before")))
    events = events.withColumn("end_ms", fn.lead("begin_ms").over(in_order))
    lasting = events.where(fn.col("end_ms").isNull() | (fn.col("end_ms") > fn.col("begin_ms")))
    return lasting.select(*_PARTITION, *state, "begin_ms", "end_ms")


def _incarnations(batches: Any) -> Any:
    """Return when each incarnation of a log began: with its first batch, the earliest known one long ago."""
    begun = batches.groupBy(
        fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"), fn.col(INCARNATION)
    ).agg(fn.min("timestamp_ms").alias("begin_ms"))
    earliest = fn.min(INCARNATION).over(Window.partitionBy(*_PLACE))
    begun = begun.withColumn("earliest", earliest)
    begin_ms = fn.when(fn.col(INCARNATION) == fn.col("earliest"), fn.lit(0)).otherwise(fn.col("begin_ms"))
    return begun.withColumn("begin_ms", begin_ms.cast("bigint")).drop("earliest")


def _in_intervals(stretches: Any, points: int) -> Any:
    """
    Return the stretches of a group that lie in the same intervals as one: their oldest record (`since_ms`) waits at the ends of
    the intervals from `from` to before `upto`; in `upto` the greatest time lag is `peak_ms`.

    So the rows of a group are at most its stretches and the pairs of intervals, however many partitions have waited.
    """
    of_group = Window.partitionBy("group").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_last = fn.col("end_ms").isNull()
    begin, end, since_ms = fn.col("begin_ms"), fn.col("end_ms"), fn.col("since_ms")
    known = stretches.select("group", "begin_ms", "end_ms", fn.col("next_produced_at_ms").alias("since_ms"))
    known = known.withColumns(
        {
            "first_ms": fn.min("begin_ms").over(of_group),
            "last_ms": fn.max(fn.greatest(begin, fn.when(is_last, since_ms))).over(of_group),
            # A record that was produced after the commit of a larger offset has not waited.
            "since_ms": fn.when(is_last | (since_ms < end), since_ms),
        }
    )
    span = fn.col("last_ms") - fn.col("first_ms")
    known = known.withColumn("parts", fn.least(fn.lit(points - 1), span).cast("bigint"))
    first_ms, parts = fn.col("first_ms"), fn.col("parts")

    def interval(at_ms: Any) -> Any:
        """Interval 0 is the first instant; the others exclude their begin and include their end."""
        width = fn.greatest(span, fn.lit(1))
        return fn.floor(((at_ms - first_ms) * parts + width - 1) / width)

    # The first stretch of a group begins with the series, also if its record waits later.
    first_end = fn.when(begin == first_ms, first_ms).otherwise(fn.greatest(begin, since_ms))
    upto = fn.when(since_ms.isNull(), interval(begin)).when(is_last, parts + 1).otherwise(interval(end))
    return (
        known.withColumns({"from": interval(first_end), "upto": upto, "peak_ms": end - since_ms})
        .groupBy("group", "first_ms", "last_ms", "parts", "from", "upto")
        .agg(fn.min("since_ms").alias("since_ms"), fn.max("peak_ms").alias("peak_ms"))
    )


def _at_ends(stretches: Any) -> Any:
    """Return the oldest waiting record at the ends of intervals, and the greatest time lag of stretches that ended inside."""
    parts = fn.greatest(fn.col("parts"), fn.lit(1))
    end = fn.col("first_ms") + fn.floor(fn.col("interval") * (fn.col("last_ms") - fn.col("first_ms")) / parts)
    spread = stretches.withColumn("interval", fn.explode(fn.sequence(fn.col("from"), fn.col("upto"))))
    spread = spread.where(fn.col("interval") <= fn.col("parts")).withColumn("timestamp_ms", end)
    is_there = (fn.col("interval") < fn.col("upto")) & (fn.col("since_ms") <= fn.col("timestamp_ms"))
    is_over = fn.col("interval") == fn.col("upto")
    return spread.groupBy("group", "timestamp_ms", "last_ms").agg(
        fn.min(fn.when(is_there, fn.col("since_ms"))).alias("waiting_since_ms"),
        fn.max(fn.when(is_over, fn.col("peak_ms"))).alias("peak_ms"),
    )


def _without_continuations(ends: Any) -> Any:
    """Return the rows at which the line is another one than before, and the first and the last row of each group."""
    in_order = Window.partitionBy("group").orderBy("timestamp_ms")
    nothing = fn.lit(0).cast("bigint")
    time_lag_ms = fn.coalesce(fn.col("timestamp_ms") - fn.col("waiting_since_ms"), nothing)
    ends = ends.withColumns(
        {
            "time_lag_ms": time_lag_ms,
            "time_lag_max_ms": fn.greatest(time_lag_ms, fn.coalesce("peak_ms", nothing)),
            "before_ms": fn.lag("timestamp_ms").over(in_order),
            "was_since_ms": fn.lag("waiting_since_ms").over(in_order),
        }
    )
    is_end = fn.col("before_ms").isNull() | (fn.col("timestamp_ms") == fn.col("last_ms"))
    is_other = ~fn.col("waiting_since_ms").eqNullSafe(fn.col("was_since_ms"))
    has_drop = fn.col("time_lag_max_ms") > fn.col("time_lag_ms")
    return ends.where(is_end | is_other | has_drop).select(
        "group", "timestamp_ms", "waiting_since_ms", "time_lag_ms", "time_lag_max_ms"
    )
