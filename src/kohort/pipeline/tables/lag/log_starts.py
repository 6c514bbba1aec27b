"""
What lies before the begin of its log: it was there when it was read, and has been deleted since. Nobody waits for it any more,
and it holds nobody back.
"""

from typing import Any

from pyspark.sql import functions as fn

_PLACE = ("log_topic", "log_partition")


def since(batches: Any, begins: Any) -> Any:
    """
    The batches that do not lie before the begin of their log.

    Args:
        batches: `log_topic`, `log_partition`, `log_offset`, `next_offset` and more.
        begins: `topic`, `partition` and `begin_offset`; None where that is not known.
    """
    if begins is None:
        return batches
    begun = begins.withColumnsRenamed({"topic": "log_topic", "partition": "log_partition"})
    is_there = fn.col("next_offset") > fn.coalesce("begin_offset", fn.lit(0))
    # A life that begins is told by a row that holds nothing, see `lives`; that of a log that is gone tells no offset.
    is_there |= fn.col("next_offset").isNull() | (fn.col("next_offset") == fn.col("log_offset"))
    return batches.join(begun, on=[*_PLACE], how="left").where(is_there).drop("begin_offset")
