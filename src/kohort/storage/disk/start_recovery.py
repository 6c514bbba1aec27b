"""
Recovery of a data directory after an unclean stop.

Segments that are not known to be durable are scanned (`logs.recovery`), missing batches are restored from the journal, and a
checkpoint is written. A partition whose flushed data is damaged is not loaded, and its files stay as they are.

Source: Kafka LogManager.loadLogs; Apache Kafka has no journal.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from kohort.model.errors import ConfigError, CorruptError, OffsetOutOfRangeError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.disk.found_partitions import FoundPartitions
from kohort.storage.disk.open_logs import OpenLogs
from kohort.storage.durability.flush_coordinator import FlushCoordinator
from kohort.storage.durability.journal import journal_files
from kohort.storage.files.journal_format import DELETE, EPOCH, START, JournalEntry, read_journal
from kohort.storage.log import NO_TOPIC_ID, LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.logs.recovery import RecoveryProgress, bytes_to_scan

_log = logging.getLogger("kohort.storage")


def recover(
    found: FoundPartitions,
    logs: OpenLogs,
    flush_coordinator: FlushCoordinator,
    clock: Clock,
    on_recovery: Callable[[RecoveryProgress], None],
    *,
    journal: Path,
    is_journaled: bool,
) -> None:
    """
    Scan data that is not known to be durable, restore missing batches from the journal, and write a checkpoint.

    Without recovery points, a loss cannot be told from a gap that the cleaner left; no gap counts as a loss then.

    A partition whose flushed data is damaged is not loaded, and its files stay as they are.

    Args:
        on_recovery: called with the progress.
        journal: the directory of the journal.
        is_journaled: whether the journal is there, and whole.
    """
    is_gapless = is_journaled and flush_coordinator.checkpoints.files.has_points
    started_ms = clock.now_ms()
    entries: dict[TopicPartition, list[JournalEntry]] = {}
    try:
        for entry in read_journal(journal_files(journal)):
            entries.setdefault(entry.topic_partition, []).append(entry)
    except CorruptError as exc:
        raise ConfigError(
            f"{journal} cannot be read: {exc}. Nothing was changed. If the machine did not lose power, the "
            "segments have all data: move the journal away and start again. Else data since the last checkpoint is lost."
        ) from exc
    _find_missing(found, entries)
    files: set[Path] = set()
    points = {
        topic_partition: flush_coordinator.checkpoints.offsets.get(topic_partition, 0)
        for topic_partition in found.directories
    }
    bytes_total = sum(
        bytes_to_scan(found.directories[topic_partition], point) for topic_partition, point in points.items()
    )
    recovered = RecoveryProgress(len(points), bytes_total)

    def on_scan(size_bytes: int) -> None:
        recovered.advance(size_bytes)
        on_recovery(recovered)

    for topic_partition in sorted(points):
        on_recovery(recovered)
        point, journaled = points[topic_partition], entries.get(topic_partition, [])
        try:
            topic_id, loaded = found.read(
                topic_partition,
                point,
                journaled=journaled,
                is_journaled=is_journaled,
                is_gapless=is_gapless,
                on_scan=on_scan,
            )
        except CorruptError as exc:
            found.set_damaged(topic_partition, exc, journaled)
            continue
        logs.add_loaded(topic_partition, topic_id, loaded)
        del found.directories[topic_partition]
        recovered.add(loaded)
        for segment in loaded.scanned:
            files |= {segment.path, segment.index.path, segment.time_index.path, segment.directory}
            if segment.checksums_path.exists():
                files.add(segment.checksums_path)
            if segment.aborted.is_unsynced:
                segment.aborted.is_unsynced = False
                files.add(segment.aborted.path)
    for topic_partition in sorted(entries.keys() - found.damaged.keys()):
        recovered.restored_bytes += _replay(logs, topic_partition, entries[topic_partition], recovered)
    for topic_partition, log in logs.logs.items():
        is_short = log.end_offset < points.get(topic_partition, 0) or topic_partition in recovered.short
        if is_short or not is_journaled:
            log.bump_epoch_after_loss()
    on_recovery(recovered)
    if logs.logs:
        flush_coordinator.checkpoint_now(logs.logs.values(), files)
        elapsed_ms = clock.now_ms() - started_ms
        _log.info(
            "store.recovered partitions=%d segments=%d bytes=%d cut_bytes=%d restored_bytes=%d elapsed_ms=%d",
            *(len(logs.logs), recovered.segments, recovered.scanned_bytes),
            *(recovered.cut_bytes, recovered.restored_bytes, elapsed_ms),
        )


def _find_missing(found: FoundPartitions, entries: dict[TopicPartition, list[JournalEntry]]) -> None:
    """Of the partitions without a directory, forget those that the journal deletes, and note those that it has data of."""
    for topic_partition in sorted(found.missing.keys() & entries.keys()):
        journaled = entries[topic_partition]
        if any(entry.kind == DELETE for entry in journaled):
            found.forget_missing(topic_partition)
        else:
            found.note_missing(topic_partition, journaled[-1].topic_id)


def _replay(
    logs: OpenLogs, topic_partition: TopicPartition, entries: list[JournalEntry], recovered: RecoveryProgress
) -> int:
    """
    Replay the journal entries of one partition name, which may have belonged to several topics one after the other.

    Returns:
        The bytes that were restored.
    """
    restored_bytes = 0
    gone = {entry.topic_id for entry in entries if entry.kind == DELETE}
    for entry in entries:
        log = logs.logs.get(topic_partition)
        if entry.kind == DELETE:
            # A directory without a topic id was never flushed: everything since the deletion is in the journal.
            if log is not None and log.topic_id in (entry.topic_id, NO_TOPIC_ID):
                logs.remove(log, "delete")
        elif entry.topic_id not in gone and (log is not None or entry.kind != START):
            log = log or logs.add_new(topic_partition, entry.topic_id, LogConfig())
            logs.adopt(log, entry.topic_id)
            try:
                restored_bytes += _restore(log, entry)
            except (OffsetOutOfRangeError, CorruptError) as exc:
                gone.add(entry.topic_id)
                recovered.short.add(topic_partition)
                _log.error("log.not_restored partition=%s error=%r", topic_partition, str(exc))
    if restored_bytes:
        _log.info("log.recovered partition=%s bytes=%d", topic_partition, restored_bytes)
    return restored_bytes


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
