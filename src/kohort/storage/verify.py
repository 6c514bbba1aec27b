"""
Every check that a recovery makes, and some more, without changing anything.

A directory that was left uncleanly may show what a recovery mends: a torn tail, indexes that lack their last entries. What
counts as durable there (everything below the recovery point) must be in order in any case, so problems are told apart.

Source: Kafka LogSegment.sanityCheck, LogSegment.recover, DumpLogSegments (index sanity check, verify index only).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.aborted import TXN_INDEX_SUFFIX
from kohort.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    read_offsets,
    read_partition_metadata,
    read_properties,
)
from kohort.storage.directory import offset_of, partition_of
from kohort.storage.dump import Row, dump
from kohort.storage.epochs import CHECKPOINT_NAME
from kohort.storage.log import NO_TOPIC_ID
from kohort.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from kohort.storage.snapshots import SNAPSHOT_SUFFIX


@dataclass(frozen=True, slots=True)
class Problem:
    """
    What is wrong with a file. `is_mended`: the next start puts it right; else data that counts as durable is damaged.
    """

    path: Path
    what: str
    is_mended: bool = False


@dataclass(slots=True)
class Verified:
    """What was looked at."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0


def verify(directory: Path, summary: Verified) -> Iterator[Problem]:
    """
    The problems of a data directory, or of one partition's directory.

    Args:
        summary: counted up on the way.

    Raises:
        OSError: something cannot be read.
    """
    topic_partition = partition_of(directory.name)
    if topic_partition is not None and any(directory.glob(f"*{LOG_SUFFIX}")):
        yield from _verify_partition(directory, summary, durable_until=None)
        return
    yield from _verify_root(directory)
    points = _recovery_points(directory)
    for path in sorted(directory.iterdir()):
        found = partition_of(path.name) if path.is_dir() else None
        if found is not None:
            is_clean = (directory / CLEAN_SHUTDOWN).exists()
            yield from _verify_partition(path, summary, durable_until=None if is_clean else points.get(found, 0))


def _verify_root(directory: Path) -> Iterator[Problem]:
    properties = read_properties(directory / META_PROPERTIES)
    if properties is None:
        yield Problem(directory / META_PROPERTIES, "is missing")
    elif properties.get("version") not in ("0", "1"):
        yield Problem(directory / META_PROPERTIES, f"has version {properties.get('version')}")
    for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
        try:
            read_offsets(directory / name)
        except CorruptError as error:
            yield Problem(directory / name, str(error))


def _recovery_points(directory: Path) -> dict[TopicPartition, int]:
    try:
        return read_offsets(directory / RECOVERY_POINTS)
    except CorruptError:
        return {}


def _verify_partition(directory: Path, summary: Verified, *, durable_until: int | None) -> Iterator[Problem]:
    """`durable_until`: below it everything is durable; None when everything is."""
    summary.partitions += 1
    if read_partition_metadata(directory) == NO_TOPIC_ID:
        yield Problem(directory / "partition.metadata", "names no topic id", is_mended=True)
    checkpoint = directory / CHECKPOINT_NAME
    if checkpoint.exists():
        yield from _rows_problems(checkpoint)
    for path in sorted(directory.glob(f"*{SNAPSHOT_SUFFIX}")):
        for problem in _rows_problems(path):
            yield Problem(path, problem.what, is_mended=True)
    next_offset = 0
    paths = sorted(directory.glob(f"*{LOG_SUFFIX}"))
    for path in [path for path in paths if offset_of(path.name) is None]:
        paths.remove(path)
        yield Problem(path, "is no segment, whose name is its first offset in twenty digits")
    for path in paths:
        is_written = path == paths[-1] and durable_until is not None
        segment = _Segment(path, next_offset, durable_until, may_lack_indexes=is_written)
        yield from segment.verify()
        summary.segments += 1
        summary.batches += len(segment.positions)
        summary.size_bytes += path.stat().st_size
        next_offset = segment.next_offset


def _rows_problems(path: Path) -> Iterator[Problem]:
    for row in dump(path):
        if "problem" in row:
            yield Problem(path, row["problem"])


_Check: TypeAlias = Callable[[Row, Row], str | None]
"""What is wrong with an entry, given the one before it; None when it is right."""


class _Segment:
    """One segment with its indexes."""

    def __init__(self, path: Path, next_offset: int, durable_until: int | None, *, may_lack_indexes: bool) -> None:
        """`may_lack_indexes`: those of the segment that appends go to are in the broker's memory until it ends."""
        self.path = path
        self.base_offset = int(path.stem)
        self.next_offset = max(self.base_offset, next_offset)
        self._is_overlapping = self.base_offset < next_offset
        self._durable_until = durable_until
        self._may_lack_indexes = may_lack_indexes
        self.positions: list[int] = []
        self._rows: list[tuple[int, int, int]] = []
        """Base offset, last offset and largest timestamp so far of each batch."""

    def verify(self) -> Iterator[Problem]:
        if self._is_overlapping:
            yield Problem(self.path, f"begins before the segment before it ends ({self.next_offset})")
        yield from self._verify_batches()
        for suffix, check in (
            (INDEX_SUFFIX, self._check_offset_entry),
            (TIME_INDEX_SUFFIX, self._check_time_entry),
            (TXN_INDEX_SUFFIX, self._check_aborted),
        ):
            path = self.path.with_suffix(suffix)
            if not path.exists():
                if suffix != TXN_INDEX_SUFFIX and not self._may_lack_indexes:
                    yield Problem(path, "is missing", is_mended=True)
                continue
            yield from self._verify_entries(path, check)

    def _verify_batches(self) -> Iterator[Problem]:
        newest_ms = -1
        for row in dump(self.path, has_records=False):
            what = row.get("problem")
            if what is None and row["base_offset"] < self.next_offset:
                what = f"offset {row['base_offset']} follows {self.next_offset - 1}"
            if what is not None:
                yield Problem(self.path, f"at byte {row['position']}: {what}", is_mended=self._is_beyond_durable())
                return
            newest_ms = max(newest_ms, row["max_timestamp_ms"])
            self.positions.append(row["position"])
            self._rows.append((row["base_offset"], row["last_offset"], newest_ms))
            self.next_offset = row["last_offset"] + 1

    def _is_beyond_durable(self) -> bool:
        return self._durable_until is not None and self.next_offset >= self._durable_until

    def _verify_entries(self, path: Path, check: _Check) -> Iterator[Problem]:
        """The first wrong entry tells enough. After an unclean stop the indexes above the recovery point are built anew."""
        is_mended = self._durable_until is not None and self.next_offset > self._durable_until
        before: Row = {}
        for row in dump(path):
            what = row.get("problem") or check(row, before)
            if what is not None:
                yield Problem(path, what, is_mended=is_mended)
                return
            before = row

    def _check_offset_entry(self, row: Row, before: Row) -> str | None:
        offset, position = row["offset"], row["position"]
        place = bisect_left(self.positions, position)
        if place == len(self.positions) or self.positions[place] != position:
            return f"offset {offset} at byte {position}, where no batch begins"
        if not self._rows[place][0] <= offset < self.next_offset:
            return f"offset {offset} at byte {position}, where {self._rows[place][0]} begins"
        if before and (offset <= before["offset"] or position <= before["position"]):
            return f"offset {offset} at byte {position} follows {before['offset']} at byte {before['position']}"
        return None

    def _check_time_entry(self, row: Row, before: Row) -> str | None:
        timestamp_ms, offset = row["timestamp_ms"], row["offset"]
        place = bisect_left(self._rows, offset, key=lambda found: found[1])
        if place == len(self._rows):
            return f"timestamp {timestamp_ms} at offset {offset}, which is not there"
        if timestamp_ms > self._rows[place][2]:
            return f"timestamp {timestamp_ms} at offset {offset}, where the largest so far is {self._rows[place][2]}"
        if before and timestamp_ms <= before["timestamp_ms"]:
            return f"timestamp {timestamp_ms} follows {before['timestamp_ms']}"
        return None

    def _check_aborted(self, row: Row, before: Row) -> str | None:
        if not self.base_offset <= row["last_offset"] < self.next_offset or row["first_offset"] > row["last_offset"]:
            return f"a transaction from {row['first_offset']} to {row['last_offset']}, which is not of this segment"
        if before and row["last_offset"] <= before["last_offset"]:
            return f"a transaction that ends at {row['last_offset']} follows one that ends at {before['last_offset']}"
        return None
