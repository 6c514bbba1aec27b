"""
Published tables where Spark writes them: in a schema of its catalog, or in a directory, as Delta, Iceberg or another format.

Delta and Iceberg replace each table in one step. All tables of a version are not replaced together: a reader that joins two may
see one of the version before. A file beside the pointer, `written.json`, tells which version was written to where.
"""

import json
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs.pointer import Published, replace_file
from kohort.pipeline.jobs.publish import CATALOG, PARQUET, write_table

_WRITTEN = "written.json"


class Sessions(Protocol):
    """Starts Spark when it is needed."""

    def session(self, log_bytes: int) -> AbstractContextManager[Any]: ...


class Catalog(NamedTuple):
    """
    Attributes:
        uri: `table:SCHEMA`, or a directory that Spark can write to.
        file_format: a format that Spark has.
    """

    uri: str
    file_format: str


def catalog(uri: str, file_format: str | None) -> Catalog | None:
    """
    Return the target of tables that Spark writes; None for an object store, which needs no Spark.

    Raises:
        ConfigError: Parquet files in a directory, whose readers would see them change.
    """
    if uri.startswith(CATALOG):
        return Catalog(uri, file_format or PARQUET)
    if file_format == PARQUET:
        raise ConfigError(f"--store {uri} is Parquet without --format; Spark replaces Parquet files one by one")
    return None if file_format is None else Catalog(uri, file_format)


def publish(target: Catalog, made: Published, sessions: Sessions) -> bool:
    """
    Write the tables of a version, unless they are written; return whether they were not.

    Raises:
        ConfigError: Spark does not start, or does not have the format.
    """
    written = made.path.parent.parent / _WRITTEN
    now = json.dumps({"version": made.version, **target._asdict()})
    if written.is_file() and written.read_text(encoding="utf-8") == now:
        return False
    tables = [directory for directory in sorted(made.path.iterdir()) if any(directory.glob("*.parquet"))]
    size = sum(file.stat().st_size for directory in tables for file in directory.glob("*.parquet"))
    with sessions.session(size) as spark:
        for directory in tables:
            frame = spark.read.parquet(str(directory))
            write_table(frame, target.uri, directory.name, file_format=target.file_format)
    replace_file(written, now)
    return True
