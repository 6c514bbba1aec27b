"""
The threads of a store on the disk: one that flushes rounds, one that does what may take long.

A round is everything appended in one turn, or in several while a flush was running. The owner hands it over and goes on;
the flusher makes it durable and posts back. The owner's thread and the flusher share nothing but the round handed over.

On a disk that is quick the hand-over costs more than the flush: two threads have to be woken, and the two then take the
interpreter from each other at every system call. There the owner may flush by itself, while the thread rests.
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
    What one flush covers.

    Attributes:
        pieces: the journal's bytes, behind room for the round's header, but for the last of them, which are in `entries`.
        covered: those of the pieces that the round's checksum covers.
        piece_bytes: how large the pieces are that were not copied.
        entries: where the next entry goes.
        ends: per log, the end offset that is durable when the round is.
        bulk: logs whose data is too large for the journal.
        files: the files of those, to be flushed themselves, and their directories.
        waiters: called on the owner's thread when the round is durable.
        on_begun: set when a checkpoint was begun: the journal's other file is used from this round on, and this is called
            by the flusher when the round is durable.
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
        """Put something large behind the entries without copying it: it is not to change any more."""
        self.pieces += (self.entries, data)
        self.covered.append(self.entries)
        if is_covered:
            self.covered.append(data)
        self.piece_bytes += len(data)
        self.entries = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether it has no entries."""
        return not self.pieces and len(self.entries) == FRAME_HEADER_BYTES

    def merge(self, later: "FlushBatch[L]") -> None:
        """Take up what came while this round waited."""
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
    One thread that makes one round after the other durable.

    Args:
        on_done: called on the flusher's thread with a round that is durable.
        on_failed: called on the flusher's thread, once, with what was raised; nothing is flushed afterwards.
        sync_files: flushes files by their names; OSError when that failed.
        owner_flush_ms_max: the owner may flush while flushes take no longer on the average.
        now: seconds, to take the time of flushes.
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
        """What a flush takes: an average of late, to which each adds an eighth of the difference."""
        self._condition = threading.Condition()
        self._waiting: FlushBatch[L] | None = None
        self._is_busy = False
        self._is_stopping = False
        self._has_failed = False
        self._worker: threading.Thread | None = None
        self.flushes = 0
        self.flush_time_s = 0.0
        """For who looks: how many rounds were flushed, and how long that took in all."""
        self.journal_bytes = 0
        """Bytes in the present journal file, as of the last round."""

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
        """Whether the disk is quick and the thread has nothing to do."""
        return self._flush_ms <= self._owner_flush_ms_max and self.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether the thread has nothing to do."""
        with self._condition:
            return self._waiting is None and not self._is_busy and not self._has_failed

    def flush_by_owner(self, flush_batch: FlushBatch[L]) -> None:
        """
        Make a round durable on the thread of the owner, who was told that he may.

        Raises:
            Exception: nothing is flushed afterwards.
        """
        try:
            self._flush(flush_batch)
        except Exception:
            with self._condition:
                self._has_failed = True
            raise

    def wait(self) -> None:
        """Until everything handed over is durable, or a flush has failed."""
        with self._condition:
            self._condition.wait_for(lambda: self._has_failed or (self._waiting is None and not self._is_busy))

    def stop(self) -> None:
        """Finish what was handed over, end the thread and close the journal."""
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
            except Exception as exc:  # noqa: BLE001 -- the edge of the thread: whoever waits for it must be told
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
    """One thread for jobs that may take long, in order; it starts with the first."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job; what it does not catch is logged, and the next one's turn comes."""
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
