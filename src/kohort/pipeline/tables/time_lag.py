"""
How long the oldest unread record has waited: exact, from the times in the data log, where others poll and interpolate.

Precise to a batch: a record counts with the greatest timestamp of its batch. Markers of transactions are no records, so a group
that has read everything waits for nothing though a marker follows its offset. Records of aborted transactions count as unread
until the group has moved past them.
"""

from typing import Any

from pyspark.sql import functions as fn

from kohort.pipeline.tables.as_of import BATCH_COLUMNS

INPUT_COLUMNS = BATCH_COLUMNS


def time_lag(latest: Any, batches: Any, *, at_ms: int) -> Any:
    """
    Latest offsets with `next_produced_at_ms` (when the first unread record was produced; null when there is none),
    `time_lag_ms` (0 when there is none, null where the partition's log is not known or has nothing of before `at_ms`) and
    `records_lost` (offsets between the committed one and the beginning of the log: deleted before the group had read them). A
    log that holds nothing any more begins where it ends.

    Args:
        latest: as `lag` returns them, or as `latest_offsets` does: then a log without a batch is not known.
        batches: `INPUT_COLUMNS` of the topics that groups commit to.
        at_ms: now, or the instant that `latest` stands for; batches of later are left out.
    """
    place = ["topic", "partition"]
    columns = latest.columns
    if "end_offset" not in columns:
        latest = latest.withColumn("end_offset", fn.lit(None).cast("bigint"))
    known = batches.select(
        fn.col("log_topic").alias("topic"),
        fn.col("log_partition").alias("partition"),
        fn.col("log_offset").alias("base_offset"),
        "next_offset",
        fn.col("timestamp_ms").alias("produced_at_ms"),
        "is_control",
    )
    is_past = fn.col("produced_at_ms") <= at_ms
    starts = known.groupBy(*place).agg(fn.min(fn.when(is_past, fn.col("base_offset"))).alias("start_offset"))
    starts = starts.withColumn("has_batch", fn.lit(True))
    unread = (
        latest.select("group", *place, "offset")
        .join(known.where(is_past & ~fn.col("is_control")), on=place)
        .where(fn.col("next_offset") > fn.col("offset"))
        .groupBy("group", *place)
        .agg(fn.min_by("produced_at_ms", "base_offset").alias("next_produced_at_ms"))
    )
    waited = fn.greatest(fn.lit(at_ms) - fn.col("next_produced_at_ms"), fn.lit(0)).cast("bigint")
    begin = fn.when(fn.col("has_batch"), fn.col("start_offset")).otherwise(fn.col("end_offset"))
    missing = begin - fn.col("offset")
    lost = fn.when(missing.isNotNull(), fn.greatest(missing, fn.lit(0).cast("bigint")))
    return (
        latest.join(starts, on=place, how="left")
        .join(unread, on=["group", *place], how="left")
        .select(
            *columns,
            "next_produced_at_ms",
            fn.when(begin.isNotNull(), fn.coalesce(waited, fn.lit(0).cast("bigint"))).alias("time_lag_ms"),
            lost.alias("records_lost"),
        )
    )
