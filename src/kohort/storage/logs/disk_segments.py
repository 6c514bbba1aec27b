"""The segments of one partition on disk: the files that the next flush has to cover, and segments that leave the log."""

import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import PARTITION_METADATA
from kohort.storage.log import LogConfig
from kohort.storage.logs.disk_reads import DiskReads
from kohort.storage.logs.recovery import LoadedPartition
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.snapshots import write_snapshot
from kohort.storage.segments.tail import Tails

_log = logging.getLogger("kohort.storage")


class DiskSegments(DiskReads):
    """
    The segments of one partition's directory.

    Attributes:
        handles: the cache of open files of all segments.
        is_dirty: whether the log changed since the last checkpoint began.
        is_deleted: whether the log was removed from the store.
        files_lock: held while files of dropped segments, or the directory of a deleted log, are renamed.
    """

    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        loaded: LoadedPartition,
        handles: FileHandleCache,
        tails: Tails,
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
        self.handles = handles
        self.is_dirty = False
        self.is_deleted = False
        self.files_lock = Lock()
        self._tails = tails
        self.generation = 0
        """How often segments were removed or replaced."""
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
    def has_segments(self) -> bool:
        return self._active is not None

    @property
    def first_base_offset(self) -> int:
        return self._bases[0] if self._bases else self.log_start_offset

    # Durability

    def _mark_unsynced(self, segment: Segment) -> None:
        if not segment.is_unsynced:
            segment.is_unsynced = True
            self._unsynced.append(segment)
            self._has_unwritten_indexes = True

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
            if segment.file is not None and not segment.written_bytes:
                continue
            try:
                found_bytes = segment.path.stat().st_size
            except OSError as exc:
                return f"{segment.path} cannot be found: {exc.strerror}"
            if found_bytes < segment.written_bytes:
                return f"{segment.path} has {found_bytes} of {segment.written_bytes} bytes"
        return None

    def owns(self, path: Path) -> bool:
        """Whether a file or directory should exist. A log without an append has no files."""
        if self.is_deleted or self._active is None or not path.is_relative_to(self.directory):
            return False
        return path == self.directory or any(segment.path == path for segment in self._segments)

    # Segments that leave the log

    @property
    def can_drop(self) -> bool:
        """Whether the first segment lies wholly before the log start."""
        return len(self._bases) > 1 and self._bases[1] <= self.log_start_offset

    def drop_before(self, start_offset: int) -> Callable[[], None] | None:
        """
        Remove the segments before an offset from the log.

        Returns:
            Removes their files, on any thread, unless the log was deleted meanwhile; raises OSError. None if there are none.
        """
        count = min(bisect_right(self._bases, start_offset), len(self._bases)) - 1
        if count <= 0:
            return None
        dropped = self._segments[:count]
        for segment in dropped:
            self._forget_memory(segment)
        del self._segments[:count], self._bases[:count]
        self.generation += 1
        self._unsynced = [segment for segment in self._unsynced if segment not in dropped]
        _log.info("log.dropped partition=%s segments=%d start_offset=%d", self.topic_partition, count, start_offset)
        for segment in dropped:
            segment.release()
        return partial(self._remove_files, dropped)

    def _remove_files(self, dropped: list[Segment]) -> None:
        """On any thread."""
        renamed: list[Path] = []
        self._change_files(lambda: renamed.extend(path for segment in dropped for path in segment.rename_to_stray()))
        syscalls.remove_files(renamed)

    def _change_files(self, change: Callable[[], None]) -> None:
        """
        Rename or remove files of segments, on any thread, unless the log was deleted: its directory, which was renamed, may
        have a successor with files of the same names.
        """
        with self.files_lock:
            if not self.is_deleted:
                change()

    def begin_swap(self, replaces: list[int], cleaned: Segment) -> list[Segment] | None:
        """
        Put a cleaned segment, whose files have their `.swap` names, in the place of other segments in memory.

        Args:
            replaces: base offsets of the replaced segments.

        Returns:
            The replaced segments, for `swap_files`; None if one is not in the log any more, and nothing was changed.
        """
        first = bisect_right(self._bases, replaces[0]) - 1
        end = first + len(replaces)
        if first < 0 or self._bases[first:end] != replaces or end >= len(self._bases):
            return None
        old = self._segments[first:end]
        for segment in old:
            self._forget_memory(segment)
            segment.release()
        self._segments[first:end], self._bases[first:end] = [cleaned], [cleaned.base_offset]
        self.generation += 1
        cleaned.modified_ms = old[-1].modified_ms
        cleaned.attach(self.handles, self.epochs)
        self._unsynced = [segment for segment in self._unsynced if segment not in old]
        return old

    def swap_files(self, old: list[Segment], cleaned: Segment) -> None:
        """
        Rename the files of replaced segments and of the cleaned one, each step durable before the next. On the background
        thread, which removes dropped segments later.

        Raises:
            OSError: a file could not be renamed or flushed; the next start finishes the swap.
        """
        renamed: list[Path] = []

        def rename_old() -> None:
            for segment in old:
                renamed.extend(segment.rename_to_stray(keeps_snapshot=segment.base_offset == cleaned.base_offset))

        self._change_files(rename_old)
        syscalls.sync_directory(self.directory)
        self._change_files(cleaned.take_final_names)
        syscalls.sync_directory(self.directory)
        syscalls.remove_files(renamed)

    def discard(self, cleaned: Segment) -> None:
        """Remove the files of a cleaned segment that was not put in place. On the background thread."""
        self._change_files(lambda: syscalls.remove_files(cleaned.files()))

    def _forget_memory(self, segment: Segment) -> None:
        if segment.tail is not None:
            self._tails.forget(segment.tail)
