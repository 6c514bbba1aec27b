"""A checkpoint: it flushes files, and then writes recovery points, log start offsets and leader epochs."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kohort.model.ids import TopicPartition
from kohort.storage.durability.checkpoint_files import CheckpointFiles
from kohort.storage.durability.parallel import for_each
from kohort.storage.epochs import CHECKPOINT_NAME
from kohort.storage.files import syscalls
from kohort.storage.files.checksums import seal
from kohort.storage.logs.disklog import DiskLog


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    The state of the logs when the checkpoint began; appends continue meanwhile.

    Attributes:
        files: files written since the last checkpoint, and directories of new files.
        epochs: logs whose leader epochs changed, with the new content of `leader-epoch-checkpoint`.
        offsets: recovery points of all partitions.
        offsets_before: those of the last checkpoint.
        start_offsets: log start offsets of partitions whose first segment begins before the log start.
        deleted: partitions that were deleted since; they are left out of the checkpoint files.
    """

    logs: list[DiskLog]
    files: set[Path]
    epochs: list[tuple[DiskLog, str]]
    offsets: dict[TopicPartition, int]
    offsets_before: Mapping[TopicPartition, int]
    start_offsets: dict[TopicPartition, int]
    deleted: set[TopicPartition] = field(default_factory=set)

    @classmethod
    def begin(
        cls,
        logs: Iterable[DiskLog],
        files: Iterable[Path],
        offsets: Mapping[TopicPartition, int],
        start_offsets: Mapping[TopicPartition, int],
    ) -> "Checkpoint":
        """
        Begin a checkpoint, on the owner's thread.

        Args:
            logs: the logs to flush.
            files: further files to flush.
            offsets: the recovery points of the last checkpoint.
            start_offsets: the log start offsets of the last checkpoint.
        """
        present = [log for log in logs if log.has_segments and not log.is_deleted]
        begun = cls(present, set(files), [], dict(offsets), dict(offsets), dict(start_offsets))
        for log in present:
            begun.files.update(log.begin_checkpoint())
            begun.offsets[log.topic_partition] = log.end_offset
            if log.log_start_offset > log.first_base_offset:
                begun.start_offsets[log.topic_partition] = log.log_start_offset
            if log.epochs.is_dirty:
                log.epochs.is_dirty = False
                begun.epochs.append((log, log.epochs.to_text()))
        return begun

    def write(
        self,
        written: CheckpointFiles,
        sync_files: Callable[[set[Path]], None],
        *,
        is_failed: Callable[[DiskLog], bool] = lambda _log: False,
    ) -> None:
        """
        Flush the files, then write the checkpoint files. Any thread may call this.

        Args:
            is_failed: whether a write of a log has failed: its data up to `offsets` may not be in its files.

        Raises:
            OSError: a file could not be flushed or written.
        """
        for log in self.logs:
            if is_failed(log):
                self._keep_point(log.topic_partition)
        for_each(self.epochs, write_epochs)
        sync_files(self.files | {log.directory for log, _ in self.epochs})
        written.write(self.offsets, self.start_offsets, deleted=self.deleted)

    def _keep_point(self, topic_partition: TopicPartition) -> None:
        """Leave the recovery point of a partition as it was."""
        if topic_partition in self.offsets_before:
            self.offsets[topic_partition] = self.offsets_before[topic_partition]
        else:
            self.offsets.pop(topic_partition, None)


@dataclass(frozen=True, slots=True)
class FailedCheckpoint:
    """The error of a checkpoint that could not be written."""

    error: Exception


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
