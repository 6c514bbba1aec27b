"""Where tables go: Parquet files, and rows for the terminal or a report."""

from pathlib import Path
from typing import Any

SORTED_BY = {
    "offsets": ("group", "topic", "partition"),
    "lag": ("group", "topic", "partition"),
    "lag_over_time": ("group", "timestamp_ms"),
    "lag_picture": ("group", "timestamp_ms"),
    "rebalances": ("group", "log_offset"),
    "damage": ("log_partition", "segment", "position"),
}
"""The order of each table's rows."""


def rows(frame: Any, name: str) -> list[dict[str, Any]]:
    """The rows of a table in their order, as plain dicts."""
    table = frame.toArrow().sort_by([(column, "ascending") for column in SORTED_BY[name]])
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def write_parquet(frame: Any, directory: str | Path, name: str) -> str:
    """
    Write a table to `<directory>/<name>/` in place of what was there, and return that path.

    Spark replaces the files one by one: a reader that looks meanwhile may see neither the old table nor the new one.
    """
    target = f"{str(directory).rstrip('/')}/{name}"
    frame.write.mode("overwrite").option("compression", "zstd").parquet(target)
    return target
