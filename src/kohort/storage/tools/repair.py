"""
Repair of partitions whose flushed data is damaged or missing, which a start does not load.

All batches with a right checksum are kept, in the order of their offsets; the offsets of the other batches are lost. A damaged
segment is kept beside the new one, as `<segment>.damaged`. Data that the journal had of such a partition is put behind its
segments. The log ends at its recovery point at least, so that no offset is given to another record. Other partitions are not
changed.
"""

import mmap
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import Span, iter_spans, span_at, stated_size
from kohort.storage.durability.journal import JOURNALED_SUFFIX, journal_files
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    offsets_to_text,
    read_offsets,
    read_partition_metadata,
    write_atomically,
)
from kohort.storage.files.checksums import correct_bit
from kohort.storage.files.directory import (
    INDEX_SUFFIX,
    JOURNAL,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    find_partitions,
    offset_of,
    segment_path,
)
from kohort.storage.files.journal_format import APPEND, JournalEntry, flushed_until, read_journal
from kohort.storage.logs.recovery import DAMAGE_NOTE
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX, written_bytes
from kohort.storage.segments.missing import find_missing_segment, orphans_of
from kohort.wire.batch_header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, MAGIC, MAGIC_AT
from kohort.wire.batches import check_crc
from kohort.wire.native import crc32c

DAMAGED_SUFFIX = ".damaged"
_REPAIRED_SUFFIX = ".repaired"
_COPIED_BYTES = 4 << 20
_MENDED_BYTES_MAX = 64 << 10
"""The largest batch that is mended. Other damage of one of this size looks like one wrong bit in 1 of 8,000 cases."""
_MAGIC_BYTE = bytes([MAGIC])


@dataclass(frozen=True, slots=True)
class Lost:
    """
    Offsets that are lost.

    Attributes:
        path: the segment file, or the partition's directory if a file is missing.
        offset: the first of them.
        next_offset: the offset behind the last one.
        position: the byte where the damage begins; None if there is no file.
    """

    path: Path
    offset: int
    next_offset: int
    position: int | None = None

    def __str__(self) -> str:
        where = str(self.path) if self.position is None else f"{self.path}, byte {self.position}"
        if self.next_offset == self.offset + 1:
            return f"{where}: offset {self.offset} is lost"
        return f"{where}: offsets {self.offset} to {self.next_offset - 1} are lost"


_Piece: TypeAlias = tuple[int, int] | bytes
"""A range of bytes of the present file, or batches of the journal."""


@dataclass(slots=True)
class _File:
    """The content of one segment file after the repair."""

    path: Path
    pieces: list[_Piece] = field(default_factory=list)
    is_changed: bool = False

    def add(self, start: int, end: int) -> None:
        """Add bytes of the present file."""
        last = self.pieces[-1] if self.pieces else b""
        if isinstance(last, tuple) and last[1] == start and end - last[0] < _COPIED_BYTES:
            self.pieces[-1] = last[0], end
        else:
            self.pieces.append((start, end))


class Rescue(Protocol):
    """
    What the owner of a partition's records knows of them, and so can keep more than whole batches.

    Attributes:
        notes: sentences for the operator.
    """

    notes: list[str]

    def read(self, batch: bytes) -> None:
        """Called with each batch that is kept, in order."""

    def rescue(self, damaged: bytes, base_offset: int) -> bytes | None:
        """A batch with the records that can be read within damaged bytes; None for none."""

    def end(self, base_offset: int) -> bytes | None:
        """A batch to put behind the last one; None for none."""


def find_damaged(
    data_dir: Path, rescues: Mapping[TopicPartition, Rescue] | None = None
) -> Iterator["DamagedPartition"]:
    """
    The partitions whose flushed data is damaged or missing. Every segment is read.

    Raises:
        CorruptError: the file of recovery points is damaged.
        OSError: a file cannot be read.
    """
    points, starts = read_offsets(data_dir / RECOVERY_POINTS), read_offsets(data_dir / LOG_START_OFFSETS)
    entries: dict[TopicPartition, list[JournalEntry]] = {}
    for entry in read_journal(journal_files(data_dir / JOURNAL)):
        entries.setdefault(entry.topic_partition, []).append(entry)
    for topic_partition, directory in find_partitions(data_dir).items():
        partition = DamagedPartition(
            topic_partition,
            directory,
            points.get(topic_partition, 0),
            entries.get(topic_partition, []),
            log_start_offset=starts.get(topic_partition, 0),
            is_gapless=(data_dir / JOURNAL).is_dir(),
            rescue=(rescues or {}).get(topic_partition),
        )
        if partition.is_damaged:
            yield partition


class DamagedPartition:
    """
    The content of one partition's directory, read whole.

    Attributes:
        reason: the problem that a stop found; None if none did.
        lost: the offsets that a repair gives up.
        notes: further sentences about the repair.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        recovery_point: int,
        entries: Sequence[JournalEntry],
        *,
        log_start_offset: int,
        is_gapless: bool,
        rescue: Rescue | None = None,
    ) -> None:
        """
        Args:
            entries: the partition's entries in the journal.
            is_gapless: see `kohort.storage.logs.recovery.load_partition`.
            rescue: reads records of damaged batches.
        """
        self._rescue = rescue
        self.topic_partition = topic_partition
        self.directory = directory
        self.lost: list[Lost] = []
        self.notes: list[str] = []
        topic_id = read_partition_metadata(directory)
        self._durable_until = flushed_until(recovery_point, entries, topic_id)
        kept = [path.read_bytes() for path in sorted(directory.glob(f"*{JOURNALED_SUFFIX}"))]
        note = directory / DAMAGE_NOTE
        self._is_noted = note.exists()
        self.reason = note.read_text("utf-8", "replace").strip() if self._is_noted else None
        self.is_damaged = self._is_noted or bool(kept)
        self._journaled = kept + [
            entry.content for entry in entries if entry.kind == APPEND and entry.topic_id == topic_id
        ]
        self._files: list[_File] = []
        self._read_segments(log_start_offset, is_gapless=is_gapless)
        self._end()

    def _read_segments(self, log_start_offset: int, *, is_gapless: bool) -> None:
        paths = [path for path in self.directory.glob(f"*{LOG_SUFFIX}") if offset_of(path.name) is not None]
        bases = sorted((offset_of(path.name) or 0, path) for path in paths)
        missing = find_missing_segment(
            [path.name for path in self.directory.iterdir()],
            [base for base, _ in bases],
            log_start_offset=log_start_offset,
            durable_until=self._durable_until,
        )
        self.is_damaged |= missing is not None
        self._next_offset = bases[0][0] if bases else 0
        if missing is not None and missing < self._next_offset:
            self._next_offset = max(missing, log_start_offset)
        for index, (base, path) in enumerate(bases):
            is_lost = is_gapless and self._next_offset < self._durable_until < base
            self.is_damaged |= is_lost
            is_lost |= missing is not None
            if base > self._next_offset and (is_lost or self._is_noted):
                self._add_segment(base)
            self._next_offset = max(self._next_offset, base)
            self._read_segment(path, bases[index + 1][0] if index + 1 < len(bases) else None)
        self.is_damaged |= self._next_offset < self._durable_until
        self._add_segment(None)

    def _add_segment(self, end_offset: int | None) -> None:
        """Add a segment with the journal's batches from the next offset on, if there are any; None: up to the last one."""
        first = self._next_offset
        pieces = self._take_journaled(self.directory, None, end_offset)
        if pieces:
            self._files.append(_File(segment_path(self.directory, first, LOG_SUFFIX), pieces, is_changed=True))

    def _read_segment(self, path: Path, end_offset: int | None) -> None:
        """`end_offset`: where the next segment begins; None for the last one."""
        file_bytes, whole_bytes = path.stat().st_size, written_bytes(path.with_suffix(CHECKSUMS_SUFFIX))
        found = _File(path)
        self._files.append(found)
        is_short = file_bytes < whole_bytes and self._next_offset < self._durable_until
        if file_bytes:
            self._read_content(found, file_bytes, end_offset)
        if is_short:
            self.is_damaged = found.is_changed = True
            found.pieces += self._take_journaled(path, file_bytes, end_offset)

    def _read_content(self, found: "_File", file_bytes: int, end_offset: int | None) -> None:
        path = found.path
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            position = 0
            while position < file_bytes:
                span = _valid_span(content, position, self._next_offset)
                if span is None:
                    self.is_damaged |= self._next_offset < self._durable_until
                    found.is_changed = True
                    mended = _mend(content, position, self._next_offset)
                    if mended is not None:
                        self.notes.append(f"{path}, byte {position}: the one wrong bit of the batch is corrected")
                        found.pieces.append(mended)
                        self._keep(mended)
                        position += len(mended)
                        continue
                    span = _next_valid(content, position, self._next_offset)
                    next_offset = end_offset if span is None else span[2]
                    if self._rescue is not None:
                        damaged = content[position : file_bytes if span is None else span[0]]
                        found.pieces += self._rescued(damaged, next_offset)
                    found.pieces += self._take_journaled(path, position, next_offset)
                    if span is None:
                        return
                position = span[0] + span[1]
                found.add(span[0], position)
                if self._rescue is not None:
                    self._rescue.read(content[span[0] : position])
                self._next_offset = span[3] + 1

    def _keep(self, batch: bytes) -> None:
        """Note a batch that is put behind the others."""
        self._next_offset = next(iter_spans(batch))[3] + 1
        if self._rescue is not None:
            self._rescue.read(batch)

    def _rescued(self, damaged: bytes, next_offset: int | None) -> list["_Piece"]:
        """The records that can be read within damaged bytes, as a batch; the journal's batches come before it."""
        assert self._rescue is not None
        if any(base >= self._next_offset for content in self._journaled for _, _, base, _, _ in iter_spans(content)):
            return []
        batch = self._rescue.rescue(damaged, self._next_offset)
        if batch is None or (next_offset is not None and next(iter_spans(batch))[3] >= next_offset):
            return []
        self._next_offset = next(iter_spans(batch))[3] + 1
        return [batch]

    def _take_journaled(self, path: Path, position: int | None, end_offset: int | None) -> list["_Piece"]:
        """
        The journal's batches from the next offset to below `end_offset`; the offsets between are lost.

        Args:
            path, position: of the damage.
            end_offset: None for all batches.
        """
        taken: list[_Piece] = []
        for content in self._journaled:
            for start, size, base_offset, last_offset, _ in iter_spans(content):
                if base_offset >= self._next_offset and (end_offset is None or last_offset < end_offset):
                    self._lose(path, position, base_offset)
                    self._next_offset = last_offset + 1
                    taken.append(content[start : start + size])
        if end_offset is not None:
            self._lose(path, position, end_offset)
            self._next_offset = max(self._next_offset, end_offset)
        return taken

    def _lose(self, path: Path, position: int | None, next_offset: int) -> None:
        if self._next_offset < next_offset:
            self.lost.append(Lost(path, self._next_offset, next_offset, position))

    def _end(self) -> None:
        self._has_empty_end = self._next_offset < self._durable_until
        if self._has_empty_end:
            self.is_damaged = True
            self.lost.append(Lost(self.directory, self._next_offset, self._durable_until))
            self._next_offset = self._durable_until
        added = self._rescue.end(self._next_offset) if self._rescue is not None and self.is_damaged else None
        if added is not None:
            path = segment_path(self.directory, self._next_offset, LOG_SUFFIX)
            self._files.append(_File(path, [added], is_changed=True))
            self._next_offset = next(iter_spans(added))[3] + 1
            self._has_empty_end = False
        self.notes += [] if self._rescue is None else self._rescue.notes

    def repair(self) -> int:
        """
        Write the kept batches, durably, and return the end of the log, which is the new recovery point.

        Raises:
            OSError: a file could not be written; the repair can be done again.
        """
        for file in self._files:
            if file.is_changed:
                _rewrite(file)
            if file.is_changed and not file.pieces and file is not self._files[-1]:
                syscalls.remove(file.path)  # The one that was found is kept under another name.
        for name in orphans_of([path.name for path in self.directory.iterdir()]):
            syscalls.remove(self.directory / name)
        if self._has_empty_end:
            syscalls.write_file(segment_path(self.directory, self._next_offset, LOG_SUFFIX), b"", is_synced=True)
        for path in (self.directory / DAMAGE_NOTE, *self.directory.glob(f"*{JOURNALED_SUFFIX}")):
            syscalls.remove(path)
        for path in self.directory.glob(f"*{LOG_SUFFIX}"):
            syscalls.sync_file(path)
        syscalls.sync_directory(self.directory)
        return self._next_offset


def repair(data_dir: Path, partitions: Sequence[DamagedPartition]) -> None:
    """
    Repair partitions, and raise their recovery points to the ends of their logs.

    Raises:
        CorruptError, OSError: a file cannot be read or written; the repair can be done again.
    """
    points = read_offsets(data_dir / RECOVERY_POINTS)
    for partition in partitions:
        points[partition.topic_partition] = partition.repair()
    write_atomically(data_dir / RECOVERY_POINTS, offsets_to_text(points))


def _rewrite(file: _File) -> None:
    """Put a file with the valid batches in the place of a segment, which is kept under another name."""
    path = file.path
    repaired = path.with_name(path.name + _REPAIRED_SUFFIX)
    syscalls.write_file(repaired, b"")
    for piece in file.pieces:
        if isinstance(piece, tuple):
            with path.open("rb") as content:
                syscalls.append_to(repaired, os.pread(content.fileno(), piece[1] - piece[0], piece[0]))
        else:
            syscalls.append_to(repaired, piece)
    syscalls.sync_file(repaired)
    damaged = path.with_name(path.name + DAMAGED_SUFFIX)
    if path.exists() and not damaged.exists():
        try:
            os.link(path, damaged)
        except OSError:  # a file system without hard links
            shutil.copy2(path, damaged)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, CHECKSUMS_SUFFIX):
        syscalls.remove(path.with_suffix(suffix))
    syscalls.rename(repaired, path)


# The search for whole batches in the bytes of a damaged segment


def _mend(content: mmap.mmap, position: int, next_offset: int) -> bytes | None:
    """The batch at a position with its one wrong bit corrected; None if the damage is another one, or the batch is large."""
    size = stated_size(content[position : position + HEADER_BYTES])
    if not size or size > _MENDED_BYTES_MAX or position + size > len(content):
        return None
    batch = content[position : position + size]
    stored, crc = int.from_bytes(batch[CRC_AT:ATTRIBUTES_AT], "big"), crc32c(batch[ATTRIBUTES_AT:])
    if (stored ^ crc).bit_count() == 1:  # of the checksum itself
        batch = batch[:CRC_AT] + crc.to_bytes(4, "big") + batch[ATTRIBUTES_AT:]
    elif (covered := correct_bit(batch[ATTRIBUTES_AT:], stored)) is not None:
        batch = batch[:ATTRIBUTES_AT] + covered
    else:
        return None
    span = span_at(batch, 0)
    return batch if span is not None and next_offset <= span[2] <= span[3] else None


def _valid_span(content: mmap.mmap, position: int, next_offset: int) -> Span | None:
    """
    The batch at a position, if it is whole, its checksum is right and its offsets are between those of its neighbours: no
    checksum covers an offset.
    """
    span = _whole_span(content, position)
    if span is None or not next_offset <= span[2] <= span[3]:
        return None
    following = _whole_span(content, position + span[1])
    is_behind = following is not None and next_offset <= following[2] <= span[3]
    return None if is_behind else span


def _whole_span(content: mmap.mmap, position: int) -> Span | None:
    size = stated_size(content[position : position + HEADER_BYTES])
    if not size or position + size > len(content):
        return None
    batch = content[position : position + size]
    span = span_at(batch, 0)
    if span is None or not check_crc(batch):
        return None
    return position, span[1], span[2], span[3], span[4]


def _next_valid(content: mmap.mmap, position: int, next_offset: int) -> Span | None:
    """The first valid batch behind the damaged one at a position: where its length says, else anywhere."""
    size = stated_size(content[position : position + HEADER_BYTES])
    span = _valid_span(content, position + size, next_offset) if size else None
    if span is not None:
        return span
    at = content.find(_MAGIC_BYTE, position + 1 + MAGIC_AT)
    while at >= 0:
        span = _valid_span(content, at - MAGIC_AT, next_offset)
        if span is not None:
            return span
        at = content.find(_MAGIC_BYTE, at + 1)
    return None
