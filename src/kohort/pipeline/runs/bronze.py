"""
The rows that runs have read, as Parquet: `DIR/bronze/run=<version>/kind=<kind>/`.

A part that no state names was left by a killed run. Parts are merged so that their number stays small: a new part is merged
with the previous ones that are at most twice as large. So each row is rewritten a few times at most, however many runs there
are.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.pipeline.decode import schemas
from kohort.pipeline.runs.state import Part
from kohort.pipeline.runs.writing import write_batches, write_rows, write_tasks
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.ranges import RangeTask
from kohort.pipeline.tables.incarnations import INCARNATION

KINDS = (*schemas.DEFAULT_KINDS, schemas.BATCH)
_DIRECTORY = "bronze"
_PREFIX = "run="
_GROWTH = 2


class Bronze:
    """The kept rows of one published directory."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / _DIRECTORY

    def path(self, name: str) -> Path:
        return self.root / f"{_PREFIX}{name}"

    def keep(self, parts: Iterable[Part]) -> None:
        """Delete all parts except these."""
        named = {self.path(part.name) for part in parts}
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path not in named:
                shutil.rmtree(path)

    def write(self, frame: Any, name: str) -> Part:
        """Write rows of the decoder's schema as a new part."""
        path = self.path(name)
        # Rows that are read together lie together: readers skip the pages of other groups.
        sorted_rows = frame.sortWithinPartitions("kind", "group", "transactional_id", "log_topic", "log_partition")
        writer = sorted_rows.write.mode("overwrite").partitionBy("kind").option("compression", "zstd")
        writer.option("parquet.compression.codec.zstd.level", "1").parquet(str(path))
        return Part(name, _count(path))

    def write_tasks(
        self,
        spark: Any,
        options: SourceOptions,
        tasks: Sequence[RangeTask],
        name: str,
        incarnations: Mapping[TopicPartition, int],
    ) -> Part:
        """Write the rows that tasks read as a new part; `incarnations` as for `writing.write_tasks`."""
        path = self.path(name)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return Part(name, write_tasks(spark, path, options, list(tasks), incarnations))

    def add(self, part: Part, kind: str, rows: Sequence[Mapping[str, Any]]) -> Part:
        """Add a few rows to a part that no task has read."""
        return Part(part.name, part.rows + (write_rows(self.path(part.name), kind, rows) if rows else 0))

    def add_batches(self, part: Part, kind: str, batches: Iterable[pa.RecordBatch]) -> Part:
        """Add record batches of the decoder's schema that no task has read."""
        return Part(part.name, part.rows + write_batches(self.path(part.name), kind, batches))

    def read(self, spark: Any, parts: Sequence[Part]) -> Any:
        """All rows of some parts, with the decoder's columns and that of `incarnations`."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(schemas.SCHEMA.append(pa.field(INCARNATION, pa.int32())))
        if not parts:
            return spark.createDataFrame([], schema)
        paths = [str(self.path(part.name)) for part in parts]
        found = spark.read.schema(schema).option("basePath", str(self.root)).parquet(*paths)
        return found.select(*schemas.SCHEMA.names, INCARNATION)

    def merged(self, spark: Any, parts: Sequence[Part], name: str) -> tuple[Part, ...]:
        """Return the parts; the last ones are merged into one of this name if `merge_count` says so."""
        count = merge_count([part.rows for part in parts])
        if count < 2:
            return tuple(parts)
        whole = self.read(spark, parts[-count:])
        return (*parts[:-count], self.write(whole, name))


def merge_count(rows: Sequence[int]) -> int:
    """Return how many of the last parts are merged: the last one, and those before it that are at most twice as large."""
    total, count = 0, 0
    for size in reversed(rows):
        if count and size > _GROWTH * total:
            break
        total, count = total + size, count + 1
    return count


def _count(path: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in path.glob("**/*.parquet"))
