"""
Loading of a partition's segments, with recovery after an unclean stop.

After a clean stop indexes are checked, and only the tail behind the last index entry is walked. After an unclean stop all
segments from the recovery point on are read and checked, and their indexes rebuilt; the log is truncated at the first bad
batch, later segments included. Then missing batches are restored from the journal (`DiskLog.restore`). Every step is
idempotent: an interrupted recovery is repeated with the same result.

A torn tail was never flushed. A log that is damaged or ends below an offset up to which it was flushed is not truncated and not
loaded: its valid batches are left for `kohort log repair`. Apache Kafka truncates it.

Source: Kafka LogLoader, LogSegment.recover.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kohort.model.errors import ConfigError, CorruptError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.batchset import Span, read_front
from kohort.storage.epochs import CHECKPOINT_NAME, EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.checksums import read_sealed
from kohort.storage.files.directory import LOG_SUFFIX, offset_of, segment_path
from kohort.storage.log import LogConfig
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager, read_producer_id
from kohort.storage.segments.missing import INDEX_SUFFIXES, find_missing_segment, orphans_of, remove_indexes_of_deleted
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.snapshots import SNAPSHOT_SUFFIX, load_newest, remove_strays
from kohort.storage.segments.swap import finish_swaps
from kohort.wire.batch_header import HEADER_BYTES, PRODUCER_ID_AT
from kohort.wire.compression import Buffer

_log = logging.getLogger("kohort.storage")

DAMAGE_NOTE = "damage.txt"
"""A file in the directory of a partition whose files a stop found missing or too short: a start does not load the partition."""
_SIDE_SUFFIXES = (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX, LOG_SUFFIX)
"""The segment itself is removed last: indexes without it would show that it is missing."""


class LoadedPartition(msgspec.Struct):
    """
    A partition as loaded from its directory.

    Attributes:
        scanned: the segments that were read and checked; their data may not be durable yet.
        cut_bytes: the bytes truncated behind the last valid batch, whole segments included.
        journaled_epochs: see `load_partition`.
        on_scan: called with the number of further bytes that were read.
    """

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    epochs: EpochCache
    producers: ProducerStateManager = msgspec.field(default_factory=ProducerStateManager)
    scanned: list[Segment] = msgspec.field(default_factory=list)
    cut_bytes: int = 0
    journaled_epochs: Mapping[int, int] | None = None
    on_scan: Callable[[int], None] = lambda _bytes: None

    def assign_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """Begin the leader epoch of a scanned batch. No checksum covers it, so the journal has to know a new one."""
        known = self.journaled_epochs
        if known is None or leader_epoch == 0 or known.get(leader_epoch, base_offset + 1) <= base_offset:
            self.epochs.assign(leader_epoch, base_offset)


class RecoveryProgress(msgspec.Struct):
    """
    The progress of a recovery.

    Attributes:
        bytes_total: the estimate of the bytes to read.
        scanned_bytes: bytes that were read and checked.
        cut_bytes: torn or damaged bytes that were truncated.
        restored_bytes: bytes restored from the journal.
        short: partitions with journal entries that could not be restored.
    """

    partitions_total: int
    bytes_total: int = 0
    partitions: int = 0
    segments: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0
    restored_bytes: int = 0
    short: set[TopicPartition] = msgspec.field(default_factory=set)
    _under_way_bytes: int = 0

    def advance(self, size_bytes: int) -> None:
        """Count bytes that were read of the current partition."""
        self.scanned_bytes += size_bytes
        self._under_way_bytes += size_bytes

    def add(self, loaded: LoadedPartition) -> None:
        self.partitions += 1
        self.segments += len(loaded.scanned)
        self.scanned_bytes += sum(segment.size_bytes for segment in loaded.scanned) - self._under_way_bytes
        self._under_way_bytes = 0
        self.cut_bytes += loaded.cut_bytes


def bytes_to_scan(directory: Path, recovery_point: int) -> int:
    """
    An estimate of the bytes that a recovery reads of a partition. Unexpected files are ignored; the recovery reports them.

    Raises:
        OSError: the directory cannot be read.
    """
    found = sorted(
        (base_offset, path.stat().st_size)
        for path in directory.iterdir()
        if path.suffix == LOG_SUFFIX and (base_offset := offset_of(path.name)) is not None
    )
    bases = [base_offset for base_offset, _ in found]
    first = max(bisect_right(bases, recovery_point) - 1, 0)
    if first and bases[first] == recovery_point:
        first -= 1
    return sum(size_bytes for _, size_bytes in found[first:])


def load_partition(
    directory: Path,
    config: LogConfig,
    clock: Clock,
    *,
    log_start_offset: int,
    recovery_point: int | None,
    durable_until: int = 0,
    is_gapless: bool = False,
    journaled_epochs: Mapping[int, int] | None = None,
    on_scan: Callable[[int], None] = lambda _bytes: None,
) -> LoadedPartition:
    """
    Load one partition.

    Args:
        log_start_offset: the checkpointed log start offset; the log starts at the first base offset if that is larger.
        recovery_point: all data below is durable and indexed; None after a clean stop.
        durable_until: all data below was flushed, also after a clean stop; 0 if that is not known.
        is_gapless: whether a gap between offsets above the recovery point is a loss; data behind it was never acknowledged or
            is in the journal. True for directories with a journal, because Kohort cleans and deletes below the recovery point
            only. Apache Kafka's cleaner may leave gaps above it.
        journaled_epochs: the start offsets of leader epochs that the journal has: an epoch that neither it nor
            `leader-epoch-checkpoint` has is a damaged header. None without a journal.
        on_scan: called from time to time with the number of further bytes that were read and checked.

    Raises:
        CorruptError: flushed data is damaged or missing.
        ConfigError: the directory holds files that cannot be loaded.
        OSError: the directory cannot be read.
    """
    note = directory / DAMAGE_NOTE
    if note.exists():
        raise CorruptError(note.read_text("utf-8", "replace").strip())
    segments = _find_segments(directory, config, clock, log_start_offset=log_start_offset, durable_until=durable_until)
    try:
        epochs = _read_epochs(directory, must_exist=durable_until > log_start_offset and bool(segments))
        loaded = LoadedPartition(segments, log_start_offset, log_start_offset, epochs or EpochCache(), on_scan=on_scan)
        loaded.journaled_epochs = None if epochs is None else journaled_epochs
        known_until = log_start_offset if recovery_point is None else max(recovery_point, log_start_offset)
        if is_gapless and segments and segments[0].base_offset > known_until:
            _check_durable(directory, log_start_offset, durable_until)
            _drop(loaded, 0)
        if segments:
            loaded.log_start_offset = max(log_start_offset, segments[0].base_offset)
            _load_segments(loaded, config, recovery_point, durable_until=durable_until, is_gapless=is_gapless)
        _check_durable(segments[-1].path if segments else directory, loaded.end_offset, durable_until)
        if recovery_point is None and 0 < durable_until < loaded.end_offset:
            raise CorruptError(
                f"{segments[-1].path} ends at offset {loaded.end_offset}, though it was stopped at offset {durable_until}"
            )
        if loaded.end_offset < loaded.log_start_offset:
            _drop(loaded, 0)
            loaded.end_offset = loaded.log_start_offset
        if epochs is None:
            loaded.epochs = _find_epochs(segments)
        for leader_epoch, start_offset in (loaded.journaled_epochs or {}).items():
            loaded.epochs.lower_start(leader_epoch, start_offset)
        remove_strays(directory, bases={segment.base_offset for segment in segments}, end_offset=loaded.end_offset)
        loaded.producers.on_high_watermark(loaded.end_offset)
        _keep_epochs(loaded)
        loaded.epochs.truncate_from_start(loaded.log_start_offset)
        return loaded
    except BaseException:
        for segment in segments:
            segment.close()  # The traceback refers to them, and would keep their files open.
        raise


def _check_durable(path: Path, end_offset: int, durable_until: int) -> None:
    """
    Raises:
        CorruptError: the log ends at `end_offset`, which is below `durable_until`.
    """
    if end_offset < durable_until:
        raise CorruptError(
            f"{path} ends at offset {end_offset}, though the log was flushed up to offset {durable_until}"
        )


def _keep_epochs(loaded: LoadedPartition) -> None:
    """
    Remove the epochs that began in truncated data, except for the newest one, which begins at the end of the log then.

    Source: Kafka LogLoader.load. There the controller knows the newest epoch.
    """
    latest = loaded.epochs.latest
    loaded.epochs.truncate_from_end(loaded.end_offset + 1)
    loaded.epochs.assign(latest, loaded.end_offset)


def _find_segments(
    directory: Path, config: LogConfig, clock: Clock, *, log_start_offset: int, durable_until: int
) -> list[Segment]:
    """
    The segments by rising offset. Leftovers of deletions and of the cleaner, and indexes without a log, are removed.

    Raises:
        CorruptError: indexes show that a segment with flushed data is missing.
    """
    remove_indexes_of_deleted(directory)
    finish_swaps(directory)
    names = {path.name for path in directory.iterdir()}
    bases = sorted(_base_of(directory / name) for name in names if name.endswith(LOG_SUFFIX))
    missing = find_missing_segment(names, bases, log_start_offset=log_start_offset, durable_until=durable_until)
    if missing is not None:
        raise CorruptError(f"{segment_path(directory, missing, LOG_SUFFIX)} is missing, though its index is there")
    for name in sorted(orphans_of(names)):
        syscalls.remove(directory / name)
    return [Segment(directory, base, config, created_ms=clock.now_ms()) for base in bases]


def _base_of(path: Path) -> int:
    base_offset = offset_of(path.name)
    if base_offset is None or path.name != f"{base_offset:020d}{LOG_SUFFIX}":
        raise ConfigError(f"{path} is no segment, whose name is its first offset in twenty digits: move it away.")
    return base_offset


def _read_epochs(directory: Path, *, must_exist: bool) -> EpochCache | None:
    """
    The leader epochs of a partition; None if the file is damaged.

    Args:
        must_exist: a checkpoint has written the file, so a missing one counts as damaged.
    """
    path = directory / CHECKPOINT_NAME
    try:
        return EpochCache.from_text(read_sealed(path))
    except FileNotFoundError:
        if not must_exist:
            return EpochCache()
        _log.warning("log.epochs_unreadable path=%s error=%r", path, "the file is missing")
        return None
    except CorruptError as exc:
        _log.warning("log.epochs_unreadable path=%s error=%r", path, str(exc))
        return None


def _find_epochs(segments: list[Segment]) -> EpochCache:
    """The leader epochs in the headers of all batches; epochs without a batch are not known."""
    epochs = EpochCache()
    for segment in segments:
        for position, _, base_offset, _, _ in segment.walk():
            epochs.assign(read_front(segment.read_at(position, HEADER_BYTES))[2], base_offset)
        segment.close()
    return epochs


def _load_segments(
    loaded: LoadedPartition, config: LogConfig, recovery_point: int | None, *, durable_until: int, is_gapless: bool
) -> None:
    """
    Load the segments, and scan those above the recovery point.

    A segment that ends at the recovery point is durable, but its indexes may not be: it may have been active when the
    checkpoint began, and rolled since. It is scanned, too.
    """
    segments = loaded.segments
    bases = [segment.base_offset for segment in segments]
    unchecked_from = len(bases)
    if recovery_point is not None:
        unchecked_from = max(bisect_right(bases, recovery_point) - 1, 0)
    next_offset = bases[0]
    producers = _ProducerLoad(loaded, segments[0].directory, is_clean=recovery_point is None)
    for index in range(len(bases)):
        segment, is_last = segments[index], index == len(bases) - 1
        is_unchecked = index >= unchecked_from
        if is_gapless and index > unchecked_from and segment.base_offset != next_offset:
            _check_durable(segments[index - 1].path, next_offset, durable_until)
            _drop(loaded, index)
            break
        is_doubtful = is_unchecked or (not is_last and bases[index + 1] == recovery_point)
        end_offset = None if is_doubtful else load_without_scan(segment, is_last=is_last, bases=bases, index=index)
        if end_offset is None:
            producers.reach(segment.base_offset)
            gapless_from = recovery_point if is_gapless and is_unchecked else None
            cut_bytes, end_offset = _scan(
                loaded,
                segment,
                config,
                producers,
                gapless_from=gapless_from,
                durable_until=durable_until,
                is_last=is_last,
            )
            if not is_last and not is_doubtful and end_offset == segment.base_offset:
                gap = f"{segment.path} is empty, and its indexes are missing: offsets up to {bases[index + 1] - 1} are lost"
                _log.error("log.gap path=%s error=%r", segment.path, gap)
            if cut_bytes and is_unchecked:
                _drop(loaded, index + 1)
                next_offset = end_offset
                break
        next_offset = end_offset
    loaded.end_offset = next_offset
    producers.reach(next_offset)
    loaded.producers = producers.producers
    if segments:
        segments[-1].open_for_appends()


def load_without_scan(segment: Segment, *, is_last: bool, bases: list[int], index: int) -> int | None:
    """The offset behind the segment, without reading its data; None if it has to be scanned."""
    if is_last:
        return segment.load_active()
    return bases[index + 1] if segment.load_inactive() else None


class _ProducerLoad:
    """
    The state of producers while segments are loaded: the newest usable snapshot, updated with the batches behind it, which are
    read from segments that are not scanned, and seen in those that are.

    Source: Kafka UnifiedLog.rebuildProducerState.
    """

    def __init__(self, loaded: LoadedPartition, directory: Path, *, is_clean: bool) -> None:
        self.producers = ProducerStateManager()
        self._is_clean = is_clean
        self._segments = loaded.segments
        self._directory = directory
        self._known_until: int | None = None

    def reach(self, offset: int) -> None:
        """Update the state with all batches before `offset`."""
        if self._known_until is None:
            found = load_newest(self._directory, offset)
            if found is not None:
                self.producers, self._known_until = found
            else:  # Kafka believes then, after a clean stop, that the log has no producers
                self._known_until = self._segments[0].base_offset
                if self._is_clean and offset > self._known_until:
                    _log.warning("log.snapshot_missing directory=%s", self._directory)
        if self._known_until >= offset:
            return
        for segment in self._segments:
            if segment.base_offset < offset:
                self._walk(segment, self._known_until, offset)
        self._known_until = offset

    def _walk(self, segment: Segment, begin: int, end: int) -> None:
        start = segment.index.position_for(begin)
        for position, size, base_offset, last_offset, timestamp_ms in segment.walk(start):
            if base_offset >= end:
                return
            if (
                base_offset >= begin
                and read_producer_id(segment.read_at(position, HEADER_BYTES), PRODUCER_ID_AT)[0] >= 0
            ):
                data = segment.read_at(position, size)
                self._learn(segment, data, (0, size, base_offset, last_offset, timestamp_ms))

    def _learn(self, segment: Segment, data: Buffer, span: Span) -> AbortedTxn | None:
        """Update the state. An unreadable control record in a batch with a right checksum was written so; it ends nothing."""
        try:
            return self.producers.update(data, span)
        except CorruptError as error:
            _log.warning("log.marker_unreadable path=%s offset=%d error=%r", segment.path, span[2], str(error))
            return None

    def update(self, segment: Segment, buffer: memoryview, start: int, span: Span) -> None:
        """Update the state with a scanned batch, and the transaction index of its segment."""
        _, size, base_offset, last_offset, timestamp_ms = span
        if read_producer_id(buffer, start + PRODUCER_ID_AT)[0] >= 0:
            aborted = self._learn(segment, buffer, (start, size, base_offset, last_offset, timestamp_ms))
            if aborted is not None:
                segment.aborted.append(aborted)
        self._known_until = last_offset + 1


def _scan(
    loaded: LoadedPartition,
    segment: Segment,
    config: LogConfig,
    producers: _ProducerLoad,
    *,
    gapless_from: int | None,
    durable_until: int,
    is_last: bool,
) -> tuple[int, int]:
    """Scan one segment; returns the truncated bytes, and the offset behind the last valid batch."""
    before_bytes = segment.path.stat().st_size
    next_offset = segment.base_offset
    # It states the size of the segment, which may lose bytes. Empty it fits no index: a recovery that is interrupted, perhaps
    # without the transaction index, is done again.
    syscalls.write_file(segment.checksums_path, b"")
    segment.aborted.clear()
    last_buffer, told_bytes = None, 0
    batches = segment.scan(config, gapless_from=gapless_from, durable_until=durable_until)
    for buffer, start, span in batches:
        if buffer is not last_buffer:
            last_buffer = buffer
            if span[0] > told_bytes:
                loaded.on_scan(span[0] - told_bytes)
                told_bytes = span[0]
        loaded.assign_epoch(read_front(buffer, start)[2], span[2])
        producers.update(segment, buffer, start, span)
        next_offset = span[3] + 1
    cut_bytes = before_bytes - segment.size_bytes
    if cut_bytes:
        loaded.cut_bytes += cut_bytes
        _log.warning("log.cut path=%s position=%d bytes=%d", segment.path, segment.size_bytes, cut_bytes)
    if is_last:
        segment.time_index.maybe_append(*segment.max_timestamp)
        syscalls.remove(segment.checksums_path)
    else:
        segment.write_indexes()
        segment.release()
    loaded.scanned.append(segment)
    return cut_bytes, next_offset


def _drop(loaded: LoadedPartition, first: int) -> None:
    """Remove the segments from this one on, because data before them is lost."""
    for segment in loaded.segments[first:]:
        loaded.cut_bytes += segment.path.stat().st_size
        _log.warning("log.segment_dropped path=%s bytes=%d", segment.path, segment.path.stat().st_size)
        segment.close()
        for suffix in _SIDE_SUFFIXES:
            syscalls.remove(segment.path.with_suffix(suffix))
    del loaded.segments[first:]
