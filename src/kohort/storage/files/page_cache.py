"""
Reads of bytes that are in the page cache. They never wait for the disk, so the thread that serves clients may make them.

Source: Linux preadv2(2), RWF_NOWAIT.
"""

import os
from typing import Final

READ_BYTES_MAX: Final = 256 << 10
"""A longer read takes the thread longer than it takes another thread to begin it."""

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""0 where the system has no such reads. Some file systems have none either."""


def read_cached(fd: int, size: int, position: int) -> bytes | None:
    """Read bytes of a file; None if they are not all in the page cache, or cannot be read that way."""
    if not _NOWAIT or size > READ_BYTES_MAX:
        return None
    data = bytearray(size)
    try:
        found = os.preadv(fd, (data,), position, _NOWAIT)
    except OSError:  # the read on another thread finds what is wrong, if anything is
        return None
    return bytes(data) if found == size else None
