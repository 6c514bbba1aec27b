"""
Incarnations of a log: a topic was deleted and created again under the same name, or a log was truncated below what a run had
read of it. Offsets begin again, and groups read the newest log only.

Frames of batches may have the column `log_life`: how often the log had begun again before. Runs write it; a data directory
holds one incarnation only and has no such column. An incarnation begins with a row without records (`record_count` 0;
`next_offset` is the first offset of the log, null if there is no log any more).

Batches below the log start offset were kept when they were read, and retention deleted them since.
"""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames

INCARNATION = "log_life"
BATCH_COLUMNS = (
    "log_topic",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "producer_id",
    "transactional",
    "control",
    "next_offset",
    "is_control",
    "first_timestamp_ms",
    "record_count",
)
"""Columns to read of `kind` batch, for all tables that need the logs of topics."""
_PLACE = ("log_topic", "log_partition")


@over_frames
def current(batches: Any) -> Any:
    """Select the batches of the newest incarnations among some; `batches` has `log_topic` and `log_partition`."""
    if INCARNATION not in batches.columns:
        return batches
    newest = batches.groupBy(*_PLACE).agg(fn.max(INCARNATION).alias(INCARNATION))
    return batches.join(newest, on=[*_PLACE, INCARNATION], how="left_semi")


@over_frames
def last_end(frame: Any, end: str, *, where: Any = None, over: Any = None) -> Any:
    """
    Return the greatest end offset of the newest incarnation of a log, as an aggregate or over a window.

    Args:
        end: the column of end offsets.
        where: only these rows count.
    """
    value = fn.struct(INCARNATION, end) if INCARNATION in frame.columns else fn.col(end)
    greatest = fn.max(value if where is None else fn.when(where, value))
    last = greatest if over is None else greatest.over(over)
    return last[end] if INCARNATION in frame.columns else last


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
    # An incarnation begins with a row without records, see above; its offset is null if the log was deleted.
    is_there |= fn.col("next_offset").isNull() | (fn.col("next_offset") == fn.col("log_offset"))
    return batches.join(begun, on=[*_PLACE], how="left").where(is_there).drop("begin_offset")
