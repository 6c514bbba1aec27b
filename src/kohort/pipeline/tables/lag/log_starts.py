"""Batches below the log start offset: they were kept when they were read, and retention deleted them since."""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames

_PLACE = ("log_topic", "log_partition")


@over_frames
def since(batches: Any, begins: Any) -> Any:
    """
    Remove the batches below the start of their log. They delay no group, and block no reader.

    Args:
        batches: `log_topic`, `log_partition`, `log_offset`, `next_offset` and more.
        begins: log start offsets as `topic`, `partition`, `begin_offset`; None if they are not known.
    """
    if begins is None:
        return batches
    begun = begins.withColumnsRenamed({"topic": "log_topic", "partition": "log_partition"})
    is_there = fn.col("next_offset") > fn.coalesce("begin_offset", fn.lit(0))
    # An incarnation begins with a row without records, see `incarnations`; its offset is null if the log was deleted.
    is_there |= fn.col("next_offset").isNull() | (fn.col("next_offset") == fn.col("log_offset"))
    return batches.join(begun, on=[*_PLACE], how="left").where(is_there).drop("begin_offset")
