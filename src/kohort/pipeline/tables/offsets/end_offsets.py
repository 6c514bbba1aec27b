"""Log end offsets of topic partitions."""

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
