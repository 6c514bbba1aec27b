"""
Progress of tasks, in small files: Spark has no metrics for Python sources.

Each task writes its own file, `<task>.progress`: bytes of log and rows so far. The driver sums them up. This needs a file
system that tasks and driver share, as with a local master; otherwise there is no progress.
"""

import struct
from pathlib import Path
from typing import NamedTuple

_NOTE = struct.Struct("<qq")


class Progress(NamedTuple):
    """The sum of all tasks so far."""

    bytes_read: int
    rows: int


NOTHING = Progress(0, 0)


class Note:
    """The progress file of one task. Without a writable directory it does nothing."""

    def __init__(self, directory: str | None, task: int) -> None:
        self._path = None if directory is None else Path(directory) / f"{task}.progress"
        self._bytes = 0
        self._rows = 0

    def add(self, *, bytes_read: int = 0, rows: int = 0) -> None:
        self._bytes += bytes_read
        self._rows += rows
        if self._path is not None:
            try:
                self._path.write_bytes(_NOTE.pack(self._bytes, self._rows))
            except OSError:
                self._path = None


def total(directory: str | Path) -> Progress:
    """Return the sum over all tasks in a directory."""
    bytes_read = rows = 0
    for path in Path(directory).glob("*.progress"):
        raw = path.read_bytes()
        if len(raw) == _NOTE.size:
            one = _NOTE.unpack(raw)
            bytes_read, rows = bytes_read + one[0], rows + one[1]
    return Progress(bytes_read, rows)
