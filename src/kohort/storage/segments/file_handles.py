"""
A bound on open segment files: a directory may have more partitions than the process may have files.

A segment opens its file on access and registers here. Above the bound a file without recent access is closed, by the clock
algorithm: an access only sets a flag. If connections have taken all descriptors of the process, a file is closed for each file
that is opened.
"""

from typing import Final, Protocol

OPEN_FILES_MIN: Final = 8
"""The bound is at least this, whatever the limit of the process."""
OPEN_FILES_MAX: Final = 16_384


class Closable(Protocol):
    """A file that can be closed, and is opened again by the next access."""

    was_touched: bool

    def close(self) -> None: ...


class FileHandleCache:
    """The open files of one store. Not thread-safe: call from the owner's thread."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._open: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, file: Closable) -> None:
        """Register a file that was opened."""
        self._open[file] = None
        if len(self._open) > self.count_max:
            self._close_one(file)

    def make_room(self) -> bool:
        """Close a file, because the process may not open more; False if none is open."""
        if not self._open:
            return False
        self._close_one(None)
        return True

    def remove(self, file: Closable) -> None:
        """Unregister a file that was closed."""
        self._open.pop(file, None)

    def _close_one(self, newest: Closable | None) -> None:
        while True:
            oldest = next(iter(self._open))
            if oldest is not newest and not oldest.was_touched:
                oldest.close()
                return
            oldest.was_touched = False
            del self._open[oldest]
            self._open[oldest] = None


def open_files_max() -> int:
    """
    A quarter of the limit of the process: to open a file again costs microseconds, and a client that finds no room waits.

    The other descriptors are for connections and short-lived files.
    """
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else min(max(soft // 4, OPEN_FILES_MIN), OPEN_FILES_MAX)
