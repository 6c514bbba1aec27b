"""Output of tables: files and tables that Spark writes, and rows for the terminal or a report."""

import re
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.engines.dispatch import is_local

PARQUET = "parquet"
CATALOG = "table:"
"""The begin of a target that is a schema of Spark's catalog."""
_NO_FORMAT = "[DATA_SOURCE_NOT_FOUND]"
_UNFIT = re.compile(
    r"java\.lang\.(?:IncompatibleClassChange|AbstractMethod|NoSuchMethod|NoSuchField|NoClassDefFound)Error: \S+"
)
"""Linkage errors of the JVM: a class does not fit the classes that it was not compiled with."""
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
    "time_lag_over_time": ("group", "timestamp_ms"),
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
    "spark_queries": ("group",),
    "damage": ("log_partition", "segment", "position"),
}
"""The sort columns of each table."""


def rows(frame: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table in its order, as dicts."""
    found: list[dict[str, Any]] = sorted_table(frame.toArrow(), name).to_pylist()
    return found


def sorted_table(table: Any, name: str) -> Any:
    """Return the rows of an Arrow table in the order of the named table."""
    return table.sort_by([(column, "ascending") for column in SORTED_BY[name]])


def write_parquet(frame: Any, directory: str | Path, name: str) -> str:
    """
    Write a table to `<directory>/<name>/`, replacing previous files, and return that path.

    Spark replaces the files one by one: a reader that looks meanwhile may see neither the old table nor the new one.
    """
    return write_table(frame, str(directory), name)


def write_table(frame: Any, out: str, name: str, *, file_format: str = PARQUET) -> str:
    """
    Write a table with comments, replacing the previous one, and return where it is.

    Args:
        out: a directory that Spark can write to; or `table:SCHEMA` for a table in a schema of Spark's catalog.
        file_format: `parquet`, or the name of another format that Spark can write: `delta`, `iceberg`.

    Raises:
        ConfigError: Spark does not have the format.
    """
    if is_local(frame):
        return _write_locally(frame, out, name, file_format)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    schema = out.removeprefix(CATALOG)
    target = f"{schema}.{name}" if out.startswith(CATALOG) else f"{out.rstrip('/')}/{name}"
    writer = commented(frame, name).write.mode("overwrite").format(file_format)
    if file_format == PARQUET:
        writer = writer.option("compression", "zstd")
    try:
        writer.saveAsTable(target) if out.startswith(CATALOG) else writer.save(target)
    except (PySparkException, Py4JError) as exc:
        problem = format_problem(str(exc), file_format)
        if problem is None:
            raise
        raise ConfigError(problem) from exc
    return target


def format_problem(failure: str, file_format: str) -> str | None:
    """Return a sentence about a failure of a format's package; None if the failure is another one."""
    if _NO_FORMAT in failure:
        return f"Spark has no format {file_format!r}; name its package in PYSPARK_SUBMIT_ARGS (--packages ... pyspark-shell)"
    unfit = _UNFIT.search(failure)
    if unfit is None:
        return None
    return (
        f"the package of format {file_format!r} was made for another version than this Spark ({unfit[0]}); name the one that"
        " fits in PYSPARK_SUBMIT_ARGS"
    )


def _write_locally(frame: Any, out: str, name: str, file_format: str) -> str:
    if file_format != PARQUET or out.startswith(CATALOG):
        raise ConfigError(f"--out {out} --format {file_format} needs Spark: --engine spark")
    target = f"{out.rstrip('/')}/{name}"
    frame.write_parquet(target)
    return target


def commented(frame: Any, name: str, *, is_typed: bool = False) -> Any:
    """
    Return a table whose columns carry their descriptions as comments.

    Args:
        is_typed: make timestamps of instants: `commit_timestamp_ms` becomes `commit_timestamp`.

    Raises:
        ConfigError: there is no such table.
    """
    from pyspark.sql import functions as fn

    from kohort.pipeline.tables.contract import INSTANT, columns_of

    known = {one.name: one for one in columns_of(name)}
    columns = []
    for column in frame.columns:
        if column not in known:
            columns.append(fn.col(column))
            continue
        is_instant = is_typed and known[column].kind == INSTANT
        value = fn.timestamp_millis(column) if is_instant else fn.col(column)
        shown = column.removesuffix("_ms") if is_instant else column
        columns.append(value.alias(shown, metadata={"comment": known[column].comment}))
    return frame.select(*columns)


def count(spark: Any, target: str, *, file_format: str = PARQUET, is_table: bool = False) -> int:
    """Return the number of rows of a written table; of Parquet from the footers of its files."""
    if is_local(spark):
        import pyarrow.dataset as ds

        return int(ds.dataset(target, format=PARQUET).count_rows())
    return int((spark.table(target) if is_table else spark.read.format(file_format).load(target)).count())
