"""End offsets of logs, and lag of groups in records."""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS
from kohort.pipeline.tables.incarnations import current

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
def ends_as_of(batches: Any, *, at_ms: int) -> Any:
    """
    Return `end_offsets` at an instant, by the greatest timestamp of each batch, as far as retention has left the logs.

    Args:
        batches: `log_topic`, `log_partition`, `timestamp_ms` and `next_offset`.
    """
    return end_offsets(current(batches.where(fn.col("timestamp_ms") <= at_ms)))


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
    lag_known = fn.when(behind.isNotNull(), fn.greatest(behind, fn.lit(0).cast("bigint")))
    known = latest.join(ends, on=["topic", "partition"], how="left")
    return known.withColumns({"lag": lag_known, "is_beyond_end": behind < 0}).select(*COLUMNS["lag"])
