"""
`spark.read.format("kohort").load(DIRECTORY)`: the log of a coordinator as a table. `kafka://HOST:PORT` in place of a directory
reads the logs of a running cluster.

A partition of the frame is a pack of segment files; a task decodes them and hands Arrow batches to Spark. The columns are
those of `decode.schemas`, or those of option `columns`, or those of the schema that the reader was given.

Source: PySpark 4.3, Python Data Source API.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment, list_segments, newest_segments, pack_segments
from kohort.pipeline.sources import live
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.progress import Note

_FETCHED = "fetched"
"""In place of a file's name."""


class SegmentPack(InputPartition):  # type: ignore[misc]
    """The segments that one task reads; `task` numbers the packs."""

    def __init__(self, task: int, segments: tuple[Segment, ...]) -> None:
        super().__init__(task)
        self.task = task
        self.segments = segments


class LiveLogPartition(InputPartition):  # type: ignore[misc]
    """The log of one partition of a running cluster, for one task."""

    def __init__(self, task: int, log: live.LiveLog) -> None:
        super().__init__(task)
        self.task = task
        self.log = log


class LiveLogReader(DataSourceReader):  # type: ignore[misc]
    """Asks for the ends of logs in the driver, fetches them in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        options = self.options
        logs = live.list_logs(options.path, topics=options.topics, partitions=options.partitions)
        return [LiveLogPartition(task, log) for task, log in enumerate(logs)] or [SegmentPack(0, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LiveLogPartition):
            decoder = Decoder(kinds=self.options.kinds, schema=schemas.subset(self.options.columns))
            note = Note(self.options.progress_directory, partition.task)
            yield from _live_rows(partition.log, decoder, note, newest=self.options.newest)


def _live_rows(log: live.LiveLog, decoder: Decoder, note: Note, *, newest: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a live log; where only its end is wanted, nothing is fetched."""
    for piece in () if newest else live.read(log):
        for batch in decoder.decode(piece, Segment(log.topic, log.partition, log.start, _FETCHED, len(piece))):
            note.add(rows=batch.num_rows)
            yield batch
        note.add(bytes_read=len(piece))
    # An empty segment at the end says where the log goes on.
    yield from decoder.decode(b"", Segment(log.topic, log.partition, log.end, _FETCHED, 0))


class CoordinatorLogReader(DataSourceReader):  # type: ignore[misc]
    """Plans packs of segments in the driver, decodes them in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[SegmentPack]:
        options = self.options
        segments = list_segments(options.path, topics=options.topics, partitions=options.partitions)
        if options.newest:
            segments = newest_segments(segments)
        packs = pack_segments(segments, pack_bytes=options.pack_bytes)
        # Spark wants a partition even where there is nothing to read.
        return [SegmentPack(task, pack) for task, pack in enumerate(packs)] or [SegmentPack(0, ())]

    def read(self, partition: SegmentPack) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(kinds=self.options.kinds, schema=schemas.subset(self.options.columns))
        note = Note(self.options.progress_directory, partition.task)
        for segment in partition.segments:
            for batch in decoder.decode_file(segment):
                note.add(rows=batch.num_rows)
                yield batch
            note.add(bytes_read=segment.size_bytes)


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
            schema: Spark's, from `schema` or as the user asked for it: a choice of our columns with our types.

        Raises:
            ConfigError: a column is not ours, or has another type.
        """
        options = SourceOptions.parse(self.options).with_columns(tuple(schema.fieldNames()))
        for asked, ours in zip(to_arrow_schema(schema), schemas.subset(options.columns), strict=True):
            if asked.type != ours.type:
                raise ConfigError(f"column {ours.name!r} is {ours.type}, not {asked.type}")
        return LiveLogReader(options) if live.is_live(options.path) else CoordinatorLogReader(options)
