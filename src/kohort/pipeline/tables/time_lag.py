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
    `time_lag_ms` (0 when there is none, null where the partition's log is not known) and `records_lost` (offsets between the
    committed one and the beginning of the log: deleted before the group had read them).

    Args:
        latest: as `latest_offsets` returns them.
        batches: `INPUT_COLUMNS` of the topics that groups commit to.
        at_ms: now, or the instant that `latest` stands for; batches of later are left out.
    """
    place = ["topic", "partition"]
    known = batches.where(fn.col("timestamp_ms") <= at_ms).select(
        fn.col("log_topic").alias("topic"),
        fn.col("log_partition").alias("partition"),
        fn.col("log_offset").alias("base_offset"),
        "next_offset",
        fn.col("timestamp_ms").alias("produced_at_ms"),
        "is_control",
    )
    starts = known.groupBy(*place).agg(fn.min("base_offset").alias("start_offset"))
    unread = (
        latest.select("group", *place, "offset")
        .join(known.where(~fn.col("is_control")), on=place)
        .where(fn.col("next_offset") > fn.col("offset"))
        .groupBy("group", *place)
        .agg(fn.min_by("produced_at_ms", "base_offset").alias("next_produced_at_ms"))
    )
    waited = fn.greatest(fn.lit(at_ms) - fn.col("next_produced_at_ms"), fn.lit(0)).cast("bigint")
    missing = fn.col("start_offset") - fn.col("offset")
    lost = fn.when(missing.isNotNull(), fn.greatest(missing, fn.lit(0).cast("bigint")))
    return (
        latest.join(starts, on=place, how="left")
        .join(unread, on=["group", *place], how="left")
        .select(
            *latest.columns,
            "next_produced_at_ms",
            fn.when(fn.col("start_offset").isNotNull(), fn.coalesce(waited, fn.lit(0).cast("bigint"))).alias(
                "time_lag_ms"
            ),
            lost.alias("records_lost"),
        )
    )
