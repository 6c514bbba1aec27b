"""
Rows of the previous version that nothing new affects, carried over into the next version.

A file without affected rows becomes part of the next version by a hard link; of other files the remaining rows are copied.
Groups without activity so end up in files of their own, which cost nothing. Two tables contain durations up to now: their rows
are copied with the new duration. File names are unique, also beside Spark's: a store knows files that it already has by their
names.
"""

import os
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kohort.pipeline.jobs.published import TABLES

FILES_MAX = 32
"""With more files in a table, they are merged."""

_MADE_AGAIN = ("open_transactions", "blocking_transactions", "damage")
"""Small tables that are not keyed by group."""
_OF_TRANSACTIONS = ("transactions", "transaction_statistics")

KEYS = {name: "transactional_id" if name in _OF_TRANSACTIONS else "group" for name in TABLES if name not in _MADE_AGAIN}
"""The key column of each table whose rows are carried over."""

_LASTING: dict[str, tuple[str, str, str | None]] = {
    "time_lag": ("time_lag_ms", "next_produced_at_ms", None),
    "time_without_owner": ("unowned_ms", "since_ms", "until_ms"),
}
"""Tables with durations up to now: the columns of the duration, of its start, and of its end if there is one."""


def carry_over(name: str, before: Path, after: Path, affected: Collection[str], *, at_ms: int) -> None:
    """
    Add the rows of a table that are not affected to those that were made again.

    Args:
        before, after: the directory of the table in either version.
        at_ms: the instant of the new version.
    """
    key, values = KEYS[name], pa.array(sorted(affected), pa.string())
    whole: list[Path] = []
    mixed: list[Path] = []
    for file in sorted(before.glob("*.parquet")):
        here = {one for part in _batches([file], [key]) for one in pc.unique(part.column(key)).to_pylist()}
        if here - set(affected):
            (mixed if here & set(affected) or name in _LASTING else whole).append(file)
    if len(whole) > FILES_MAX:
        whole, mixed = [], whole + mixed
    for file in whole:
        os.link(file, after / file.name)
    _copy(mixed, after / f"carried-{uuid.uuid4()}.parquet", ~pc.is_in(ds.field(key), value_set=values), name, at_ms)


def _copy(files: list[Path], target: Path, condition: Any, name: str, at_ms: int) -> None:
    if not files:
        return
    schema = pq.read_schema(files[0])
    with pq.ParquetWriter(target, schema, compression="zstd", compression_level=1) as writer:
        for part in _batches(files, None, condition):
            if part.num_rows:
                writer.write_batch(_later(part, name, at_ms))


def _batches(files: list[Path], columns: list[str] | None, condition: Any = None) -> Iterator[pa.RecordBatch]:
    table = ds.dataset([str(file) for file in files], format="parquet")
    yield from table.to_batches(columns=columns, filter=condition)


def _later(rows: pa.RecordBatch, name: str, at_ms: int) -> pa.RecordBatch:
    """Update durations up to now, see `lag.time_lag` and `groups.ownership.time_without_owner`."""
    if name not in _LASTING:
        return rows
    column, since, until = _LASTING[name]
    since_ms = rows.column(since)
    lasted_ms = pc.subtract(pc.max_element_wise(since_ms, pa.scalar(at_ms, pa.int64()), skip_nulls=False), since_ms)
    is_over = pc.is_null(since_ms) if until is None else pc.is_valid(rows.column(until))
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place), pc.if_else(is_over, rows.column(column), lasted_ms))
