"""Output of tables: Parquet files, and rows for the terminal or a report."""

from pathlib import Path
from typing import Any

from kohort.pipeline.engines.dispatch import is_local

_PLACE = ("group", "topic", "partition")
_OWNED = ("topic", "topic_id", "subtopology", "partition")
SORTED_BY = {
    "offsets": _PLACE,
    "lag": _PLACE,
    "time_lag": _PLACE,
    "status": _PLACE,
    "status_history": (*_PLACE, "since_ms"),
    "commit_frequency": _PLACE,
    "offset_commits": ("log_partition", "log_offset"),
    "lag_over_time": ("group", "timestamp_ms"),
    "lag_picture": ("group", "timestamp_ms"),
    "rebalances": ("group", "log_offset"),
    "rebalance_costs": ("group", "log_offset"),
    "members": ("group", "first_log_offset", "member_id"),
    "assignments": ("group", "first_log_offset", "member_id", *_OWNED, "role"),
    "partition_flapping": ("group", *_OWNED),
    "time_without_owner": ("group", *_OWNED, "since_ms"),
    "share_state": ("group", "topic", "topic_id", "partition"),
    "transactions": ("transactional_id", "first_log_offset"),
    "open_transactions": ("start_ms", "transactional_id", "topic", "partition"),
    "blocking_transactions": ("topic", "partition", "start_offset"),
    "transaction_statistics": ("transactional_id",),
    "damage": ("log_partition", "segment", "position"),
}
"""The sort columns of each table."""


def rows(frame: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table in its order, as dicts."""
    return in_order(frame.toArrow(), name)


def in_order(table: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table in the order of the named table, as dicts."""
    found: list[dict[str, Any]] = table.sort_by([(column, "ascending") for column in SORTED_BY[name]]).to_pylist()
    return found


def write_parquet(frame: Any, directory: str | Path, name: str) -> str:
    """
    Write a table to `<directory>/<name>/`, replacing previous files, and return that path.

    Spark replaces the files one by one: a reader that looks meanwhile may see neither the old table nor the new one.
    """
    target = f"{str(directory).rstrip('/')}/{name}"
    if is_local(frame):
        frame.write_parquet(target)
        return target
    frame.write.mode("overwrite").option("compression", "zstd").parquet(target)
    return target


def count(spark: Any, target: str) -> int:
    """Return the number of rows of a written table, from the footers of its files."""
    return int(spark.read.parquet(target).count())
