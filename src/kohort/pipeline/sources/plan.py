"""The tasks that read a source as a batch: planned alike for Spark and for the local engine, without an import of Spark."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kohort.client.security import Security
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment, newest_segments, pack_segments
from kohort.pipeline.sources import live
from kohort.pipeline.sources.cluster import FETCHED, ClusterLogs, FetchTask, chosen_logs, split
from kohort.pipeline.sources.directory import DirectoryLogs, chosen_segments
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import EARLIEST, LATEST
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import Logs, RangeTask, resolve
from kohort.pipeline.sources.segment_reads import PlannedSegment, planned_segments, read_whole


class SegmentPack(RangeTask):
    """A task that reads whole segments."""

    def __init__(self, task: int, segments: tuple[PlannedSegment, ...]) -> None:
        super().__init__(task, sum(one.segment.size_bytes for one in segments))
        self.segments = segments

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        for one in self.segments:
            for batch in read_whole(decoder, one):
                note.add(rows=batch.num_rows)
                yield batch
            note.add(bytes_read=one.segment.size_bytes)


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


def tasks_of(options: SourceOptions) -> Sequence[RangeTask]:
    """
    Return the tasks that read what the options choose; at least one.

    Raises:
        ConfigError: the source cannot be read.
    """
    # Spark requires at least one partition.
    return _tasks(options) or [SegmentPack(0, ())]


def _tasks(options: SourceOptions) -> Sequence[RangeTask]:
    if options.is_ranged:
        return _ranged(options)
    if live.is_live(options.path):
        return _whole(chosen_logs(options), options)
    segments = chosen_segments(options)
    chosen = newest_segments(segments) if options.newest else segments
    pack_bytes = options.task_bytes([segment.size_bytes for segment in chosen])
    planned = {one.segment: one for one in planned_segments(segments)}
    packs = pack_segments(chosen, pack_bytes=pack_bytes)
    return [SegmentPack(task, tuple(planned[one] for one in pack)) for task, pack in enumerate(packs)]


def _whole(logs: Sequence[live.LiveLog], options: SourceOptions) -> Sequence[RangeTask]:
    """Return the tasks that read whole logs of a cluster. The last part of a log gives the row with its end offset."""
    if options.newest:
        return [LiveLogPartition(task, log, options.security, is_read=False) for task, log in enumerate(logs)]
    ends = {(log.topic, log.partition): log.end for log in logs}
    return [
        LiveLogPartition(task, log, options.security, is_read=True)
        if log.end == ends[log.topic, log.partition]
        else FetchTask(task, log, options.security)
        for task, log in enumerate(split(logs, options.min_partitions))
    ]


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
