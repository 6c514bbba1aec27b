"""
Every system call by which the storage changes what is on the disk, in one place.

They are called through this module (`syscalls.pwrite(...)`), so that `kohort.testing.faulty_files` can stand between the
storage and the system: it writes down each call, fails the one it is told to, and knows what a crash at any of them would
leave behind. In the server they are the functions of `os` themselves.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

open_file = os.open
pwrite = os.pwrite
pwritev: Callable[[int, Sequence[Buffer], int], int] | None = getattr(os, "pwritev", None)
"""Old systems do not have it."""
write = os.write
truncate = os.ftruncate
fsync: Callable[[int], None] = os.fsync
fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""
allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
"""Neither has it this."""
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
"""The names above: all that can change a file, a directory, or what of them is durable."""

BUFFERS_MAX = 1024
"""How many pieces one call writes. Source: Linux, UIO_MAXIOV."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


def data_sync(fd: int) -> None:
    """A file's data is durable on return, and as much else as is needed to read it."""
    fdatasync(fd)


def write_at(fd: int, pieces: Sequence[Buffer], position: int) -> int:
    """
    All of these, one behind the other, from a position of the file on; where they end.

    Raises:
        OSError: it is not known what of them is in the file.
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


def write_file(path: Path, data: Buffer, *, is_synced: bool = False) -> None:
    """The file's whole content. Its name, if it is new, is durable when its directory is flushed."""
    fd = open_file(path, _NEW, 0o644)
    try:
        _write_all(fd, data)
        if is_synced:
            fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: Buffer) -> None:
    """The system may take less than it is given."""
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]


def append_to(path: Path, data: Buffer) -> None:
    """To the end of a file, which is made when it is not there."""
    fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        _write_all(fd, data)
    finally:
        os.close(fd)


def rename(path: Path, to: Path) -> Path:
    """The new path, which loses what it had before."""
    replace(path, to)
    return to


def ensure_directory(path: Path) -> None:
    with suppress(FileExistsError):
        make_directory(path)


def remove(path: Path) -> None:
    """Remove a file; one that is not there is no error."""
    with suppress(FileNotFoundError):
        unlink(path)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove what is not needed any more; what cannot be removed now is left to the next start."""
    for path in paths:
        with suppress(OSError):
            unlink(path)


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; what cannot be removed now is left to the next start."""
    with suppress(OSError):
        for entry in sorted(path.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            else:
                unlink(entry)
        remove_directory(path)


def sync_directory(path: Path) -> None:
    """Names that were made, renamed or removed in the directory are durable on return."""
    fd = open_file(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(fd)
    finally:
        os.close(fd)
