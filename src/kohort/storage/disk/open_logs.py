"""
The open logs of a data directory: logs that were loaded or are new, until they are deleted.

The directory of a deleted log is renamed, then removed in the background. Source: Kafka LogManager.asyncDelete.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from operator import ne
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from kohort.model.ids import TopicPartition, uuid_text
from kohort.runtime.ports import Clock
from kohort.storage.durability.flush_coordinator import FlushCoordinator
from kohort.storage.epochs import EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import write_partition_metadata
from kohort.storage.files.directory import partition_of, rename_to_stray
from kohort.storage.files.errno_hints import errno_hint
from kohort.storage.log import NO_TOPIC_ID, LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.logs.recovery import LoadedPartition
from kohort.storage.segments.file_handles import FileHandleCache

if TYPE_CHECKING:
    from kohort.storage.disk.removals import Removals

_log = logging.getLogger("kohort.storage")

REMOVED_BY_PROCESS_MIN = 50
"""So many directories take as long as a process that removes them."""


class OpenLogs:
    """
    The open logs of one data directory.

    Args:
        logs: the logs by partition, which the store reads, too.
        directory_id: the id of the directory, which the metadata of a new partition names.
        handles: the files that the owner's thread reads.
        forget: stops a pass of the cleaner over a log that is about to be deleted; returns what waits for its end.
    """

    def __init__(
        self,
        data_dir: Path,
        logs: dict[TopicPartition, DiskLog],
        *,
        directory_id: str | None,
        handles: FileHandleCache,
        clock: Clock,
        flush_coordinator: FlushCoordinator,
        forget: Callable[[TopicPartition], Callable[[], object]],
    ) -> None:
        self._data_dir = data_dir
        self.logs = logs
        self._directory_id = directory_id
        self._handles = handles
        self._clock = clock
        self._flush_coordinator = flush_coordinator
        self._forget = forget
        self._renamed: SimpleQueue[tuple[TopicPartition, Path]] = SimpleQueue()
        """Directories of deleted partitions that are to be removed."""
        self._is_removing = False
        """Whether a job waits that removes them. A thousand that find none held the interpreter for as long as it allows."""
        self._not_renamed: dict[Path, OSError] = {}
        """Directories of deleted partitions that could not be renamed; the disk thread's."""

    @cached_property
    def _removals(self) -> "Removals":
        from kohort.storage.disk.removals import Removals  # few starts need it

        return Removals()

    def stop(self, timeout_s: float) -> bool:
        """End the removal of directories when the background thread has ended; False if the disk does not answer in time."""
        return "_removals" not in self.__dict__ or self._removals.stop(timeout_s)

    def add_loaded(self, topic_partition: TopicPartition, topic_id: UUID, loaded: LoadedPartition) -> None:
        self.logs[topic_partition] = self._make(topic_partition, topic_id, LogConfig(), loaded)

    def add_new(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> DiskLog:
        log = self._make(topic_partition, topic_id, config, LoadedPartition([], 0, 0, EpochCache()))
        self._flush_coordinator.on_new(log)
        self._flush_coordinator.run(log, partial(self._check_renamed, log.directory))
        self.logs[topic_partition] = log
        return log

    def _make(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, loaded: LoadedPartition
    ) -> DiskLog:
        return DiskLog(
            self._data_dir / str(topic_partition),
            topic_partition,
            topic_id,
            config,
            loaded=loaded,
            directory_id=self._directory_id,
            handles=self._handles,
            clock=self._clock,
            queue=self._flush_coordinator,
        )

    def adopt(self, log: DiskLog, topic_id: UUID) -> None:
        """
        Give the topic id to a directory that has none, or whose file with the id is damaged: random ids never differ in one
        character. Source: Kafka UnifiedLog.assignTopicId.
        """
        if topic_id != NO_TOPIC_ID and _is_unknown(log.topic_id, topic_id):
            _log.info("log.topic_id partition=%s found=%s assigned=%s", log.topic_partition, log.topic_id, topic_id)
            self._flush_coordinator.run(log, partial(self._write_topic_id, log.directory, topic_id))
            log.assign_topic_id(topic_id)

    def _write_topic_id(self, directory: Path, topic_id: UUID) -> None:
        """On the disk thread, or at once during the start."""
        if directory.exists():
            write_partition_metadata(directory, topic_id, self._directory_id, is_synced=True)

    def remove(self, log: DiskLog, suffix: str) -> None:
        """
        Remove a log from the store; its directory is renamed after the operations so far.

        Raises:
            OSError: the store is starting, and the directory could not be renamed.
        """
        del self.logs[log.topic_partition]
        log.is_deleted = True
        log.close(f"{log.topic_partition} was deleted")
        log.forget_listeners()
        await_pass = self._forget(log.topic_partition)
        self._flush_coordinator.on_delete(log)
        self._flush_coordinator.run(None, partial(self._rename, log, suffix, await_pass))
        self._flush_coordinator.forget_failure(log)

    def _rename(self, log: DiskLog, suffix: str, await_pass: Callable[[], object]) -> None:
        with log.files_lock:
            self.rename_directory(log.directory, suffix, await_pass)

    def rename_directory(self, directory: Path, suffix: str, await_pass: Callable[[], object] = lambda: None) -> None:
        """
        Rename the directory of a partition that was removed from the store. On the disk thread, or at once during the start.

        If that fails, no log uses the directory until the next start, which finishes the deletion.

        Args:
            suffix: "delete" if the directory is to be removed, else "stray".
            await_pass: waits until the cleaner writes nothing more there.
        """
        await_pass()
        topic_partition = partition_of(directory.name)
        assert topic_partition is not None, "it is the directory of a partition"
        try:
            path = rename_to_stray(directory, uuid4(), suffix=suffix)
        except FileNotFoundError:  # nothing was appended
            return
        except OSError as exc:
            self._not_renamed[directory] = exc
            _log.error("log.not_deleted partition=%s error=%r hint=%r", topic_partition, str(exc), errno_hint(exc))
            return
        if suffix == "delete":
            self._renamed.put((topic_partition, path))
            if not self._is_removing:
                self._is_removing = True
                self._flush_coordinator.submit(self._remove_renamed)
        else:
            _log.warning("log.stray partition=%s directory=%s", topic_partition, path.name)

    def _check_renamed(self, directory: Path) -> None:
        """
        On the disk thread.

        Raises:
            OSError: the directory of a deleted log is still there.
        """
        if directory in self._not_renamed:
            raise self._not_renamed[directory]

    def _remove_renamed(self) -> None:
        """
        Remove the renamed directories of all deletions so far. On the background thread.

        The renames are made durable before: after a crash a partition that came back in part could not be told from a damaged
        one.
        """
        self._is_removing = False  # before the look: what is renamed later has a job of its own
        renamed = [self._renamed.get() for _ in range(self._renamed.qsize())]
        if renamed:
            with suppress(OSError):  # the next start removes them
                syscalls.sync_directory(self._data_dir)
                # On this thread, so before any checkpoint that has a new partition of the same name: an entry without a
                # directory means that data is missing.
                self._flush_coordinator.checkpoints.files.forget({topic_partition for topic_partition, _ in renamed})
                if len(renamed) >= REMOVED_BY_PROCESS_MIN:
                    self._removals.add([path for _, path in renamed])
                    return
                for _, path in renamed:
                    syscalls.remove_tree(path)


def _is_unknown(found: UUID, topic_id: UUID) -> bool:
    """Whether the id in a directory is missing, or differs in one character from this one, which is not a small number."""
    is_random = topic_id.int >> 64 != 0
    return found == NO_TOPIC_ID or (is_random and sum(map(ne, uuid_text(found), uuid_text(topic_id))) == 1)
