"""
Disk space reserved for a segment when its file is made, by `preallocate`.

The space lies behind the end of the file, whose size stays that of its data: readers and recovery see no difference. What is
left of it is given back when the next segment begins and when the log is closed. A file system that cannot reserve space is
used without.

Source: Kafka FileRecords.open, which sets the size of the file instead, and trims it.
"""

import ctypes
import errno
import os
from functools import cache
from typing import Any, Final

from kohort.storage.files import syscalls

_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
"""Source: linux/falloc.h."""


@cache
def _fallocate() -> Any:
    """The function of the C library; None where there is none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


def reserve(fd: int, size_bytes: int) -> bool:
    """Reserve space for a file up to a size; False if the file system cannot, or has not enough."""
    return size_bytes > 0 and _call(fd, _KEEP_SIZE, 0, size_bytes)


def give_back(fd: int, size_bytes: int) -> None:
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
