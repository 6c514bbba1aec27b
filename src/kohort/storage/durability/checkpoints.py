"""
The checkpoints of one data directory: what changed since the last one, when the next one is due, the offsets of both, and
Kafka's checkpoint files of recovery points, high watermarks and log start offsets by partition.

The files hold partition names without topic ids. So the entries of a deleted partition are removed before a partition of the
same name is created: after a crash the new log would otherwise start at the old log start, and lose its records below.

`FlushCoordinator` lets the background thread write a checkpoint. Not thread-safe: call from the owner's thread. Exceptions are
marked.

Source: Kafka OffsetCheckpointFile; LogManager.asyncDelete, which writes the checkpoints anew at each deletion.
"""

import logging
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.durability.parallel import for_each
from kohort.storage.epochs import CHECKPOINT_NAME
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    is_empty,
    offsets_to_text,
    read_offsets,
    write_atomically,
)
from kohort.storage.files.checksums import seal
from kohort.storage.logs.disklog import DiskLog

_UNFLUSHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Without a journal: the unflushed bytes at which a checkpoint begins, because a recovery reads all of them."""


LOG_STARTS_LOSS: Final = "records that were deleted may be there again"

_log = logging.getLogger("kohort.storage")

Offsets: TypeAlias = dict[TopicPartition, int]


class CheckpointFiles:
    """
    The checkpoint files of one data directory. A lock lets one thread write at a time.

    The file of log start offsets is written first, each time: a start that finds recovery points without it says that it is
    missing, and a crash between two files must not look like that.

    Attributes:
        has_points: whether the file of recovery points exists, be it without entries. A directory with a journal has it, unless
            the file was removed by hand.
    """

    def __init__(self, data_dir: Path) -> None:
        self.has_points = False
        self._data_dir = data_dir
        self._writing = threading.Lock()
        self._offsets: Offsets = {}
        self._start_offsets: Offsets = {}

    def read(self) -> tuple[Offsets, Offsets]:
        """
        Read recovery points and log start offsets.

        Raises:
            CorruptError: a file is not a checkpoint file.
        """
        path = self._data_dir / RECOVERY_POINTS
        self._offsets = read_offsets(path)
        self.has_points = path.exists() and path.stat().st_size > 0
        starts = self._data_dir / LOG_START_OFFSETS
        if self._offsets and is_empty(starts):
            _log.error("store.log_starts_missing error=%r", f"{starts} is missing or empty: {LOG_STARTS_LOSS}")
        self._start_offsets = read_offsets(starts)
        return dict(self._offsets), dict(self._start_offsets)

    def begin(self) -> None:
        """
        Write a file of recovery points without entries, unless there is one.

        Raises:
            OSError: the file could not be written.
        """
        if not self.has_points:
            self._write(LOG_START_OFFSETS, self._start_offsets)
            self._write(RECOVERY_POINTS, self._offsets)
            self.has_points = True

    def write(self, offsets: Offsets, start_offsets: Offsets, *, deleted: Container[TopicPartition] = ()) -> None:
        """
        Write the files of a checkpoint, without the partitions that were deleted since it began.

        Raises:
            OSError: a file could not be written; each file has its old or its new content.
        """
        with self._writing:
            self._offsets, self._start_offsets = _without(offsets, deleted), _without(start_offsets, deleted)
            self._write(LOG_START_OFFSETS, self._start_offsets)
            self._write(RECOVERY_POINTS, self._offsets)
            self._write(HIGH_WATERMARKS, self._offsets)

    def forget(self, deleted: Container[TopicPartition]) -> None:
        """
        Remove partitions from the files that a start reads.

        Raises:
            OSError: a file could not be written, and may still have the partitions.
        """
        with self._writing:
            offsets, start_offsets = _without(self._offsets, deleted), _without(self._start_offsets, deleted)
            if len(start_offsets) < len(self._start_offsets):
                self._write(LOG_START_OFFSETS, start_offsets)
                self._start_offsets = start_offsets
            if len(offsets) < len(self._offsets):
                self._write(RECOVERY_POINTS, offsets)
                self._offsets = offsets

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        write_atomically(self._data_dir / name, offsets_to_text(offsets))


def _without(offsets: Offsets, deleted: Container[TopicPartition]) -> Offsets:
    return {key: offset for key, offset in offsets.items() if key not in deleted}


class Checkpoint:
    """
    A checkpoint: it flushes files, and then writes recovery points, log start offsets and leader epochs, as they were when it
    began; appends continue meanwhile.

    Args:
        logs: the logs to flush.
        files: further files to flush.
        offsets, start_offsets: the recovery points and log start offsets of the last checkpoint.

    Attributes:
        files: files written since the last checkpoint, and directories of new files.
        epochs: logs whose leader epochs changed, with the new content of `leader-epoch-checkpoint`.
        offsets: recovery points of all partitions.
        start_offsets: log start offsets of partitions whose first segment begins before the log start.
        deleted: partitions that were deleted since; they are left out of the checkpoint files.
    """

    def __init__(
        self, logs: Iterable[DiskLog], files: Iterable[Path], offsets: Offsets, start_offsets: Offsets
    ) -> None:
        self.logs = [log for log in logs if log.has_segments and not log.is_deleted]
        self.files = set(files)
        self.epochs: list[tuple[DiskLog, str]] = []
        self.offsets, self.start_offsets = offsets.copy(), start_offsets.copy()
        self.deleted: set[TopicPartition] = set()
        self._offsets_before = offsets.copy()
        for log in self.logs:
            self.files |= log.begin_checkpoint()
            self.offsets[log.topic_partition] = log.end_offset
            if log.log_start_offset > log.first_base_offset:
                self.start_offsets[log.topic_partition] = log.log_start_offset
            if log.epochs.is_dirty:
                log.epochs.is_dirty = False
                self.epochs.append((log, log.epochs.to_text()))

    def write(
        self,
        written: CheckpointFiles,
        sync_files: Callable[[set[Path]], None],
        *,
        is_failed: Callable[[DiskLog], bool] = lambda _log: False,
        is_alone: bool = False,
    ) -> None:
        """
        Flush the files, then write the checkpoint files. Any thread may call this.

        Args:
            is_failed: whether a write of a log has failed: its data up to `offsets` may not be in its files.
            is_alone: whether no other thread needs the interpreter.

        Raises:
            OSError: a file could not be flushed or written.
        """
        for log in self.logs:
            if is_failed(log):
                self._keep_point(log.topic_partition)
        for_each(self.epochs, write_epochs, is_alone=is_alone)
        sync_files(self.files | {log.directory for log, _ in self.epochs})
        written.write(self.offsets, self.start_offsets, deleted=self.deleted)

    def _keep_point(self, topic_partition: TopicPartition) -> None:
        """Leave the recovery point of a partition as it was."""
        if topic_partition in self._offsets_before:
            self.offsets[topic_partition] = self._offsets_before[topic_partition]
        else:
            self.offsets.pop(topic_partition, None)


def write_epochs(item: tuple[DiskLog, str]) -> None:
    """
    Write a log's `leader-epoch-checkpoint`, without flushing its directory. Any thread may call this.

    Raises:
        OSError: the file could not be written.
    """
    log, text = item
    path = log.directory / CHECKPOINT_NAME
    temporary = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):  # the partition was deleted meanwhile
        syscalls.write_file(temporary, seal(text).encode(), is_synced=True)
        if log.is_deleted:  # the directory of that name belongs to a new partition
            syscalls.remove(temporary)
        else:
            syscalls.rename(temporary, path)


class Checkpoints:
    """
    Attributes:
        offsets: the recovery points of the last checkpoint, of all partitions on disk.
        start_offsets: the log start offsets of the last checkpoint.
        files: the files with these offsets.
        dirty: the logs that changed since the last checkpoint began.
        dirty_bytes: without a journal, the bytes that were appended since.
        is_wanted: whether a checkpoint was requested.
        running: the checkpoint that is being written.
        deleted: deleted partitions that the checkpoint files may still name.
    """

    def __init__(self, data_dir: Path, *, clock: Clock, interval_ms: int) -> None:
        self.offsets: Offsets = {}
        self.start_offsets: Offsets = {}
        self.files = CheckpointFiles(data_dir)
        self.dirty: dict[DiskLog, None] = {}
        self.dirty_bytes = 0
        self.is_wanted = False
        self.running: Checkpoint | None = None
        self.deleted: set[TopicPartition] = set()
        self._clock = clock
        self._interval_ms = interval_ms
        self._began_ms = clock.now_ms()

    def load(self, found: Container[TopicPartition]) -> Offsets:
        """
        Read the checkpoint files. Return the recovery points of partitions with data, but without a directory; other entries
        of partitions without a directory are dropped.

        Raises:
            CorruptError: a file is not a checkpoint file.
        """
        self.offsets, self.start_offsets = self.files.read()
        missing = {key: offset for key, offset in self.offsets.items() if offset and key not in found}
        for topic_partition in {*self.offsets, *self.start_offsets} - missing.keys():
            if topic_partition not in found:
                self.on_removed(topic_partition)
        return missing

    def mark_dirty(self, log: DiskLog) -> None:
        if not log.is_dirty:
            log.is_dirty = True
            self.dirty[log] = None

    def is_due(self, *, is_journal_full: bool) -> bool:
        if self.running is not None:
            return False
        if self.is_wanted or is_journal_full:
            return True
        return self.dirty_bytes >= _UNFLUSHED_BYTES_MAX or self._clock.now_ms() - self._began_ms >= self._interval_ms

    def begin(self, logs: Iterable[DiskLog], files: Iterable[Path] = ()) -> Checkpoint:
        """Begin a checkpoint of all data written so far; appends continue meanwhile."""
        checkpoint = Checkpoint(logs, files, self.offsets, self.start_offsets)
        self.dirty = {}
        self.dirty_bytes = 0
        self.is_wanted = False
        self.running = checkpoint
        self._began_ms = self._clock.now_ms()
        return checkpoint

    def end(self, checkpoint: Checkpoint) -> list[tuple[DiskLog, Callable[[], None]]]:
        """
        Take over the offsets of a finished checkpoint, and remove segments before the log starts; returns, by log, what removes
        their files.

        These segments lie below the recovery point, which is written too, because the high watermark was above them.
        """
        dropped: list[tuple[DiskLog, Callable[[], None]]] = []
        for log in checkpoint.logs:
            log.end_checkpoint()
            if not log.is_deleted:
                topic_partition = log.topic_partition
                if topic_partition in checkpoint.offsets:
                    self.offsets[topic_partition] = checkpoint.offsets[topic_partition]
                start_offset = checkpoint.start_offsets.get(topic_partition)
                if start_offset is not None:
                    self.start_offsets[topic_partition] = start_offset
                    remove = log.drop_before(start_offset)
                    if remove is not None:
                        dropped.append((log, remove))
        self.deleted &= checkpoint.deleted
        self.running = None
        return dropped

    def on_deleted(self, log: DiskLog) -> None:
        """Forget a log whose directory will be renamed."""
        self.on_removed(log.topic_partition)
        self.dirty.pop(log, None)

    def on_removed(self, topic_partition: TopicPartition) -> None:
        """Forget a partition whose directory was renamed or removed."""
        self.offsets.pop(topic_partition, None)
        self.start_offsets.pop(topic_partition, None)
        self.deleted.add(topic_partition)
        if self.running is not None:
            self.running.deleted.add(topic_partition)
