"""
Compaction of logs in memory, by the rules of the cleaner on disk, on the owner's thread in slices of a millisecond.

A log is looked at whenever it begins a new segment, and all compacted logs are whenever the node asks for cleaning. So a log
holds at most its clean part, as many dirty bytes as its `min.cleanable.dirty.ratio` allows, two segments, and the bytes that
are appended during one pass. These are bounded too: a slice goes on until its pass has read `_READ_PER_APPENDED` bytes for each
byte that compacted logs got since its begin. It reads the clean part once and the dirty part twice, so even the largest dirty
part leads to a smaller one.

Source: Kafka LogCleaner, LogCleanerManager.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.cleaning.compaction import group_segments
from kohort.storage.cleaning.job import SourceSegment
from kohort.storage.cleaning.log_to_clean import CleanerBase, LogToClean, dirtiest, is_compacted, look_at, terms_of
from kohort.storage.cleaning.offset_map import DICT_ENTRY_BYTES, DictMap
from kohort.storage.cleaning.rules import Compaction
from kohort.storage.log import CallSoon, CleanerConfig
from kohort.storage.memory.log import SEGMENT_BYTES_MAX, MemoryLog, MemorySegment
from kohort.wire.batches import read_header

_log = logging.getLogger("kohort.storage")

SLICE_S: Final = 0.001
"""The cleaner gives the thread back after so long, or after one batch if that takes longer."""
_CHUNK_BYTES: Final = 16 * 1024
_KEYS_AT_ONCE: Final = 512
_READ_PER_APPENDED: Final = 4


class MemoryCleaner(CleanerBase[MemoryLog]):
    """
    The cleaner of one store; one pass at a time.

    Args:
        call_soon: runs a callback on the owner's thread after other work had its turn. None runs a pass in one piece.

    Attributes:
        config: None until cleaning is asked for, or a log rolls, for the first time: with `log.cleaner.enable=false` for ever.
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
        self._is_scheduled = False
        self._candidates: dict[MemoryLog, None] = {}
        """The logs that may be due."""

    def clean(self, config: CleanerConfig) -> None:
        """Delete what the retention of compacted logs does not keep, and clean the logs that are due, the dirtiest first."""
        self.config = config
        self._last_run_ms = self._clock.now_ms()
        for log in self._logs():
            if is_compacted(log):
                log.apply_retention(self._last_run_ms)
                self._candidates[log] = None
        self._schedule()

    def on_roll(self, log: MemoryLog) -> None:
        """The log has begun a new segment: the one before it may be cleaned as soon as the high watermark is above it."""
        if self.config is None or self._call_soon is None or not is_compacted(log):
            return
        self._candidates[log] = None
        if self._running is not None:
            self._running.bytes_wanted += _READ_PER_APPENDED * log.segments[-2].size_bytes
        self._schedule()

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log was deleted."""
        self.offsets.pop(topic_partition, None)
        self.uncleanable.discard(topic_partition)

    def _schedule(self) -> None:
        if self._call_soon is None:
            self._run()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        """Clean for the time of a slice, or, without slices, all logs that are due."""
        self._is_scheduled = False
        deadline_s = time.perf_counter() + SLICE_S
        while (running := self._running or self._begin()) is not None:
            try:
                for _ in running.steps:
                    if self._call_soon is None or time.perf_counter() < deadline_s:
                        continue
                    if running.bytes_read >= running.bytes_wanted:
                        self._schedule()
                        return
            except Exception as error:  # noqa: BLE001 -- one log that cannot be cleaned must not stop the node
                self._mark_uncleanable(running.log.topic_partition, error)
            self._running = None
            self._end(running)

    def _begin(self) -> "_Pass | None":
        """Begin a pass over the dirtiest log that is due."""
        config, now_ms = self.config, self._clock.now_ms()
        found = [
            look_at(
                log,
                first_dirty_offset=self._first_dirty_offset(log),
                recovery_point=log.end_offset,
                now_ms=now_ms,
            )
            for log in self._candidates
            if log.refusal is None and log.topic_partition not in self.uncleanable
        ]
        # The high watermark of a log that rolled in this turn rises at the end of the turn.
        self._candidates = {
            each.log: None
            for each in found
            if each.is_due or each.log.high_watermark < each.log.segments[-1].base_offset
        }
        due = dirtiest(found)
        if due is not None and config is not None:
            self._running = _Pass(due, config, now_ms)
        return self._running

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
        bytes_wanted: what it must have read before it may give the thread back.
    """

    def __init__(self, dirty: LogToClean[MemoryLog, MemorySegment], config: CleanerConfig, now_ms: int) -> None:
        self.log = dirty.log
        self.end_offset: int | None = None
        self.bytes_read = self.bytes_wanted = self.bytes_written = self.invalid_records = 0
        self._segments = dirty.segments
        self._ends = [*(segment.base_offset for segment in dirty.segments[1:]), dirty.first_uncleanable_offset]
        self._first_dirty_offset = dirty.first_dirty_offset
        aborted = [
            entry
            for segment in self.log.segments
            for entry in segment.aborted
            if entry.first_offset < dirty.first_uncleanable_offset
        ]
        self._rules = Compaction(
            terms_of(dirty, config, now_ms=now_ms),
            aborted,
            # The keys are in memory anyway, and the import of numpy would take long on this thread.
            offset_map=DictMap(max(config.dedupe_buffer_size // DICT_ENTRY_BYTES, 1)),
            keys_at_once=_KEYS_AT_ONCE,
        )
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
            for chunk in self._read(segment, self._first_dirty_offset):
                if not self._rules.add(chunk):
                    return
                yield
            if not self._rules.end_segment(end):
                return

    def _clean(self, segments: Iterable[MemorySegment], cleaned: MemorySegment) -> Iterator[None]:
        self._rules.keep_aborted_in(cleaned.aborted.append)
        for segment in segments:
            for chunk in self._read(segment, 0):
                for retained in self._rules.retain(chunk):
                    cleaned.extend(retained)
                yield
        cleaned.rolling_timestamp_ms = read_header(cleaned.batches[0]).max_timestamp if cleaned.batches else -1
        self.bytes_written += cleaned.size_bytes

    def _read(self, segment: MemorySegment, offset: int) -> Iterator[list[bytes]]:
        for chunk in segment.chunks(offset, _CHUNK_BYTES):
            self.bytes_read += sum(map(len, chunk))
            yield chunk
