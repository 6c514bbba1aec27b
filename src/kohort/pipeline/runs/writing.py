"""
Kept rows, written by the Python workers themselves: no row crosses over to the JVM, whose Parquet writer would take most of the
time.

A task writes one file for each kind of row, `kind=<kind>/part-<task>.parquet`, under a temporary name until it is complete. A
retried task writes the same rows under the same names. Rows of another log partition start a new row group, unless the current
one is very small, so that a read of a few groups can skip the others.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.pipeline.decode import schemas
from kohort.pipeline.sources.memory import give_back
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.ranges import RangeTask, read_task
from kohort.pipeline.tables.incarnations import INCARNATION

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_ROWS_MIN = 4096
ROW_GROUP_BYTES = 32 << 20
"""Rows of a row group are held in memory: the group is written when either limit is reached."""
_KIND, _TOPIC, _PARTITION = "kind", "log_topic", "log_partition"
_SCHEMA = schemas.SCHEMA.remove(schemas.SCHEMA.get_field_index(_KIND)).append(pa.field(INCARNATION, pa.int32()))
_Incarnations: TypeAlias = Mapping[TopicPartition, int]


class _File:
    """A file of rows of one kind that is being written."""

    def __init__(self, path: Path, incarnations: _Incarnations) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._writer = pq.ParquetWriter(self._beside, _SCHEMA, compression="zstd", compression_level=1)
        self._incarnations = incarnations
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._place: tuple[str, int] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        place = (batch.column(_TOPIC)[0].as_py(), batch.column(_PARTITION)[0].as_py())
        if place != self._place and self._rows >= ROW_GROUP_ROWS_MIN:
            self._write()
        self._place = place
        incarnation = pa.repeat(pa.scalar(self._incarnations.get(place, 0), pa.int32()), batch.num_rows)
        rows = batch.drop_columns([_KIND]).append_column(_SCHEMA.field(INCARNATION), incarnation)
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def close(self) -> None:
        """Complete the file and give it its name."""
        self._write()
        self._writer.close()
        self._beside.replace(self._path)

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, _SCHEMA), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._rows, self._bytes = [], 0, 0


def write_task(
    directory: str, options: SourceOptions, task: RangeTask, incarnations: _Incarnations | None = None
) -> int:
    """Write the rows of a task below a directory, and return their number."""
    files: dict[str, _File] = {}
    rows = 0
    for batch in read_task(options, task):
        if batch.num_rows:
            # Each batch of the decoder has one kind.
            kind = batch.column(_KIND)[0].as_py()
            if kind not in files:
                files[kind] = _File(
                    Path(directory) / f"{_KIND}={kind}" / f"part-{task.task:05}.parquet", incarnations or {}
                )
            files[kind].add(batch)
            rows += batch.num_rows
    for file in files.values():
        file.close()
    # The JVM needs the memory for the next step.
    give_back()
    return rows


def write_rows(directory: Path, kind: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write a few rows that no task has read; missing columns are null."""
    path = directory / f"{_KIND}={kind}" / "told.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([{name: row.get(name) for name in _SCHEMA.names} for row in rows], _SCHEMA)
    pq.write_table(table, path)
    return len(rows)


def write_batches(directory: Path, kind: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Write record batches of the decoder's schema that no task has read, and return the number of rows."""
    file: _File | None = None
    rows = 0
    for batch in batches:
        if file is None:
            file = _File(directory / f"{_KIND}={kind}" / "queries.parquet", {})
        file.add(batch)
        rows += batch.num_rows
    if file is not None:
        file.close()
    return rows


def write_tasks(
    spark: Any,
    directory: Path,
    options: SourceOptions,
    tasks: list[RangeTask],
    incarnations: _Incarnations | None = None,
) -> int:
    """
    Run all tasks in the workers; return the number of rows.

    Args:
        incarnations: how often logs began again.
    """
    if not tasks:
        return 0
    # One row per task. mapInArrow uses the workers that also read the source; an RDD would start others, with their own memory.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    written = numbers.mapInArrow(
        partial(_written, str(directory), options, tasks, dict(incarnations or {})), "rows bigint"
    )
    return int(written.agg({"rows": "sum"}).first()[0])


def _written(
    directory: str,
    options: SourceOptions,
    tasks: list[RangeTask],
    incarnations: _Incarnations,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run the tasks of some numbers, and return the number of rows of each."""
    for batch in numbers:
        rows = [write_task(directory, options, tasks[number], incarnations) for number in batch.column(0).to_pylist()]
        yield pa.record_batch({"rows": pa.array(rows, pa.int64())})
