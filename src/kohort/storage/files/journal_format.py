"""
The bytes of the journal: frames, their entries, and what the entries say of a partition.

A *frame* holds the entries of one flush batch: a header, then one entry per append. Frames are numbered without a gap. A frame
with a wrong checksum or number ends the journal; it was never acknowledged. Two files are used in turn (`durability.journal`).
The frames of a file have its generation, which rises each time a file is used again.

    frame:  "KJ01" or "KJ02"  crc uint32  generation uint64  sequence uint64  length uint32, then `length` bytes of entries
    entry:  kind uint8  topic id 16 bytes  partition int32  name length uint16  name  length uint32, then the batches

The checksum is CRC-32C over all bytes behind it. A "KJ02" frame leaves out the records of entries that are one large batch,
which the batch's own checksum covers. A deletion is an entry without batches. The entry of a log start has the offset (int64),
and the entry of a leader epoch without a batch has the epoch (int32) and its start offset (int64).
"""

import logging
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from struct import Struct, error
from typing import Final
from uuid import UUID

import msgspec

from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans, read_front
from kohort.storage.files.directory import partition_of
from kohort.storage.files.syscalls import Buffer
from kohort.storage.log import NO_TOPIC_ID
from kohort.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES
from kohort.wire.batches import check_crc
from kohort.wire.native import crc32c

_log = logging.getLogger("kohort.storage")

APPEND: Final = 1
DELETE: Final = 2
START: Final = 3
EPOCH: Final = 4
BATCH: Final = 5
"""An append of one batch, of which the checksum of the frame covers the header alone. It is read as APPEND."""

_MAGIC: Final = b"KJ01"
_MAGIC_OF_BATCHES: Final = b"KJ02"
_FRAME: Final = Struct(">4sIQQI")
_ENTRY: Final = Struct(">B16siH")
_LENGTH: Final = Struct(">I")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">iq")
_LENGTHS: Final = {DELETE: 0, START: _OFFSET.size, EPOCH: _EPOCH.size}
_CRC_COVERS_FROM: Final = 8
FRAME_HEADER_BYTES: Final = _FRAME.size

pack_length: Final = _LENGTH.pack
pack_offset: Final = _OFFSET.pack
pack_epoch: Final = _EPOCH.pack


class JournalEntry(msgspec.Struct, frozen=True):
    """A change of a partition: APPEND with whole batches, DELETE, START with the new log start offset, or EPOCH."""

    kind: int
    topic_partition: TopicPartition
    topic_id: UUID
    content: bytes

    @property
    def start_offset(self) -> int:
        offset: int = _OFFSET.unpack(self.content)[0]
        return offset

    @property
    def leader_epoch(self) -> tuple[int, int]:
        """The epoch and its start offset."""
        leader_epoch, start_offset = _EPOCH.unpack(self.content)
        return leader_epoch, start_offset


def entry_prefix(topic_partition: TopicPartition, topic_id: UUID, kind: int = APPEND) -> bytes:
    """The first bytes of an entry of a partition; the length and the content follow."""
    name = topic_partition.topic.encode()
    return _ENTRY.pack(kind, topic_id.bytes, topic_partition.partition, len(name)) + name


def seal_frame(pieces: Sequence[Buffer], covered: Sequence[Buffer], *, generation: int, sequence: int) -> None:
    """
    Fill the header of a frame.

    Args:
        pieces: the entries, one behind the other; the first begins with `FRAME_HEADER_BYTES` for the header.
        covered: the pieces that are not records of a `BATCH`.
    """
    first = pieces[0]
    length = sum(map(len, pieces)) - FRAME_HEADER_BYTES
    magic = _MAGIC if len(covered) == len(pieces) else _MAGIC_OF_BATCHES
    _FRAME.pack_into(first, 0, magic, 0, generation, sequence, length)
    crc = crc32c(memoryview(first)[_CRC_COVERS_FROM:])
    for piece in covered[1:]:
        crc = crc32c(piece, crc)
    _FRAME.pack_into(first, 0, magic, crc, generation, sequence, length)


def without_appends(frame: bytes, prefixes: Container[bytes]) -> bytearray:
    """
    A frame without the appends of some partitions, whose segments could not be written.

    Args:
        frame: room for the header, and whole entries.
        prefixes: the first bytes of these partitions' entries.
    """
    kept = bytearray(frame[:FRAME_HEADER_BYTES])
    for position, kind, name_bytes, _, end in _entries_at(frame, FRAME_HEADER_BYTES, len(frame)):
        prefix = frame[position : position + _ENTRY.size + name_bytes]
        if kind not in (APPEND, BATCH) or bytes((APPEND,)) + prefix[1:] not in prefixes:
            kept += frame[position:end]
    return kept


def read_journal(files: list[Path]) -> Iterator[JournalEntry]:
    """
    All entries of whole frames, in the order in which they were written.

    The entries of the older file may be in the segments already. Behind the frames of a file's current generation there may be
    frames of an older one: a wrong generation or number ends a file.

    Raises:
        CorruptError: a frame that was flushed is damaged.
    """
    contents = [path.read_bytes() for path in files]
    whole = sorted((content for content in contents if _frame_at(content, 0)), key=_generation_of)
    newest = _generation_of(whole[-1]) if whole else 0
    for content in contents:
        # Behind the torn first frame of a file that is used again there are frames of an older generation.
        if content not in whole and _has_later_frame(content, 0, newest + 1, 0):
            raise CorruptError("the journal is damaged at byte 0: whole frames follow the damaged one")
        if content not in whole and content.strip(b"\0"):
            _warn_of_torn_frame(0)
    for content in whole:
        yield from _entries_of(content)


def _generation_of(content: bytes) -> int:
    generation: int = _FRAME.unpack_from(content)[2]
    return generation


def _frame_at(content: bytes, position: int) -> tuple[int, int, int] | None:
    """Generation, sequence and end of the frame at a position; None if it is not whole."""
    if len(content) - position < FRAME_HEADER_BYTES:
        return None
    magic, crc, generation, sequence, length = _FRAME.unpack_from(content, position)
    end = position + FRAME_HEADER_BYTES + length
    if magic not in (_MAGIC, _MAGIC_OF_BATCHES) or end > len(content):
        return None
    covered = memoryview(content)[position + _CRC_COVERS_FROM : end]
    found = crc32c(covered) if magic == _MAGIC else _checksum_of_batches(content, position, end)
    return (generation, sequence, end) if found == crc else None


def _checksum_of_batches(content: bytes, position: int, end: int) -> int | None:
    """The checksum of a frame of batches, computed from its bytes; None if a batch's own checksum is wrong."""
    view, crc = memoryview(content), 0
    covered_from = position + _CRC_COVERS_FROM
    for _, kind, _, start, stop in _entries_at(content, position + FRAME_HEADER_BYTES, end):
        if kind == BATCH:
            if not check_crc(content, start):
                return None
            crc = crc32c(view[covered_from : start + HEADER_BYTES], crc)
            covered_from = stop
    return crc32c(view[covered_from:end], crc)


def _entries_of(content: bytes) -> Iterator[JournalEntry]:
    position, expected = 0, None
    while (found := _frame_at(content, position)) is not None:
        generation, sequence, end = found
        if expected is not None and (generation, sequence) != expected:
            return
        yield from _entries_of_frame(content, position + FRAME_HEADER_BYTES, end)
        position, expected = end, (generation, sequence + 1)
    if expected is None:
        return
    if _has_later_frame(content, position, *expected):
        raise CorruptError(f"the journal is damaged at byte {position}: whole frames follow the damaged one")
    if _is_torn_frame(content, position, *expected):
        _warn_of_torn_frame(position)


def _is_torn_frame(content: bytes, position: int, generation: int, sequence: int) -> bool:
    """Whether the bytes, which are no whole frame, look like one of this number: at most one field of three differs."""
    if len(content) - position < FRAME_HEADER_BYTES:
        return False
    magic, _, found_generation, found_sequence, _ = _FRAME.unpack_from(content, position)
    is_magic = magic in (_MAGIC, _MAGIC_OF_BATCHES)
    return (is_magic, found_generation == generation, found_sequence == sequence).count(False) <= 1


def _warn_of_torn_frame(position: int) -> None:
    """The last frame: if it was torn by the crash, it was not acknowledged; damage of the disk looks the same."""
    _log.warning("journal.torn_frame position=%d", position)


def _has_later_frame(content: bytes, position: int, generation: int, sequence: int) -> bool:
    """
    Whether a frame of a generation with a higher sequence follows a damaged one. A frame is written when the frame before it is
    flushed, so the damaged one was flushed too, and is not a torn end.
    """
    position = content.find(_MAGIC[:-1], position + 1)
    while position >= 0:
        found = _frame_at(content, position)
        if found is not None and found[0] == generation and found[1] > sequence:
            return True
        position = content.find(_MAGIC[:-1], position + 1)
    return False


def _entries_of_frame(content: bytes, begin: int, end: int) -> Iterator[JournalEntry]:
    for position, kind, name_bytes, start, stop in _entries_at(content, begin, end):
        _, topic_id, partition, _ = _ENTRY.unpack_from(content, position)
        name_at = position + _ENTRY.size
        try:
            topic_partition = TopicPartition(content[name_at : name_at + name_bytes].decode(), partition)
        except UnicodeDecodeError:
            return
        if partition_of(str(topic_partition)) != topic_partition:
            return
        yield JournalEntry(
            APPEND if kind == BATCH else kind, topic_partition, UUID(bytes=topic_id), content[start:stop]
        )


def _entries_at(content: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Position, kind, length of the name, begin and end of the content of each entry, up to one that another version wrote."""
    while (entry := _entry_at(content, position, end)) is not None:
        yield position, *entry
        position = entry[3]


def _entry_at(content: bytes, position: int, end: int) -> tuple[int, int, int, int] | None:
    """Kind, length of the name, begin and end of the content; None if there is no known entry."""
    try:
        kind, _, _, name_bytes = _ENTRY.unpack_from(content, position)
        (length,) = _LENGTH.unpack_from(content, position + _ENTRY.size + name_bytes)
    except error:
        return None
    start = position + _ENTRY.size + name_bytes + _LENGTH.size
    if _LENGTHS.get(kind, length) != length or length > end - start:
        return None
    if kind == BATCH and (length < HEADER_BYTES or LOG_OVERHEAD_BYTES + read_front(content, start)[1] != length):
        return None
    return kind, name_bytes, start, start + length


def flushed_until(recovery_point: int, entries: Sequence[JournalEntry], topic_id: UUID) -> int:
    """
    The offset up to which the segments of a partition were flushed: the recovery point, or more if the journal shows it. Data
    between two appends of the journal is not in the journal, so the segments were flushed before the later append.

    Args:
        entries: the partition's entries in order.
        topic_id: of the partition's directory. If the journal has its deletion, the directory came back, and the result is 0.
    """
    end_offset = flushed = recovery_point
    for entry in entries:
        if entry.kind == DELETE and topic_id in (entry.topic_id, NO_TOPIC_ID):
            return 0
        if entry.kind == APPEND and entry.topic_id == topic_id:
            for _, _, base_offset, last_offset, _ in iter_spans(entry.content):
                if base_offset > end_offset:
                    flushed = base_offset
                end_offset = max(end_offset, last_offset + 1)
    return flushed


def journaled_epochs(entries: Sequence[JournalEntry], topic_id: UUID) -> dict[int, int]:
    """The start offsets of the leader epochs in the journal's entries of a partition, of this topic id."""
    found: dict[int, int] = {}
    for entry in entries:
        if entry.topic_id != topic_id:
            continue
        if entry.kind == EPOCH:
            leader_epoch, start_offset = entry.leader_epoch
            found[leader_epoch] = min(start_offset, found.get(leader_epoch, start_offset))
        elif entry.kind == APPEND:
            for start, _, base_offset, _, _ in iter_spans(entry.content):
                found.setdefault(read_front(entry.content, start)[2], base_offset)
    return found
