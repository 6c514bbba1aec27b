"""
Logs that were made again under the same name: a topic was deleted and created anew, or a log was cut off behind what a run had
read of it. Offsets begin again then, and what a group has left to read is in the last of these logs alone.

Frames of batches may have the column `log_life`, which counts how often the log had been made again before: runs tell it, a
directory holds one life only. A life begins with a row that holds no record (`record_count` 0, `next_offset` the first one of
the log; null where there is no such log any more).
"""

from typing import Any

from pyspark.sql import functions as fn

INCARNATION = "log_life"
_PLACE = ("log_topic", "log_partition")


def current(batches: Any, *, at_ms: int) -> Any:
    """The batches of the lives that logs had at an instant; `batches` has `log_topic`, `log_partition` and `timestamp_ms`."""
    if INCARNATION not in batches.columns:
        return batches
    lives = batches.where(fn.col("timestamp_ms") <= at_ms).groupBy(*_PLACE).agg(fn.max(INCARNATION).alias(INCARNATION))
    return batches.join(lives, on=[*_PLACE, INCARNATION], how="left_semi")


def last_end(frame: Any, end: str, *, where: Any = None, over: Any = None) -> Any:
    """
    The greatest end of a log in the last of its lives, as an aggregate or over a window.

    Args:
        end: the column that has ends.
        where: of these rows alone.
    """
    told = fn.struct(INCARNATION, end) if INCARNATION in frame.columns else fn.col(end)
    greatest = fn.max(told if where is None else fn.when(where, told))
    last = greatest if over is None else greatest.over(over)
    return last[end] if INCARNATION in frame.columns else last
