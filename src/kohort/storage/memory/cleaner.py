"""
Compaction of logs in memory, by the rules of the cleaner on disk, on the owner's thread in slices of a millisecond.

A log is looked at whenever it begins a new segment, and all compacted logs are whenever the node asks for cleaning. So a log
holds at most its clean part, as many dirty bytes as its `min.cleanable.dirty.ratio` allows, two segments, and the bytes that
are appended during one pass.

Source: Kafka LogCleaner, LogCleanerManager.
"""

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.cleaning.compaction import group_segments
from kohort.storage.cleaning.job import SourceSegment
from kohort.storage.cleaning.log_to_clean import CleanerBase, LogToClean, dirtiest, is_compacted, look_at, terms_of
from kohort.storage.cleaning.rules import Batch, Compaction
from kohort.storage.log import CallSoon, CleanerConfig
from kohort.storage.memory.log import SEGMENT_BYTES_MAX, MemoryLog, MemorySegment
from kohort.wire.batches import read_header

_log = logging.getLogger("kohort.storage")

SLICE_S: Final = 0.001
"""The cleaner gives the thread back after so long, or after one batch if that takes longer."""
_CHUNK_BYTES: Final = 16 * 1024
_KEYS_AT_ONCE: Final = 512


class MemoryCleaner(CleanerBase[MemoryLog]):
    """
    The cleaner of one store; one pass at a time.

    Args:
        call_soon: runs a callback on the owner's thread after other work had its turn. None runs a pass in one piece.

    Attributes:
        config: None until cleaning is asked for the first time: a broker with `log.cleaner.enable=false` never asks.
    """

    def __init__(
        self,
        logs: Callable[[], Iterable[MemoryLog]],
        *,
        call_soon: CallSoon | None,
        clock: Clock,
    ) -> None:
        super().__init__(logs, clock)
        self.config: CleanerConfig | None = None
        self._call_soon = call_soon
        self._running: _Pass | None = None

    def clean(self, config: CleanerConfig) -> None:
        """Delete what the retention of compacted logs does not keep, and begin a pass over the dirtiest log that is due."""
        self.config = config
        self._last_run_ms = self._clock.now_ms()
        logs = self._compacted_logs()
        for log in logs:
            log.apply_retention(self._last_run_ms)
        self._clean_dirtiest(logs)

    def on_roll(self, log: MemoryLog) -> None:
        """The log has begun a new segment: the one before it may be cleaned as soon as the high watermark is above it."""
        if self.config is None or self._running is not None or not is_compacted(log):
            return
        if self._call_soon is not None:
            self._call_soon(lambda: self._clean_dirtiest([log]))

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log was deleted."""
        self.offsets.pop(topic_partition, None)
        self.uncleanable.discard(topic_partition)

    def _compacted_logs(self) -> list[MemoryLog]:
        return [log for log in self._logs() if is_compacted(log)]

    def _clean_dirtiest(self, logs: Iterable[MemoryLog]) -> None:
        if self._running is not None or self.config is None:
            return
        found = [
            self._look_at(log) for log in logs if log.refusal is None and log.topic_partition not in self.uncleanable
        ]
        due = dirtiest(found)
        if due is not None:
            self._running = _Pass(due, self.config, self._clock.now_ms())
            self._step()

    def _look_at(self, log: MemoryLog) -> LogToClean[MemoryLog, MemorySegment]:
        offset = self._first_dirty_offset(log)
        return look_at(log, first_dirty_offset=offset, recovery_point=log.end_offset, now_ms=self._clock.now_ms())

    def _step(self) -> None:
        running = self._running
        if running is None:
            return
        deadline_s = time.perf_counter() + SLICE_S
        try:
            for _ in running.steps:
                if self._call_soon is not None and time.perf_counter() >= deadline_s:
                    self._call_soon(self._step)
                    return
        except Exception as error:  # noqa: BLE001 -- one log that cannot be cleaned must not stop the node
            self._mark_uncleanable(running.log.topic_partition, error)
        self._running = None
        self._end(running)
        self._clean_dirtiest(self._compacted_logs())

    def _end(self, ended: "_Pass") -> None:
        log = ended.log
        if ended.end_offset is None or log.refusal is not None:
            return
        self.offsets[log.topic_partition] = ended.end_offset
        self._count(ended.bytes_read, ended.bytes_written, ended.invalid_records)
        _log.debug(  # a busy log has a pass every 256 KiB
            "log.cleaned partition=%s end_offset=%d read_bytes=%d written_bytes=%d",
            *(log.topic_partition, ended.end_offset, ended.bytes_read, ended.bytes_written),
        )


class _Pass:
    """
    One pass over one log.

    Attributes:
        steps: advancing it does a small piece of the work.
        end_offset: below it the log is clean; None until the pass has ended, and after a pass that was given up.
    """

    def __init__(self, dirty: LogToClean[MemoryLog, MemorySegment], config: CleanerConfig, now_ms: int) -> None:
        self.log = dirty.log
        self.end_offset: int | None = None
        self.bytes_read = self.bytes_written = self.invalid_records = 0
        self._segments = dirty.segments
        self._ends = [*(segment.base_offset for segment in dirty.segments[1:]), dirty.first_uncleanable_offset]
        self._first_dirty_offset = dirty.first_dirty_offset
        aborted = [
            entry
            for segment in self.log.segments
            for entry in segment.aborted
            if entry.first_offset < dirty.first_uncleanable_offset
        ]
        self._rules = Compaction(terms_of(dirty, config, now_ms=now_ms), aborted, keys_at_once=_KEYS_AT_ONCE)
        self.steps = self._run()

    def _run(self) -> Iterator[None]:
        yield from self._build_map()
        end_offset = self._rules.latest_offset + 1
        sources = [
            SourceSegment(segment.base_offset, segment.size_bytes, 0, 0, end, 0)
            for segment, end in zip(self._segments, self._ends, strict=True)
            if segment.base_offset < end_offset
        ]
        place = 0
        config = self.log.config
        small = replace(config, segment_bytes=min(config.segment_bytes, SEGMENT_BYTES_MAX))
        for group in group_segments(sources, small):
            segments = self._segments[place : place + len(group)]
            place += len(group)
            cleaned = MemorySegment(segments[0].base_offset, segments[-1].created_ms)
            yield from self._clean(segments, cleaned)
            if self.log.refusal is not None or not self.log.replace(segments, cleaned):
                return  # deleted, or retention was quicker
        self.invalid_records = self._rules.invalid_records
        self.end_offset = end_offset

    def _build_map(self) -> Iterator[None]:
        for segment, end in zip(self._segments, self._ends, strict=True):
            if end <= self._first_dirty_offset:
                continue
            for chunk in self._chunks(segment, bisect_left(segment.last_offsets, self._first_dirty_offset)):
                if not self._rules.add(chunk):
                    return
                yield
            if not self._rules.end_segment(end):
                return

    def _clean(self, segments: Iterable[MemorySegment], cleaned: MemorySegment) -> Iterator[None]:
        self._rules.keep_aborted_in(cleaned.aborted.append)
        for segment in segments:
            for chunk in self._chunks(segment, 0):
                for retained in self._rules.retain(chunk):
                    for header, batch in retained:
                        cleaned.append(batch, header.last_offset, read_header(batch).max_timestamp)
                yield
        cleaned.rolling_timestamp_ms = read_header(cleaned.batches[0]).max_timestamp if cleaned.batches else -1
        self.bytes_written += cleaned.size_bytes

    def _chunks(self, segment: MemorySegment, first: int) -> Iterator[list[Batch]]:
        chunk: list[Batch] = []
        size = 0
        for index in range(first, len(segment.batches)):
            batch = segment.batches[index]
            chunk.append((read_header(batch), batch))
            size += len(batch)
            if size >= _CHUNK_BYTES:
                yield chunk
                self.bytes_read += size
                chunk, size = [], 0
        self.bytes_read += size
        yield chunk
