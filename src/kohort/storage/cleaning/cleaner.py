"""
The cleaner of logs on disk: it chooses the dirtiest log, and puts cleaned segments in place.

The owner's thread chooses a log, and a thread of the cleaner (for large logs a process) makes the pass. The owner's thread puts
each cleaned segment in place in memory, and the background thread renames the files.

Source: Kafka LogCleaner, LogCleanerManager.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from pathlib import Path

import msgspec

from kohort.model.errors import CorruptError, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.cleaning.compaction import Report, compact
from kohort.storage.cleaning.job import CleanerJob, PassResult, SegmentGroup
from kohort.storage.cleaning.log_to_clean import CleanerBase, LogToClean, dirtiest, is_compacted, job_of, look_at
from kohort.storage.cleaning.process import CleanerProcess, Throttler
from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.files.checkpoint_formats import offsets_to_text, read_offsets, write_atomically
from kohort.storage.files.directory import SWAP_SUFFIX
from kohort.storage.log import CleanerConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.segments.segment import Segment

_log = logging.getLogger("kohort.storage")

CLEANER_OFFSETS = "cleaner-offset-checkpoint"
PROCESS_BYTES = 4 << 20
"""A pass over logs of this size or more runs in a process."""


class _Worker(msgspec.Struct):
    """A thread, and the process that it starts for large logs."""

    process: CleanerProcess = msgspec.field(default_factory=CleanerProcess)
    thread: BackgroundThread = msgspec.field(default_factory=partial(BackgroundThread, "kohort-cleaner"))
    is_busy: bool = False


class _Pass(msgspec.Struct):
    """
    A pass under way.

    Attributes:
        make_job: makes the input of the pass.
        begin: the base offset of the first segment that the pass reads.
        swapping: how many cleaned segments are being put in place.
        stop: set to end the pass early.
        ended: set when the pass writes nothing any more.
        is_void: whether later segments of the pass are discarded.
    """

    log: DiskLog
    make_job: Callable[[], CleanerJob]
    begin: int
    worker: _Worker
    swapping: int = 0
    done: PassResult | None = None
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    ended: threading.Event = msgspec.field(default_factory=threading.Event)
    is_running: bool = True
    is_void: bool = False


class Cleaner(CleanerBase[DiskLog]):
    """
    The cleaner of one data directory. Not thread-safe: call from the owner's thread. Exceptions are marked.

    Args:
        logs: the open logs.
        recovery_point: the recovery point of a partition, below which all data is durable.
        want_checkpoint: requests a checkpoint soon.
        submit: runs jobs that wait for the disk in the background, in order.
        call_soon_threadsafe: runs something on the owner's thread; from any thread.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        logs: Callable[[], Iterable[DiskLog]],
        recovery_point: Callable[[TopicPartition], int],
        want_checkpoint: Callable[[], None],
        submit: Callable[[Callable[[], None]], None],
        call_soon_threadsafe: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        super().__init__(logs, clock)
        self.config = CleanerConfig()
        self._path = data_dir / CLEANER_OFFSETS
        self._recovery_point = recovery_point
        self._want_checkpoint = want_checkpoint
        self._submit_job = submit
        self._call_soon_threadsafe = call_soon_threadsafe
        self._process_bytes = PROCESS_BYTES
        self._passes: dict[TopicPartition, _Pass] = {}
        self._workers: list[_Worker] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._is_closing = False

    def load_offsets(self, known: Container[TopicPartition]) -> None:
        """Load the first dirty offsets of the partitions on disk."""
        try:
            found = read_offsets(self._path)
        except CorruptError as error:  # all logs count as dirty then
            _log.warning("cleaner.offsets_unreadable path=%s error=%r", self._path, str(error))
        else:
            self.offsets = {key: offset for key, offset in found.items() if key in known}

    @property
    def in_progress(self) -> frozenset[TopicPartition]:
        return frozenset(self._passes)

    def process_id(self) -> int | None:
        """The id of a running cleaner process, if there is one. Any thread may call this."""
        return next((worker.process.id for worker in self._workers if worker.process.id is not None), None)

    # Choosing

    def clean(self) -> None:
        """Start passes over the logs that are due, one per free thread, and apply retention to compacted logs."""
        if self._is_closing:
            return
        self._last_run_ms = self._clock.now_ms()
        for worker in self._free_workers():
            chosen = self._dirtiest()
            if chosen is None:
                break
            self._begin(worker, chosen)
        for log in self._compacted_logs():
            if log.topic_partition not in self._passes:
                self._delete(log)

    def _free_workers(self) -> list[_Worker]:
        while len(self._workers) < self.config.threads:
            self._workers.append(_Worker())
        return [worker for worker in self._workers[: self.config.threads] if not worker.is_busy]

    def _compacted_logs(self) -> list[DiskLog]:
        return [
            log
            for log in self._logs()
            if is_compacted(log) and log.refusal is None and log.topic_partition not in self.uncleanable
        ]

    def _delete(self, log: DiskLog) -> None:
        """Source: LogCleanerManager.deletableLogs: compacted logs are deleted from by the cleaner."""
        try:
            log.apply_retention(self._clock.now_ms())
        except (StorageError, OSError) as error:
            _log.warning("log.not_kept partition=%s error=%r", log.topic_partition, str(error))

    def _dirtiest(self) -> LogToClean[DiskLog, Segment] | None:
        """The dirtiest log that is due."""
        found = [self.look_at(log) for log in self._compacted_logs() if log.topic_partition not in self._passes]
        self.counters.max_dirty_percent = max((100 * dirty.ratio for dirty in found), default=0.0)
        self.counters.max_compaction_delay_s = max((dirty.delay_ms for dirty in found), default=0) / 1000
        return dirtiest(found)

    def look_at(self, log: DiskLog) -> LogToClean[DiskLog, Segment]:
        """How dirty a log is. Requests a checkpoint if more of the log could be cleaned after one."""
        found = look_at(
            log,
            first_dirty_offset=self._first_dirty_offset(log),
            recovery_point=self._recovery_point(log.topic_partition),
            now_ms=self._clock.now_ms(),
        )
        if found.waits_for_checkpoint:
            self._want_checkpoint()
        return found

    # A pass

    def _begin(self, worker: _Worker, dirty: LogToClean[DiskLog, Segment]) -> None:
        log = dirty.log
        make_job = job_of(dirty, self.config, now_ms=self._clock.now_ms())
        pass_ = self._passes[log.topic_partition] = _Pass(log, make_job, dirty.segments[0].base_offset, worker)
        worker.is_busy = True
        worker.thread.submit(lambda: self._run(pass_))

    def _run(self, pass_: _Pass) -> None:
        """On a thread of the cleaner."""
        done, problem = None, None
        try:
            done = self._compact(pass_, partial(self._on_group, pass_))
        except Exception as error:  # noqa: BLE001 -- the edge of the thread: this log becomes uncleanable, other logs are not affected
            problem = error
        pass_.ended.set()
        self._call_on_owner(partial(self._on_end, pass_, done, None if pass_.stop.is_set() else problem))

    def _compact(self, pass_: _Pass, report: Report) -> PassResult:
        """On a thread of the cleaner."""
        job = pass_.make_job()
        if sum(source.size_bytes for source in job.sources) >= self._process_bytes:
            return pass_.worker.process.run(job, report)
        pace = Throttler(job.bytes_per_second, pass_.stop.wait)
        return compact(job, report, self._clock, is_stopped=pass_.stop.is_set, pace=pace)

    def _on_group(self, pass_: _Pass, group: SegmentGroup) -> None:
        """On a thread of the cleaner."""
        segment = _cleaned(pass_.log, group, self._clock.now_ms())
        self._call_on_owner(partial(self._put_in_place, pass_, segment, group.replaces))

    def _put_in_place(self, pass_: _Pass, segment: Segment, replaces: list[int]) -> None:
        """Put a complete cleaned segment in place of the segments that it replaces."""
        log = pass_.log
        replaced = None
        if not (pass_.stop.is_set() or pass_.is_void or log.is_deleted or log.refusal is not None):
            replaced = log.begin_swap(replaces, segment)
        if replaced is None:
            pass_.is_void = True
            job = partial(log.discard, segment)
        else:
            job = partial(log.swap_files, replaced, segment)
        pass_.swapping += 1

        def run() -> None:
            failure: OSError | None = None
            try:
                job()
            except OSError as error:
                failure = error
            self._call_on_owner(partial(self._on_swapped, pass_, failure))

        if self._is_closing:
            run()
        else:
            self._submit_job(run)

    def _on_swapped(self, pass_: _Pass, failure: OSError | None) -> None:
        pass_.swapping -= 1
        if failure is not None:
            pass_.is_void = True
            # The directory of a deleted log does not exist; any other log that cannot be flushed goes offline.
            if not pass_.log.is_deleted:
                pass_.log.fail(failure)
        self._end_if_done(pass_)

    def _on_end(self, pass_: _Pass, done: PassResult | None, problem: Exception | None) -> None:
        pass_.is_running = pass_.worker.is_busy = False
        pass_.done = done
        if done is not None:
            self._count(done.bytes_read, done.bytes_written, done.invalid_records)
            self.counters.max_clean_time_s = done.elapsed_s
            self.counters.max_buffer_utilization_percent = 100 * done.map_utilization
        elif problem is not None and not _is_obsolete(pass_):
            self._mark_uncleanable(pass_.log.topic_partition, problem)
        self._end_if_done(pass_)

    def _end_if_done(self, pass_: _Pass) -> None:
        """If the pass has ended and its segments are in place, write the first dirty offset and start the next pass."""
        if pass_.is_running or pass_.swapping:
            return
        topic_partition, done = pass_.log.topic_partition, pass_.done
        del self._passes[topic_partition]
        if done is not None and not pass_.is_void and not pass_.log.is_deleted:
            _log.info(
                "log.cleaned partition=%s end_offset=%d read_bytes=%d written_bytes=%d elapsed_s=%.3f",
                *(topic_partition, done.end_offset, done.bytes_read, done.bytes_written, done.elapsed_s),
            )
            self.offsets[topic_partition] = done.end_offset
            self._write_offsets()
        self.clean()

    def _write_offsets(self) -> None:
        text = offsets_to_text(self.offsets)

        def write() -> None:
            try:
                write_atomically(self._path, text)
            except OSError as error:  # the log is only cleaned again
                _log.warning("cleaner.offsets_not_written path=%s error=%r", self._path, str(error))

        if self._is_closing:
            write()
        else:
            self._submit_job(write)

    # Coming back

    def _call_on_owner(self, action: Callable[[], None]) -> None:
        """Run a callback on the owner's thread. Any thread may call this."""
        self._calls.append(action)
        self._call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._calls:
            self._calls.popleft()()

    # The end

    def forget(self, topic_partition: TopicPartition) -> Callable[[], object]:
        """
        Stop a pass over a log that is about to be deleted.

        Returns:
            Waits some milliseconds, until the pass writes nothing more; any thread may call it.
        """
        if self.offsets.pop(topic_partition, None) is not None:
            self._write_offsets()
        self.uncleanable.discard(topic_partition)
        pass_ = self._passes.get(topic_partition)
        if pass_ is None or not pass_.is_running:
            return lambda: None
        pass_.stop.set()
        pass_.worker.process.cancel()
        return pass_.ended.wait

    def stop(self, timeout_s: float | None = None) -> None:
        """End all passes, if the disk answers in time; `finish` completes swaps under way."""
        self._is_closing = True
        for pass_ in self._passes.values():
            pass_.stop.set()
        for worker in self._workers:
            worker.process.stop()
            worker.thread.stop(timeout_s)

    def finish(self) -> None:
        """Complete swaps under way, after `stop` and after the end of all background jobs."""
        self._drain()


def _is_obsolete(pass_: _Pass) -> bool:
    """Whether the log, or a segment that the pass reads, was deleted meanwhile."""
    present = {segment.base_offset for segment in pass_.log.segments}
    return pass_.log.is_deleted or pass_.begin not in present


def _cleaned(log: DiskLog, group: SegmentGroup, now_ms: int) -> Segment:
    """
    The segment that a pass has written, with its `.swap` names. Its transaction index is read now: it has no file if it is
    empty, and a file of the final name may be that of a replaced segment.
    """
    segment = Segment(log.directory, group.base_offset, log.config, created_ms=now_ms)
    segment.rename_with(SWAP_SUFFIX)
    segment.size_bytes, segment.max_timestamp = group.size_bytes, group.max_timestamp
    segment.rolling_timestamp_ms = group.rolling_timestamp_ms
    segment.release()
    segment.aborted.load()
    return segment
