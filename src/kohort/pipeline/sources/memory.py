"""
Memory of a worker: freed memory is returned to the system.

Allocators keep freed memory for reuse. A worker waits between tasks while the JVM works, and the JVM needs that memory then.
"""

import ctypes
import sys
from collections.abc import Callable

import pyarrow as pa


def _find_trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`, which also returns pages in the middle of the heap; None for other C libraries."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_TRIM = _find_trim()


def give_back() -> None:
    """Return all free pages of this process to the system. Each costs a page fault on the next use."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)
