"""One checkpoint under way: what is to be flushed, and what may be written down then."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kohort.model.ids import TopicPartition
from kohort.storage.disklog import DiskLog
from kohort.storage.durability import syscalls
from kohort.storage.durability.checkpoint_files import CheckpointFiles
from kohort.storage.durability.parallel import for_each
from kohort.storage.epochs import CHECKPOINT_NAME


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    Logs as they were when it was begun; appends go on meanwhile.

    Attributes:
        files: what was written to since the last one, and directories.
        epochs: the content of files of leader epochs that are to be written, and whose they are.
        offsets: recovery points, of all partitions.
        start_offsets: log start offsets of those whose first segment begins before it.
        deleted: partitions that went away since; nothing is written down of them.
    """

    logs: list[DiskLog]
    files: set[Path]
    epochs: list[tuple[DiskLog, str]]
    offsets: dict[TopicPartition, int]
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
        On the owner's thread.

        Args:
            logs: those to flush.
            files: to be flushed besides.
            offsets, start_offsets: what the last checkpoint has written down.
        """
        present = [log for log in logs if log.has_segments and not log.is_deleted]
        begun = cls(present, set(files), [], dict(offsets), dict(start_offsets))
        for log in present:
            begun.files.update(log.begin_checkpoint())
            begun.offsets[log.topic_partition] = log.end_offset
            if log.log_start_offset > log.first_base_offset:
                begun.start_offsets[log.topic_partition] = log.log_start_offset
            if log.epochs.is_dirty:
                log.epochs.is_dirty = False
                begun.epochs.append((log, log.epochs.to_text()))
        return begun

    def write(self, written: CheckpointFiles, sync_files: Callable[[set[Path]], None]) -> None:
        """
        Flush, then write down; on any thread.

        Raises:
            OSError: it could not be done.
        """
        for_each(self.epochs, write_epochs)
        sync_files(self.files | {log.directory for log, _ in self.epochs})
        written.write(self.offsets, self.start_offsets, deleted=self.deleted)


@dataclass(frozen=True, slots=True)
class FailedCheckpoint:
    """What became of a checkpoint that could not be written."""

    error: Exception


def write_epochs(item: tuple[DiskLog, str]) -> None:
    """
    A log's file of leader epochs, without flushing its directory; on any thread.

    Raises:
        OSError: it could not be done.
    """
    log, text = item
    path = log.directory / CHECKPOINT_NAME
    temporary = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):  # the partition was deleted meanwhile
        syscalls.write_file(temporary, text.encode(), is_synced=True)
        if log.is_deleted:  # the directory of that name is its successor's
            syscalls.remove(temporary)
        else:
            syscalls.rename(temporary, path)
