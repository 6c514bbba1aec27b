"""
Partitions of a data directory without an open log: those that are loaded at their first use, those that cannot be loaded, and
those whose directory is missing.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from kohort.model.errors import ConfigError, CorruptError, NotYetError, StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.durability.brief_waits import BriefWaits
from kohort.storage.durability.flush_coordinator import FlushCoordinator
from kohort.storage.durability.journal import keep_journaled
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import read_partition_metadata, write_atomically, write_partition_metadata
from kohort.storage.files.directory import find_partitions
from kohort.storage.files.errno_hints import errno_hint
from kohort.storage.files.journal_format import JournalEntry, flushed_until, journaled_epochs
from kohort.storage.log import LogConfig
from kohort.storage.logs.recovery import DAMAGE_NOTE, LoadedPartition, load_partition

_log = logging.getLogger("kohort.storage")


class FoundPartitions:
    """
    The partitions of one data directory that have no open log.

    Args:
        directory_id: the id of the data directory.

    Attributes:
        directories: by partition; a partition that was loaded is removed.
        missing: the recovery points of partitions without a directory; they may belong to no topic any more.
        damaged: partitions whose flushed data was damaged when the store was opened, with the reason, a sentence.
        loads: loads of partitions on another thread.

    Raises:
        CorruptError: a checkpoint file of the directory is damaged.
    """

    def __init__(
        self, data_dir: Path, *, directory_id: str | None, clock: Clock, flush_coordinator: FlushCoordinator
    ) -> None:
        self._data_dir = data_dir
        self._directory_id = directory_id
        self._clock = clock
        self._flush_coordinator = flush_coordinator
        self.directories = find_partitions(data_dir)
        self.missing = flush_coordinator.checkpoints.load(self.directories)
        self.damaged: dict[TopicPartition, str] = {}
        self.loads = BriefWaits("kohort-load", self.read)
        self._told: dict[TopicPartition, str] = {}
        """Partitions that could not be loaded or opened, with the reason that the log has: every request meets it again."""

    def forget_missing(self, topic_partition: TopicPartition) -> None:
        if self.missing.pop(topic_partition, None) is not None:
            self._flush_coordinator.checkpoints.on_removed(topic_partition)

    def note_missing(self, topic_partition: TopicPartition, topic_id: UUID) -> CorruptError:
        """
        Make the directory of a partition whose directory is missing, with a note that `kohort log repair` shows. No start loads
        the partition.

        Raises:
            OSError: the directory could not be made.
        """
        directory = self._data_dir / str(topic_partition)
        offset = self.missing.pop(topic_partition)
        reason = f"{directory} is missing, though the log was flushed up to offset {offset}"
        self.write_note(directory, topic_id, reason)
        self.directories[topic_partition] = directory
        return CorruptError(reason)

    def write_note(self, directory: Path, topic_id: UUID, reason: str) -> None:
        """Let no start load a partition, whose directory is made if it is missing."""
        if not directory.exists():
            syscalls.ensure_directory(directory)
            write_partition_metadata(directory, topic_id, self._directory_id, is_synced=True)
        write_atomically(directory / DAMAGE_NOTE, reason + "\n")
        syscalls.sync_directory(self._data_dir)

    def set_damaged(
        self, topic_partition: TopicPartition, error: CorruptError, journaled: Sequence[JournalEntry]
    ) -> None:
        """Refuse to load a partition. Its data in the journal, which the start removes, is kept beside its segments."""
        keep_journaled(self.directories[topic_partition], journaled)
        reason = f"{topic_partition} cannot be loaded: {error}. {self._way_out}"
        self.damaged[topic_partition] = reason
        _log.error("log.damaged partition=%s error=%r", topic_partition, reason)

    def read(
        self,
        topic_partition: TopicPartition,
        recovery_point: int | None = None,
        *,
        journaled: Sequence[JournalEntry] = (),
        is_journaled: bool = False,
        is_gapless: bool = False,
        on_scan: Callable[[int], None] = lambda _bytes: None,
    ) -> tuple[UUID, LoadedPartition]:
        """
        Load a partition that was found on disk; returns it with the topic id of its directory. Any thread may call this.

        Args:
            journaled: the partition's entries in the journal.
        """
        directory = self.directories[topic_partition]
        topic_id = read_partition_metadata(directory)
        durable_until = flushed_until(
            self._flush_coordinator.checkpoints.offsets.get(topic_partition, 0), journaled, topic_id
        )
        return topic_id, load_partition(
            directory,
            LogConfig(),
            self._clock,
            log_start_offset=self._flush_coordinator.checkpoints.start_offsets.get(topic_partition, 0),
            recovery_point=recovery_point,
            durable_until=durable_until,
            is_gapless=is_gapless,
            journaled_epochs=journaled_epochs(journaled, topic_id) if is_journaled else None,
            on_scan=on_scan,
        )

    def load(self, topic_partition: TopicPartition) -> tuple[UUID, LoadedPartition]:
        """
        Load a partition, which becomes an open log, and return it with the topic id of its directory.

        Raises:
            UnavailableError: the files cannot be loaded, or the disk does not answer in time; the next call tries again, unless
                the start found flushed data of this partition damaged.
        """
        if topic_partition in self.damaged:
            raise UnavailableError(self.damaged[topic_partition])
        try:
            found = self.loads.get(topic_partition)
        except NotYetError:
            raise
        except CorruptError as exc:
            raise self.refuse(topic_partition, f"{exc}. {self._way_out}") from exc
        except (ConfigError, StorageError) as exc:
            raise self.refuse(topic_partition, str(exc)) from exc
        except OSError as exc:
            raise self.refuse(topic_partition, f"{exc}; {errno_hint(exc)}") from exc
        self._told.pop(topic_partition, None)
        del self.directories[topic_partition]
        return found

    def refuse(self, topic_partition: TopicPartition, reason: str) -> UnavailableError:
        """The error of a partition that cannot be loaded. The log has each reason once, not for each request that meets it."""
        refusal = f"{topic_partition} cannot be loaded: {reason}"
        if self._told.get(topic_partition) != refusal:
            self._told[topic_partition] = refusal
            _log.error("log.not_loaded partition=%s error=%r", topic_partition, refusal)
        return UnavailableError(refusal)

    def remove(self, topic_partition: TopicPartition) -> Path:
        """Forget a partition that is not loaded, or cannot be; returns its directory."""
        self.damaged.pop(topic_partition, None)
        self._told.pop(topic_partition, None)
        self._flush_coordinator.checkpoints.on_removed(topic_partition)
        return self.directories.pop(topic_partition)

    @property
    def _way_out(self) -> str:
        return f"Nothing was changed; `kohort log repair --dry-run {self._data_dir}` shows what can be kept"
