"""
Log directories in file systems of Hadoop (`s3a://`, `abfss://`, `gs://`, `hdfs://`), with the connectors, settings and
credentials of Spark: the JVM of the driver lists the files, and Spark's source `binaryFile` reads them.

A file is a row, so a task needs memory for a whole segment, three times in the JVM and once in Python.

Source: Spark's BinaryFileFormat; FilePartition (files of 128 MB in all, or one larger file, make a task).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.segments import NOT_SERVED, Segment, newest_segments, place_of, segments_among
from kohort.pipeline.decode.storage import Found
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.ranges import decoder

_PATH, _CONTENT = "path", "content"


def frame_of_files(spark: Any, options: SourceOptions) -> Any:
    """
    Return the rows of a log directory as a frame.

    Raises:
        ConfigError: there is no such directory, or it cannot be read; an option that only other sources have.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    for name, is_given in (
        ("startingOffsets or endingOffsets", options.is_ranged),
        ("compact", options.compact),
        ("minPartitions", options.min_partitions is not None),
        ("checkpoints", bool(options.checkpoints)),
    ):
        if is_given:
            raise ConfigError(f"a directory in a file system of Hadoop is read as whole files, without {name}")
    segments = _segments(spark, options)
    chosen = newest_segments(segments) if options.newest else segments
    schema = from_arrow_schema(schemas.subset(options.columns))
    if not chosen:
        return spark.createDataFrame([], schema)
    files = spark.read.format("binaryFile").load([segment.path for segment in chosen])
    rows = partial(_rows, options)
    size = sum(segment.size_bytes for segment in chosen)
    rows.__name__ = f"kohort {options.path}: {len(chosen)} segments, {size / 1e6:,.1f} MB"  # type: ignore[attr-defined]
    return files.select(_PATH, _CONTENT).mapInArrow(rows, schema)


def _rows(options: SourceOptions, files: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some files."""
    decoding = decoder(options)
    for batch in files:
        for path, content in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            directory, _, name = path.rpartition("/")
            place = place_of(directory.rpartition("/")[2])
            assert place is not None
            data = content.as_buffer()
            (segment,) = segments_among([Found(name, path, len(data), 0)], *place)
            yield from decoding.decode(data, segment)


def _segments(spark: Any, options: SourceOptions) -> list[Segment]:
    """Return the segments that the options choose, sorted."""
    from py4j.protocol import Py4JJavaError

    try:
        context = spark.sparkContext
    except Exception as exc:  # Spark Connect has none, and says so in an exception of its version
        raise ConfigError(
            f'{options.path} is listed by the JVM of the driver, which Spark Connect hides; spark.read.format("kohort") reads'
            " object stores with Arrow"
        ) from exc
    try:
        root = context._jvm.org.apache.hadoop.fs.Path(options.path)
        system = root.getFileSystem(context._jsc.hadoopConfiguration())
        found: list[Segment] = []
        for directory in system.listStatus(root):
            place = place_of(directory.getPath().getName()) if directory.isDirectory() else None
            if place is not None and _is_chosen(options, *place):
                listed = system.listStatus(directory.getPath())
                found += segments_among((_file(status) for status in listed if status.isFile()), *place)
    except Py4JJavaError as exc:
        raise ConfigError(f"{options.path} cannot be listed: {exc.java_exception.getMessage()}") from exc
    return sorted(found)


def _file(status: Any) -> Found:
    path = status.getPath()
    return Found(path.getName(), path.toString(), status.getLen(), status.getModificationTime())


def _is_chosen(options: SourceOptions, topic: str, partition: int) -> bool:
    is_topic = topic not in NOT_SERVED if options.topics is None else topic in options.topics
    is_partition = options.partitions is None or partition in options.partitions
    return is_topic and is_partition and options.matches(topic, partition)
