"""
`spark.read.format("kohort").load(DIRECTORY)`: coordinators' logs as a table. `kafka://HOST:PORT` instead of a directory reads
the logs of a running cluster.

`spark.readStream.format("kohort")` follows the logs as they grow (`stream`). A partition of the frame is a group of segment
files, or a range of offsets. A task decodes it and gives Spark Arrow batches. The columns are those of `decode.schemas`, of
option `columns`, or of the schema given to the reader.

Source: PySpark 4.3, Python Data Source API.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kohort.client.security import Security
from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment, list_segments, newest_segments, pack_segments
from kohort.pipeline.sources import live
from kohort.pipeline.sources.cluster import FETCHED, ClusterLogs, FetchTask
from kohort.pipeline.sources.directory import DirectoryLogs
from kohort.pipeline.sources.filters import narrowed
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import EARLIEST, LATEST
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import Logs, RangeTask, resolve
from kohort.pipeline.sources.stream import LogStreamReader
from kohort.pipeline.sources.tasks import read_task


class SegmentPack(RangeTask):
    """A task that reads whole segments."""

    def __init__(self, task: int, segments: tuple[Segment, ...]) -> None:
        super().__init__(task, sum(segment.size_bytes for segment in segments))
        self.segments = segments

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        for segment in self.segments:
            for batch in decoder.decode_file(segment):
                note.add(rows=batch.num_rows)
                yield batch
            note.add(bytes_read=segment.size_bytes)


class LiveLogPartition(FetchTask):
    """A task that reads the whole log of a partition of a cluster; without `is_read`, only its end offset."""

    def __init__(self, task: int, log: live.LiveLog, security: Security, *, is_read: bool) -> None:
        super().__init__(task, log, security)
        self.is_read = is_read

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        if self.is_read:
            yield from super().read(decoder, note)
        # An empty segment at the end gives a row with the end offset.
        log = self.log
        yield from decoder.decode(b"", Segment(log.topic, log.partition, log.end, FETCHED, 0))


class LogReader(DataSourceReader):  # type: ignore[misc]
    """Plans the tasks of a batch in the driver, reads them in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[RangeTask]:
        # Spark requires at least one partition.
        return list(self._tasks()) or [SegmentPack(0, ())]

    def read(self, partition: RangeTask) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition)

    def _tasks(self) -> Sequence[RangeTask]:
        options = self.options
        if options.is_ranged:
            return _ranged(options)
        if live.is_live(options.path):
            logs = live.list_logs(
                options.path, topics=options.topics, partitions=options.partitions, security=options.security
            )
            return [
                LiveLogPartition(task, log, options.security, is_read=not options.newest)
                for task, log in enumerate(logs)
            ]
        segments = list_segments(options.path, topics=options.topics, partitions=options.partitions)
        chosen = newest_segments(segments) if options.newest else segments
        return [
            SegmentPack(task, pack) for task, pack in enumerate(pack_segments(chosen, pack_bytes=options.pack_bytes))
        ]


class FilteringLogReader(LogReader):
    """
    A reader with filter push-down. It is optional, because Spark refuses it unless
    `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        self.options = narrowed(self.options, filters)
        # Spark applies the filters again.
        return filters


def _ranged(options: SourceOptions) -> Sequence[RangeTask]:
    """Return the tasks between the offsets in the options."""
    logs = open_logs(options)
    bounds = logs.bounds()
    start = resolve(options.starting, bounds, otherwise=EARLIEST)
    end = resolve(LATEST if options.ending is None else options.ending, bounds, otherwise=LATEST)
    return logs.tasks(start, end)


def open_logs(options: SourceOptions) -> Logs:
    """Open the logs of a directory or a cluster."""
    return ClusterLogs(options) if live.is_live(options.path) else DirectoryLogs(options)


class CoordinatorLogSource(DataSource):  # type: ignore[misc]
    """The data source named `kohort`."""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> Any:
        return from_arrow_schema(schemas.subset(SourceOptions.parse(self.options).columns))

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
            ConfigError: an option that only batches support.
        """
        options = self._asked(schema)
        for name, is_given in (("newest", options.newest), ("endingOffsets", options.ending is not None)):
            if is_given:
                raise ConfigError(f"a stream has no {name}")
        return LogStreamReader(options, open_logs)

    def _asked(self, schema: Any) -> SourceOptions:
        options = SourceOptions.parse(self.options).with_columns(tuple(schema.fieldNames()))
        for asked, ours in zip(to_arrow_schema(schema), schemas.subset(options.columns), strict=True):
            if asked.type != ours.type:
                raise ConfigError(f"column {ours.name!r} is {ours.type}, not {asked.type}")
        return options
