"""The tasks that read a source as a batch: planned alike for Spark and for the local engine, without an import of Spark."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kohort.pipeline.decode.schemas import OFFSET_COMMIT
from kohort.pipeline.decode.segments import newest_segments
from kohort.pipeline.sources.directory import DirectoryLogs, SliceTask, chosen_segments, planned_segments, whole_tasks
from kohort.pipeline.sources.live import ClusterLogs, FetchTask, LiveLog, chosen_logs, is_live, split
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import EARLIEST, LATEST
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.sources.postgres.tasks import StoreLogs
from kohort.pipeline.sources.postgres.tasks import whole_tasks as stored_tasks
from kohort.pipeline.sources.ranges import Logs, RangeTask, resolve


def tasks_of(options: SourceOptions, session: Any = None) -> Sequence[RangeTask]:
    """
    Return the tasks that read what the options choose; at least one.

    Args:
        session: of Spark, with whose file systems checkpoints are read; see `checkpoints.files`.

    Raises:
        ConfigError: the source cannot be read.
    """
    # Spark requires at least one partition.
    tasks = [*_tasks(options)] or [SliceTask(0, ())]
    if options.checkpoints and OFFSET_COMMIT in options.kinds:
        from kohort.pipeline.checkpoints.checkpoint import Extent
        from kohort.pipeline.checkpoints.task import checkpoint_task

        extent = Extent.LAST if options.compact else Extent.ALL
        times = {"from_ms": options.from_ms, "to_ms": options.to_ms}
        tasks.append(checkpoint_task(len(tasks), options.checkpoints, session, extent, **times))
    return tasks


def _tasks(options: SourceOptions) -> Sequence[RangeTask]:
    if options.is_ranged:
        return _ranged(options)
    if is_live(options.path):
        return _whole(chosen_logs(options), options)
    if is_database(options.path):
        return stored_tasks(options)
    segments = chosen_segments(options)
    chosen = newest_segments(segments) if options.newest else segments
    planned = {one.segment: one for one in planned_segments(segments)}
    return whole_tasks([planned[one] for one in chosen], options)


def _whole(logs: Sequence[LiveLog], options: SourceOptions) -> Sequence[RangeTask]:
    """Return the tasks that read whole logs of a cluster. The last part of a log gives the row with its end offset."""
    if options.newest:
        logs = [replace(log, start=log.end) for log in logs]
    bounds = {log.place: (log.start, log.end) for log in logs}
    return [
        FetchTask(
            task,
            log,
            options.security,
            is_first=log.start == bounds[log.place][0],
            tells_end=log.end == bounds[log.place][1],
        )
        for task, log in enumerate(split(logs, options))
    ]


def _ranged(options: SourceOptions) -> Sequence[RangeTask]:
    """Return the tasks between the offsets in the options."""
    logs = open_logs(options)
    bounds = logs.state().bounds
    start = resolve(options.starting, bounds, otherwise=EARLIEST)
    end = resolve(LATEST if options.ending is None else options.ending, bounds, otherwise=LATEST)
    return logs.tasks(start, end)


def open_logs(options: SourceOptions) -> Logs:
    """Open the logs of a source."""
    if is_database(options.path):
        return StoreLogs(options)
    return ClusterLogs(options) if is_live(options.path) else DirectoryLogs(options)
