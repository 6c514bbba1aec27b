"""How far a group is behind."""

from typing import Any

from pyspark.sql import functions as fn


def lag(latest: Any, ends: Any) -> Any:
    """
    Latest offsets with `end_offset` and `lag`, both null where there is no log of the partition.

    An end before the committed offset (the broker lost its tail, the group did not) is no lag. The markers of
    transactions take offsets too, so a group that has read everything can be behind by one.
    """
    behind = fn.col("end_offset") - fn.col("offset")
    return latest.join(ends, on=["topic", "partition"], how="left").select(
        "group",
        "topic",
        "partition",
        "offset",
        "leader_epoch",
        "metadata",
        "commit_timestamp_ms",
        "end_offset",
        fn.when(behind.isNotNull(), fn.greatest(behind, fn.lit(0).cast("bigint"))).alias("lag"),
    )
