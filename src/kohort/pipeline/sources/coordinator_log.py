"""
`spark.read.format("kohort").load(DIRECTORY)`: coordinators' logs as a table. `kafka://HOST:PORT` instead of a directory reads
the logs of a running cluster.

`spark.readStream.format("kohort")` follows the logs as they grow (`streams`). A partition of the frame is a group of segment
files, or a range of offsets. A task decodes it and gives Spark Arrow batches. The columns are those of `decode.schemas`, of
option `columns`, or of the schema given to the reader.

Source: PySpark 4.0, Python Data Source API; 4.1 for filters, 4.2 for limits of micro-batches.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.sources.filters import narrowed
from kohort.pipeline.sources.options import BOOTSTRAP, SECURITY, SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import read_task

_STORED = "kohort.options"
"""The key of the options of a table in the metadata of a column."""


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

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  (Spark's name)
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
            ConfigError: an unknown column, or one of another type; filters, and PySpark is older than 4.1.
        """
        options = self._asked(schema)
        if options.push_filters and not hasattr(DataSourceReader, "pushFilters"):
            raise ConfigError(
                f"option pushFilters needs PySpark 4.1 or newer, and this is {pyspark.__version__}; the options topics,"
                " partitions, kinds, from and to have the same effect"
            )
        return FilteringLogReader(options) if options.push_filters else LogReader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """
        As `reader`.

        Raises:
            ConfigError: an option that only batches support, or that this PySpark does not.
        """
        from kohort.pipeline.sources.streams.stream import LogStreamReader, has_read_limits

        options = self._asked(schema)
        for name, is_given in (
            ("newest", options.newest),
            ("endingOffsets", options.ending is not None),
            ("checkpoints", options.checkpoints),
        ):
            if is_given:
                raise ConfigError(f"a stream has no {name}")
        if has_read_limits():
            from kohort.pipeline.sources.streams.limited import LimitedLogStreamReader

            return LimitedLogStreamReader(options)
        if options.max_bytes is not None or options.max_records is not None:
            raise ConfigError(
                "limits of micro-batches (maxBytesPerTrigger, maxRecordsPerTrigger) need PySpark 4.2 or newer, and this is"
                f" {pyspark.__version__}; without a limit a micro-batch holds all that was appended"
            )
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
