"""The frequency of the commits of groups, and whether their offsets advance."""

from typing import Any

from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.offsets.offset_commits import counting

_PARTITION = ("group", "topic", "partition")


@over_frames
def commit_frequency(commits: Any) -> Any:
    """
    Return one row per group and partition.

    Intervals are those between successive effective commits; null for a single one. `unmoved` and `rewinds` are in log order.

    Args:
        commits: as `offset_commits` returns them; tombstones and commits of aborted transactions are ignored.
    """
    in_log = Window.partitionBy(*_PARTITION).orderBy("log_offset")
    in_time = Window.partitionBy(*_PARTITION).orderBy("visible_at_ms", "log_offset")
    offset_before, ms_before = fn.lag("offset").over(in_log), fn.lag("visible_at_ms").over(in_time)
    effective = counting(commits).where(~fn.col("tombstone"))
    return (
        effective.withColumn("moved", fn.col("offset") - offset_before)
        .withColumn("interval_ms", fn.col("visible_at_ms") - ms_before)
        .groupBy(*_PARTITION)
        .agg(
            fn.count("*").alias("commits"),
            fn.min("visible_at_ms").alias("first_commit_ms"),
            fn.max("visible_at_ms").alias("last_commit_ms"),
            fn.percentile_approx("interval_ms", 0.5).alias("interval_p50_ms"),
            fn.max("interval_ms").alias("interval_max_ms"),
            fn.count(fn.when(fn.col("moved") == 0, fn.lit(1))).alias("unmoved"),
            fn.count(fn.when(fn.col("moved") < 0, fn.lit(1))).alias("rewinds"),
        )
    )
