"""
The threads of a store on disk: the flusher, and a background thread for long jobs.

A flush batch holds everything appended in one turn, or in several turns while a flush was running: the calls of the file
system, in order, and the entries of the journal. The owner hands the batch over; the flusher makes the calls, makes the batch
durable and calls back. The two threads share only the batch that was handed over, and the bytes in memory, which do not change.

A disk may hang in any call, so the owner makes none. On a quick disk it waits for the flusher, for some milliseconds at most:
that is quicker than to be called back through the event loop, and the threads do not compete for the interpreter meanwhile.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from kohort.storage.durability.handover import Bell, Follower
from kohort.storage.durability.journal import Journal
from kohort.storage.files.journal_format import FRAME_HEADER_BYTES, without_appends
from kohort.storage.segments.segment_file import SegmentWrite

_log = logging.getLogger("kohort.storage")

HANGS_S: Final = 5.0
"""A batch that takes longer is named in the log, and again each time that so long has passed."""

L = TypeVar("L")


class FlushBatch(Generic[L]):
    """
    The appends that one flush covers.

    Attributes:
        is_open: whether anything was added; maintained by the owner.
        operations: calls of the file system, with the log that they belong to; its later ones are left out if one fails.
        writes: those of them that write segments.
        write_bytes: the memory of the bytes that they write.
        pieces: the buffers of the journal frame, room for the header included, except for the last one, `entries`.
        covered: the pieces that the checksum of the frame covers.
        piece_bytes: the size of the pieces that were not copied.
        entries: the buffer that the next entry is added to.
        ends: by log, the end offset that the flush makes durable.
        written_ends: by log, the end offset of data that needs no flush.
        bulk: logs whose data is too large for the journal.
        files: the files of these logs, which are flushed themselves, and their directories.
        waiters: called on the owner's thread when the batch is durable.
        on_begun: set if a checkpoint began with this batch: the journal switches to its other file before the batch, and the
            flusher calls this when the batch is durable.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.operations: list[tuple[L | None, Callable[[], None]]] = []
        self.writes: list[SegmentWrite] = []
        self.write_bytes = 0
        self.pieces: list[bytearray | bytes | memoryview] = []
        self.covered: list[bytearray | bytes | memoryview] = []
        self.piece_bytes = 0
        self.entries = bytearray(FRAME_HEADER_BYTES)
        self.ends: dict[L, int] = {}
        self.written_ends: dict[L, int] = {}
        self.bulk: set[L] = set()
        self.files: set[Path] = set()
        self.waiters: list[Callable[[], None]] = []
        self.on_begun: Callable[[], None] | None = None

    def add_piece(self, data: bytearray | bytes | memoryview, *, is_covered: bool) -> None:
        """Add a large buffer behind the entries without copying it; the buffer must not change any more."""
        self.pieces += (self.entries, data)
        self.covered.append(self.entries)
        if is_covered:
            self.covered.append(data)
        self.piece_bytes += len(data)
        self.entries = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether the batch has no entries."""
        return not self.pieces and len(self.entries) == FRAME_HEADER_BYTES

    def merge(self, later: "FlushBatch[L]") -> None:
        """Add a batch that came while this one waited."""
        if later.pieces:
            self.entries += memoryview(later.pieces[0])[FRAME_HEADER_BYTES:]
            self.pieces += (self.entries, *later.pieces[1:])
            self.covered += (self.entries, *later.covered[1:])
            self.entries = later.entries
            self.piece_bytes += later.piece_bytes
        else:
            self.entries += memoryview(later.entries)[FRAME_HEADER_BYTES:]
        self.operations += later.operations
        self.writes += later.writes
        self.write_bytes += later.write_bytes
        self.ends.update(later.ends)
        self.written_ends.update(later.written_ends)
        self.files |= later.files
        self.waiters += later.waiters
        self.on_begun = self.on_begun or later.on_begun


class Flusher(Generic[L]):
    """
    A thread that makes flush batches durable, one after the other.

    Args:
        on_written: called on the flusher's thread with the `written_ends` of a batch whose files are flushed next.
        on_done: called on the flusher's thread with a batch that is durable.
        on_log_failed: called on the flusher's thread with a log of which an operation failed, and the error. The batch goes on
            without the log.
        on_failed: called on the flusher's thread, once, with the error; nothing is flushed afterwards.
        post: called on the flusher's thread after `on_done` or `on_failed`, unless the owner waits.
        sync_files: flushes files by path; raises OSError.
        entry_prefix_of: the first bytes of a log's entries in the journal.
        owner_flush_ms_max: the owner may wait while flushes take no longer on average.
        now: the time in seconds, for measuring flushes.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        on_written: Callable[[dict[L, int]], None],
        on_done: Callable[[FlushBatch[L]], None],
        on_log_failed: Callable[[L, OSError], None],
        on_failed: Callable[[Exception], None],
        post: Callable[[], None],
        sync_files: Callable[[set[Path]], None],
        entry_prefix_of: Callable[[L], bytes],
        owner_flush_ms_max: float,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._journal = journal
        self._on_written = on_written
        self._on_done = on_done
        self._on_log_failed = on_log_failed
        self._on_failed = on_failed
        self._post = post
        self._sync_files = sync_files
        self._entry_prefix_of = entry_prefix_of
        self._owner_flush_ms_max = owner_flush_ms_max
        self._now = now
        self._flush_ms = math.inf
        """The duration of a flush: a moving average, which each flush changes by an eighth of the difference."""
        self._failed_logs: set[L] = set()
        self._lock = threading.Lock()
        self._became_idle = threading.Condition(self._lock)
        self._waits = 0
        """How many threads wait for that: to notify nobody takes as long as to take a batch."""
        self._wake = Bell()
        """Rung when the sleeping thread has something to do."""
        self._ended = Bell()
        """Rung when a batch has ended that the owner waits for."""
        self._is_awaited = False
        self._waiting: FlushBatch[L] | None = None
        self._is_busy = False
        self._is_asleep = False
        self._is_stopping = False
        self._has_failed = False
        self._worker: threading.Thread | None = None
        self._follower: Follower | None = None
        self._watchdog = Watchdog(journal.directory.parent)
        self.flushes = 0
        self.flush_time_s = 0.0
        """The number of flushes and their total time, for metrics."""
        self.journal_bytes = 0
        """Bytes in the current journal file after the last flush."""

    def hand_over(self, flush_batch: FlushBatch[L], *, wait_ms: int = 0) -> None:
        """
        Hand over a batch.

        Args:
            wait_ms: the longest time that the owner waits for the end of the batch. Use it only if `may_owner_wait`.
        """
        with self._lock:
            if self._has_failed:
                return
            if self._waiting is None:
                self._waiting = flush_batch
            else:
                self._waiting.merge(flush_batch)
            follower = self._follower or self._start()
            if wait_ms > 0 and flush_batch.is_empty:  # the thread will not sleep in a flush
                follower.follow()
            else:
                follower.free()
            self._is_awaited = wait_ms > 0
            was_asleep, self._is_asleep = self._is_asleep, False
        # Not under the lock: the thread may run before this one, and takes it.
        if was_asleep:
            self._wake.ring()
        if wait_ms > 0 and not self._ended.wait_for(wait_ms):
            with self._lock:
                has_ended, self._is_awaited = not self._is_awaited, False
            if has_ended:  # at the last moment
                self._ended.wait()

    def _start(self) -> Follower:
        self._worker = threading.Thread(target=self._run, name="kohort-flusher", daemon=True)
        self._worker.start()
        self._watchdog.start()
        self._follower = Follower(self._worker)
        return self._follower

    @property
    def may_owner_wait(self) -> bool:
        """Whether flushes are quick and the flusher is idle."""
        return self._flush_ms <= self._owner_flush_ms_max and self.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits or is being flushed."""
        with self._lock:
            return self._waiting is None and not self._is_busy and not self._has_failed

    def forget_failure(self, log: L) -> None:
        """On the flusher's thread: forget a log that was deleted."""
        self._failed_logs.discard(log)

    def is_log_failed(self, log: L) -> bool:
        """Whether an operation of a log has failed. Any thread may call this."""
        return log in self._failed_logs

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until every batch handed over is durable, or a flush has failed; False if that takes too long."""
        with self._became_idle:
            self._waits += 1
            try:
                return self._became_idle.wait_for(
                    lambda: self._has_failed or (self._waiting is None and not self._is_busy), timeout_s
                )
            finally:
                self._waits -= 1

    def stop(self, timeout_s: float | None = None) -> bool:
        """Flush the batches handed over, end the thread and close the journal; False if that takes too long."""
        self._watchdog.stop()
        with self._lock:
            self._is_stopping = True
            was_asleep, self._is_asleep = self._is_asleep, False
        if was_asleep:
            self._wake.ring()
        if self._worker is not None:
            self._worker.join(timeout_s)
            if self._worker.is_alive():
                return False
        self._wake.close()
        self._ended.close()
        self._journal.close()
        return True

    def _run(self) -> None:
        flush_batch = self._take()
        while True:
            while flush_batch is None:
                if self._is_stopping:
                    return
                self._wake.wait()
                flush_batch = self._take()
            try:
                self._flush(flush_batch)
            except Exception as exc:  # noqa: BLE001 -- the edge of the thread: waiting requests must get an error
                self._on_failed(exc)
                with self._lock:
                    self._has_failed = True
                self._take()
                return
            self._on_done(flush_batch)
            flush_batch = self._take()

    def _take(self) -> FlushBatch[L] | None:
        """End a batch, if there was one, and take the next one."""
        with self._lock:
            was_busy = self._is_busy
            flush_batch, self._waiting = self._waiting, None
            self._is_busy = flush_batch is not None and not self._has_failed
            if not self._is_busy:
                self._is_asleep = not self._is_stopping
                if self._waits:
                    self._became_idle.notify_all()
            is_awaited = was_busy and self._is_awaited
            if is_awaited:
                self._is_awaited = False
        if is_awaited:
            self._ended.ring()
        elif was_busy:
            self._post()
        return flush_batch

    def _flush(self, flush_batch: FlushBatch[L]) -> None:
        started = self._now()
        self._watchdog.begin()
        try:
            self._make_durable(flush_batch)
        finally:
            self._watchdog.end()
        took_ms = (self._now() - started) * 1000
        if flush_batch.files or not flush_batch.is_empty:
            self.flushes += 1
            self.flush_time_s += took_ms / 1000
        if self._flush_ms == math.inf:
            self._flush_ms = took_ms
        else:
            self._flush_ms += (took_ms - self._flush_ms) / 8

    def _make_durable(self, flush_batch: FlushBatch[L]) -> None:
        watchdog = self._watchdog
        for log, operation in flush_batch.operations:
            watchdog.call = operation
            if log is None:
                operation()
            elif log not in self._failed_logs:
                try:
                    operation()
                except OSError as exc:
                    self._failed_logs.add(log)
                    self._on_log_failed(log, exc)
        if flush_batch.on_begun is not None:
            self._journal.switch()
        if flush_batch.files:
            if flush_batch.written_ends:
                self._on_written(flush_batch.written_ends)
            watchdog.call = "flush of files"
            self._sync_files(flush_batch.files)
        if not flush_batch.is_empty:
            pieces, covered = [*flush_batch.pieces, flush_batch.entries], [*flush_batch.covered, flush_batch.entries]
            failed = self._failed_logs & flush_batch.ends.keys()
            if failed:
                pieces = covered = [without_appends(b"".join(pieces), {self._entry_prefix_of(log) for log in failed})]
            watchdog.call = "flush of the journal"
            self._journal.write(pieces, covered)
        self.journal_bytes = self._journal.position
        if flush_batch.on_begun is not None:
            flush_batch.on_begun()


class BackgroundThread:
    """A thread that runs long jobs in order; it starts with the first job."""

    def __init__(self, name: str = "kohort-storage") -> None:
        self._name: Final = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._worker: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job; an exception is logged, and the next job runs. Any thread may call this."""
        with self._starting:
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._worker.start()
        self._jobs.put(job)

    def stop(self, timeout_s: float | None = None) -> bool:
        """Finish the jobs and end the thread; False if that takes too long."""
        if self._worker is not None:
            self._jobs.put(None)
            self._worker.join(timeout_s)
            if self._worker.is_alive():
                return False
            self._worker = None
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001 -- the edge of the thread
                _log.exception("store.job_failed")


class Watchdog:
    """
    A thread that logs which call of the disk thread hangs, and for how long.

    Args:
        path: the data directory.

    Attributes:
        call: what the disk thread does; a text, or what it calls.
    """

    def __init__(self, path: Path) -> None:
        self.call: str | Callable[[], None] = ""
        self._path = path
        self._began_s: float | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="kohort-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def begin(self) -> None:
        """On the disk thread: a batch begins."""
        self._began_s = time.monotonic()

    def end(self) -> None:
        self._began_s = None
        self.call = ""

    def _run(self) -> None:
        while not self._stopping.wait(HANGS_S):
            began_s = self._began_s
            if began_s is not None and time.monotonic() - began_s >= HANGS_S:
                seconds = time.monotonic() - began_s
                _log.warning("disk.hangs path=%s seconds=%d call=%r", self._path, seconds, _name_of(self.call))


def _name_of(call: str | Callable[[], None]) -> str:
    if isinstance(call, str):
        return call
    if isinstance(call, SegmentWrite):
        return f"write of {call.path}"
    if isinstance(call, partial):
        return " ".join([call.func.__name__.strip("_"), *(str(arg) for arg in call.args if isinstance(arg, Path))])
    return getattr(call, "__name__", "call").strip("_")
