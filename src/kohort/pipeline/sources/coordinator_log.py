"""
`spark.read.format("kohort").load(DIRECTORY)`: coordinators' logs as a table. `kafka://HOST:PORT` instead of a directory reads
the logs of a running cluster.

`spark.readStream.format("kohort")` follows the logs as they grow (`stream`). A partition of the frame is a group of segment
files, or a range of offsets. A task decodes it and gives Spark Arrow batches. The columns are those of `decode.schemas`, of
option `columns`, or of the schema given to the reader.

Source: PySpark 4.1, Python Data Source API; 4.2 for streams.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.sources.options import BOOTSTRAP, SECURITY, SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import RangeTask, read_task

_STORED = "kohort.options"
"""The key of the options of a table in the metadata of a column."""
_LEAST: Mapping[type[Filter], int] = {GreaterThan: 1, GreaterThanOrEqual: 0, EqualTo: 0}
"""The difference of the smallest matching timestamp to the value of a filter."""
_BEYOND: Mapping[type[Filter], int] = {LessThan: 0, LessThanOrEqual: 1, EqualTo: 1}
"""The difference of the first timestamp beyond the matching ones to the value of a filter."""


def frame_of(spark: Any, options: SourceOptions) -> Any:
    """
    Return the rows of a source as a frame, planned now and read by `mapInArrow`.

    `spark.read.format("kohort")` gives the same rows. Spark starts Python processes beside the workers to plan each of those
    reads, and keeps them: 300 MiB for the tables of a run. Rows also take a longer way through the JVM.

    Raises:
        ConfigError: the source cannot be read.
    """
    tasks = tasks_of(options)
    schema = from_arrow_schema(schemas.subset(options.columns))
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_rows, options, tasks), schema)


def _rows(
    options: SourceOptions, tasks: Sequence[RangeTask], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the tasks of some numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_task(options, tasks[number])


class LogReader(DataSourceReader):  # type: ignore[misc]
    """Plans the tasks of a batch in the driver, reads them in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(one) for one in tasks_of(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition.value)


class FilteringLogReader(LogReader):
    """
    A reader with filter push-down: on `kind`, `log_topic`, `log_partition` and `timestamp_ms`. It is optional, because Spark
    refuses it unless `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        self.options = narrowed(self.options, filters)
        # Spark applies the filters again.
        return filters


class CoordinatorLogSource(DataSource):  # type: ignore[misc]
    """The data source named `kohort`."""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> Any:
        schema = from_arrow_schema(schemas.subset(SourceOptions.parse(self.options).columns))
        return _with_options(schema, self.options) if "provider" in self.options else schema

    def reader(self, schema: Any) -> DataSourceReader:
        """
        Args:
            schema: Spark's, from `schema` or from the user: a selection of the source's columns.

        Raises:
            ConfigError: an unknown column, or one of another type.
        """
        options = self._asked(schema)
        return FilteringLogReader(options) if options.push_filters else LogReader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """
        As `reader`.

        Raises:
            ConfigError: an option that only batches support; PySpark is older than 4.2.
        """
        try:
            from kohort.pipeline.sources.stream import LogStreamReader
        except ModuleNotFoundError as exc:  # pyspark.sql.streaming.datasource: read limits
            raise ConfigError(f"streams need PySpark 4.2 or newer, and this is {pyspark.__version__}") from exc
        options = self._asked(schema)
        for name, is_given in (("newest", options.newest), ("endingOffsets", options.ending is not None)):
            if is_given:
                raise ConfigError(f"a stream has no {name}")
        return LogStreamReader(options)

    def _asked(self, schema: Any) -> SourceOptions:
        options = SourceOptions.parse({**_stored_options(schema), **self.options})
        options = options.with_columns(tuple(schema.fieldNames()))
        for asked, ours in zip(to_arrow_schema(schema), schemas.subset(options.columns), strict=True):
            if asked.type != ours.type:
                raise ConfigError(f"column {ours.name!r} is {ours.type}, not {asked.type}")
        return options


def _with_options(schema: Any, options: Mapping[str, str]) -> Any:
    """
    Return the schema of a table of Spark's catalog, with the options in the metadata of its first column.

    Spark gives a reader of a table the schema, but not the options. Connection options are left out, because a schema with
    metadata is copied into files; `SELECT ... FROM table WITH (...)` gives them.
    """
    kept = {
        name: value
        for name, value in options.items()
        if not name.lower().startswith(SECURITY) or name.lower() == BOOTSTRAP
    }
    first, *others = schema.fields
    marked = StructField(first.name, first.dataType, first.nullable, {_STORED: json.dumps(kept)})
    return StructType([marked, *others])


def _stored_options(schema: Any) -> dict[str, str]:
    """Return the options in the schema of a table, see `_with_options`."""
    found = (field.metadata[_STORED] for field in schema.fields if _STORED in (field.metadata or {}))
    return next((dict(json.loads(text)) for text in found), {})


def narrowed(options: SourceOptions, filters: Iterable[Filter]) -> SourceOptions:
    """Narrow the options to what can pass all filters."""
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else None
        if isinstance(one, EqualTo | In):
            options = _chosen(options, column, frozenset(one.value if isinstance(one, In) else [one.value]))
        if column == "timestamp_ms" and isinstance(getattr(one, "value", None), int):
            options = _timed(options, one)
    return options


def _chosen(options: SourceOptions, column: str | None, values: frozenset[Any]) -> SourceOptions:
    match column:
        case "kind":
            return replace(options, kinds=options.kinds & values)
        case "log_topic":
            return replace(options, topics=values if options.topics is None else options.topics & values)
        case "log_partition":
            return replace(options, partitions=values if options.partitions is None else options.partitions & values)
    return options


def _timed(options: SourceOptions, one: Any) -> SourceOptions:
    from_ms, to_ms = options.from_ms, options.to_ms
    if type(one) in _LEAST:
        from_ms = max(one.value + _LEAST[type(one)], from_ms if from_ms is not None else one.value)
    if type(one) in _BEYOND:
        to_ms = min(one.value + _BEYOND[type(one)], to_ms if to_ms is not None else one.value + 1)
    return replace(options, from_ms=from_ms, to_ms=to_ms)
