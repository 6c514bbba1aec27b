"""
Logs on disk in Apache Kafka's layout, made durable by one flush for all of them.

An append goes to memory and to the current flush batch, from which the disk thread writes it to its segment and the journal;
`durability.flush_coordinator` decides when it is acknowledged. After a clean stop the directory has no journal and is one that
Apache Kafka could have left. Apache Kafka refuses to start on a directory with a journal, and has to: the next start of Kohort
first scans segments from their recovery points, truncates torn tails and restores missing batches from the journal.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import ne
from pathlib import Path
from queue import SimpleQueue
from uuid import UUID, uuid4

from kohort.model.errors import ConfigError, CorruptError, OffsetOutOfRangeError, StorageError, UnavailableError
from kohort.model.ids import TopicPartition, uuid_text
from kohort.model.limits import WRITTEN_BYTES_KEPT
from kohort.runtime.ports import Clock, Defer
from kohort.storage.cleaning.cleaner import Cleaner
from kohort.storage.durability.brief_waits import BriefWaits, NotYetError
from kohort.storage.durability.flush_coordinator import (
    CHECKPOINT_INTERVAL_MS,
    OWNER_FLUSH_MS_MAX,
    OWNER_FLUSHES_MAX,
    OWNER_WAIT_MS,
    FlushCoordinator,
    FlushMode,
    Sync,
)
from kohort.storage.durability.journal import (
    JOURNAL_LOSS,
    find_lost_journal,
    journal_files,
    keep_journaled,
    remove_journal,
)
from kohort.storage.epochs import EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    LOCK,
    DirectoryLock,
    claim_directory,
    read_partition_metadata,
    write_atomically,
    write_partition_metadata,
)
from kohort.storage.files.directory import (
    JOURNAL,
    find_deleted,
    find_partitions,
    is_deletion_of,
    look_at_volume,
    partition_of,
    rename_to_stray,
)
from kohort.storage.files.errno_hints import errno_hint
from kohort.storage.files.journal_format import (
    DELETE,
    EPOCH,
    START,
    JournalEntry,
    flushed_until,
    journaled_epochs,
    read_journal,
)
from kohort.storage.log import (
    NO_TOPIC_ID,
    CallSoon,
    CleanerConfig,
    CleanerMetrics,
    FlushMetrics,
    LogConfig,
    LogMetrics,
    Volume,
)
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.logs.recovery import (
    DAMAGE_NOTE,
    LoadedPartition,
    RecoveryProgress,
    bytes_to_scan,
    load_partition,
)
from kohort.storage.segments.file_handles import OPEN_FILES_MIN, FileHandleCache, open_files_max

_log = logging.getLogger("kohort.storage")

JOURNAL_FILE_BYTES = 32 * 1024 * 1024
"""The initial size of a journal file, and the size at which appends switch to the other one."""

STOP_S = 20.0
"""How long a stop waits for a disk that does not answer; then the directory is left for recovery."""

_CLEAN_SHUTDOWN_TEXT = '{"version":0,"brokerEpoch":-1}'


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
        self._found: dict[TopicPartition, Path] = {}
        """Partitions on disk that are not loaded yet."""
        self._loads = BriefWaits("kohort-load", self._read)
        self._volumes = BriefWaits("kohort-volume", look_at_volume)
        self._to_delete: set[TopicPartition] = set()
        """Partitions that were deleted while they were being loaded."""
        self._call_soon_threadsafe = call_soon_threadsafe
        self._damaged: dict[TopicPartition, str] = {}
        """Partitions whose flushed data was damaged when the store was opened, with the reason, a sentence."""
        self._told: dict[TopicPartition, str] = {}
        """Partitions that could not be loaded or opened, with the reason that the log has: every request meets it again."""
        self._missing: dict[TopicPartition, int] = {}
        """Recovery points of partitions without a directory; they may belong to no topic any more."""
        self.missing_data: str | None = None
        self._renamed: SimpleQueue[tuple[TopicPartition, Path]] = SimpleQueue()
        """Directories of deleted partitions that are to be removed."""
        self._not_renamed: dict[Path, OSError] = {}
        """Directories of deleted partitions that could not be renamed; the disk thread's."""
        self._on_offline = on_offline
        self._on_recovery = on_recovery
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
        self.cleaner = self._make_cleaner(call_soon_threadsafe)
        is_unlocked = not (
            data_dir / LOCK
        ).exists()  # Nobody uses the directory, and the file of the lock would be a change.
        if is_unlocked:
            self._check(check)
        self._lock = self._lock_directory()
        try:
            if not is_unlocked:
                self._check(check)
            self.cluster_id, self._directory_id = claim_directory(
                data_dir, node_id=node_id, cluster_id=cluster_id, new_id=uuid4()
            )
            self._load_directory()
            self.cleaner.load_offsets(frozenset(self.partitions()))
            self._flush_coordinator.start()
            call_soon_threadsafe(partial(self._start_waiting, wait_s))
        except OSError as exc:
            self._lock.release()
            raise ConfigError(f"{data_dir} cannot be taken up: {exc}; {errno_hint(exc)}.") from exc
        except BaseException:
            self._lock.release()
            raise

    def _start_waiting(self, wait_s: float | None) -> None:
        if not self._is_closed:
            self._loads.start(wait_s)
            self._volumes.start(wait_s)

    def _check(self, check: Callable[[Path], None]) -> None:
        try:
            check(self.data_dir)
        except OSError as exc:
            raise ConfigError(f"{self.data_dir} cannot be read: {exc}; {errno_hint(exc)}.") from exc

    def _lock_directory(self) -> DirectoryLock:
        try:
            return DirectoryLock(self.data_dir)
        except OSError as exc:
            raise ConfigError(f"{self.data_dir} cannot be used: {exc}; {errno_hint(exc)}.") from exc

    @property
    def offline_reason(self) -> str | None:
        return self._flush_coordinator.offline_reason

    def _make_cleaner(self, call_soon_threadsafe: CallSoon) -> Cleaner:
        flush_coordinator = self._flush_coordinator
        return Cleaner(
            self.data_dir,
            logs=self._logs.values,
            recovery_point=lambda topic_partition: flush_coordinator.offsets.get(topic_partition, 0),
            want_checkpoint=flush_coordinator.want_checkpoint,
            submit=flush_coordinator.submit,
            call_soon_threadsafe=call_soon_threadsafe,
            clock=self._clock,
        )

    # Start

    def _load_directory(self) -> None:
        """Load the directory, with recovery after an unclean stop. From here on a stop is unclean until `close`."""
        deleted = find_deleted(self.data_dir)
        self._found = find_partitions(self.data_dir)
        try:
            self._missing = self._flush_coordinator.load_checkpoints(self._found)
        except CorruptError as exc:
            raise ConfigError(
                f"{exc}: move it away. Without recovery points every log is read and checked at the next start, without log "
                "starts records that were deleted may be there again."
            ) from exc
        gone = [each for each in self._missing if any(is_deletion_of(path, each) for path in deleted)]
        if gone:
            # First: an entry without a directory means that data is missing.
            self._flush_coordinator.checkpoint_files.forget(gone)
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
            self._recover(journal_files(journal), is_journaled=journal.is_dir() and lost is None)
        remove_journal(self.data_dir)
        if self._is_journaled:
            self._flush_coordinator.checkpoint_files.begin()
            syscalls.ensure_directory(journal)
            syscalls.sync_directory(self.data_dir)
        if marker.exists():
            syscalls.unlink(marker)
            syscalls.sync_directory(self.data_dir)

    def _recover(self, left_behind: list[Path], *, is_journaled: bool) -> None:
        """
        Scan data that is not known to be durable, restore missing batches from the journal, and write a checkpoint.

        Without recovery points, a loss cannot be told from a gap that the cleaner left; no gap counts as a loss then.

        A partition whose flushed data is damaged is not loaded, and its files stay as they are.
        """
        is_gapless = is_journaled and self._flush_coordinator.checkpoint_files.has_points
        started_ms = self._clock.now_ms()
        entries: dict[TopicPartition, list[JournalEntry]] = {}
        try:
            for entry in read_journal(left_behind):
                entries.setdefault(entry.topic_partition, []).append(entry)
        except CorruptError as exc:
            raise ConfigError(
                f"{self.data_dir / JOURNAL} cannot be read: {exc}. Nothing was changed. If the machine did not lose power, the "
                "segments have all data: move the journal away and start again. Else data since the last checkpoint is lost."
            ) from exc
        self._find_missing(entries)
        files: set[Path] = set()
        points = {
            topic_partition: self._flush_coordinator.offsets.get(topic_partition, 0) for topic_partition in self._found
        }
        bytes_total = sum(
            bytes_to_scan(self._found[topic_partition], point) for topic_partition, point in points.items()
        )
        recovered = RecoveryProgress(len(points), bytes_total)

        def on_scan(size_bytes: int) -> None:
            recovered.advance(size_bytes)
            self._on_recovery(recovered)

        for topic_partition in sorted(points):
            self._on_recovery(recovered)
            point, journaled = points[topic_partition], entries.get(topic_partition, [])
            try:
                topic_id, loaded = self._read(
                    topic_partition,
                    point,
                    journaled=journaled,
                    is_journaled=is_journaled,
                    is_gapless=is_gapless,
                    on_scan=on_scan,
                )
            except CorruptError as exc:
                self._set_damaged(topic_partition, exc, journaled)
                continue
            self._add_loaded(topic_partition, topic_id, loaded)
            recovered.add(loaded)
            for segment in loaded.scanned:
                files |= {segment.path, segment.index.path, segment.time_index.path, segment.directory}
                if segment.checksums_path.exists():
                    files.add(segment.checksums_path)
                if segment.aborted.is_unsynced:
                    segment.aborted.is_unsynced = False
                    files.add(segment.aborted.path)
        for topic_partition in sorted(entries.keys() - self._damaged.keys()):
            recovered.restored_bytes += self._replay(topic_partition, entries[topic_partition], recovered)
        for topic_partition, log in self._logs.items():
            is_short = log.end_offset < points.get(topic_partition, 0) or topic_partition in recovered.short
            if is_short or not is_journaled:
                log.bump_epoch_after_loss()
        self._on_recovery(recovered)
        if self._logs:
            self._flush_coordinator.checkpoint_now(self._logs.values(), files)
            elapsed_ms = self._clock.now_ms() - started_ms
            _log.info(
                "store.recovered partitions=%d segments=%d bytes=%d cut_bytes=%d restored_bytes=%d elapsed_ms=%d",
                *(len(self._logs), recovered.segments, recovered.scanned_bytes),
                *(recovered.cut_bytes, recovered.restored_bytes, elapsed_ms),
            )

    def _find_missing(self, entries: dict[TopicPartition, list[JournalEntry]]) -> None:
        """Of the partitions without a directory, forget those that the journal deletes, and note those that it has data of."""
        for topic_partition in sorted(self._missing.keys() & entries.keys()):
            journaled = entries[topic_partition]
            if any(entry.kind == DELETE for entry in journaled):
                self.forget_missing(topic_partition)
            else:
                self._note_missing(topic_partition, journaled[-1].topic_id)

    def _note_missing(self, topic_partition: TopicPartition, topic_id: UUID) -> CorruptError:
        """
        Make the directory of a partition whose directory is missing, with a note that `kohort log repair` shows. No start loads
        the partition.

        Raises:
            OSError: the directory could not be made.
        """
        directory = self.data_dir / str(topic_partition)
        offset = self._missing.pop(topic_partition)
        reason = f"{directory} is missing, though the log was flushed up to offset {offset}"
        self._write_note(directory, topic_id, reason)
        self._found[topic_partition] = directory
        return CorruptError(reason)

    def _write_note(self, directory: Path, topic_id: UUID, reason: str) -> None:
        if not directory.exists():
            syscalls.ensure_directory(directory)
            write_partition_metadata(directory, topic_id, self._directory_id, is_synced=True)
        write_atomically(directory / DAMAGE_NOTE, reason + "\n")
        syscalls.sync_directory(self.data_dir)

    def _set_damaged(
        self, topic_partition: TopicPartition, error: CorruptError, journaled: Sequence[JournalEntry]
    ) -> None:
        """Refuse to load a partition. Its data in the journal, which the start removes, is kept beside its segments."""
        keep_journaled(self._found[topic_partition], journaled)
        reason = f"{topic_partition} cannot be loaded: {error}. {_way_out(self.data_dir)}"
        self._damaged[topic_partition] = reason
        _log.error("log.damaged partition=%s error=%r", topic_partition, reason)

    def _replay(self, topic_partition: TopicPartition, entries: list[JournalEntry], recovered: RecoveryProgress) -> int:
        """
        Replay the journal entries of one partition name, which may have belonged to several topics one after the other.

        Returns:
            The bytes that were restored.
        """
        restored_bytes = 0
        gone = {entry.topic_id for entry in entries if entry.kind == DELETE}
        for entry in entries:
            log = self._logs.get(topic_partition)
            if entry.kind == DELETE:
                # A directory without a topic id was never flushed: everything since the deletion is in the journal.
                if log is not None and log.topic_id in (entry.topic_id, NO_TOPIC_ID):
                    self._remove_log(log, "delete")
            elif entry.topic_id not in gone and (log is not None or entry.kind != START):
                log = log or self._new_log(topic_partition, entry.topic_id, LogConfig())
                self._adopt(log, entry.topic_id)
                try:
                    restored_bytes += _restore(log, entry)
                except (OffsetOutOfRangeError, CorruptError) as exc:
                    gone.add(entry.topic_id)
                    recovered.short.add(topic_partition)
                    _log.error("log.not_restored partition=%s error=%r", topic_partition, str(exc))
        if restored_bytes:
            _log.info("log.recovered partition=%s bytes=%d", topic_partition, restored_bytes)
        return restored_bytes

    def _read(
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
        directory = self._found[topic_partition]
        topic_id = read_partition_metadata(directory)
        durable_until = flushed_until(self._flush_coordinator.offsets.get(topic_partition, 0), journaled, topic_id)
        return topic_id, load_partition(
            directory,
            LogConfig(),
            self._clock,
            log_start_offset=self._flush_coordinator.start_offsets.get(topic_partition, 0),
            recovery_point=recovery_point,
            durable_until=durable_until,
            is_gapless=is_gapless,
            journaled_epochs=journaled_epochs(journaled, topic_id) if is_journaled else None,
            on_scan=on_scan,
        )

    def _add_loaded(self, topic_partition: TopicPartition, topic_id: UUID, loaded: LoadedPartition) -> None:
        """Add a loaded partition to the open logs."""
        self._logs[topic_partition] = self._make_log(topic_partition, topic_id, LogConfig(), loaded)
        del self._found[topic_partition]

    # Logs

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> DiskLog:
        if self._is_closed or self.offline_reason is not None:
            raise UnavailableError(self.offline_reason or f"{self.data_dir} is closed")
        self._delete_loaded(topic_partition)
        log = self.get(topic_partition)
        try:
            if log is not None:
                self._adopt(log, topic_id)
                if log.topic_id == topic_id:
                    log.update_config(config)
                    return log
                self.rename_to_stray(topic_partition)
            elif topic_partition in self._missing:
                self._set_damaged(topic_partition, self._note_missing(topic_partition, topic_id), ())
                raise UnavailableError(self._damaged[topic_partition])
            return self._new_log(topic_partition, topic_id, config)
        except OSError as exc:
            raise self._not_loaded(topic_partition, f"{exc}; {errno_hint(exc)}") from exc

    def get(self, topic_partition: TopicPartition) -> DiskLog | None:
        """
        Raises:
            UnavailableError: the files cannot be loaded, or the disk does not answer in time. Other partitions are not
                affected; the next call tries again, unless the start found flushed data of this partition damaged.
        """
        if topic_partition in self._damaged:
            raise UnavailableError(self._damaged[topic_partition])
        if topic_partition in self._found:
            try:
                topic_id, loaded = self._loads.get(topic_partition)
            except NotYetError:
                raise
            except CorruptError as exc:
                raise self._not_loaded(topic_partition, f"{exc}. {_way_out(self.data_dir)}") from exc
            except (ConfigError, StorageError) as exc:
                raise self._not_loaded(topic_partition, str(exc)) from exc
            except OSError as exc:
                raise self._not_loaded(topic_partition, f"{exc}; {errno_hint(exc)}") from exc
            self._told.pop(topic_partition, None)
            self._add_loaded(topic_partition, topic_id, loaded)
        return self._logs.get(topic_partition)

    def _not_loaded(self, topic_partition: TopicPartition, reason: str) -> UnavailableError:
        """The error of a partition that cannot be loaded. The log has each reason once, not for each request that meets it."""
        refusal = f"{topic_partition} cannot be loaded: {reason}"
        if self._told.get(topic_partition) != refusal:
            self._told[topic_partition] = refusal
            _log.error("log.not_loaded partition=%s error=%r", topic_partition, refusal)
        return UnavailableError(refusal)

    def missing(self) -> Iterable[TopicPartition]:
        return sorted(self._missing)

    def forget_missing(self, topic_partition: TopicPartition) -> None:
        if self._missing.pop(topic_partition, None) is not None:
            self._flush_coordinator.on_removed(topic_partition)

    def partitions(self) -> Iterable[TopicPartition]:
        return sorted({*self._found, *self._logs})

    def delete(self, topic_partition: TopicPartition) -> None:
        self._to_delete.discard(topic_partition)
        try:
            log = self.get(topic_partition)
        except NotYetError:  # another thread uses the directory
            self._to_delete.add(topic_partition)
            delete = partial(self._delete_loaded, topic_partition)
            self._loads.when_done(topic_partition, partial(self._call_soon_threadsafe, delete))
        except UnavailableError:  # files that cannot be loaded are deleted, too
            self._remove_found(topic_partition, "delete")
        else:
            if log is not None:
                self._remove_log(log, "delete")

    def _delete_loaded(self, topic_partition: TopicPartition) -> None:
        """Delete a partition, if it was deleted while it was being loaded."""
        if topic_partition in self._to_delete:
            self.delete(topic_partition)

    def _remove_renamed(self) -> None:
        """
        Remove the renamed directories of all deletions so far. On the background thread.

        The renames are made durable before: after a crash a partition that came back in part could not be told from a damaged
        one.
        """
        renamed = [self._renamed.get() for _ in range(self._renamed.qsize())]
        if renamed:
            with suppress(OSError):  # the next start removes them
                syscalls.sync_directory(self.data_dir)
                for topic_partition, path in renamed:
                    self._flush_coordinator.forget(topic_partition)
                    syscalls.remove_tree(path)

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        log = self._logs.get(topic_partition)
        if log is not None:
            self._remove_log(log, "stray")
        elif topic_partition in self._found:
            self._remove_found(topic_partition, "stray")

    def _remove_log(self, log: DiskLog, suffix: str) -> None:
        """
        Remove a log from the store; its directory is renamed after the operations so far.

        Raises:
            OSError: the store is starting, and the directory could not be renamed.
        """
        del self._logs[log.topic_partition]
        log.is_deleted = True
        log.close(f"{log.topic_partition} was deleted")
        log.forget_listeners()
        await_pass = self.cleaner.forget(log.topic_partition)
        self._flush_coordinator.on_delete(log)
        self._flush_coordinator.run(None, partial(self._rename_log, log, suffix, await_pass))
        self._flush_coordinator.forget_failure(log)

    def _remove_found(self, topic_partition: TopicPartition, suffix: str) -> None:
        """Remove a partition that is not loaded, or cannot be."""
        directory = self._found.pop(topic_partition)
        self._damaged.pop(topic_partition, None)
        self._told.pop(topic_partition, None)
        self._flush_coordinator.on_removed(topic_partition)
        self._flush_coordinator.run(None, partial(self._rename, directory, suffix, lambda: None))

    def _rename_log(self, log: DiskLog, suffix: str, await_pass: Callable[[], None]) -> None:
        with log.files_lock:
            self._rename(log.directory, suffix, await_pass)

    def _rename(self, directory: Path, suffix: str, await_pass: Callable[[], None]) -> None:
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

    def _new_log(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> DiskLog:
        log = self._make_log(topic_partition, topic_id, config, LoadedPartition([], 0, 0, EpochCache()))
        self._flush_coordinator.on_new(log)
        self._flush_coordinator.run(log, partial(self._check_renamed, log.directory))
        self._logs[topic_partition] = log
        return log

    def _make_log(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, loaded: LoadedPartition
    ) -> DiskLog:
        return DiskLog(
            self.data_dir / str(topic_partition),
            topic_partition,
            topic_id,
            config,
            loaded=loaded,
            directory_id=self._directory_id,
            handles=self._handles,
            clock=self._clock,
            queue=self._flush_coordinator,
        )

    def _adopt(self, log: DiskLog, topic_id: UUID) -> None:
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
        for topic_partition in self._loads.stop(self._stop_s):
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
        self.cleaner.finish()
        logs = list(self._logs.values())
        for log in logs:
            self._check_files(log)
        refusals = [log.refusal for log in logs if log.refusal is not None] + list(self._damaged.values())
        if refusals or self.offline_reason is not None:
            raise UnavailableError(self.offline_reason or refusals[0])
        files: set[Path] = set()
        for log in logs:
            files |= log.write_active_indexes()
        self._flush_coordinator.checkpoint_now(logs, files)
        remove_journal(self.data_dir)
        write_atomically(self.data_dir / CLEAN_SHUTDOWN, _CLEAN_SHUTDOWN_TEXT)

    def _check_files(self, log: DiskLog) -> None:
        """Take a log offline whose files are missing or too short, and leave a note for the next start."""
        missing = log.find_missing_data()
        if missing is not None:
            self.missing_data = self.missing_data or f"{log.topic_partition}: {missing}"
            _log.error("log.missing_data partition=%s error=%r", log.topic_partition, missing)
            log.refusal = missing
            self._write_note(log.directory, log.topic_id, missing)


def _restore(log: DiskLog, entry: JournalEntry) -> int:
    """
    Replay one journal entry, unless it belongs to another topic of the same name.

    Returns:
        The bytes that were restored.

    Raises:
        OffsetOutOfRangeError, CorruptError: an earlier batch is lost, or the entry is not a batch.
    """
    if log.topic_id != entry.topic_id:
        return 0
    if entry.kind == START:
        log.restore_start(entry.start_offset)
    elif entry.kind == EPOCH:
        log.restore_epoch(*entry.leader_epoch)
    else:
        return log.restore(entry.content)
    return 0


def _is_unknown(found: UUID, topic_id: UUID) -> bool:
    """Whether the id in a directory is missing, or differs in one character from this one, which is not a small number."""
    is_random = topic_id.int >> 64 != 0
    return found == NO_TOPIC_ID or (is_random and sum(map(ne, uuid_text(found), uuid_text(topic_id))) == 1)


def _way_out(data_dir: Path) -> str:
    return f"Nothing was changed; `kohort log repair --dry-run {data_dir}` shows what can be kept"


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
