"""
How many segments' files are open at once. A directory may hold more partitions than the process may have files.

A segment opens its file when it is touched and counts itself here; beyond the limit one that was not touched lately is
closed. Who was touched lately is told by a flag that costs an append or a read one store, so the order is that of a clock and
not exactly that of use.
"""

from typing import Final, Protocol

OPEN_FILES_MIN: Final = 64
"""What is kept open whatever the limit of the process says."""
OPEN_FILES_MAX: Final = 16_384


class Closable(Protocol):
    """A file that can be closed, and is opened again when it is touched."""

    was_touched: bool

    def close(self) -> None: ...


class FileHandleCache:
    """Those that are open, of one store; they belong to the thread that owns it."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._open: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, file: Closable) -> None:
        """This one was opened just now."""
        self._open[file] = None
        if len(self._open) > self.count_max:
            self._close_one(file)

    def remove(self, file: Closable) -> None:
        """This one was closed."""
        self._open.pop(file, None)

    def _close_one(self, newest: Closable) -> None:
        while True:
            oldest = next(iter(self._open))
            if oldest is not newest and not oldest.was_touched:
                oldest.close()
                return
            oldest.was_touched = False
            del self._open[oldest]
            self._open[oldest] = None


def open_files_max() -> int:
    """Half of what the process may have open; the other half is for connections, and for what is opened for a moment."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else min(max(soft // 2, OPEN_FILES_MIN), OPEN_FILES_MAX)
