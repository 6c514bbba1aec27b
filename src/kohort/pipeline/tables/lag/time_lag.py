"""
How long the oldest unread record has waited: exact, from the times in the data log, where others poll and interpolate.

What nobody waits for is left out: markers of transactions, records of transactions that were aborted, batches of which
compaction has left no record. A group that has read everything else waits for nothing, though such a thing follows its offset.
Records of a transaction that is still open count: it may yet commit them, and `blocking_transactions` names their producer.

A committed offset at the begin of a batch has the time of the batch's first record: exact. Inside a batch the headers tell
only that no record is later than its greatest time, which is taken; the difference is at most the time for which the batch was
open in its producer. The same goes for rows that a release has kept which did not know of first records.

Source: KIP-98 (which records an ABORT marker ends); Kafka CompletedFetch (what readers of committed records skip).
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.decode.schemas import ABORT
from kohort.pipeline.tables.incarnations import current
from kohort.pipeline.tables.lag.log_starts import since
from kohort.pipeline.tables.offsets.as_of import BATCH_COLUMNS

INPUT_COLUMNS = BATCH_COLUMNS

_PLACE = ("topic", "partition")


def time_lag(latest: Any, batches: Any, *, at_ms: int, begins: Any = None) -> Any:
    """
    Latest offsets with `next_produced_at_ms` (when the first unread record was produced; null when there is none),
    `time_lag_ms` (0 when there is none, null where the partition's log is not known or has nothing of before `at_ms`) and
    `records_lost` (offsets between the committed one and the beginning of the log: deleted before the group had read them). A
    log that holds nothing any more begins where it ends.

    Args:
        latest: as `lag` returns them, or as `latest_offsets` does: then a log without a batch is not known.
        batches: `INPUT_COLUMNS` of the topics that groups commit to.
        begins: `topic`, `partition` and `begin_offset`: where logs begin. Without it they begin with the first batch, which is
            not so where compaction took that, or where `batches` holds what has been deleted since.
        at_ms: now, or the instant that `latest` stands for; batches of later are left out.
    """
    columns = latest.columns
    if "end_offset" not in columns:
        latest = latest.withColumn("end_offset", fn.lit(None).cast("bigint"))
    known = since(current(batches, at_ms=at_ms), begins).select(
        fn.col("log_topic").alias("topic"),
        fn.col("log_partition").alias("partition"),
        fn.col("log_offset").alias("base_offset"),
        "next_offset",
        fn.col("timestamp_ms").alias("latest_ms"),
        fn.coalesce("first_timestamp_ms", "timestamp_ms").alias("first_ms"),
        fn.coalesce(fn.col("record_count") > 0, fn.lit(True)).alias("has_records"),
        "producer_id",
        "transactional",
        "is_control",
        "control",
    )
    is_past = fn.col("latest_ms") <= at_ms
    starts = known.groupBy(*_PLACE).agg(fn.min(fn.when(is_past, fn.col("base_offset"))).alias("start_offset"))
    starts = starts.withColumn("has_batch", fn.lit(True))
    unread = _first_unread(latest.select("group", *_PLACE, "offset"), _waiting(known.where(is_past)))
    waited = fn.greatest(fn.lit(at_ms) - fn.col("next_produced_at_ms"), fn.lit(0)).cast("bigint")
    if begins is not None:
        # A log that has nothing of before `at_ms` stays one of which nothing is known.
        starts = starts.join(begins, on=[*_PLACE], how="left")
        told = fn.when(fn.col("start_offset").isNotNull(), fn.coalesce("begin_offset", "start_offset"))
        starts = starts.withColumn("start_offset", told).drop("begin_offset")
    begin = fn.when(fn.col("has_batch"), fn.col("start_offset")).otherwise(fn.col("end_offset"))
    missing = begin - fn.col("offset")
    lost = fn.when(missing.isNotNull(), fn.greatest(missing, fn.lit(0).cast("bigint")))
    return (
        latest.join(starts, on=[*_PLACE], how="left")
        .join(unread, on=["group", *_PLACE], how="left")
        .select(
            *columns,
            "next_produced_at_ms",
            fn.when(begin.isNotNull(), fn.coalesce(waited, fn.lit(0).cast("bigint"))).alias("time_lag_ms"),
            lost.alias("records_lost"),
        )
    )


def _first_unread(committed: Any, waiting: Any) -> Any:
    """When the first record behind each committed offset was produced: `group`, `topic`, `partition`, `next_produced_at_ms`."""
    is_whole = fn.col("offset") <= fn.col("base_offset")
    produced_at_ms = fn.when(is_whole, fn.col("first_ms")).otherwise(fn.col("latest_ms"))
    return (
        committed.join(waiting, on=[*_PLACE])
        .where(fn.col("next_offset") > fn.col("offset"))
        .groupBy("group", *_PLACE)
        .agg(fn.min_by(produced_at_ms, "base_offset").alias("next_produced_at_ms"))
    )


def _waiting(known: Any) -> Any:
    """
    The batches whose records somebody may wait for.

    Only transactions are put in order: a log without any costs no sort. A transaction ends with the next control batch of its
    producer; where that cannot be read, or was kept by a release that did not look at it, it may be a COMMIT.
    """
    is_transactional, is_control = fn.col("transactional"), fn.col("is_control")
    columns = (*_PLACE, "base_offset", "next_offset", "latest_ms", "first_ms")
    plain = known.where(~is_transactional & ~is_control & fn.col("has_records")).select(*columns)
    # Backwards, so that what lies ahead is what the window has seen.
    ahead = Window.partitionBy(*_PLACE, "producer_id").orderBy(fn.col("base_offset").desc())
    ahead = ahead.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    end = fn.last(fn.when(is_control, fn.coalesce("control", fn.lit(""))), ignorenulls=True).over(ahead)
    decided = known.where(is_transactional | is_control).withColumn("end", end)
    theirs = decided.where(~is_control & fn.col("has_records") & ~fn.col("end").eqNullSafe(ABORT))
    return plain.unionByName(theirs.select(*columns))
