"""
The journal: what was appended to any partition, in one file, so that one flush makes all of it durable.

A *round* is what one flush covers: a header, then one entry per append. Rounds are numbered without a gap, and a round
that is not there whole (its checksum is wrong, its number is not the next) ends the journal: it was never acknowledged.
Two files take turns. A checkpoint makes everything of one file durable in the segments while rounds already go to the
other; then the first is free. A file's rounds carry the file's generation, which rises each time a file is begun anew.

    round:  magic "KJ01"  crc uint32  generation uint64  sequence uint64  length uint32, then `length` bytes of entries
    entry:  kind uint8  topic id 16 bytes  partition int32  name length uint16  name  length uint32, then the batches

Where a file was never written to, a flush has to tell the file system that it is now; where it was, the data alone goes to the
disk, which takes two thirds of the time and often half. So a file is filled with zeros a step ahead of its rounds, until its
second use finds it filled. A round ends where they begin: zeros are no magic.

The checksum is CRC-32C over everything behind it. A deletion is an entry without batches; where a log starts now is an entry
that has the offset (int64) instead; a leader epoch that began without a batch has the epoch (int32) and the offset where it
began (int64). Ours alone: a clean stop leaves no journal behind.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct, error
from uuid import UUID

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage import syscalls
from kohort.storage.directory import JOURNAL, OLD_JOURNAL, partition_of
from kohort.wire.native import crc32c

APPEND = 1
DELETE = 2
START = 3
EPOCH = 4

_MAGIC = b"KJ01"
_ROUND = Struct(">4sIQQI")
_ENTRY = Struct(">B16siH")
_LENGTH = Struct(">I")
_OFFSET = Struct(">q")
_EPOCH = Struct(">iq")
_LENGTHS = {DELETE: 0, START: _OFFSET.size, EPOCH: _EPOCH.size}
_CRC_COVERS_FROM = 8
_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What a file system says that cannot; the file then grows as it is written."""
_FILL_BYTES = 128 * 1024
_FILL_ROUNDS = 4
_FILL_SHARE = 64
"""How far ahead a file is filled with zeros: so many bytes, or rounds as the last one; at most this share of a file."""
ROUND_HEADER_BYTES = _ROUND.size

pack_length = _LENGTH.pack
pack_offset = _OFFSET.pack
pack_epoch = _EPOCH.pack


class JournalEntry(msgspec.Struct, frozen=True):
    """What was done to a partition: APPEND with whole batches, DELETE, START with the new log start offset, or EPOCH."""

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
        """The epoch, and where it began."""
        leader_epoch, start_offset = _EPOCH.unpack(self.content)
        return leader_epoch, start_offset


def entry_prefix(topic_partition: TopicPartition, topic_id: UUID, kind: int = APPEND) -> bytes:
    """What every entry of a partition begins with; its length and its batches follow."""
    name = topic_partition.topic.encode()
    return _ENTRY.pack(kind, topic_id.bytes, topic_partition.partition, len(name)) + name


class Journal:
    """
    The writing end, for one thread at a time.

    Args:
        sync: makes a file descriptor's data durable; raises OSError when it cannot.
    """

    def __init__(self, directory: Path, *, file_bytes: int, sync: Callable[[int], None]) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._sync = sync
        self._generation = 1
        self._sequence = 0
        self._fds: dict[int, int] = {}
        """File descriptors by turn: 0 and 1."""
        self._filled = [0, 0]
        """By turn, too: up to where the file was ever written."""
        self._position = 0

    @property
    def position(self) -> int:
        """Bytes in the present file: when they reach its size, the other's turn is due."""
        return self._position

    def write(self, pieces: Sequence[syscalls.Buffer]) -> None:
        """
        Make a round durable.

        Args:
            pieces: the entries, one behind the other; the first begins with `ROUND_HEADER_BYTES` that are filled here.

        Raises:
            OSError: it is not known what is on the disk; nothing may be written here again.
        """
        first = pieces[0]
        length = sum(map(len, pieces)) - ROUND_HEADER_BYTES
        _ROUND.pack_into(first, 0, _MAGIC, 0, self._generation, self._sequence, length)
        crc = crc32c(memoryview(first)[_CRC_COVERS_FROM:])
        for piece in pieces[1:]:
            crc = crc32c(piece, crc)
        _ROUND.pack_into(first, 0, _MAGIC, crc, self._generation, self._sequence, length)
        fd = self._fds.get(self._generation & 1)
        if fd is None:
            fd = self._open()
        end = syscalls.write_at(fd, pieces, self._position)
        if end > self._filled[self._generation & 1]:
            self._fill(fd, end)
        self._sync(fd)
        self._position = end
        self._sequence += 1

    def _fill(self, fd: int, end: int) -> None:
        """Zeros behind a round that was written where nothing was before, to be flushed with it."""
        wanted = max(_FILL_BYTES, _FILL_ROUNDS * (end - self._position))
        size = min(wanted, self._file_bytes // _FILL_SHARE, self._file_bytes - end)
        if size > 0:
            end += syscalls.pwrite(fd, bytes(size), end)
        self._filled[self._generation & 1] = end

    def _open(self) -> int:
        syscalls.ensure_directory(self._directory)
        turn = self._generation & 1
        fd = syscalls.open_file(self._directory / f"{turn}.journal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._fds[turn] = fd
        if syscalls.allocate is not None:
            try:
                syscalls.allocate(fd, 0, self._file_bytes)
            except OSError as exc:
                if exc.errno not in _NO_ALLOCATION:
                    raise
        syscalls.fsync(fd)
        for directory in (self._directory, self._directory.parent):
            syscalls.sync_directory(directory)
        return fd

    def switch(self) -> None:
        """The next round begins the other file, which must be free: the checkpoint before has ended."""
        self._generation += 1
        self._position = 0

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def journal_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.journal"))


def remove_journal(data_dir: Path) -> None:
    """
    What the journal held is in the segments for good. It goes in one step: of half of it, what a deletion in the other half
    took away would come back.
    """
    directory, old = data_dir / JOURNAL, data_dir / OLD_JOURNAL
    if old.is_dir():
        syscalls.remove_tree(old)
    if directory.is_dir():
        syscalls.rename(directory, old)
        syscalls.sync_directory(data_dir)
        syscalls.remove_tree(old)
        syscalls.sync_directory(data_dir)


def read_journal(files: list[Path]) -> Iterator[JournalEntry]:
    """
    All entries of the journal's files that are there whole, in the order in which they were written.

    The older file's entries may be in the segments already, and older rounds than those of a file's present generation
    follow where the present ones end: a wrong generation or number ends a file.
    """
    contents = [path.read_bytes() for path in files]
    for content in sorted((content for content in contents if _round_at(content, 0)), key=_generation_of):
        yield from _entries_of(content)


def _generation_of(content: bytes) -> int:
    generation: int = _ROUND.unpack_from(content)[2]
    return generation


def _round_at(content: bytes, position: int) -> tuple[int, int, int] | None:
    """Generation, sequence and end of the round that begins there, if it is whole."""
    if len(content) - position < ROUND_HEADER_BYTES:
        return None
    magic, crc, generation, sequence, length = _ROUND.unpack_from(content, position)
    end = position + ROUND_HEADER_BYTES + length
    if magic != _MAGIC or end > len(content):
        return None
    covered = memoryview(content)[position + _CRC_COVERS_FROM : end]
    return (generation, sequence, end) if crc32c(covered) == crc else None


def _entries_of(content: bytes) -> Iterator[JournalEntry]:
    position, expected = 0, None
    while (found := _round_at(content, position)) is not None:
        generation, sequence, end = found
        if expected is not None and (generation, sequence) != expected:
            return
        yield from _entries_of_round(content, position + ROUND_HEADER_BYTES, end)
        position, expected = end, (generation, sequence + 1)


def _entries_of_round(content: bytes, position: int, end: int) -> Iterator[JournalEntry]:
    while position < end:
        try:
            kind, topic_id, partition, name_bytes = _ENTRY.unpack_from(content, position)
            position += _ENTRY.size
            topic = content[position : position + name_bytes].decode()
            position += name_bytes
            (length,) = _LENGTH.unpack_from(content, position)
        except (error, UnicodeDecodeError):  # a whole round of another version's making
            return
        position += _LENGTH.size
        is_known = _LENGTHS.get(kind, length) == length <= end - position
        topic_partition = TopicPartition(topic, partition)
        if not is_known or partition_of(str(topic_partition)) != topic_partition:
            return
        yield JournalEntry(kind, topic_partition, UUID(bytes=topic_id), content[position : position + length])
        position += length
