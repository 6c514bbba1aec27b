"""
Memory of a worker: what it has freed goes back to the system.

The allocators keep what was freed for the next time. A worker waits between tasks while the JVM does its part, and what it
keeps then is missing there.
"""

import ctypes
import sys
from collections.abc import Callable

import pyarrow as pa


def _trimming() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`, which gives back pages in the middle of the heap, too; not every C library has it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_TRIM = _trimming()


def give_back() -> None:
    """Return all free pages of this process. They cost a page fault each when they are wanted again."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)
