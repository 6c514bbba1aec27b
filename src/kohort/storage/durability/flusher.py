"""
The threads of a store on disk: the flusher, and a background thread for long jobs.

A flush batch holds everything appended in one turn, or in several turns while a flush was running. The owner hands the batch
over and continues; the flusher makes it durable and calls back. The two threads share only the batch that was handed over.

On a quick disk the hand-over costs more than the flush: both threads have to be woken, and they compete for the interpreter at
every system call. There the owner may flush by itself while the flusher is idle.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

from kohort.storage.durability.journal import FRAME_HEADER_BYTES, Journal

_log = logging.getLogger("kohort.storage")

L = TypeVar("L")


class FlushBatch(Generic[L]):
    """
    The appends that one flush covers.

    Attributes:
        pieces: the buffers of the journal frame, room for the header included, except for the last one, `entries`.
        covered: the pieces that the checksum of the frame covers.
        piece_bytes: the size of the pieces that were not copied.
        entries: the buffer that the next entry is added to.
        ends: by log, the end offset that the flush makes durable.
        bulk: logs whose data is too large for the journal.
        files: the files of these logs, which are flushed themselves, and their directories.
        waiters: called on the owner's thread when the batch is durable.
        on_begun: set if a checkpoint began with this batch: the journal switches to its other file before the batch, and the
            flusher calls this when the batch is durable.
    """

    def __init__(self) -> None:
        self.pieces: list[bytearray | bytes | memoryview] = []
        self.covered: list[bytearray | bytes | memoryview] = []
        self.piece_bytes = 0
        self.entries = bytearray(FRAME_HEADER_BYTES)
        self.ends: dict[L, int] = {}
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
        self.ends.update(later.ends)
        self.files |= later.files
        self.waiters += later.waiters
        self.on_begun = self.on_begun or later.on_begun


class Flusher(Generic[L]):
    """
    A thread that makes flush batches durable, one after the other.

    Args:
        on_done: called on the flusher's thread with a batch that is durable.
        on_failed: called on the flusher's thread, once, with the error; nothing is flushed afterwards.
        sync_files: flushes files by path; raises OSError.
        owner_flush_ms_max: the owner may flush while flushes take no longer on average.
        now: the time in seconds, for measuring flushes.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        on_done: Callable[[FlushBatch[L]], None],
        on_failed: Callable[[Exception], None],
        sync_files: Callable[[set[Path]], None],
        owner_flush_ms_max: float,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._journal = journal
        self._on_done = on_done
        self._on_failed = on_failed
        self._sync_files = sync_files
        self._owner_flush_ms_max = owner_flush_ms_max
        self._now = now
        self._flush_ms = math.inf
        """The duration of a flush: a moving average, which each flush changes by an eighth of the difference."""
        self._condition = threading.Condition()
        self._waiting: FlushBatch[L] | None = None
        self._is_busy = False
        self._is_stopping = False
        self._has_failed = False
        self._worker: threading.Thread | None = None
        self.flushes = 0
        self.flush_time_s = 0.0
        """The number of flushes and their total time, for metrics."""
        self.journal_bytes = 0
        """Bytes in the current journal file after the last flush."""

    def hand_over(self, flush_batch: FlushBatch[L]) -> None:
        with self._condition:
            if self._has_failed:
                return
            if self._waiting is None:
                self._waiting = flush_batch
            else:
                self._waiting.merge(flush_batch)
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="kohort-flusher", daemon=True)
                self._worker.start()
            if not self._is_busy:
                self._condition.notify_all()

    @property
    def may_owner_flush(self) -> bool:
        """Whether flushes are quick and the flusher is idle."""
        return self._flush_ms <= self._owner_flush_ms_max and self.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits or is being flushed."""
        with self._condition:
            return self._waiting is None and not self._is_busy and not self._has_failed

    def flush_by_owner(self, flush_batch: FlushBatch[L]) -> None:
        """
        Make a batch durable on the owner's thread. Call only if `may_owner_flush`.

        Raises:
            Exception: the flush failed; nothing is flushed afterwards.
        """
        try:
            self._flush(flush_batch)
        except Exception:
            with self._condition:
                self._has_failed = True
            raise

    def wait(self) -> None:
        """Block until every batch handed over is durable, or a flush has failed."""
        with self._condition:
            self._condition.wait_for(lambda: self._has_failed or (self._waiting is None and not self._is_busy))

    def stop(self) -> None:
        """Flush the batches handed over, end the thread and close the journal."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        if self._worker is not None:
            self._worker.join()
        self._journal.close()

    def _run(self) -> None:
        while (flush_batch := self._take()) is not None:
            try:
                self._flush(flush_batch)
            except Exception as exc:  # noqa: BLE001 -- the edge of the thread: waiting requests must get an error
                self._on_failed(exc)
                with self._condition:
                    self._has_failed = True
                    self._condition.notify_all()
                return
            self._on_done(flush_batch)

    def _take(self) -> FlushBatch[L] | None:
        with self._condition:
            if self._is_busy:
                self._is_busy = False
                self._condition.notify_all()
            self._condition.wait_for(lambda: self._waiting is not None or self._is_stopping)
            flush_batch, self._waiting = self._waiting, None
            self._is_busy = flush_batch is not None
            return flush_batch

    def _flush(self, flush_batch: FlushBatch[L]) -> None:
        started = self._now()
        self._make_durable(flush_batch)
        took_ms = (self._now() - started) * 1000
        self.flushes += 1
        self.flush_time_s += took_ms / 1000
        if self._flush_ms == math.inf:
            self._flush_ms = took_ms
        else:
            self._flush_ms += (took_ms - self._flush_ms) / 8

    def _make_durable(self, flush_batch: FlushBatch[L]) -> None:
        if flush_batch.on_begun is not None:
            self._journal.switch()
        if flush_batch.files:
            self._sync_files(flush_batch.files)
        if not flush_batch.is_empty:
            self._journal.write([*flush_batch.pieces, flush_batch.entries], [*flush_batch.covered, flush_batch.entries])
        self.journal_bytes = self._journal.position
        if flush_batch.on_begun is not None:
            flush_batch.on_begun()


class BackgroundThread:
    """A thread that runs long jobs in order; it starts with the first job."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job; an exception is logged, and the next job runs."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._run, name="kohort-storage", daemon=True)
            self._worker.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish the jobs and end the thread."""
        if self._worker is not None:
            self._jobs.put(None)
            self._worker.join()
            self._worker = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001 -- the edge of the thread
                _log.exception("store.job_failed")
