"""
The checks of a recovery, and more, without changing a file.

After an unclean stop a directory may have problems that the next start repairs: a torn tail, indexes without their last
entries. Data below the recovery point counts as durable and must be in order in any case, so a problem says its kind.

Records of coordinators (`__consumer_offsets`, `__transaction_state`, `__share_group_state`) are decoded too. A record that
cannot be decoded is reported with its offset, its key in hexadecimal and the reason; the load of its partition sets it aside.

Source: Kafka LogSegment.sanityCheck, LogSegment.recover, DumpLogSegments (index sanity check, verify index only).
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kohort.model.errors import CorruptError
from kohort.model.ids import INTERNAL_TOPICS, TopicPartition
from kohort.records.serde import CoordinatorRecordSerde
from kohort.runtime.loading.set_aside import DETAILS_MAX, find_set_aside
from kohort.storage.durability.checkpoints import LOG_STARTS_LOSS
from kohort.storage.durability.journal import JOURNAL_LOSS, find_lost_journal, journal_files
from kohort.storage.epochs import CHECKPOINT_NAME
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    is_empty,
    read_offsets,
    read_partition_metadata,
    read_properties,
)
from kohort.storage.files.directory import (
    INDEX_SUFFIX,
    JOURNAL,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    find_partitions,
    offset_of,
    partition_of,
    segment_path,
)
from kohort.storage.files.foreign import has_own_properties
from kohort.storage.files.journal_format import DELETE, read_journal
from kohort.storage.log import NO_TOPIC_ID
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX, written_bytes
from kohort.storage.segments.missing import find_missing_segment
from kohort.storage.segments.snapshots import SNAPSHOT_SUFFIX
from kohort.storage.tools.dump import Row, dump
from kohort.wire.batches import read_header


@dataclass(frozen=True, slots=True)
class Problem:
    """
    A problem of a file. `is_repaired`: the next start repairs it; else data that counts as durable is damaged.
    """

    path: Path
    what: str
    is_repaired: bool = False


@dataclass(slots=True)
class Verified:
    """Counts of the checked partitions, segments, batches and bytes."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0


def verify(directory: Path, summary: Verified) -> Iterator[Problem]:
    """
    The problems of a data directory, or of one partition's directory.

    Args:
        summary: updated during the iteration.

    Raises:
        OSError: a file cannot be read.
    """
    topic_partition = partition_of(directory.name)
    if topic_partition is not None and any(directory.glob(f"*{LOG_SUFFIX}")):
        yield from _verify_partition(directory, summary, durable_until=None)
        return
    yield from _verify_root(directory)
    points, starts = _offsets(directory / RECOVERY_POINTS), _offsets(directory / LOG_START_OFFSETS)
    is_clean = (directory / CLEAN_SHUTDOWN).exists()
    found = find_partitions(directory)
    if has_own_properties(directory):  # Partitions of Apache Kafka may have been copied without the others.
        for topic_partition in sorted(points.keys() - found.keys() - _deleted(directory)):
            what = f"is missing, though the log was flushed up to offset {points[topic_partition]}"
            yield Problem(directory / str(topic_partition), what)
    for topic_partition, path in found.items():
        durable_until, log_start_offset = points.get(topic_partition, 0), starts.get(topic_partition, 0)
        yield from _verify_files(
            path, log_start_offset=log_start_offset, durable_until=durable_until, is_clean=is_clean
        )
        yield from _verify_partition(
            path, summary, durable_until=None if is_clean else durable_until, flushed_until=durable_until
        )


def _verify_root(directory: Path) -> Iterator[Problem]:
    yield from _verify_properties(directory / META_PROPERTIES)
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
        try:
            read_offsets(directory / name)
        except CorruptError as error:
            yield Problem(directory / name, str(error))
    is_checkpointed = has_own_properties(directory) and bool(_offsets(directory / RECOVERY_POINTS))
    if is_checkpointed and is_empty(directory / LOG_START_OFFSETS):
        yield Problem(directory / LOG_START_OFFSETS, f"is missing or empty: {LOG_STARTS_LOSS}")
    lost = find_lost_journal(directory)
    if lost is not None:
        yield Problem(directory / JOURNAL, f"{lost}: {JOURNAL_LOSS}")


def _deleted(directory: Path) -> set[TopicPartition]:
    """Partitions whose deletion is under way, by the journal or by the names of their directories."""
    try:
        deleted = {
            each.topic_partition for each in read_journal(journal_files(directory / JOURNAL)) if each.kind == DELETE
        }
    except CorruptError:
        deleted = set()
    names = (path.name.rpartition(".")[0] for path in directory.glob("*-delete"))
    return deleted | {found for name in names if (found := partition_of(name)) is not None}


def _verify_files(directory: Path, *, log_start_offset: int, durable_until: int, is_clean: bool) -> Iterator[Problem]:
    """The files of a partition that a checkpoint or a clean stop has written, and that are missing."""
    names = {path.name for path in directory.iterdir()}
    bases = sorted(offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None)
    missing = find_missing_segment(names, bases, log_start_offset=log_start_offset, durable_until=durable_until)
    if missing is not None:
        yield Problem(segment_path(directory, missing, LOG_SUFFIX), "is missing, though its index is there")
    if durable_until <= log_start_offset or not bases:
        return
    if CHECKPOINT_NAME not in names:
        yield Problem(directory / CHECKPOINT_NAME, "is missing", is_repaired=True)
    if is_clean and durable_until > bases[0] and not any(name.endswith(SNAPSHOT_SUFFIX) for name in names):
        yield Problem(directory, "has no snapshot of the producers, which a stop writes", is_repaired=True)


def _verify_properties(path: Path) -> Iterator[Problem]:
    try:
        properties = read_properties(path)
    except CorruptError as error:
        yield Problem(path, str(error))
        return
    if properties is None:
        yield Problem(path, "is missing")
    elif properties.get("version") not in ("0", "1"):
        yield Problem(path, f"has version {properties.get('version')}")


def _offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_offsets(path)
    except CorruptError:
        return {}


def _verify_partition(
    directory: Path, summary: Verified, *, durable_until: int | None, flushed_until: int = 0
) -> Iterator[Problem]:
    """
    Args:
        durable_until: all data below this offset is durable; None if all data is.
        flushed_until: where the log ends at least.
    """
    summary.partitions += 1
    if read_partition_metadata(directory) == NO_TOPIC_ID:
        yield Problem(directory / "partition.metadata", "names no topic id", is_repaired=True)
    checkpoint = directory / CHECKPOINT_NAME
    if checkpoint.exists():
        yield from _rows_problems(checkpoint)
    for path in sorted(directory.glob(f"*{SNAPSHOT_SUFFIX}")):
        for problem in _rows_problems(path):
            yield Problem(path, problem.what, is_repaired=True)
    next_offset = 0
    paths = sorted(directory.glob(f"*{LOG_SUFFIX}"))
    for path in [path for path in paths if offset_of(path.name) is None]:
        paths.remove(path)
        yield Problem(path, "is no segment, whose name is its first offset in twenty digits")
    serde = _serde(directory)
    for index, path in enumerate(paths):
        is_written = path == paths[-1] and durable_until is not None
        segment = _Segment(path, next_offset, durable_until, may_lack_indexes=is_written, serde=serde)
        if path != paths[-1] and not path.stat().st_size and not path.with_suffix(INDEX_SUFFIX).exists():
            # A cleaner that removes every record of a segment leaves its empty indexes.
            what = f"is empty, and its index is missing: offsets up to {int(paths[index + 1].stem) - 1} are lost"
            yield Problem(path, what)
        yield from segment.verify()
        summary.segments += 1
        summary.batches += segment.batches
        summary.size_bytes += path.stat().st_size
        next_offset = segment.next_offset
    if next_offset < flushed_until:
        yield Problem(
            directory, f"ends at offset {next_offset}, though the log was flushed up to offset {flushed_until}"
        )


def _serde(directory: Path) -> CoordinatorRecordSerde | None:
    """The records of a coordinator's partition; None for partitions of other topics."""
    topic_partition = partition_of(directory.resolve().name)
    if topic_partition is None or topic_partition.topic not in INTERNAL_TOPICS:
        return None
    return CoordinatorRecordSerde(topic_partition.topic)


def _rows_problems(path: Path) -> Iterator[Problem]:
    for row in dump(path):
        if "problem" in row:
            yield Problem(path, row["problem"])


class _Index(ABC):
    """
    The entries of an index, which are checked while the batches of the segment are read: neither is kept in memory.

    Attributes:
        what: the problem of the first wrong entry; later entries are not checked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.what: str | None = None
        self._rows = dump(path)
        self._before: Row | None = None
        self._entry: Row | None = None
        self._advance()

    def meet(self, batch: Row) -> None:
        """Check the entries of the next batch, whose `newest_ms` is the largest timestamp of the segment so far."""
        while self._entry is not None and self.is_reached(self._entry, batch):
            self.what = self.check(self._entry, batch)
            self._advance()

    def end(self, next_offset: int) -> None:
        """Check the remaining entry after the last batch; `next_offset` is the offset behind it."""
        if self._entry is not None:
            self.what = self.unmet(self._entry)
        elif self.what is None and self._before is not None:
            self.what = self.check_last(self._before, next_offset)

    def _advance(self) -> None:
        self._before, self._entry = self._entry, None
        if self.what is not None:
            return
        entry = next(self._rows, None)
        if entry is None:
            return
        self.what = entry.get("problem") or (None if self._before is None else self.check_order(self._before, entry))
        if self.what is None:
            self._entry = entry

    @abstractmethod
    def is_reached(self, entry: Row, batch: Row) -> bool:
        """Whether the entry is of this batch or of an earlier position."""

    @abstractmethod
    def check(self, entry: Row, batch: Row) -> str | None: ...

    @abstractmethod
    def check_order(self, before: Row, entry: Row) -> str | None: ...

    @abstractmethod
    def unmet(self, entry: Row) -> str:
        """The problem of an entry without a batch."""

    def check_last(self, _entry: Row, _next_offset: int) -> str | None:
        return None


class _OffsetIndex(_Index):
    """An entry has the position of a batch, and an offset of the set that was appended with it."""

    def is_reached(self, entry: Row, batch: Row) -> bool:
        return bool(entry["position"] <= batch["position"])

    def check(self, entry: Row, batch: Row) -> str | None:
        if entry["position"] < batch["position"]:
            return self.unmet(entry)
        if entry["offset"] < batch["base_offset"]:
            return f"offset {entry['offset']} at byte {entry['position']}, where {batch['base_offset']} begins"
        return None

    def check_order(self, before: Row, entry: Row) -> str | None:
        if entry["offset"] > before["offset"] and entry["position"] > before["position"]:
            return None
        return f"offset {entry['offset']} at byte {entry['position']} follows {before['offset']} at byte {before['position']}"

    def unmet(self, entry: Row) -> str:
        return f"offset {entry['offset']} at byte {entry['position']}, where no batch begins"

    def check_last(self, entry: Row, next_offset: int) -> str | None:
        if entry["offset"] < next_offset:
            return None
        return f"offset {entry['offset']} at byte {entry['position']}, though {next_offset} is the next to be written"


class _TimeIndex(_Index):
    """An entry has the largest timestamp of all batches up to an offset."""

    def is_reached(self, entry: Row, batch: Row) -> bool:
        return bool(entry["offset"] <= batch["last_offset"])

    def check(self, entry: Row, batch: Row) -> str | None:
        timestamp_ms, offset = entry["timestamp_ms"], entry["offset"]
        if timestamp_ms <= batch["newest_ms"]:
            return None
        return f"timestamp {timestamp_ms} at offset {offset}, where the largest so far is {batch['newest_ms']}"

    def check_order(self, before: Row, entry: Row) -> str | None:
        if entry["timestamp_ms"] <= before["timestamp_ms"]:
            return f"timestamp {entry['timestamp_ms']} follows {before['timestamp_ms']}"
        if entry["offset"] < before["offset"]:
            return f"timestamp {entry['timestamp_ms']} at offset {entry['offset']} follows one at {before['offset']}"
        return None

    def unmet(self, entry: Row) -> str:
        return f"timestamp {entry['timestamp_ms']} at offset {entry['offset']}, which is not there"


class _Segment:
    """One segment with its indexes, read once."""

    def __init__(
        self,
        path: Path,
        next_offset: int,
        durable_until: int | None,
        *,
        may_lack_indexes: bool,
        serde: CoordinatorRecordSerde | None,
    ) -> None:
        """
        Args:
            may_lack_indexes: the indexes of the active segment are in the broker's memory until the segment ends.
            serde: decodes the records of a coordinator's partition.
        """
        self.path = path
        self._serde = serde
        self._set_aside = 0
        self.base_offset = int(path.stem)
        self.next_offset = max(self.base_offset, next_offset)
        self.batches = 0
        self._is_overlapping = self.base_offset < next_offset
        self._durable_until = durable_until
        self._may_lack_indexes = may_lack_indexes

    def verify(self) -> Iterator[Problem]:
        whole_bytes, found_bytes = written_bytes(self.path.with_suffix(CHECKSUMS_SUFFIX)), self.path.stat().st_size
        if found_bytes < whole_bytes:
            yield Problem(self.path, f"has {found_bytes} of {whole_bytes} bytes", is_repaired=self._is_beyond_durable())
        if self._is_overlapping:
            yield Problem(self.path, f"begins before the segment before it ends ({self.next_offset})")
        kinds: dict[str, type[_Index]] = {INDEX_SUFFIX: _OffsetIndex, TIME_INDEX_SUFFIX: _TimeIndex}
        paths = {self.path.with_suffix(suffix): kind for suffix, kind in kinds.items()}
        indexes = [kind(path) for path, kind in paths.items() if path.exists()]
        yield from self._verify_batches(indexes)
        for index in indexes:
            index.end(self.next_offset)
        found = {index.path: index.what for index in indexes}
        for path in paths:
            if path in found:
                yield from self._problem(path, found[path])
            elif not self._may_lack_indexes:
                yield Problem(path, "is missing", is_repaired=True)
        yield from self._verify_aborted(self.path.with_suffix(TXN_INDEX_SUFFIX))

    def _verify_batches(self, indexes: Sequence[_Index]) -> Iterator[Problem]:
        newest_ms = -1
        for row in dump(self.path, has_records=False):
            what = row.get("problem")
            if what is None and row["base_offset"] < self.next_offset:
                what = f"offset {row['base_offset']} follows {self.next_offset - 1}"
            if what is not None:
                yield Problem(self.path, f"at byte {row['position']}: {what}", is_repaired=self._is_beyond_durable())
                return
            row["newest_ms"] = newest_ms = max(newest_ms, row["max_timestamp_ms"])
            for index in indexes:
                index.meet(row)
            if self._serde is not None:
                yield from self._verify_records(row["position"], row["size"], self._serde)
            self.batches += 1
            self.next_offset = row["last_offset"] + 1
        if self._set_aside > DETAILS_MAX:
            yield Problem(self.path, f"{self._set_aside - DETAILS_MAX} more records or batches cannot be decoded")

    def _verify_records(self, position: int, size: int, serde: CoordinatorRecordSerde) -> Iterator[Problem]:
        with self.path.open("rb") as file:
            batch = os.pread(file.fileno(), size, position)
        for found in find_set_aside(read_header(batch), batch, serde):
            self._set_aside += 1
            if self._set_aside <= DETAILS_MAX:
                what = "batch" if found.key is None else f"record with key {found.key.hex()}"
                yield Problem(self.path, f"at offset {found.offset}: a {what} cannot be decoded: {found.reason}")

    def _is_beyond_durable(self) -> bool:
        return self._durable_until is not None and self.next_offset >= self._durable_until

    def _problem(self, path: Path, what: str | None) -> Iterator[Problem]:
        """Report a wrong index. After an unclean stop the next start rebuilds indexes above the recovery point."""
        if what is not None:
            is_repaired = self._durable_until is not None and self.next_offset > self._durable_until
            yield Problem(path, what, is_repaired=is_repaired)

    def _verify_aborted(self, path: Path) -> Iterator[Problem]:
        before: Row = {}
        for row in dump(path) if path.exists() else ():
            what = row.get("problem") or self._check_aborted(row, before)
            if what is not None:
                yield from self._problem(path, what)
                return
            before = row

    def _check_aborted(self, row: Row, before: Row) -> str | None:
        if not self.base_offset <= row["last_offset"] < self.next_offset or row["first_offset"] > row["last_offset"]:
            return f"a transaction from {row['first_offset']} to {row['last_offset']}, which is not of this segment"
        if before and row["last_offset"] <= before["last_offset"]:
            return f"a transaction that ends at {row['last_offset']} follows one that ends at {before['last_offset']}"
        return None
