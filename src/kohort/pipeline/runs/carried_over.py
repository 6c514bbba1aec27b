"""
Rows of the version before that nothing new has touched, taken over into the next version.

A file that holds no touched row becomes part of the next version as it is, by a hard link; of the others the rows that stay are
copied. So groups that rest come to lie in files of their own, and cost nothing. Two tables tell how long something has lasted
by now: their rows are copied with the new time. No file has the name of another one, Spark's neither: whoever copies versions
knows by its name what it has already.
"""

import os
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kohort.pipeline.jobs.published import TABLES

FILES_MAX = 32
"""More files than these in a table are made one."""

_MADE_ANEW = ("open_transactions", "blocking_transactions", "damage")
"""Tables that are small, and say little of one group."""
_OF_TRANSACTIONS = ("transactions", "transaction_statistics")

KEYS = {name: "transactional_id" if name in _OF_TRANSACTIONS else "group" for name in TABLES if name not in _MADE_ANEW}
"""The column that says what belongs together, for each table of which rows are kept."""

_LASTING: dict[str, tuple[str, str, str | None]] = {
    "time_lag": ("time_lag_ms", "next_produced_at_ms", None),
    "time_without_owner": ("unowned_ms", "since_ms", "until_ms"),
}
"""Tables that tell how long something has lasted: the column, since when, and (where there is such a column) until when."""


def carry_over(name: str, before: Path, after: Path, affected: Collection[str], *, at_ms: int) -> None:
    """
    Put the rows of a table that are not of `affected` beside those that were made again.

    Args:
        before, after: the directory of the table in either version.
        at_ms: the instant that the new version stands for.
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
    _copy(mixed, after / f"kept-{uuid.uuid4()}.parquet", ~pc.is_in(ds.field(key), value_set=values), name, at_ms)


def fits(before: Path, columns: Mapping[str, Sequence[str]]) -> bool:
    """Whether the tables of a version have these columns; another release may have given them others."""
    files = {name: sorted((before / name).glob("*.parquet")) for name in columns}
    return all(files[name] and pq.read_schema(files[name][0]).names == list(columns[name]) for name in columns)


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
    """What has lasted until now has grown, see `tables.time_lag` and `tables.ownership.time_without_owner`."""
    if name not in _LASTING:
        return rows
    column, since, until = _LASTING[name]
    since_ms = rows.column(since)
    lasted_ms = pc.subtract(pc.max_element_wise(since_ms, pa.scalar(at_ms, pa.int64()), skip_nulls=False), since_ms)
    is_over = pc.is_null(since_ms) if until is None else pc.is_valid(rows.column(until))
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place), pc.if_else(is_over, rows.column(column), lasted_ms))
