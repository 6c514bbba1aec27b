"""Lag of groups in records."""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames


@over_frames
def lag(latest: Any, ends: Any) -> Any:
    """
    Add `end_offset`, `lag` and `is_beyond_end` to latest offsets; they are null if there is no log of the partition.

    If the log ends below the committed offset, the lag is 0 and `is_beyond_end` is true: an unclean election lost the end of
    the log, its topic was created again, or somebody committed a wrong offset. The group reads nothing until the log has grown,
    or starts anew (`auto.offset.reset`). Transaction markers have offsets, so the lag of a group that has read everything can
    be 1.
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
        (behind < 0).alias("is_beyond_end"),
    )
