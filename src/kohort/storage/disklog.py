"""The log of one partition on disk: its segments, and the files that the next flush has to cover."""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol
from uuid import UUID

from kohort.model.errors import CorruptError, OffsetOutOfRangeError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.base import LogBase
from kohort.storage.batchset import Span, iter_spans, read_front
from kohort.storage.cleaning.retention import count_expired
from kohort.storage.durability import syscalls
from kohort.storage.durability.checkpoint_formats import PARTITION_METADATA, write_partition_metadata
from kohort.storage.durability.journal import BATCH, entry_prefix
from kohort.storage.durability.recovery import LoadedPartition
from kohort.storage.epochs import EPOCH_MAX
from kohort.storage.errno_hints import errno_hint, is_out_of_files
from kohort.storage.log import NO_TIMESTAMP, LogConfig
from kohort.storage.producers import AbortedTxn
from kohort.storage.segments.aborted import find_overlapping
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.segment import Segment
from kohort.storage.snapshots import write_snapshot
from kohort.storage.timestamps import newest_from
from kohort.wire.batches import check_crc

_log = logging.getLogger("kohort.storage")


class AppendListener(Protocol):
    """Called with each append; the store writes the journal or advances the high watermark."""

    def __call__(self, log: "DiskLog", data: bytearray, rest: bytes | memoryview, /) -> None: ...


class StartListener(Protocol):
    """Called when the log start was raised; the store calls `done` when the new log start is durable."""

    def __call__(self, log: "DiskLog", done: Callable[[], None], /) -> None: ...


class EpochListener(Protocol):
    """Called when a leader epoch began at the end of a log."""

    def __call__(self, log: "DiskLog", /) -> None: ...


class DiskLog(LogBase):
    """
    One partition's directory, which is made by the first append.

    Attributes:
        handles: the cache of open files of all segments.
        journal_prefix: the first bytes of this partition's journal entries.
        journal_batch_prefix: the same for entries of one batch whose header and records are separate pieces.
        flush_batch: the flush batch that `flush_batch_bytes` counts this log's bytes of; both belong to the flush coordinator.
        flushed_offset: the offset up to which `flush.messages` had the log flushed; belongs to the flush coordinator.
        flushed_ms: the time when `flush.messages` or `flush.ms` had the log flushed; belongs to the flush coordinator.
        is_dirty: whether the log changed since the last checkpoint began.
        is_deleted: whether the log was removed from the store.
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
        on_append: AppendListener,
        on_start: StartListener,
        on_epoch: EpochListener,
    ) -> None:
        super().__init__(
            topic_partition,
            topic_id,
            config,
            epochs=loaded.epochs,
            producers=loaded.producers,
            log_start_offset=loaded.log_start_offset,
            end_offset=loaded.end_offset,
        )
        self.directory = directory
        self._directory_id = directory_id
        self.assign_topic_id(topic_id)
        self.flush_batch: object = None
        self.flush_batch_bytes = 0
        self.flushed_offset = self.end_offset
        self.flushed_ms = clock.now_ms()
        self.is_dirty = False
        self.is_deleted = False
        self._clock = clock
        self._on_append = on_append
        self._on_start = on_start
        self._on_epoch = on_epoch
        self.handles = handles
        self._segments = loaded.segments
        for segment in loaded.segments:
            segment.attach(handles, self.epochs)
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1] if loaded.segments else None
        self._unsynced: list[Segment] = []
        self._syncing: set[Path] = set()
        """Files that the running checkpoint has to flush."""
        self._has_new_files = False
        self._new_snapshots: set[Path] = set()
        self._has_unwritten_indexes = bool(loaded.scanned)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def has_segments(self) -> bool:
        return self._active is not None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """By rising base offset; the last one is active."""
        return tuple(self._segments)

    @property
    def first_base_offset(self) -> int:
        return self._bases[0] if self._bases else self.log_start_offset

    # Writing

    def _write(self, data: bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        self._put(data, rest, spans)
        self._on_append(self, data, rest)

    def _put(self, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        last_offset = spans[-1][3]
        max_timestamp_ms = spans[0][4] if len(spans) == 1 else max(span[4] for span in spans)
        size = len(data) + len(rest)
        active = self._active
        try:
            if active is None or active.must_roll(size, last_offset, max_timestamp_ms, self.config, self._clock):
                active = self._roll()
            active.append(data, spans, rest=rest, index_interval_bytes=self.config.index_interval_bytes)
        except OSError as exc:
            self._on_error(exc)
        self._mark_unsynced(active)
        self.end_offset = last_offset + 1

    def _mark_unsynced(self, segment: Segment) -> None:
        if not segment.is_unsynced:
            segment.is_unsynced = True
            self._unsynced.append(segment)
            self._has_unwritten_indexes = True

    def _roll(self) -> Segment:
        """
        Begin a new segment at the end of the log; the first one makes the directory.

        Raises:
            OSError: a file could not be written; the log has not changed.
        """
        active = self._active
        if active is None:
            syscalls.ensure_directory(self.directory)
            write_partition_metadata(self.directory, self.topic_id, self._directory_id)
        segment = Segment(self.directory, self.end_offset, self.config, created_ms=self._clock.now_ms())
        segment.handles = self.handles
        segment.create(preallocated_bytes=self.config.segment_bytes if self.config.preallocate else 0)
        if active is not None:
            try:
                active.write_indexes()
                self._new_snapshots.add(write_snapshot(self.directory, self.end_offset, self.producers))
            except OSError:
                segment.close()
                syscalls.remove_files((segment.path,))
                raise
            active.release()
            self._mark_unsynced(active)  # its indexes
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._has_new_files = True
        return segment

    def _on_error(self, exc: OSError) -> NoReturn:
        """Go offline. If the process has no file descriptor left, nothing has changed, and only this request fails."""
        if not is_out_of_files(exc):
            self._go_offline(exc)
        _log.warning("log.no_file_descriptor partition=%s error=%r", self.topic_partition, str(exc))
        raise UnavailableError(f"{self.topic_partition} cannot open a file: {exc}; {errno_hint(exc)}") from exc

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
            span = (0, size, base_offset, last_offset, max_timestamp_ms)
            self._put(data, b"", [span])
            self._update_producers(data, [span])
            restored_bytes += size
        self.high_watermark = self.end_offset
        self.producers.on_high_watermark(self.end_offset)
        return restored_bytes

    def _persist_epoch(self) -> None:
        """Make the directory if needed; epoch 0 of an empty log needs none, because every log begins with it."""
        if self._active is None and self.leader_epoch == 0:
            return
        self._ensure_directory()
        self._on_epoch(self)

    def _ensure_directory(self) -> None:
        if self._active is None:
            try:
                self._roll()
            except OSError as exc:
                self._on_error(exc)

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
            self._active.aborted.append(aborted)
        except OSError as exc:
            self._go_offline(exc)

    # Reading

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        self._check_readable(offset)
        if up_to is None or up_to > self.end_offset:
            up_to = self.end_offset
        if offset >= up_to:
            return b""
        try:
            return self._read(offset, bytes_max, up_to)
        except OSError as exc:
            self._on_error(exc)

    def _read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        index = max(bisect_right(self._bases, offset) - 1, 0)
        last = len(self._bases) - 1
        while index <= last:
            end_offset = self.end_offset if index == last else self._bases[index + 1]
            data = self._segments[index].read(offset, bytes_max=bytes_max, up_to=up_to, end_offset=end_offset)
            if data or end_offset > up_to:
                return data
            index += 1
        return b""

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        if not data:
            return []
        offset = max(offset, read_front(data)[0])
        index = max(bisect_right(self._bases, offset) - 1, 0)
        if not any(segment.aborted.entries for segment in self._segments[index:]):
            return []
        upper = self._segments[index].upper_bound(offset, len(data))
        if upper is None:
            upper = self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset
        found: list[AbortedTxn] = []
        for segment in self._segments[index:]:
            overlap, is_complete = find_overlapping(segment.aborted.entries, offset, upper)
            found += overlap
            if is_complete:
                break
        return found

    def _batches_at_least(self, timestamp_ms: int) -> Iterator[bytes]:
        """Segments without such a batch are not read, and of the other segments only the headers."""
        try:
            for segment in tuple(self._segments):
                if segment.max_timestamp[0] >= timestamp_ms:
                    yield from self._batches_of(segment, timestamp_ms)
        except OSError as exc:
            self._on_error(exc)

    def _batches_of(self, segment: Segment, timestamp_ms: int) -> Iterator[bytes]:
        """
        Raises:
            CorruptError: a batch on the way is damaged. A batch is passed over because of the largest timestamp in its header,
                so its checksum has to be right; the time index keeps the way short.
        """
        start = segment.position_of(max(segment.time_index.offset_for(timestamp_ms), self.log_start_offset))
        following = bisect_right(self._bases, segment.base_offset)
        end_offset = self._bases[following] if following < len(self._bases) else self.end_offset
        for span in segment.walk(start):
            position, size, _, _, max_timestamp_ms = span
            if max_timestamp_ms >= timestamp_ms:
                segment.check_neighbours(span, end_offset)
                yield segment.read_at(position, size)
            elif not check_crc(segment.read_at(position, size)):
                raise CorruptError(f"{segment.path} is damaged at byte {position}: the checksum of the batch is wrong")

    def _newest(self) -> tuple[int, int]:
        newest = (self._newest_of(segment) for segment in self._segments)
        return max(newest, key=lambda entry: entry[0], default=(NO_TIMESTAMP, self.log_start_offset))

    def _newest_of(self, segment: Segment) -> tuple[int, int]:
        """`max_timestamp` of a segment; if the log starts within the segment, of the records from the log start on."""
        start_offset = self.log_start_offset
        if segment.base_offset >= start_offset or segment.max_timestamp[0] <= NO_TIMESTAMP:
            return segment.max_timestamp
        newest = NO_TIMESTAMP, start_offset
        try:
            for position, size, base_offset, last_offset, max_timestamp_ms in segment.walk(
                segment.position_of(start_offset)
            ):
                timestamp_ms = max_timestamp_ms
                if base_offset < start_offset:
                    timestamp_ms = newest_from(segment.read_at(position, size), start_offset)
                if timestamp_ms > newest[0]:
                    newest = timestamp_ms, last_offset
        except OSError as exc:
            self._on_error(exc)
        return newest

    # Deleting

    def _persist_start(self, done: Callable[[], None]) -> None:
        self._on_start(self, done)

    def restore_start(self, offset: int) -> None:
        """Raise the log start to an offset from the journal, at most to the end of the log."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.end_offset))
        self.epochs.truncate_from_start(self.log_start_offset)

    @property
    def can_drop(self) -> bool:
        """Whether the first segment lies wholly before the log start."""
        return len(self._bases) > 1 and self._bases[1] <= self.log_start_offset

    def drop_before(self, start_offset: int) -> list[Path]:
        """
        Remove the segments before an offset from the log, and rename their files; the caller removes these.

        If a file cannot be renamed, the log goes offline.
        """
        count = min(bisect_right(self._bases, start_offset), len(self._bases)) - 1
        if count <= 0:
            return []
        dropped = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._unsynced = [segment for segment in self._unsynced if segment not in dropped]
        _log.info("log.dropped partition=%s segments=%d start_offset=%d", self.topic_partition, count, start_offset)
        try:
            return [path for segment in dropped for path in segment.rename_to_stray()]
        except OSError as exc:
            self.fail(exc)
            return []

    def apply_retention(self, now_ms: int) -> None:
        sizes = [segment.size_bytes for segment in self._segments]
        ends = [*self._bases[1:], self.end_offset]
        count = count_expired(
            sizes, ends, lambda index: self._segments[index].newest_ms, self.config, self.high_watermark, now_ms
        )
        if count == 0:
            return
        if count == len(self._segments):
            try:
                self._roll()
            except OSError as exc:
                self._on_error(exc)
        if ends[count - 1] > self.log_start_offset:
            self.delete_before(ends[count - 1])

    # Cleaning

    def begin_swap(self, replaces: list[int], cleaned: Segment) -> list[Path] | None:
        """
        Put a cleaned segment, whose files have their `.swap` names, in the place of other segments; rename the files of these.

        Args:
            replaces: base offsets of the replaced segments.

        Returns:
            The renamed files; None if a replaced segment is not in the log any more, and nothing was changed.

        Raises:
            UnavailableError: the files could not be renamed; the next start finishes the swap.
        """
        first = bisect_right(self._bases, replaces[0]) - 1
        end = first + len(replaces)
        if first < 0 or self._bases[first:end] != replaces or end >= len(self._bases):
            return None
        old = self._segments[first:end]
        self._segments[first:end], self._bases[first:end] = [cleaned], [cleaned.base_offset]
        cleaned.attach(self.handles, self.epochs)
        self._unsynced = [segment for segment in self._unsynced if segment not in old]
        try:
            return [
                path
                for segment in old
                for path in segment.rename_to_stray(keeps_snapshot=segment.base_offset == cleaned.base_offset)
            ]
        except OSError as exc:
            self._go_offline(exc)

    def end_swap(self, cleaned: Segment) -> None:
        """
        Give the files of a cleaned segment their final names, the `.log` file first, unless the segment was deleted meanwhile.

        Raises:
            UnavailableError: the files could not be renamed; the next start finishes the swap.
        """
        if self.is_deleted or cleaned not in self._segments:
            return
        paths = cleaned.files()
        cleaned.rename_with("")
        try:
            for path, final in zip(paths, cleaned.files(), strict=True):
                if path.exists():
                    syscalls.rename(path, final)
        except OSError as exc:
            self._go_offline(exc)

    def location_of(self, offset: int) -> str:
        index = max(bisect_right(self._bases, offset) - 1, 0)
        return str(self._segments[index].path if self._segments else self.directory)

    def owns(self, path: Path) -> bool:
        """Whether a file or directory should exist. A log without an append has no files."""
        if self.is_deleted or self._active is None or not path.is_relative_to(self.directory):
            return False
        return path == self.directory or any(segment.path == path for segment in self._segments)

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

    def unsynced_files(self) -> set[Path]:
        """The files that have to be flushed for the data to be durable, and the directories of new files."""
        files = {segment.path for segment in self._unsynced} | self._syncing
        if self._has_new_files:
            files |= {self.directory / PARTITION_METADATA, self.directory, self.directory.parent}
        return files

    def begin_checkpoint(self) -> set[Path]:
        """The files that a checkpoint has to flush now: data, new directories, indexes of inactive segments, snapshots."""
        files = self.unsynced_files()
        for segment in self._unsynced:
            segment.is_unsynced = False
            if segment is not self._active:
                files |= {segment.index.path, segment.time_index.path}
            if segment.aborted.is_unsynced:
                segment.aborted.is_unsynced = False
                files |= {segment.aborted.path, self.directory}
        files |= self._new_snapshots
        self._unsynced, self._new_snapshots = [], set()
        self._has_new_files = self.is_dirty = False
        self._syncing = files
        return files

    def end_checkpoint(self) -> None:
        """Note that the files of the last checkpoint are flushed."""
        self._syncing = set()

    def write_active_indexes(self) -> set[Path]:
        """Write the indexes of the active segment and a snapshot, as a clean stop needs them; returns the files to flush."""
        if self._active is None or not self._has_unwritten_indexes:
            return set()
        self._active.write_indexes()
        snapshot = write_snapshot(self.directory, self.end_offset, self.producers)
        return {self._active.index.path, self._active.time_index.path, snapshot, self.directory}

    def find_missing_data(self) -> str | None:
        """A sentence about a segment file that is missing or shorter than the data in it; None if all files are there."""
        for segment in self._segments:
            try:
                found_bytes = segment.path.stat().st_size
            except OSError as exc:
                return f"{segment.path} cannot be found: {exc.strerror}"
            if found_bytes < segment.size_bytes:
                return f"{segment.path} has {found_bytes} of {segment.size_bytes} bytes"
        return None

    def close(self, refusal: str) -> None:
        if self.refusal is None:
            self.refusal = refusal
        if self._active is not None:
            with suppress(OSError):
                self._active.give_back_space()
        for segment in self._segments:
            segment.close()
