"""
Logs on disk in Apache Kafka's layout, made durable by one flush for all of them.

An append goes to memory and to the current flush batch, from which the disk thread writes it to its segment and the journal;
`durability.flush_coordinator` decides when it is acknowledged. After a clean stop the directory has no journal and is one that
Apache Kafka could have left. Apache Kafka refuses to start on a directory with a journal, and has to: the next start of Kohort
first scans segments from their recovery points, truncates torn tails and restores missing batches from the journal.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from kohort.model.errors import ConfigError, CorruptError, NotYetError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.limits import WRITTEN_BYTES_KEPT
from kohort.runtime.ports import Clock, Defer
from kohort.storage.cleaning.cleaner import Cleaner
from kohort.storage.disk.found_partitions import FoundPartitions
from kohort.storage.disk.open_logs import OpenLogs
from kohort.storage.disk.start_recovery import recover
from kohort.storage.durability.brief_waits import BriefWaits
from kohort.storage.durability.flush_coordinator import (
    CHECKPOINT_INTERVAL_MS,
    OWNER_FLUSH_MS_MAX,
    OWNER_FLUSHES_MAX,
    OWNER_WAIT_MS,
    FlushCoordinator,
    FlushMode,
    Sync,
)
from kohort.storage.durability.journal import JOURNAL_LOSS, find_lost_journal, remove_journal
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    LOCK,
    DirectoryLock,
    claim_directory,
    write_atomically,
)
from kohort.storage.files.directory import JOURNAL, find_deleted, is_deletion_of, look_at_volume, partition_of
from kohort.storage.files.errno_hints import errno_hint
from kohort.storage.log import CallSoon, CleanerConfig, CleanerMetrics, FlushMetrics, LogConfig, LogMetrics, Volume
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.logs.recovery import RecoveryProgress
from kohort.storage.segments.file_handles import OPEN_FILES_MIN, FileHandleCache, open_files_max

_log = logging.getLogger("kohort.storage")

JOURNAL_FILE_BYTES = 32 * 1024 * 1024
"""The initial size of a journal file, and the size at which appends switch to the other one."""

STOP_S = 20.0
"""How long a stop waits for a disk that does not answer; then the directory is left for recovery."""

CLEAN_SHUTDOWN_TEXT = '{"version":0,"brokerEpoch":-1}'


class DiskStore:
    """
    All logs of one data directory, which it locks.

    Args:
        call_soon_threadsafe: runs a callback on the owner's thread; called by the flushing threads.
        flush: "commit" acknowledges data that is flushed to the disk, "os" data that the operating system has.
        cluster_id: None takes the id of the directory, or a new one for a new directory.
        checkpoint_interval_ms: the time from one checkpoint to the next.
        owner_flush_ms_max: the owner's thread waits for flushes while they take no longer on average; 0: never.
        owner_wait_ms: the longest wait for one flush.
        owner_flushes_max: how many flushes the owner waits for before the event loop has to read input.
        written_bytes_kept: the memory of the newest appends after they were written.
        wait_s: the longest wait of the owner's thread for the load of a partition, and for a look at the volume, which other
            threads make from the first turn of the event loop on; None: the owner's thread makes them.
        stop_s: how long `close` waits for a disk that does not answer.
        sync: makes a file descriptor's data durable; for tests of failing disks.
        on_offline: called with the reason when a flush failed; nothing is acknowledged from then on.
        on_recovery: called with the progress of the recovery, which takes place in this constructor.
        check: raises ConfigError for a directory that is not the caller's; called before anything in it is changed.

    Raises:
        ConfigError: the directory is in use, belongs to another cluster or node, or holds files that cannot be loaded.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        defer: Defer,
        call_soon_threadsafe: CallSoon,
        flush: FlushMode,
        node_id: int,
        clock: Clock,
        cluster_id: str | None = None,
        journal_file_bytes: int = JOURNAL_FILE_BYTES,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        owner_flush_ms_max: float = OWNER_FLUSH_MS_MAX,
        owner_wait_ms: int = OWNER_WAIT_MS,
        owner_flushes_max: int = OWNER_FLUSHES_MAX,
        written_bytes_kept: int = WRITTEN_BYTES_KEPT,
        wait_s: float | None = None,
        stop_s: float = STOP_S,
        sync: Sync = syscalls.data_sync,
        on_offline: Callable[[str], None] = lambda _reason: None,
        on_recovery: Callable[[RecoveryProgress], None] = lambda _recovered: None,
        check: Callable[[Path], None] = lambda _data_dir: None,
    ) -> None:
        self.data_dir = data_dir
        _make_directory(data_dir)
        self._clock = clock
        files_max = max(open_files_max() // 2, OPEN_FILES_MIN)
        self._handles = FileHandleCache(files_max)
        """The files that the owner's thread reads."""
        self._is_closed = False
        self._stop_s = stop_s
        self._is_journaled = flush == "commit"
        self._logs: dict[TopicPartition, DiskLog] = {}
        self._volumes = BriefWaits("kohort-volume", look_at_volume)
        self._to_delete: set[TopicPartition] = set()
        """Partitions that were deleted while they were being loaded."""
        self._call_soon_threadsafe = call_soon_threadsafe
        self.missing_data: str | None = None
        self._on_offline = on_offline
        self._flush_coordinator = FlushCoordinator(
            data_dir,
            flush=flush,
            defer=defer,
            call_soon_threadsafe=call_soon_threadsafe,
            sync=sync,
            clock=clock,
            journal_file_bytes=journal_file_bytes,
            checkpoint_interval_ms=checkpoint_interval_ms,
            owner_flush_ms_max=owner_flush_ms_max,
            owner_wait_ms=owner_wait_ms,
            owner_flushes_max=owner_flushes_max,
            written_bytes_kept=written_bytes_kept,
            open_files_max=files_max,
            on_offline=self._go_offline,
            on_missing=self._on_missing,
        )
        checkpoints = self._flush_coordinator.checkpoints
        self.cleaner = Cleaner(
            data_dir,
            logs=self._logs.values,
            recovery_point=lambda topic_partition: checkpoints.offsets.get(topic_partition, 0),
            want_checkpoint=self._flush_coordinator.want_checkpoint,
            submit=self._flush_coordinator.submit,
            call_soon_threadsafe=call_soon_threadsafe,
            clock=clock,
        )
        # Without the file of the lock nobody uses the directory, and the file would be a change.
        is_unlocked = not (data_dir / LOCK).exists()
        if is_unlocked:
            self._check(check)
        with _refusing(f"{data_dir} cannot be used"):
            self._lock = DirectoryLock(data_dir)
        try:
            if not is_unlocked:
                self._check(check)
            with _refusing(f"{data_dir} cannot be taken up"):
                self._take_up(node_id, cluster_id, on_recovery)
            call_soon_threadsafe(partial(self._start_waiting, wait_s))
        except BaseException:
            self._lock.release()
            raise

    def _start_waiting(self, wait_s: float | None) -> None:
        if not self._is_closed:
            self._found.loads.start(wait_s)
            self._volumes.start(wait_s)

    def _check(self, check: Callable[[Path], None]) -> None:
        with _refusing(f"{self.data_dir} cannot be read"):
            check(self.data_dir)

    @property
    def location(self) -> str:
        return str(self.data_dir.absolute())

    @property
    def offline_reason(self) -> str | None:
        return self._flush_coordinator.offline_reason

    # Start

    def _take_up(self, node_id: int, cluster_id: str | None, on_recovery: Callable[[RecoveryProgress], None]) -> None:
        """
        Raises:
            OSError, ConfigError: the directory cannot be used.
        """
        self.cluster_id, directory_id = claim_directory(
            self.data_dir, node_id=node_id, cluster_id=cluster_id, new_id=uuid4()
        )
        deleted = find_deleted(self.data_dir)
        self._found = self._find_partitions(directory_id)
        self._opened = OpenLogs(
            self.data_dir,
            self._logs,
            directory_id=directory_id,
            handles=self._handles,
            clock=self._clock,
            flush_coordinator=self._flush_coordinator,
            forget=self.cleaner.forget,
        )
        self._load_directory(deleted, on_recovery)
        self.cleaner.load_offsets(frozenset(self.partitions()))
        self._flush_coordinator.start()

    def _find_partitions(self, directory_id: str | None) -> FoundPartitions:
        try:
            return FoundPartitions(
                self.data_dir,
                directory_id=directory_id,
                clock=self._clock,
                flush_coordinator=self._flush_coordinator,
            )
        except CorruptError as exc:
            raise ConfigError(
                f"{exc}: move it away. Without recovery points every log is read and checked at the next start, without log "
                "starts records that were deleted may be there again."
            ) from exc

    def _load_directory(self, deleted: list[Path], on_recovery: Callable[[RecoveryProgress], None]) -> None:
        """
        Load the directory, with recovery after an unclean stop. From here on a stop is unclean until `close`.

        Args:
            deleted: directories of interrupted deletions.
        """
        gone = [each for each in self._found.missing if any(is_deletion_of(path, each) for path in deleted)]
        if gone:
            # First: an entry without a directory means that data is missing.
            self._flush_coordinator.checkpoints.files.forget(gone)
        for topic_partition in gone:
            self.forget_missing(topic_partition)
        for path in deleted:
            syscalls.remove_tree(path)
        marker = self.data_dir / CLEAN_SHUTDOWN
        journal = self.data_dir / JOURNAL
        lost = find_lost_journal(self.data_dir)
        if lost is not None:
            _log.error("journal.lost error=%r", f"{lost}: {JOURNAL_LOSS}")
        if journal.exists() and not journal.is_dir():
            raise ConfigError(f"{journal} is no directory: move it away.")
        if journal.is_dir() or not marker.exists():
            recover(
                self._found,
                self._opened,
                self._flush_coordinator,
                self._clock,
                on_recovery,
                journal=journal,
                is_journaled=journal.is_dir() and lost is None,
            )
        remove_journal(self.data_dir)
        if self._is_journaled:
            self._flush_coordinator.checkpoints.files.begin()
            syscalls.ensure_directory(journal)
            syscalls.sync_directory(self.data_dir)
        if marker.exists():
            syscalls.unlink(marker)
            syscalls.sync_directory(self.data_dir)

    # Logs

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> DiskLog:
        if self._is_closed or self.offline_reason is not None:
            raise UnavailableError(self.offline_reason or f"{self.data_dir} is closed")
        self._delete_loaded(topic_partition)
        log = self.get(topic_partition)
        try:
            if log is not None:
                self._opened.adopt(log, topic_id)
                if log.topic_id == topic_id:
                    log.update_config(config)
                    return log
                self.rename_to_stray(topic_partition)
            elif topic_partition in self._found.missing:
                self._found.set_damaged(topic_partition, self._found.note_missing(topic_partition, topic_id), ())
                raise UnavailableError(self._found.damaged[topic_partition])
            return self._opened.add_new(topic_partition, topic_id, config)
        except OSError as exc:
            raise self._found.refuse(topic_partition, f"{exc}; {errno_hint(exc)}") from exc

    def get(self, topic_partition: TopicPartition) -> DiskLog | None:
        """
        Raises:
            UnavailableError: the files cannot be loaded, or the disk does not answer in time. Other partitions are not
                affected; the next call tries again, unless the start found flushed data of this partition damaged.
        """
        if topic_partition in self._found.directories:
            topic_id, loaded = self._found.load(topic_partition)
            self._opened.add_loaded(topic_partition, topic_id, loaded)
        return self._logs.get(topic_partition)

    def missing(self) -> Iterable[TopicPartition]:
        return sorted(self._found.missing)

    def forget_missing(self, topic_partition: TopicPartition) -> None:
        self._found.forget_missing(topic_partition)

    def partitions(self) -> Iterable[TopicPartition]:
        return sorted({*self._found.directories, *self._logs})

    def delete(self, topic_partition: TopicPartition) -> None:
        self._to_delete.discard(topic_partition)
        try:
            log = self.get(topic_partition)
        except NotYetError:  # another thread uses the directory
            self._to_delete.add(topic_partition)
            delete = partial(self._delete_loaded, topic_partition)
            self._found.loads.when_done(topic_partition, partial(self._call_soon_threadsafe, delete))
        except UnavailableError:  # files that cannot be loaded are deleted, too
            self._remove_found(topic_partition, "delete")
        else:
            if log is not None:
                self._opened.remove(log, "delete")

    def after_deletions(self, action: Callable[[], None]) -> None:
        self._flush_coordinator.then(action)

    def _delete_loaded(self, topic_partition: TopicPartition) -> None:
        """Delete a partition, if it was deleted while it was being loaded."""
        if topic_partition in self._to_delete:
            self.delete(topic_partition)

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        log = self._logs.get(topic_partition)
        if log is not None:
            self._opened.remove(log, "stray")
        elif topic_partition in self._found.directories:
            self._remove_found(topic_partition, "stray")

    def _remove_found(self, topic_partition: TopicPartition, suffix: str) -> None:
        """Remove a partition that is not loaded, or cannot be."""
        directory = self._found.remove(topic_partition)
        self._flush_coordinator.run(None, partial(self._opened.rename_directory, directory, suffix))

    # Durability

    def _on_missing(self, path: Path, error: OSError) -> None:
        """
        Handle a file that a flush did not find. Partitions and segments may be deleted while a flush is under way; any other
        missing file takes its partition offline. A file that exists again is a cleaned segment that replaced the missing one
        and was flushed before.
        """
        topic_partition = partition_of(path.name) or partition_of(path.parent.name)
        log = self._logs.get(topic_partition) if topic_partition else None
        if log is not None and log.refusal is None and log.owns(path) and not path.exists():
            log.fail(error)

    def _go_offline(self, reason: str) -> None:
        for log in self._logs.values():
            log.refusal = reason
        self._on_offline(reason)

    def flush(self) -> None:
        self._flush_coordinator.flush()

    def flush_aged(self) -> None:
        self._flush_coordinator.flush_aged(self._clock.now_ms())

    def clean(self, config: CleanerConfig) -> None:
        self.cleaner.config = config
        if self.offline_reason is None:
            self.cleaner.clean()

    def log_metrics(self) -> Iterator[LogMetrics]:
        return (log.metrics() for log in list(self._logs.values()))

    def volume(self) -> Volume:
        try:
            return self._volumes.get(self.data_dir)
        except NotYetError:
            return Volume(problem="The disk of the data directory does not answer.")

    def flush_metrics(self) -> FlushMetrics:
        return FlushMetrics(*self._flush_coordinator.flushes)

    def cleaner_metrics(self) -> CleanerMetrics:
        return self.cleaner.metrics()

    def close(self) -> None:
        """
        Flush, bring the directory to the form that Kafka leaves, and release it.

        After a failed flush, or if a partition is offline or files of one are missing, the directory is left for recovery
        instead.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._close()
        except (OSError, UnavailableError) as exc:
            _log.warning("store.closed_uncleanly path=%s error=%r", self.data_dir, str(exc))
        finally:
            for log in self._logs.values():
                log.close(f"{log.topic_partition} is closed")
            with suppress(UnavailableError):
                self._volumes.stop(0)
            self._lock.release()

    def _close(self) -> None:
        for topic_partition in self._found.loads.stop(self._stop_s):
            self._delete_loaded(topic_partition)
            with suppress(UnavailableError):
                self.get(topic_partition)
        self.cleaner.stop(self._stop_s)
        try:
            self._flush_coordinator.flush(self._stop_s)
        except UnavailableError:
            self._flush_coordinator.stop(min(self._stop_s, 1.0))
            raise
        self._flush_coordinator.stop(self._stop_s)
        if not self._opened.stop(self._stop_s):
            raise UnavailableError(f"the disk of {self.data_dir} has not answered for {self._stop_s} s")
        self.cleaner.finish()
        logs = list(self._logs.values())
        for log in logs:
            self._check_files(log)
        refusals = [log.refusal for log in logs if log.refusal is not None] + list(self._found.damaged.values())
        if refusals or self.offline_reason is not None:
            raise UnavailableError(self.offline_reason or refusals[0])
        files: set[Path] = set()
        for log in logs:
            files |= log.write_active_indexes()
        self._flush_coordinator.checkpoint_now(logs, files)
        remove_journal(self.data_dir)
        write_atomically(self.data_dir / CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_TEXT)

    def _check_files(self, log: DiskLog) -> None:
        """Take a log offline whose files are missing or too short, and leave a note for the next start."""
        missing = log.find_missing_data()
        if missing is not None:
            self.missing_data = self.missing_data or f"{log.topic_partition}: {missing}"
            _log.error("log.missing_data partition=%s error=%r", log.topic_partition, missing)
            log.refusal = missing
            self._found.write_note(log.directory, log.topic_id, missing)


@contextmanager
def _refusing(what: str) -> Generator[None, None, None]:
    """Raise ConfigError for an OSError; `what` begins the sentence."""
    try:
        yield
    except OSError as exc:
        raise ConfigError(f"{what}: {exc}; {errno_hint(exc)}.") from exc


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(syscalls.DIRECTORY_MODE, parents=True, exist_ok=True)
    except FileExistsError as exc:
        raise ConfigError(f"{path} is no directory: choose another data directory.") from exc
    except FileNotFoundError as exc:
        raise ConfigError(
            f"{path} cannot be made: the file system there takes no directories; choose another data directory."
        ) from exc
    except OSError as exc:
        raise ConfigError(f"{path} cannot be made: {exc}; {errno_hint(exc)}.") from exc
