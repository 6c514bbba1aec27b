"""
The journal: the appends of all partitions in one file, so that one flush makes all of them durable.

`files.journal_format` has the bytes of a frame. Two files are used in turn: a checkpoint makes the data of one file durable in
the segments while frames go to the other; then the first file is free.

Flushing a part of a file that was never written also flushes metadata of the file system; flushing written parts takes two
thirds of the time, often half. So a file is filled with zeros ahead of its frames, until its second use finds it filled. Zeros
are no magic, so they end the journal. Apache Kafka has no journal; a clean stop removes it.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kohort.model.errors import CorruptError
from kohort.storage.batchset import read_front
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import read_partition_metadata, write_atomically
from kohort.storage.files.checksums import comment, read_commented
from kohort.storage.files.directory import JOURNAL, JOURNAL_SIZES, OLD_JOURNAL
from kohort.storage.files.journal_format import APPEND, FRAME_HEADER_BYTES, JournalEntry, seal_frame

JOURNALED_SUFFIX: Final = ".journaled"
"""Of a file with the batches that the journal had of a partition that could not be loaded; `kohort log repair` reads it."""
JOURNAL_LOSS: Final = (
    "acknowledged deletions of records and leader epochs since the last checkpoint may be undone, and after a power failure "
    "records lost"
)
_NO_ALLOCATION: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""The errors of a file system without allocation; the file then grows as it is written."""
_FILL_BYTES: Final = 128 * 1024
_FILL_FRAMES: Final = 4
_FILL_SHARE: Final = 64
"""How far ahead a file is filled with zeros: in bytes, or in frames of the last size; at most this share of a file."""


class Journal:
    """
    The writer of the journal, for one thread at a time. It notes beside the journal which files there are.

    Args:
        sync: makes a file descriptor's data durable; raises OSError.

    Attributes:
        position: bytes in the current file; from `file_bytes` on, a checkpoint and a switch to the other file are due.
    """

    def __init__(self, directory: Path, *, file_bytes: int, sync: Callable[[int], None]) -> None:
        self.directory = directory
        self._file_bytes = file_bytes
        self._sync = sync
        self._generation = 1
        self._sequence = 0
        self._fds: dict[int, int] = {}
        """File descriptors by file number, 0 and 1."""
        self._sizes: dict[str, int] = {}
        """By name: the sizes of the files when they were made."""
        self._filled = [0, 0]
        """By file number: the end of the part that was ever written."""
        self.position = 0

    def write(self, pieces: Sequence[syscalls.Buffer], covered: Sequence[syscalls.Buffer] | None = None) -> None:
        """
        Make a frame durable.

        Args:
            pieces: the entries, one behind the other; the first begins with `FRAME_HEADER_BYTES`, which this method fills.
            covered: the pieces that are not records of a `BATCH`; by default all.

        Raises:
            OSError: an unknown part of the frame is on disk; nothing may be written here again.
        """
        seal_frame(pieces, covered or pieces, generation=self._generation, sequence=self._sequence)
        fd = self._fds.get(self._generation & 1)
        if fd is None:
            fd = self._open()
        elif self.position == 0:
            self._forget_frames(fd)
        end = syscalls.write_at(fd, pieces, self.position)
        if end > self._filled[self._generation & 1]:
            self._fill(fd, end)
        self._sync(fd)
        self.position = end
        self._sequence += 1

    def _forget_frames(self, fd: int) -> None:
        """
        Make the frames of an earlier use of the file unreadable, before the first frame is written over them. If that one is
        torn, the old frames before and behind the hole would look like a damaged journal.
        """
        syscalls.pwrite(fd, bytes(FRAME_HEADER_BYTES), 0)
        self._sync(fd)

    def _fill(self, fd: int, end: int) -> None:
        """Write zeros behind a frame at the end of the written part; they are flushed with the frame."""
        wanted = max(_FILL_BYTES, _FILL_FRAMES * (end - self.position))
        size = min(wanted, self._file_bytes // _FILL_SHARE, self._file_bytes - end)
        if size > 0:
            end += syscalls.pwrite(fd, bytes(size), end)
        self._filled[self._generation & 1] = end

    def _open(self) -> int:
        syscalls.ensure_directory(self.directory)
        turn = self._generation & 1
        path = self.directory / f"{turn}.journal"
        fd = syscalls.open_shortly(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)  # one of two, so the reserve has enough
        self._fds[turn] = fd
        if syscalls.allocate is not None:
            try:
                syscalls.allocate(fd, 0, self._file_bytes)
            except OSError as exc:
                if exc.errno not in _NO_ALLOCATION:
                    raise
        syscalls.fsync(fd)
        syscalls.sync_directory(self.directory)
        self._sizes[path.name] = os.fstat(fd).st_size
        text = "".join(f"{size} {name}\n" for name, size in self._sizes.items())
        write_atomically(self.directory.parent / JOURNAL_SIZES, comment(text))
        return fd

    def switch(self) -> None:
        """Use the other file from the next frame on. It must be free: the checkpoint before has ended."""
        self._generation += 1
        self.position = 0

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def journal_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.journal"))


def find_lost_journal(data_dir: Path) -> str | None:
    """A sentence about a file of the journal that is missing, or shorter than it was made; None if there is none."""
    try:
        lines = read_commented(data_dir / JOURNAL_SIZES).splitlines()
    except (FileNotFoundError, CorruptError):
        return None
    for size, _, name in (line.partition(" ") for line in lines):
        path = data_dir / JOURNAL / name
        if not path.exists():
            return f"{path} is missing"
        if size.isdecimal() and path.stat().st_size < int(size):
            return f"{path} has {path.stat().st_size} of at least {size} bytes"
    return None


def remove_journal(data_dir: Path) -> None:
    """
    Remove the journal, whose data is durable in the segments. It is renamed first, because half a journal could bring back a
    partition whose deletion is in the other half.
    """
    directory, old, sizes = data_dir / JOURNAL, data_dir / OLD_JOURNAL, data_dir / JOURNAL_SIZES
    if sizes.exists():
        syscalls.unlink(sizes)
        syscalls.sync_directory(data_dir)
    if old.is_dir():
        syscalls.remove_tree(old)
    if directory.is_dir():
        syscalls.rename(directory, old)
        syscalls.sync_directory(data_dir)
        syscalls.remove_tree(old)
        syscalls.sync_directory(data_dir)


def keep_journaled(directory: Path, entries: Sequence[JournalEntry]) -> None:
    """
    Write the batches of journal entries to a file of their partition's directory, durably: `<first offset>.journaled`.

    Raises:
        OSError: the file could not be written.
    """
    topic_id = read_partition_metadata(directory)
    appends = [entry.content for entry in entries if entry.kind == APPEND and entry.topic_id == topic_id]
    if appends:
        path = directory / f"{read_front(appends[0])[0]:020d}{JOURNALED_SUFFIX}"
        syscalls.write_file(path, b"".join(appends), is_synced=True)
        syscalls.sync_directory(directory)
