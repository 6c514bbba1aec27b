"""
The cleaner of the logs in a database: it looks at the compacted logs, and makes passes over the dirtiest ones.

The owner's thread chooses a log. Segments are counted, and passes are made, on a thread with a connection of its own, which
waits between two pieces of work for as long as a piece has taken, so that the owner's thread has the interpreter in between.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import psycopg

from kohort.runtime.ports import Clock
from kohort.storage.cleaning.job import PassResult
from kohort.storage.cleaning.log_to_clean import CleanerBase, LogToClean, dirtiest, is_compacted, look_at, terms_of
from kohort.storage.cleaning.process import Throttler
from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.log import CleanerConfig
from kohort.storage.postgres.cleaning.compaction import (
    Job,
    ObsoleteError,
    OwnedLog,
    Pass,
    Report,
    RowSegment,
    roll_at,
    survey,
)
from kohort.storage.postgres.connect import Target, connect, sentence
from kohort.storage.postgres.log import NO_ROW, PostgresLog

_log = logging.getLogger("kohort.storage")

_PAUSE_S_MAX: Final = 0.5


class _View:
    """A log for a survey: what is known of its segments, and what was known when they were counted."""

    def __init__(self, log: PostgresLog, clean_offset: int) -> None:
        self.log: Final = log
        self.log_id: Final = log.log_id
        self.start_offset: Final = log.log_start_offset
        self.end_offset: Final = log.high_watermark
        self.clean_offset: Final = clean_offset
        self.config: Final = log.config
        self.segments: list[RowSegment] = []

    def is_like(self, other: "_View") -> bool:
        """Whether the segments of the other one are the first ones of this."""
        return (self.log_id, self.start_offset, self.clean_offset, self.config) == (
            *(other.log_id, other.start_offset, other.clean_offset),
            other.config,
        )

    def may_have_ended(self) -> bool:
        """Whether the last segment may have ended since the segments were counted. Until then it is not compacted."""
        if not self.segments:
            return True
        *ended, last = self.segments
        size_bytes = self.log.size_bytes - sum(segment.size_bytes for segment in ended)
        size_max, segment_ms = roll_at(self.config)
        return size_bytes >= size_max or self.log.newest_ms // segment_ms > last.newest_ms // segment_ms


class PostgresCleaner(CleanerBase[PostgresLog]):
    """
    The cleaner of one store; one pass at a time. Not thread-safe: call from the owner's thread.

    Args:
        post: lets the owner's thread call something; from any thread.
    """

    def __init__(
        self,
        target: Target,
        logs: Callable[[], Iterable[PostgresLog]],
        *,
        post: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        super().__init__(logs, clock)
        self.config = CleanerConfig()
        self.is_busy = False
        """Whether the thread counts segments, or makes a pass."""
        self._target: Final = target
        self._post: Final = post
        self._thread: Final = BackgroundThread("kohort-cleaner")
        self._stopping: Final = threading.Event()
        self._views: dict[PostgresLog, _View] = {}
        self._running: PostgresLog | None = None

    def clean(self, config: CleanerConfig) -> None:
        """Apply retention to compacted logs, and begin a pass over the dirtiest one that is due, and then the next."""
        self.config = config
        self._last_run_ms = self._clock.now_ms()
        for log in self._compacted_logs():
            if log is not self._running:
                log.apply_retention(self._last_run_ms)
        self._survey()

    def forget(self, log: PostgresLog) -> None:
        """The log was deleted, or is a stray one."""
        self.offsets.pop(log.topic_partition, None)
        self.uncleanable.discard(log.topic_partition)
        self._views.pop(log, None)

    def stop(self, timeout_s: float) -> None:
        self._stopping.set()
        self._thread.stop(timeout_s)

    def _compacted_logs(self) -> list[PostgresLog]:
        return [
            log
            for log in self._logs()
            if is_compacted(log)
            and log.refusal is None
            and log.log_id != NO_ROW
            and log.topic_partition not in self.uncleanable
        ]

    # Counting segments

    def _survey(self) -> None:
        if self.is_busy or self._stopping.is_set():
            return
        asked = []
        for log in self._compacted_logs():
            view, known = _View(log, self._first_dirty_offset(log)), self._views.get(log)
            if known is not None and view.is_like(known):
                view.segments = known.segments
                if view.end_offset == known.end_offset or not known.may_have_ended():
                    continue
            asked.append(view)
        self.is_busy = True
        if asked:
            self._thread.submit(partial(self._count_segments, asked))
        else:
            self._choose()

    def _count_segments(self, views: list[_View]) -> None:
        """On the thread of the cleaner."""
        try:
            with connect(self._target) as connection:
                pace = _Pace(0, self._stopping.wait)
                for view in views:
                    if not self._stopping.is_set():
                        view.segments = survey(
                            connection,
                            view.log_id,
                            view.segments,
                            start_offset=view.start_offset,
                            end_offset=view.end_offset,
                            clean_offset=view.clean_offset,
                            config=view.config,
                        )
                        pace(0)
        except psycopg.Error as error:
            _log.warning("store.cleaning_failed error=%r", sentence(error))
            self._post(self._rest)
        else:
            self._post(partial(self._on_counted, views))

    def _on_counted(self, views: list[_View]) -> None:
        for view in views:
            if view.log.refusal is None:
                self._views[view.log] = view
                view.log.outline = view.segments
        self._choose()

    def _rest(self) -> None:
        """Do nothing until cleaning is asked for again."""
        self.is_busy = False
        self._running = None

    # Passes

    def _choose(self) -> None:
        now_ms = self._clock.now_ms()
        found = [
            look_at(log, first_dirty_offset=self._first_dirty_offset(log), recovery_point=log.end_offset, now_ms=now_ms)
            for log in self._compacted_logs()
            if log in self._views
        ]
        self.counters.max_dirty_percent = max((100 * dirty.ratio for dirty in found), default=0.0)
        self.counters.max_compaction_delay_s = max((dirty.delay_ms for dirty in found), default=0) / 1000
        due = None if self._stopping.is_set() else dirtiest(found)
        if due is None:
            self._rest()
        else:
            self._begin(due, now_ms)

    def _begin(self, due: LogToClean[PostgresLog, RowSegment], now_ms: int) -> None:
        log = self._running = due.log
        owned = OwnedLog(log.log_id, log.attempt, max(log.leader_epoch, log.sealed_epoch), log.log_start_offset)
        job = Job(owned, due.segments, due.first_uncleanable_offset, terms_of(due, self.config, now_ms=now_ms))
        self._thread.submit(partial(self._run, log, job))

    def _run(self, log: PostgresLog, job: Job) -> None:
        """On the thread of the cleaner."""
        try:
            with connect(self._target) as connection:
                done = Pass(
                    connection,
                    job,
                    lambda report: self._post(partial(_take, log, report)),
                    is_stopped=self._stopping.is_set,
                    pace=_Pace(self.config.io_max_bytes_per_second, self._stopping.wait),
                ).run()
        except ObsoleteError:
            self._post(self._rest)
        except psycopg.Error as error:
            _log.warning("store.cleaning_failed partition=%s error=%r", log.topic_partition, sentence(error))
            self._post(self._rest)
        except Exception as error:  # noqa: BLE001 -- the edge of the thread: this log is left alone, others are not affected
            self._post(partial(self._on_failed, log, error))
        else:
            self._post(partial(self._on_done, log, done))

    def _on_failed(self, log: PostgresLog, error: Exception) -> None:
        self._mark_uncleanable(log.topic_partition, error)
        self._go_on()

    def _on_done(self, log: PostgresLog, done: PassResult) -> None:
        if log.refusal is None:
            self.offsets[log.topic_partition] = done.end_offset
        self._count(done.bytes_read, done.bytes_written, done.invalid_records)
        self.counters.max_clean_time_s = done.elapsed_s
        self.counters.max_buffer_utilization_percent = 100 * done.map_utilization
        _log.info(
            "log.cleaned partition=%s end_offset=%d read_bytes=%d written_bytes=%d elapsed_s=%.3f",
            *(log.topic_partition, done.end_offset, done.bytes_read, done.bytes_written, done.elapsed_s),
        )
        self._go_on()

    def _go_on(self) -> None:
        self._rest()
        self._survey()


class _Pace:
    """A wait after each piece of work, as long as the piece has taken, and the limit of bytes a second."""

    def __init__(self, bytes_per_second: float, wait: Callable[[float], object]) -> None:
        self._wait: Final = wait
        self._throttle: Final = Throttler(bytes_per_second if 0 < bytes_per_second < 1e18 else 0.0, wait)
        self._began_s = time.monotonic()

    def __call__(self, size_bytes: int) -> None:
        self._wait(min(time.monotonic() - self._began_s, _PAUSE_S_MAX))
        self._throttle(size_bytes)
        self._began_s = time.monotonic()


def _take(log: PostgresLog, report: Report) -> None:
    log.on_removed(report.gone_bytes)
    log.keep_aborted(report.begin, report.end, report.aborted)
