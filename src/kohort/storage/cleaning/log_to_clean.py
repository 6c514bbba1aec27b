"""
How dirty a log is, and how far it may be cleaned.

A log is cleaned up to the first segment that is active, newer than `min.compaction.lag.ms`, reaches above the last stable
offset, or is not known to be durable: data that a crash may truncate is never rewritten.

Source: Kafka LogCleanerManager, LogToClean.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.cleaning.job import CleanerJob, PassTerms, SourceSegment, last_records
from kohort.storage.log import LONG_MAX, CleanerConfig, CleanerMetrics
from kohort.storage.logs.base import LogBase
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.logs.retention import LogSegment
from kohort.storage.segments.segment import Segment

_log = logging.getLogger("kohort.storage")

S = TypeVar("S", bound=LogSegment)
L = TypeVar("L", bound=LogBase)


class LogToClean(msgspec.Struct, Generic[L, S], frozen=True):
    """
    How dirty a log is.

    Attributes:
        delay_ms: the excess over `max.compaction.lag.ms`.
        segments: the segments below `first_uncleanable_offset`.
        waits_for_checkpoint: whether more could be cleaned if more were known to be durable.
    """

    log: L
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    segments: list[S]
    waits_for_checkpoint: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Source: LogCleanerManager.grabFilthiestCompactedLog."""
        return self.ratio > self.log.config.min_cleanable_dirty_ratio or (
            self.delay_ms > 0 and self.cleanable_bytes > 0
        )


def is_compacted(log: LogBase) -> bool:
    return "compact" in log.config.cleanup_policy.split(",")


def look_at(log: L, *, first_dirty_offset: int, recovery_point: int, now_ms: int) -> LogToClean[L, Any]:
    """
    Measure how dirty a log is.

    Args:
        recovery_point: all data below is durable.

    Source: LogCleanerManager.cleanableOffsets, LogToClean.
    """
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    floor = max(bisect_right(bases, first_dirty_offset) - 1, 0)
    end = _first_uncleanable(log, segments, floor, now_ms)
    durable = max(bisect_right(bases, recovery_point) - 1, 0) if bases else 0
    waits_for_checkpoint = durable < end
    end = min(end, durable)
    return LogToClean(
        log,
        first_dirty_offset,
        max(first_dirty_offset, bases[end] if bases else 0),
        sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty_offset),
        sum(segment.size_bytes for segment in segments[floor:end]),
        _delay_ms(log, segments[floor:-1], now_ms),
        list(segments[:end]),
        waits_for_checkpoint,
    )


def _first_uncleanable(log: LogBase, segments: Sequence[LogSegment], first_dirty: int, now_ms: int) -> int:
    """The index of the first segment that may not be cleaned."""
    stable = log.last_stable_offset
    lag_ms = log.config.min_compaction_lag_ms
    last = max(len(segments) - 1, 0)
    for place in range(first_dirty, last):
        is_new = lag_ms > 0 and segments[place].newest_ms > now_ms - lag_ms
        if segments[place + 1].base_offset > stable or is_new:
            return place
    return last


def _delay_ms(log: LogBase, dirty: Sequence[LogSegment], now_ms: int) -> int:
    """Source: LogCleanerManager.maxCompactionDelay."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return 0
    firsts = (segment.rolling_timestamp_ms for segment in dirty)
    earliest_ms = min((first_ms for first_ms in firsts if first_ms > 0), default=LONG_MAX)
    return max(now_ms - lag_ms - earliest_ms, 0)


class CleanerBase(Generic[L]):
    """
    What a cleaner knows of the logs of its store.

    Attributes:
        offsets: by partition, the first dirty offset.
        uncleanable: partitions whose cleaning failed; they are left alone until the next start.
    """

    def __init__(self, logs: Callable[[], Iterable[L]], clock: Clock) -> None:
        self.counters = CleanerMetrics()
        self.offsets: dict[TopicPartition, int] = {}
        self.uncleanable: set[TopicPartition] = set()
        self._logs = logs
        self._clock = clock
        self._last_run_ms = clock.now_ms()

    def metrics(self) -> CleanerMetrics:
        """The counters and the current gauges."""
        counters = self.counters
        counters.uncleanable_partitions = len(self.uncleanable)
        counters.uncleanable_bytes = sum(
            log.size_bytes for log in self._logs() if log.topic_partition in self.uncleanable
        )
        counters.since_last_run_s = (self._clock.now_ms() - self._last_run_ms) / 1000
        return counters

    def _first_dirty_offset(self, log: L) -> int:
        offset = self.offsets.get(log.topic_partition, log.log_start_offset)
        if log.log_start_offset <= offset <= log.end_offset:
            return offset
        self.offsets[log.topic_partition] = log.log_start_offset
        return log.log_start_offset

    def _mark_uncleanable(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Source: LogCleaner.tryCleanFilthiestLog, LogCleanerManager.markPartitionUncleanable."""
        self.uncleanable.add(topic_partition)
        _log.warning("log.uncleanable partition=%s error=%r", topic_partition, str(error))

    def _count(self, bytes_read: int, bytes_written: int, invalid_records: int) -> None:
        """Count a pass that has ended."""
        counters = self.counters
        counters.passes += 1
        counters.bytes_read += bytes_read
        counters.bytes_written += bytes_written
        counters.invalid_records += invalid_records
        counters.recopy_percent = 100 * bytes_written / max(bytes_read, 1)


def dirtiest(found: Iterable[LogToClean[L, S]]) -> LogToClean[L, S] | None:
    """The dirtiest of the logs that are due."""
    return max((dirty for dirty in found if dirty.is_due), key=lambda dirty: dirty.ratio, default=None)


def terms_of(dirty: LogToClean[L, S], config: CleanerConfig, *, now_ms: int, passes: int = 1) -> PassTerms:
    """
    What the rules of a pass over a log go by.

    Args:
        passes: how many there may be at a time; they share the memory of offset maps.
    """
    log = dirty.log
    return PassTerms(
        first_dirty_offset=dirty.first_dirty_offset,
        dirty_bytes=dirty.cleanable_bytes,
        high_watermark=log.high_watermark,
        last_records=last_records(log.producers),
        delete_retention_ms=log.config.delete_retention_ms,
        now_ms=now_ms,
        buffer_bytes=config.dedupe_buffer_size // passes,
        load_factor=config.io_buffer_load_factor,
    )


def job_of(dirty: LogToClean[DiskLog, Segment], config: CleanerConfig, *, now_ms: int) -> Callable[[], CleanerJob]:
    """
    What makes the input of a pass: it looks at the files, on any thread.

    Raises:
        CorruptError: a transaction index is damaged.
        OSError: a file cannot be read.
    """
    log, log_config, segments = dirty.log, dirty.log.config, dirty.log.segments
    threads = max(config.threads, 1)
    terms = terms_of(dirty, config, now_ms=now_ms, passes=threads)

    def make() -> CleanerJob:
        bases = [segment.base_offset for segment in dirty.segments]
        bytes_per_second = config.io_max_bytes_per_second
        return CleanerJob(
            directory=str(log.directory),
            sources=[
                _source(segment, next_base)
                for segment, next_base in zip(dirty.segments, [*bases[1:], dirty.first_uncleanable_offset], strict=True)
            ],
            terms=terms,
            aborted=[
                aborted
                for segment in segments
                for aborted in segment.aborted.entries
                if aborted.first_offset < dirty.first_uncleanable_offset and aborted.last_offset >= bases[0]
            ],
            # The ratio has been decided by, and a process gets the job as JSON, which has no NaN.
            config=msgspec.structs.replace(log_config, min_cleanable_dirty_ratio=0.0),
            io_bytes=max(config.io_buffer_size // threads // 2, 4096),
            bytes_per_second=bytes_per_second if 0 < bytes_per_second < 1e18 else 0.0,
        )

    return make


def _source(segment: Segment, next_base_offset: int) -> SourceSegment:
    return SourceSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        index_bytes=segment.index.path.stat().st_size,
        time_index_bytes=segment.time_index.path.stat().st_size,
        next_base_offset=next_base_offset,
        modified_ns=segment.path.stat().st_mtime_ns,
    )
