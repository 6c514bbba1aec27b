"""End offsets of logs, and lag of groups in records."""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames

INPUT_COLUMNS = ("log_topic", "log_partition", "next_offset")
"""Columns to read of `kind` segment."""


@over_frames
def end_offsets(segments: Any) -> Any:
    """
    Return the offset of the next record, per topic partition.

    Args:
        segments: `INPUT_COLUMNS`; the next offset of an empty segment is its base offset, so a log whose records were all
            deleted has an end offset.
    """
    return (
        segments.groupBy("log_topic", "log_partition")
        .agg(fn.max("next_offset").alias("end_offset"))
        .select(fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"), "end_offset")
    )


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
