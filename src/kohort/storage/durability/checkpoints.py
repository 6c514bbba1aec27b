"""
The checkpoints of one data directory: what changed since the last one, when the next one is due, and the offsets of both.

Nothing is written here; `FlushCoordinator` lets the background thread write a checkpoint. Not thread-safe: call from the
owner's thread. Exceptions are marked.
"""

from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.durability.checkpoint import Checkpoint
from kohort.storage.durability.checkpoint_files import CheckpointFiles
from kohort.storage.logs.disklog import DiskLog

_UNFLUSHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Without a journal: the unflushed bytes at which a checkpoint begins, because a recovery reads all of them."""


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
        self.offsets: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.files = CheckpointFiles(data_dir)
        self.dirty: dict[DiskLog, None] = {}
        self.dirty_bytes = 0
        self.is_wanted = False
        self.running: Checkpoint | None = None
        self.deleted: set[TopicPartition] = set()
        self._clock = clock
        self._interval_ms = interval_ms
        self._began_ms = clock.now_ms()

    def load(self, found: Container[TopicPartition]) -> dict[TopicPartition, int]:
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
        checkpoint = Checkpoint.begin(logs, files, self.offsets, self.start_offsets)
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

    def forget(self, topic_partition: TopicPartition) -> None:
        """
        Remove a deleted partition from the checkpoint files. On the background thread, so before any checkpoint that has a new
        partition of the same name: an entry without a directory means that data is missing.

        Raises:
            OSError: a file could not be written.
        """
        self.files.forget(frozenset((topic_partition,)))
