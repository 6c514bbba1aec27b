"""
Flushes appended batches and advances high watermarks; checkpoints segment files in the background.

Not thread-safe: call from the owner's thread. Exceptions are marked.

The owner's thread makes no call of the file system while clients are served: the calls of a turn (writes of segments, new
files, renames) are handed to the flusher in order, at the end of the turn. With "commit", the flusher then makes the batch
durable; its callback advances the high watermarks. With "os", they advance when the calls have been made. If flushes are quick
and the flusher is idle, the owner waits for the end of the batch, shortly.

A checkpoint flushes the files written since the last one, and writes Kafka's checkpoint files of recovery points, high
watermarks and log start offsets. With a journal, frames go to its other file from the beginning of a checkpoint on, and the
first file is free when the checkpoint has ended.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kohort.model.errors import UnavailableError
from kohort.runtime.ports import Clock, Defer
from kohort.storage.batchset import Span
from kohort.storage.durability.checkpoints import Checkpoint, Checkpoints, write_epochs
from kohort.storage.durability.flusher import BackgroundThread, FlushBatch, Flusher
from kohort.storage.durability.journal import Journal
from kohort.storage.durability.parallel import for_each
from kohort.storage.files import syscalls
from kohort.storage.files.directory import JOURNAL
from kohort.storage.files.errno_hints import errno_hint
from kohort.storage.files.journal_format import DELETE, EPOCH, START, entry_prefix, pack_epoch, pack_length, pack_offset
from kohort.storage.log import CallSoon
from kohort.storage.logs.base import PIECE_BYTES
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.tail import Tails

_log = logging.getLogger("kohort.storage")

BULK_BYTES: Final = 256 * 1024
"""A partition's bytes in one flush batch from which on its segment is flushed: writing them twice costs more than a flush."""
EARLY_BYTES: Final = 2 * 1024 * 1024
"""
A flush batch of this size is flushed before the end of the turn, if the flusher is idle. Small ones are not: the two threads
compete for the interpreter after each write.
"""
_JOURNAL_LENGTH_MAX: Final = 4
"""The bound on a journal file while a checkpoint lasts, in multiples of its size; above it segments are flushed instead."""
OWNER_FLUSH_MS_MAX: Final = 1.0
"""
The owner's thread waits for flushes while they take no longer on average; it serves no request meanwhile. Single flushes take
many times longer, above all on virtual machines.
"""
OWNER_WAIT_MS: Final = 5
"""The longest wait of the owner's thread for one flush. While the disk hangs, requests that do not need it are served."""
OWNER_FLUSHES_MAX: Final = 16
"""How many flushes the owner waits for before the event loop has to read input: answers may bring requests."""
CHECKPOINT_INTERVAL_MS: Final = 60_000
"""Source: log.flush.offset.checkpoint.interval.ms."""
FlushMode: TypeAlias = Literal["commit", "os"]
Sync: TypeAlias = Callable[[int], None]
"""Makes a file descriptor's data durable, or raises OSError."""


class FlushCoordinator:
    """
    The durability of one data directory.

    Attributes:
        tails: the memory of the newest bytes of all logs.
        handles: the cache of the files that the disk thread writes to.
        checkpoints: what changed since the last checkpoint, and the offsets of that one.
        offline_reason: the reason after a flush failed, a sentence; nothing is acknowledged from then on. None before.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        flush: FlushMode,
        defer: Defer,
        call_soon_threadsafe: CallSoon,
        sync: Sync,
        clock: Clock,
        journal_file_bytes: int,
        checkpoint_interval_ms: int,
        owner_flush_ms_max: float,
        owner_wait_ms: int,
        owner_flushes_max: int,
        written_bytes_kept: int,
        open_files_max: int,
        on_offline: Callable[[str], None],
        on_missing: Callable[[Path, OSError], None],
    ) -> None:
        self.checkpoints = Checkpoints(data_dir, clock=clock, interval_ms=checkpoint_interval_ms)
        self.offline_reason: str | None = None
        self.on_append = self._on_append_journaled if flush == "commit" else self._on_append_unflushed
        self.tails = Tails(written_bytes_kept)
        self.handles = FileHandleCache(open_files_max)
        self._is_direct = True
        """Whether operations are run at once: before the start and after the end of the threads."""
        self._data_dir = data_dir
        self._is_journaled = flush == "commit"
        self._defer = defer
        self._call_soon_threadsafe = call_soon_threadsafe
        self._sync = sync
        self._clock = clock
        self._journal_file_bytes = journal_file_bytes
        self._bulk_bytes = BULK_BYTES
        self._on_offline = on_offline
        self._on_missing = on_missing
        self._flush_batch: FlushBatch[DiskLog] = FlushBatch()
        self._done: deque[Callable[[], None]] = deque()
        """Actions that the threads leave to the owner."""
        self._owner_wait_ms = owner_wait_ms
        self._owner_flushes_max = owner_flushes_max
        self._owner_flushes = 0
        """Flushes that the owner waited for since the event loop last read input."""
        self._background = BackgroundThread()
        self._flusher: Flusher[DiskLog] = Flusher(
            Journal(data_dir / JOURNAL, file_bytes=journal_file_bytes, sync=sync),
            on_written=lambda ends: self._post_done(partial(self._advance, ends)),
            on_done=lambda flush_batch: self._done.append(partial(self._end_batch, flush_batch)),
            on_log_failed=lambda log, exc: self._done.append(partial(log.fail, exc)),
            on_failed=lambda exc: self._done.append(partial(self._go_offline, exc)),
            post=self._post,
            sync_files=self._sync_files,
            entry_prefix_of=lambda log: log.journal_prefix,
            owner_flush_ms_max=owner_flush_ms_max,
        )

    # Operations

    def start(self) -> None:
        """Let the disk thread make all further calls."""
        self._is_direct = False

    def run(self, log: DiskLog | None, operation: Callable[[], None]) -> None:
        """
        Let the disk thread run an operation, unless an earlier one of the log has failed. If it raises OSError, the log goes
        offline.

        Raises:
            OSError: the store is starting or stopping; the operation was run at once, and failed.
        """
        if self._is_direct:
            operation()
        else:
            self._open_batch().operations.append((log, operation))

    def forget_failure(self, log: DiskLog) -> None:
        """Forget a deleted log, after the operations so far."""
        self.run(None, partial(self._flusher.forget_failure, log))

    def then(self, action: Callable[[], None]) -> None:
        """Run something on the owner's thread when all operations so far have been run."""
        if self._is_direct:
            action()
        else:
            self._open_batch().waiters.append(action)

    def _open_batch(self) -> FlushBatch[DiskLog]:
        """The current flush batch, for adding something."""
        flush_batch = self._flush_batch
        if not flush_batch.is_open:
            flush_batch.is_open = True
            self._defer(self._end_turn)
        return flush_batch

    # Appends

    def _take(
        self, log: DiskLog, segment: Segment, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]
    ) -> FlushBatch[DiskLog]:
        """Take an append into memory, and add it to the current flush batch, which is returned."""
        flush_batch = self._flush_batch
        write = segment.write
        if write is None or write.flush_batch is not flush_batch:
            self._open_batch()
            write = segment.begin_write(self.handles, flush_batch)
            flush_batch.operations.append((log, write))
            flush_batch.writes.append(write)
        cost = segment.take(write, data, rest, spans, log.limits.index_interval_bytes)
        flush_batch.write_bytes += cost
        self.tails.unwritten += cost
        return flush_batch

    def _on_append_journaled(
        self, log: DiskLog, segment: Segment, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]
    ) -> None:
        flush_batch = self._take(log, segment, data, rest, spans)
        flush_batch.ends[log] = log.end_offset
        size = len(data) + len(rest)
        if log.flush_batch is flush_batch:
            log.flush_batch_bytes += size
        else:
            log.flush_batch, log.flush_batch_bytes = flush_batch, size
            self.checkpoints.mark_dirty(log)
        if log.flush_batch_bytes > self._bulk_bytes:
            flush_batch.bulk.add(log)
            return
        entries = flush_batch.entries
        entries += log.journal_batch_prefix if rest else log.journal_prefix
        entries += pack_length(size)
        if len(data) < PIECE_BYTES:
            entries += data
        else:
            flush_batch.add_piece(data, is_covered=True)
        if rest:
            flush_batch.add_piece(rest, is_covered=False)
            if flush_batch.piece_bytes >= EARLY_BYTES and self._flusher.is_idle:
                self._flusher.hand_over(self._take_flush_batch())

    def _on_append_unflushed(
        self, log: DiskLog, segment: Segment, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]
    ) -> None:
        flush_batch = self._take(log, segment, data, rest, spans)
        self.checkpoints.dirty_bytes += len(data) + len(rest)
        self.checkpoints.mark_dirty(log)
        if log.limits.is_flushed_by_count:
            flush_batch.ends[log] = log.end_offset
            self._flush_if_many(log)
            return
        flush_batch.written_ends[log] = log.end_offset
        if flush_batch.write_bytes >= EARLY_BYTES and self._flusher.is_idle:
            self._flusher.hand_over(self._take_flush_batch())

    def _flush_if_many(self, log: DiskLog) -> None:
        """Flush a log by its topic's `flush.messages`, without a journal."""
        if log.end_offset - log.flushed_offset >= log.config.flush_messages:
            self._flush_with_batch(log, self._clock.now_ms())

    def _flush_with_batch(self, log: DiskLog, now_ms: int) -> None:
        log.flushed_offset, log.flushed_ms = log.end_offset, now_ms
        self._open_batch().bulk.add(log)

    def flush_aged(self, now_ms: int) -> None:
        """Flush the files of logs that were not flushed for their `flush.ms`. With the journal, nothing waits for a flush."""
        if self._is_journaled or self.offline_reason is not None:
            return
        for log in self.checkpoints.dirty:
            if log.refusal is None and not log.is_deleted and now_ms - log.flushed_ms >= log.config.flush_ms:
                self._open_batch().ends[log] = log.end_offset
                self._flush_with_batch(log, now_ms)

    def on_delete(self, log: DiskLog) -> None:
        """Note a deletion, so that recovery does not restore the log."""
        self.checkpoints.on_deleted(log)
        if self._is_journaled and log.has_segments:
            self._add_entry(log, DELETE, b"")

    def on_new(self, log: DiskLog) -> None:
        """
        Prepare for a new log: the checkpoint files must not have a deleted partition of the same name.

        Raises:
            OSError: the store is starting, and a file could not be written.
        """
        deleted = self.checkpoints.deleted
        if log.topic_partition in deleted:
            self.run(log, partial(self.checkpoints.files.forget, frozenset(deleted)))
            deleted.clear()

    def _add_entry(self, log: DiskLog, kind: int, content: bytes) -> None:
        """Add an entry that is not an append to the current flush batch."""
        self._open_batch().ends[log] = log.end_offset
        self._flush_batch.entries += entry_prefix(log.topic_partition, log.topic_id, kind)
        self._flush_batch.entries += pack_length(len(content)) + content

    def on_epoch(self, log: DiskLog) -> None:
        """Make a leader epoch durable that has no batch yet."""
        self.checkpoints.mark_dirty(log)
        if self._is_journaled:
            self._add_entry(log, EPOCH, pack_epoch(log.leader_epoch, log.end_offset))
            return
        write = partial(self._write_epochs, (log, log.epochs.to_text()))
        self.then(lambda: self._background.submit(write))  # the directory may be made by an operation

    def _write_epochs(self, item: tuple[DiskLog, str]) -> None:
        """On the background thread."""
        try:
            write_epochs(item)
        except OSError as exc:
            self._post_done(partial(self._go_offline, exc))

    def on_start(self, log: DiskLog, done: Callable[[], None]) -> None:
        """Make a new log start durable. Segments before it are removed by the next checkpoint, which is requested if needed."""
        self.checkpoints.mark_dirty(log)
        self.checkpoints.is_wanted |= log.can_drop
        if not self._is_journaled:
            self._defer(self._checkpoint_if_due)
            self.then(done)  # what the disk thread reads of the log start is known then
            return
        self._add_entry(log, START, pack_offset(log.log_start_offset))
        self._flush_batch.waiters.append(done)

    def _end_turn(self) -> None:
        if not self._flush_batch.is_open:
            return
        flush_batch = self._take_flush_batch()
        if self._may_wait(flush_batch):
            self._flusher.hand_over(flush_batch, wait_ms=self._owner_wait_ms)
            self._drain()
        else:
            self._flusher.hand_over(flush_batch)

    def _take_flush_batch(self) -> FlushBatch[DiskLog]:
        """Return the current flush batch and begin another one. A checkpoint that is due begins with the returned batch."""
        flush_batch, self._flush_batch = self._flush_batch, FlushBatch()
        is_too_long = self._flusher.journal_bytes >= _JOURNAL_LENGTH_MAX * self._journal_file_bytes
        self._bulk_bytes = 0 if is_too_long else BULK_BYTES
        for log in flush_batch.bulk:
            flush_batch.files |= log.unsynced_files()
        if self._is_checkpoint_due():
            checkpoint = self.checkpoints.begin(self.checkpoints.dirty)
            flush_batch.on_begun = lambda: self._background.submit(lambda: self._run_checkpoint(checkpoint))
        return flush_batch

    def _may_wait(self, flush_batch: FlushBatch[DiskLog]) -> bool:
        """
        Whether the owner waits for this batch: flushes are quick, it needs no segment flush, and no checkpoint is running whose
        flushes make others slow.
        """
        if (
            flush_batch.files
            or (self._is_journaled and self.checkpoints.running is not None)
            or not self._flusher.may_owner_wait
        ):
            return False
        self._owner_flushes += 1
        if self._owner_flushes == self._owner_flushes_max:
            self._call_soon_threadsafe(self._on_loop)
        return self._owner_flushes <= self._owner_flushes_max

    def _on_loop(self) -> None:
        self._owner_flushes = 0

    # Checkpoints

    def _checkpoint_if_due(self) -> None:
        """Begin a checkpoint that is due, after the operations so far."""
        if self._is_checkpoint_due():
            self._open_batch()

    def _is_checkpoint_due(self) -> bool:
        is_full = self._is_journaled and self._flusher.journal_bytes >= self._journal_file_bytes
        return self.offline_reason is None and self.checkpoints.is_due(is_journal_full=is_full)

    def want_checkpoint(self) -> None:
        """Request a checkpoint soon, even if nothing is appended."""
        if self.checkpoints.dirty:
            self.checkpoints.is_wanted = True
            self._defer(self._checkpoint_if_due)

    def _run_checkpoint(self, checkpoint: Checkpoint) -> None:
        """On the background thread."""
        try:
            checkpoint.write(self.checkpoints.files, self._sync_files, is_failed=self._flusher.is_log_failed)
        except Exception as exc:  # noqa: BLE001 -- a checkpoint that never ends would keep the journal growing
            self._post_done(partial(self._on_checkpoint_failed, exc))
        else:
            self._post_done(partial(self._end_checkpoint, checkpoint))

    def _on_checkpoint_failed(self, exc: Exception) -> None:
        self.checkpoints.running = None
        self._go_offline(exc)

    def _end_checkpoint(self, checkpoint: Checkpoint) -> None:
        for log, remove in self.checkpoints.end(checkpoint):
            self._background.submit(partial(self._remove_dropped, log, remove))

    def checkpoint_now(self, logs: Iterable[DiskLog], files: Iterable[Path]) -> None:
        """
        Checkpoint logs and further files; blocks until it has ended. At a start and at a stop, when no request is served.

        Raises:
            OSError: a file could not be flushed or written.
        """
        checkpoint = self.checkpoints.begin(logs, files)
        try:
            checkpoint.write(self.checkpoints.files, partial(self._sync_files, is_alone=True), is_alone=True)
        except OSError:
            self.checkpoints.running = None
            raise
        for log, remove in self.checkpoints.end(checkpoint):
            self._remove_dropped(log, remove)

    def _remove_dropped(self, log: DiskLog, remove: Callable[[], None]) -> None:
        """On any thread."""
        try:
            remove()
        except OSError as exc:
            self._post_done(partial(log.fail, exc))

    def _sync_files(self, files: set[Path], *, is_alone: bool = False) -> None:
        """Flush files; any thread may call this. The owner's thread decides about missing files before the flush counts."""
        for_each(sorted(files, reverse=True), self._sync_file, is_alone=is_alone)

    def _sync_file(self, path: Path) -> None:
        """On any thread."""
        try:
            fd = syscalls.open_shortly(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as exc:
            self._post_done(partial(self._on_missing, path, exc))
            return
        try:
            self._sync(fd)
        finally:
            os.close(fd)

    # Coming back

    def _post_done(self, action: Callable[[], None]) -> None:
        """On any thread."""
        self._done.append(action)
        self._post()

    def _post(self) -> None:
        """On any thread."""
        self._call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._done:
            self._done.popleft()()

    def _end_batch(self, flush_batch: FlushBatch[DiskLog]) -> None:
        self._forget(flush_batch)
        if self.offline_reason is None:
            self._advance(flush_batch.written_ends)
            self._advance(flush_batch.ends)
            for waiter in flush_batch.waiters:
                waiter()

    def _forget(self, flush_batch: FlushBatch[DiskLog]) -> None:
        """Account for the writes of a batch that has ended; nothing refers to its bytes any more but the tails."""
        for write in flush_batch.writes:
            self.tails.on_end(write.tail, write.end, write.cost, is_written=write.is_done)
            write.release()
        for log in flush_batch.ends:
            if log.flush_batch is not self._flush_batch:
                log.flush_batch = None

    def _advance(self, ends: dict[DiskLog, int]) -> None:
        if self.offline_reason is None:
            for log, end_offset in ends.items():
                log.advance(end_offset)

    def _go_offline(self, exc: Exception) -> None:
        """Take the store offline. A failed flush is not repeated: the content of the disk is unknown after it."""
        if self.offline_reason is None:
            self.offline_reason = f"{self._data_dir} is offline since a flush failed: {exc}; {errno_hint(exc)}"
            is_strange = not isinstance(exc, OSError)
            _log.error("store.offline path=%s error=%r", self._data_dir, str(exc), exc_info=exc if is_strange else None)
            self._on_offline(self.offline_reason)

    def flush(self, timeout_s: float | None = None) -> None:
        """
        Flush all appends and advance the high watermarks; blocks.

        Raises:
            UnavailableError: the flush failed, or lasts longer than `timeout_s`.
        """
        self._end_turn()
        if not self._flusher.wait(timeout_s):
            raise UnavailableError(f"the disk of {self._data_dir} has not answered for {timeout_s} s")
        if not self._is_journaled:
            self._flush_files()
        self._drain()
        if self.offline_reason is not None:
            raise UnavailableError(self.offline_reason)

    def _flush_files(self) -> None:
        running = [] if self.checkpoints.running is None else self.checkpoints.running.logs
        files: set[Path] = set()
        for log in [*self.checkpoints.dirty, *running]:
            files |= log.unsynced_files()
        try:
            self._sync_files(files)
        except OSError as exc:
            self._go_offline(exc)

    @property
    def flushes(self) -> tuple[int, float]:
        """The number of flushes and their total time in seconds."""
        return self._flusher.flushes, self._flusher.flush_time_s

    def submit(self, job: Callable[[], None]) -> None:
        """Run a long job on the background thread."""
        self._background.submit(job)

    def stop(self, timeout_s: float | None = None) -> None:
        """
        Finish all batches and jobs, and end the threads.

        Raises:
            UnavailableError: that lasts longer than `timeout_s`; the threads are left alone.
        """
        if not self._flusher.stop(timeout_s) or not self._background.stop(timeout_s):
            raise UnavailableError(f"the disk of {self._data_dir} has not answered for {timeout_s} s")
        self._is_direct = True
        self._drain()
        self._background.stop()  # a checkpoint that had ended has left files to remove
