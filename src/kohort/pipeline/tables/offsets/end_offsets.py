"""Where the log of a topic partition ends."""

from typing import Any

from pyspark.sql import functions as fn

INPUT_COLUMNS = ("log_topic", "log_partition", "next_offset")
"""What has to be read of `kind` segment."""


def end_offsets(segments: Any) -> Any:
    """
    The offset that the next record gets, per topic partition.

    Args:
        segments: `INPUT_COLUMNS`; an empty segment's next offset is its base offset, so that a log whose records have all
            been deleted still knows its end.
    """
    return (
        segments.groupBy("log_topic", "log_partition")
        .agg(fn.max("next_offset").alias("end_offset"))
        .select(fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"), "end_offset")
    )
