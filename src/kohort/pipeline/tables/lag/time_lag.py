"""
Time lag: how long the oldest unread record has waited. It is exact, from the timestamps in the data log; no polling, no
interpolation.

Batches without data for a `read_committed` reader are ignored: transaction markers, records of aborted transactions, and
batches whose records were all compacted away. A group that has read everything else has no time lag. Records of an open
transaction count, because it may still commit; `blocking_transactions` names its producer.

The time lag is the instant of the tables minus the timestamp of that record: how long the record has waited, by the clock of
its producer (of its broker with LogAppendTime). A record with a timestamp behind the instant has waited for 0 ms: some clock
goes wrong, and nothing more is known.

If the committed offset is the first of a batch, the time is that of the batch's first record: exact. Inside a batch the header
tells only the greatest timestamp, which is used where only headers were read; `is_exact` tells that. The record may have waited
longer: for as long as the producer kept the batch open, or, with timestamps of events, for any time. The same holds for rows
that older releases kept without first timestamps.

Source: KIP-98 (the records that an ABORT marker ends); Kafka CompletedFetch (the records that `read_committed` skips).
"""

from typing import Any

from kohort.pipeline.decode.schemas import ABORT
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.incarnations import INCARNATION, current, since

_PLACE = ("topic", "partition")


@over_frames
def time_lag(latest: Any, batches: Any, *, at_ms: int, begins: Any = None) -> Any:
    """
    Add the time lag to latest offsets.

    Columns: `next_produced_at_ms` (when the first unread record was produced; null if there is none), `is_exact` (whether that
    is the time of the record itself; null if there is none), `time_lag_ms` (0 if there is none; null if the log is unknown or
    has no batch, and without a committed offset) and `records_lost` (offsets between the committed offset and the log start:
    deleted before the group read them). An empty log starts at its end.

    Args:
        latest: the result of `lag`, or of `latest_offsets`; with the latter a log without batches is unknown.
        batches: `BATCH_COLUMNS` of the topics that groups commit to.
        begins: log start offsets as `topic`, `partition`, `begin_offset`. Without it the first batch is the start, which is
            wrong if compaction removed that batch, or if `batches` contains deleted ones.
        at_ms: the instant of `latest`. `batches` has none of later records.
    """
    there = current(batches)
    known = headers(since(there, begins))
    starts = headers(there).groupBy(*_PLACE).agg(fn.min("base_offset").alias("start_offset"))
    starts = starts.withColumn("has_batch", fn.lit(True))
    if begins is not None:
        starts = starts.join(begins, on=[*_PLACE], how="left")
        starts = starts.withColumn("start_offset", fn.coalesce("begin_offset", "start_offset")).drop("begin_offset")
    # Who stands before the log start gets the record there. Without a committed offset all records are unread.
    from_start = latest.select("group", *_PLACE, "offset").join(starts, on=[*_PLACE], how="left")
    reached = fn.greatest(fn.coalesce("offset", fn.lit(0).cast("bigint")), "start_offset")
    unread = first_unread(from_start.select("group", *_PLACE, reached.alias("offset")), waiting(known))
    unread = unread.where(fn.col("next_produced_at_ms").isNotNull()).drop("offset")
    return with_time_lag(latest, starts, unread, at_ms=at_ms)


@over_frames
def with_time_lag(latest: Any, starts: Any, unread: Any, *, at_ms: int) -> Any:
    """
    Add the time lag to latest offsets, from what is known of the logs.

    Args:
        latest: as for `time_lag`.
        starts: `topic`, `partition`, `start_offset` (of the log) and `has_batch`.
        unread: `group`, `topic`, `partition`, `next_produced_at_ms` and `is_exact` where there is an unread record; or the same
            by `offset` instead of `group`, with 0 where no offset is committed.
        at_ms: the instant of `latest`.
    """
    columns = latest.columns
    if "end_offset" not in columns:
        latest = latest.withColumn("end_offset", fn.lit(None).cast("bigint"))
    waited = fn.greatest(fn.lit(at_ms) - fn.col("next_produced_at_ms"), fn.lit(0)).cast("bigint")
    begin = fn.when(fn.col("has_batch"), fn.col("start_offset")).otherwise(fn.col("end_offset"))
    missing = begin - fn.col("offset")
    lost = fn.when(missing.isNotNull(), fn.greatest(missing, fn.lit(0).cast("bigint")))
    key = "group" if "group" in unread.columns else "at"
    found = latest.withColumn("at", fn.coalesce("offset", fn.lit(0).cast("bigint")))
    unread = unread.withColumnRenamed("offset", "at")
    is_known = begin.isNotNull() & fn.col("offset").isNotNull()
    return (
        found.join(starts, on=[*_PLACE], how="left")
        .join(unread, on=[key, *_PLACE], how="left")
        .select(
            *columns,
            "next_produced_at_ms",
            "is_exact",
            fn.when(is_known, fn.coalesce(waited, fn.lit(0).cast("bigint"))).alias("time_lag_ms"),
            lost.alias("records_lost"),
        )
    )


def headers(batches: Any) -> Any:
    """Select the columns of batches that `waiting` and `time_lag` need."""
    return batches.select(
        fn.col("log_topic").alias("topic"),
        fn.col("log_partition").alias("partition"),
        *(column for column in batches.columns if column == INCARNATION),
        fn.col("log_offset").alias("base_offset"),
        "next_offset",
        fn.col("timestamp_ms").alias("latest_ms"),
        fn.coalesce("first_timestamp_ms", "timestamp_ms").alias("first_ms"),
        fn.col("first_timestamp_ms").isNotNull().alias("is_told"),
        fn.coalesce(fn.col("record_count") > 0, fn.lit(True)).alias("has_records"),
        "producer_id",
        "transactional",
        "is_control",
        "control",
    )


def first_unread(committed: Any, waiting: Any) -> Any:
    """
    Add when the first record at or after each committed offset was produced: `next_produced_at_ms` and `is_exact`; both null if
    there is no record or no offset.

    Batches and committed offsets of a log are sorted once, in descending order: the last batch before an offset in this order
    is the first unread one. A join would have a row for each group and unread batch.

    Args:
        committed: `topic`, `partition`, `offset` and more; with the column of `incarnations`, the batches of this incarnation.
        waiting: as `waiting` returns it.
    """
    place = _place(committed)
    batch = fn.struct("base_offset", "first_ms", "latest_ms", "is_told")
    batches = waiting.select(*place, fn.col("next_offset").alias("at"), batch.alias("batch"))
    offsets = committed.withColumn("at", fn.col("offset"))
    # A batch that ends at the committed offset was read: it comes after the offset.
    descending = Window.partitionBy(*place).orderBy(fn.col("at").desc(), fn.col("batch").isNotNull())
    ahead = descending.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    first = fn.last("batch", ignorenulls=True).over(ahead)
    found = offsets.unionByName(batches, allowMissingColumns=True).withColumn("first", first)
    is_whole = fn.col("at") <= fn.col("first.base_offset")
    produced_at_ms = fn.when(is_whole, fn.col("first.first_ms")).otherwise(fn.col("first.latest_ms"))
    is_there = fn.col("at").isNotNull() & fn.col("first").isNotNull()
    return found.where(fn.col("batch").isNull()).select(
        *committed.columns,
        fn.when(is_there, produced_at_ms).alias("next_produced_at_ms"),
        fn.when(is_there, is_whole & fn.col("first.is_told")).alias("is_exact"),
    )


def waiting(known: Any) -> Any:
    """
    Select the batches with data for `read_committed` readers.

    Only transactional batches are sorted: a log without transactions costs no sort. A transaction ends with the next control
    batch of its producer. A marker of unknown type (unreadable, or kept by an older release) counts as COMMIT.

    Args:
        known: as `headers` returns it.
    """
    is_transactional, is_control = fn.col("transactional"), fn.col("is_control")
    place = _place(known)
    columns = (*place, "base_offset", "next_offset", "latest_ms", "first_ms", "is_told")
    plain = known.where(~is_transactional & ~is_control & fn.col("has_records")).select(*columns)
    # In descending order, so that the preceding rows of the window are the following batches.
    ahead = Window.partitionBy(*place, "producer_id").orderBy(fn.col("base_offset").desc())
    ahead = ahead.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    end = fn.last(fn.when(is_control, fn.coalesce("control", fn.lit(""))), ignorenulls=True).over(ahead)
    decided = known.where(is_transactional | is_control).withColumn("end", end)
    theirs = decided.where(~is_control & fn.col("has_records") & ~fn.col("end").eqNullSafe(ABORT))
    return plain.unionByName(theirs.select(*columns))


def _place(frame: Any) -> list[str]:
    """Return the columns that identify a log."""
    return [*_PLACE, *(column for column in frame.columns if column == INCARNATION)]
