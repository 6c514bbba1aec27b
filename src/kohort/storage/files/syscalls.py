"""
All system calls by which the storage changes files and directories.

The storage calls them through this module (`syscalls.pwrite(...)`), so that `kohort_lab.faulty_files` can replace them: it
records every call, fails chosen ones, and derives what a crash at each call leaves on disk. In the server these are the
functions of `os` themselves.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from kohort.storage.files.errno_hints import is_out_of_files

Buffer: TypeAlias = bytes | bytearray | memoryview

open_file = os.open
pwrite = os.pwrite
pwritev: Callable[[int, Sequence[Buffer], int], int] | None = getattr(os, "pwritev", None)
"""Missing on old systems."""
write = os.write
truncate = os.ftruncate
fsync: Callable[[int], None] = os.fsync
fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""
allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
"""Missing on macOS."""
replace = os.replace
unlink = os.unlink
make_directory = os.mkdir
remove_directory = os.rmdir

CHANGING = (
    "open_file",
    "pwrite",
    "pwritev",
    "write",
    "truncate",
    "fsync",
    "fdatasync",
    "allocate",
    "replace",
    "unlink",
    "make_directory",
    "remove_directory",
)
"""The names of the functions above, which change a file, a directory, or their durable state."""

BUFFERS_MAX = 1024
"""How many buffers one call writes. Source: Linux, UIO_MAXIOV."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""New files and directories are for the owner alone: they hold the records of all clients."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


RESERVED: Final = 8


class DescriptorReserve:
    """
    Descriptors that are kept for flushes, checkpoints and indexes, when connections have taken all others of the process: a
    failed flush takes the whole store offline. They are of `/dev/null`, and closed when a file has to be opened. Thread-safe.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._spare: list[int] = []

    def open(self, action: Callable[[], int]) -> int:
        """
        Open a file for a short time, and return its descriptor.

        Raises:
            OSError: the file cannot be opened, or all reserved descriptors are in use.
        """
        if len(self._spare) < RESERVED:
            self._fill()
        while True:
            try:
                return action()
            except OSError as exc:
                if not is_out_of_files(exc) or not self._release():
                    raise

    def _release(self) -> bool:
        with self._changing:
            if self._spare:
                os.close(self._spare.pop())
                return True
            return False

    def _fill(self) -> None:
        with self._changing, suppress(OSError):
            while len(self._spare) < RESERVED:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


_RESERVE: Final = DescriptorReserve()


def data_sync(fd: int) -> None:
    """Make a file's data durable, with the metadata that is needed to read it."""
    fdatasync(fd)


def write_at(fd: int, pieces: Sequence[Buffer], position: int) -> int:
    """
    Write buffers one behind the other from a position of the file on; returns the end position.

    Raises:
        OSError: an unknown part of the data was written.
    """
    if pwritev is None:
        pieces = [b"".join(pieces)]
    for begin in range(0, len(pieces), BUFFERS_MAX):
        some = pieces[begin : begin + BUFFERS_MAX]
        if len(some) == 1 or pwritev is None:
            written, wanted = pwrite(fd, some[0], position), len(some[0])
        else:
            written, wanted = pwritev(fd, some, position), sum(map(len, some))
        if written < wanted:
            rest = memoryview(b"".join(some))
            while written < wanted:
                written += pwrite(fd, rest[written:], position + written)
        position += wanted
    return position


def open_shortly(path: Path, flags: int) -> int:
    """Open a file that is closed soon: a reserved descriptor serves if the process has no other."""
    return _RESERVE.open(lambda: open_file(path, flags, FILE_MODE))


def write_file(path: Path, data: Buffer, *, is_synced: bool = False) -> None:
    """Write a whole file. The name of a new file is durable when its directory is flushed."""
    fd = open_shortly(path, _NEW)
    try:
        _write_all(fd, data)
        if is_synced:
            fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: Buffer) -> None:
    """Repeat partial writes."""
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]


def append_to(path: Path, data: Buffer) -> None:
    """Append to a file, which is created if it does not exist."""
    fd = open_shortly(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    try:
        _write_all(fd, data)
    finally:
        os.close(fd)


def rename(path: Path, to: Path) -> Path:
    """Rename a file or directory, replacing a file of the new name; returns the new path."""
    replace(path, to)
    return to


def ensure_directory(path: Path) -> None:
    with suppress(FileExistsError):
        make_directory(path, DIRECTORY_MODE)


def remove(path: Path) -> None:
    """Remove a file; a missing file is no error."""
    with suppress(FileNotFoundError):
        unlink(path)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files; a file that cannot be removed now is left to the next start."""
    for path in paths:
        with suppress(OSError):
            unlink(path)


def remove_tree(path: Path) -> None:
    """Remove a directory with its content; the rest after an error is left to the next start."""
    with suppress(OSError):
        with os.scandir(path) as entries:
            # A look at each file would give the interpreter away three times for a file instead of once.
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for name, is_directory in found:
            (remove_tree if is_directory else unlink)(path / name)
        remove_directory(path)


def sync_file(path: Path) -> None:
    """Make the data of a file durable."""
    sync_directory(path)


def sync_directory(path: Path) -> None:
    """Make created, renamed and removed names of a directory durable."""
    fd = open_shortly(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(fd)
    finally:
        os.close(fd)
