"""
The file of an active segment as the disk thread sees it, and one write to it.

Reads have descriptors of their own, which belong to other threads.
"""

import ctypes
import errno
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from kohort.storage.files import syscalls
from kohort.storage.files.errno_hints import is_out_of_files
from kohort.storage.segments.file_handles import FileHandleCache
from kohort.storage.segments.tail import Buffer, Tail

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_EXISTING: Final = os.O_RDWR | os.O_CLOEXEC
_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
"""Source: linux/falloc.h."""


class SegmentFile:
    """
    A file that is written to. For one thread at a time.

    Args:
        handles: the cache of open files, which may close this one while it is not used.
    """

    def __init__(self, path: Path, handles: FileHandleCache) -> None:
        self.path = path
        self.was_touched = False
        self._handles = handles
        self._fd = -1
        self._reserved_bytes = 0
        """How large the file was reserved to become."""

    def create(self, preallocated_bytes: int) -> None:
        """
        Make the file; an existing one (empty, or with data that was never acknowledged) is emptied.

        Args:
            preallocated_bytes: disk space to reserve, if the file system can.
        """
        is_kept = self._open(_NEW)
        try:
            if preallocated_bytes and reserve_space(self._fd, preallocated_bytes):
                self._reserved_bytes = preallocated_bytes
        finally:
            if not is_kept:
                self.close()

    def write(self, pieces: list[Buffer], position: int) -> None:
        """
        Raises:
            OSError: an unknown part of the bytes was written.
        """
        is_kept = True
        if self._fd < 0:
            is_kept = self._open(_EXISTING)
        else:
            self.was_touched = True
        try:
            if len(pieces) > 1 or syscalls.pwrite(self._fd, pieces[0], position) < len(pieces[0]):
                syscalls.write_at(self._fd, pieces, position)
        finally:
            if not is_kept:
                self.close()

    def _open(self, flags: int) -> bool:
        """
        Open the file. If the process may not open more, other files are closed for it.

        Returns:
            False if only a reserved descriptor was left: the caller closes the file.
        """
        while True:
            try:
                self._fd = syscalls.open_file(self.path, flags, syscalls.FILE_MODE)
            except OSError as exc:
                if not is_out_of_files(exc):
                    raise
                if not self._handles.make_room():
                    self._fd = syscalls.open_shortly(self.path, flags)
                    return False
            else:
                self._handles.add(self)
                return True

    def finish(self) -> None:
        """Give back what is left of the reserved space, and close the file: nothing more is appended."""
        if self._reserved_bytes:
            is_kept = True if self._fd >= 0 else self._open(_EXISTING)
            give_back_space(self._fd, self._reserved_bytes)
            self._reserved_bytes = 0
            if not is_kept:
                self.close()
        self.close()

    def finish_quietly(self) -> None:
        """As `finish`, of a file that nothing is read from any more."""
        with suppress(OSError):
            self.finish()
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._handles.remove(self)


class SegmentWrite:
    """
    The bytes of one segment that one flush batch writes.

    Attributes:
        flush_batch: the batch.
        cost: the memory of the bytes in the tail.
        is_done: whether the bytes were written; the disk thread sets it.
    """

    def __init__(self, file: SegmentFile, tail: Tail, flush_batch: object) -> None:
        self.flush_batch = flush_batch
        self.tail = tail
        self.end = tail.end
        self.cost = 0
        self.is_done = False
        self._file = file
        self._position = tail.end
        self._pieces: list[Buffer] = []

    @property
    def path(self) -> Path:
        return self._file.path

    def add(self, data: Buffer, rest: Buffer) -> int:
        """Add an append; returns its cost in memory."""
        cost = self.tail.append(data, rest)
        self._pieces.append(data)
        if rest:
            self._pieces.append(rest)
        self.cost += cost
        self.end = self.tail.end
        return cost

    def release(self) -> None:
        """Let go of the bytes and of the batch, after the end of the write."""
        self.flush_batch = None
        self._pieces = []

    def __call__(self) -> None:
        """
        Write the bytes, on the disk thread.

        Raises:
            OSError: an unknown part of the bytes was written.
        """
        self._file.write(self._pieces, self._position)
        self.is_done = True


# Disk space that is reserved by `preallocate`


@cache
def _fallocate() -> Any:
    """The function of the C library; None where there is none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


def reserve_space(fd: int, size_bytes: int) -> bool:
    """
    Reserve space for a file up to a size; False if the file system cannot, or has not enough.

    The space lies behind the end of the file, whose size stays that of its data: readers and recovery see no difference.

    Source: Kafka FileRecords.open, which sets the size of the file instead, and trims it.
    """
    return size_bytes > 0 and _call(fd, _KEEP_SIZE, 0, size_bytes)


def give_back_space(fd: int, size_bytes: int) -> None:
    """
    Give back the space behind the end of a file, of which up to `size_bytes` was reserved; nothing may be appended meanwhile.

    Ext4 does so when a file is truncated to the size that it has, other file systems if a hole is punched behind the end.
    """
    end = os.fstat(fd).st_size
    if size_bytes > end:
        syscalls.truncate(fd, end)
        _call(fd, _KEEP_SIZE | _PUNCH_HOLE, end, size_bytes - end)


def _call(fd: int, mode: int, offset: int, size_bytes: int) -> bool:
    function = _fallocate()
    if function is None:
        return False
    while function(fd, mode, offset, size_bytes):
        if ctypes.get_errno() != errno.EINTR:
            return False
    return True
