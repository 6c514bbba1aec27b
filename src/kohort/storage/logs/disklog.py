"""The log of one partition on disk: its appends, which the disk thread makes durable, and its reads on other threads."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol
from uuid import UUID

from kohort.model.errors import OffsetOutOfRangeError, StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.batchset import Span, iter_spans, read_front
from kohort.storage.epochs import EPOCH_MAX
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import write_partition_metadata
from kohort.storage.files.errno_hints import errno_hint, is_out_of_files, may_pass
from kohort.storage.files.journal_format import BATCH, entry_prefix
from kohort.storage.log import LogConfig, ReadView
from kohort.storage.logs.disk_reads import LogView
from kohort.storage.logs.disk_segments import DiskSegments
from kohort.storage.logs.recovery import LoadedPartition
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.segment_file import SegmentFile
from kohort.storage.segments.snapshots import snapshot_path, snapshot_to_bytes
from kohort.storage.segments.tail import Tails

_log = logging.getLogger("kohort.storage")


class DiskQueue(Protocol):
    """
    The calls of the file system that logs need, which the disk thread makes in order; the flush coordinator implements it.

    During the start and after the end of the threads, the calls are made at once.

    Attributes:
        tails: the memory of the newest bytes of all logs.
        handles: the cache of the files that the disk thread writes to.
    """

    tails: Tails
    handles: FileHandleCache

    def run(self, log: "DiskLog | None", operation: Callable[[], None], /) -> None:
        """
        Run an operation, unless an earlier one of the log has failed. If it raises OSError, the log goes offline.

        Raises:
            OSError: the operation was run at once, and failed.
        """

    def then(self, action: Callable[[], None], /) -> None:
        """Run something on the owner's thread when all operations so far have been run."""

    def on_append(
        self, log: "DiskLog", segment: Segment, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span], /
    ) -> None:
        """Take an append into memory and into the flush batch that makes it durable."""

    def on_start(self, log: "DiskLog", done: Callable[[], None], /) -> None:
        """The log start was raised; `done` is called when the new log start is durable."""

    def on_epoch(self, log: "DiskLog", /) -> None:
        """A leader epoch began at the end of a log."""


class DiskLog(DiskSegments):
    """
    One partition's directory, which is made by the first append.

    Attributes:
        journal_prefix: the first bytes of this partition's journal entries.
        journal_batch_prefix: the same for entries of one batch whose header and records are separate pieces.
        flush_batch: the flush batch that `flush_batch_bytes` counts this log's bytes of; both belong to the flush coordinator.
        flushed_offset: the offset up to which `flush.messages` had the log flushed; belongs to the flush coordinator.
        flushed_ms: the time when `flush.messages` or `flush.ms` had the log flushed; belongs to the flush coordinator.
    """

    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        loaded: LoadedPartition,
        directory_id: str | None,
        handles: FileHandleCache,
        clock: Clock,
        queue: DiskQueue,
    ) -> None:
        super().__init__(
            directory, topic_partition, topic_id, config, loaded=loaded, handles=handles, tails=queue.tails
        )
        self._directory_id = directory_id
        self.assign_topic_id(topic_id)
        self.flush_batch: object = None
        self.flush_batch_bytes = 0
        self.flushed_offset = self.end_offset
        self.flushed_ms = clock.now_ms()
        self._clock = clock
        self._queue = queue
        self._on_append = queue.on_append
        self._told = ""
        """The reason of the last failed read that was logged."""
        self._find_base_of_log_start()

    # Writing

    def _write(self, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        tails = self._tails
        if tails.unwritten > tails.unwritten_max:
            raise UnavailableError(f"{self.topic_partition}: the disk has not written {tails.unwritten} bytes")
        segment = self._place(len(data) + len(rest), spans)
        self.end_offset = spans[-1][3] + 1
        self._on_append(self, segment, data, rest, spans)

    def _place(self, size: int, spans: list[Span]) -> Segment:
        """The segment that takes the next batches."""
        last_offset = spans[-1][3]
        max_timestamp_ms = spans[0][4] if len(spans) == 1 else max(span[4] for span in spans)
        active = self._active
        if active is None or active.must_roll(size, last_offset, max_timestamp_ms, self.limits, self._clock):
            active = self._roll()
        if max_timestamp_ms < 0:
            active.modified_ms = self._clock.now_ms()
        self._mark_unsynced(active)
        return active

    def _roll(self) -> Segment:
        try:
            return self._begin_segment()
        except OSError as exc:
            self._on_error(exc)

    def _begin_segment(self) -> Segment:
        """
        Begin a new segment at the end of the log; the first one makes the directory.

        Raises:
            OSError: the store is starting, and a file could not be written; the log has not changed.
        """
        active, run = self._active, self._queue.run
        segment = Segment(self.directory, self.end_offset, self.config, created_ms=self._clock.now_ms())
        segment.handles = self.handles
        segment.aborted.begin()
        segment.file = SegmentFile(segment.path, self._queue.handles)
        if active is None:
            run(self, self._make_directory)
        else:
            active.end_indexes()
            run(self, active.save_indexes)
            path = snapshot_path(self.directory, self.end_offset)
            run(self, partial(syscalls.write_file, path, snapshot_to_bytes(self.producers)))
            self._new_snapshots.add(path)
            if active.file is not None:
                run(self, active.file.finish)
        run(self, partial(segment.file.create, self.config.segment_bytes if self.config.preallocate else 0))
        if active is not None:
            active.modified_ms = self._clock.now_ms()
            self._queue.then(active.release)
            self._mark_unsynced(active)  # its indexes
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._has_new_files = True
        return segment

    def _make_directory(self) -> None:
        """On the disk thread."""
        syscalls.ensure_directory(self.directory)
        write_partition_metadata(self.directory, self.topic_id, self._directory_id)

    def _on_error(self, exc: OSError) -> NoReturn:
        """Go offline. If the process has no file descriptor left, nothing has changed, and only this request fails."""
        if not is_out_of_files(exc):
            self._go_offline(exc)
        self._say_once(logging.WARNING, "log.no_file_descriptor", str(exc))
        raise UnavailableError(f"{self.topic_partition} cannot open a file: {exc}; {errno_hint(exc)}") from exc

    def _say_once(self, level: int, event: str, reason: str) -> None:
        """Log an error that every request may meet, and again if the reason changes."""
        if reason == self._told:
            level = logging.DEBUG
        self._told = reason
        _log.log(level, event + " partition=%s error=%r", self.topic_partition, reason)

    def _on_read_error(self, exc: OSError) -> NoReturn:
        """
        Fail this request: a failed read changes nothing, and the next one may succeed. It is logged again if the reason
        changes. A file that is missing or cannot be opened takes the partition offline.
        """
        if not may_pass(exc):
            self._on_error(exc)
        self._say_once(logging.ERROR, "log.read_failed", str(exc))
        raise UnavailableError(f"{self.topic_partition} cannot be read: {exc}; look after the disk") from exc

    def _go_offline(self, exc: OSError) -> NoReturn:
        """Take this partition offline until the next start; other partitions are not affected."""
        refusal = f"{self.topic_partition} is offline since {self.directory} failed: {exc}; {errno_hint(exc)}"
        _log.error("log.offline partition=%s error=%r hint=%r", self.topic_partition, str(exc), errno_hint(exc))
        self._refuse(refusal)
        raise UnavailableError(refusal) from exc

    def restore(self, batches: bytes) -> int:
        """
        Append the batches of a journal entry that the segments lack.

        Returns:
            The bytes that were appended.

        Raises:
            OffsetOutOfRangeError: the entry begins behind the end of the log: an earlier batch is lost.
        """
        restored_bytes = 0
        for start, size, base_offset, last_offset, max_timestamp_ms in iter_spans(batches):
            if base_offset < self.end_offset:
                continue
            if base_offset > self.end_offset:
                raise OffsetOutOfRangeError(f"the journal goes on at {base_offset}, the log ends at {self.end_offset}")
            data = batches[start : start + size]
            leader_epoch = read_front(data)[2]
            self.epochs.assign(leader_epoch, base_offset)
            self.leader_epoch = max(self.leader_epoch, leader_epoch)
            spans = [(0, size, base_offset, last_offset, max_timestamp_ms)]
            segment = self._place(size, spans)
            try:
                segment.append(data, spans, index_interval_bytes=self.config.index_interval_bytes)
            except OSError as exc:
                self._on_error(exc)
            self.end_offset = last_offset + 1
            self._update_producers(data, spans)
            restored_bytes += size
        self.high_watermark = self.end_offset
        self.producers.on_high_watermark(self.end_offset)
        return restored_bytes

    def _persist_epoch(self) -> None:
        """Make the directory if needed; epoch 0 of an empty log needs none, because every log begins with it."""
        if self._active is None and self.leader_epoch == 0:
            return
        self._ensure_directory()
        self._queue.on_epoch(self)

    def _ensure_directory(self) -> None:
        if self._active is None:
            self._roll()

    def restore_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Begin an epoch from the journal at its start offset, or at the end of the log if that is less."""
        self._ensure_directory()
        start_offset = min(start_offset, self.end_offset)
        self.epochs.assign(leader_epoch, start_offset)
        self.leader_epoch = self.epochs.latest

    def bump_epoch_after_loss(self) -> None:
        """
        Begin a new leader epoch after records may have been lost that consumers had read. A consumer that read past the
        truncation point detects the truncation by the new epoch, and does not miss the records that get the same offsets.

        Source: KIP-101, KIP-320; there every start is an election.
        """
        if self._active is not None and 0 <= self.leader_epoch < EPOCH_MAX:
            self.leader_epoch += 1
            self.epochs.assign(self.leader_epoch, self.end_offset)

    def _add_aborted(self, aborted: AbortedTxn) -> None:
        assert self._active is not None, "a batch was written"
        try:
            self._queue.run(self, self._active.aborted.add(aborted))
        except OSError as exc:
            self._go_offline(exc)

    # Reading

    def view(self) -> LogView:
        if self.refusal is not None:
            raise UnavailableError(self.refusal)
        return LogView(self)

    def read_failed(self, view: ReadView, exc: OSError) -> bool:
        is_current = isinstance(view, LogView) and view.generation == self.generation
        if is_current and self.refusal is None:
            with suppress(UnavailableError):
                self._on_read_error(exc)
        return not is_current and self.refusal is None

    # Deleting

    def _persist_start(self, done: Callable[[], None]) -> None:
        self._find_base_of_log_start()
        self._queue.on_start(self, done)

    def _find_base_of_log_start(self) -> None:
        """Let the disk thread read what the last stable offset is if an open transaction begins before the log start."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.log_start_offset:
            return
        view = LogView(self)
        found: list[int] = []

        def read() -> None:
            with suppress(OSError, StorageError):
                found.append(view.base_of_log_start())
            view.close()

        def take() -> None:
            if found:
                self._found_base = view.log_start_offset, found[0]

        self._queue.run(self, read)
        self._queue.then(take)

    def base_of_log_start(self) -> int:
        """Until it is read, what was known before: the last stable offset does not move back."""
        log_start_offset, base_offset = self._found_base
        if log_start_offset == self.log_start_offset:
            return base_offset
        return max(self.producers.first_unstable_offset or 0, base_offset)

    def restore_start(self, offset: int) -> None:
        """Raise the log start to an offset from the journal, at most to the end of the log."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.end_offset))
        self.epochs.truncate_from_start(self.log_start_offset)
        self._find_base_of_log_start()

    def fail(self, exc: OSError) -> None:
        """Go offline: the content of the files is not known any more."""
        with suppress(UnavailableError):
            self._go_offline(exc)

    # Durability

    def update_config(self, config: LogConfig) -> None:
        """Set the topic's configuration; a log that was found on disk has the default until then."""
        self.config = config
        if self._active is not None:
            self._active.limit_indexes(config.segment_index_bytes)

    def assign_topic_id(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.journal_prefix = entry_prefix(self.topic_partition, topic_id)
        self.journal_batch_prefix = entry_prefix(self.topic_partition, topic_id, BATCH)

    def close(self, refusal: str) -> None:
        if self.refusal is None:
            self.refusal = refusal
        self.generation += 1
        if self._active is not None and self._active.file is not None:
            self._queue.run(None, self._active.file.finish_quietly)
        for segment in self._segments:
            segment.close()
            self._forget_memory(segment)
