"""
File descriptors that are kept for flushes, checkpoints and indexes, when connections have taken all others of the process.

A failed flush takes the whole store offline, so a flush must not fail because of too many connections.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kohort.storage.files.errno_hints import is_out_of_files

RESERVED: Final = 8


class DescriptorReserve:
    """Descriptors of `/dev/null`, which are closed when another file has to be opened. Thread-safe."""

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


RESERVE: Final = DescriptorReserve()
