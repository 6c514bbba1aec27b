"""
The removal of many directories of deleted partitions by a process.

A partition takes a dozen system calls, each of which gives the interpreter away and takes it again. A thread that makes a
hundred thousand of them stops the thread that serves clients as often, between two requests.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.files import syscalls
from kohort.storage.processes import start_python

if TYPE_CHECKING:
    import subprocess

_PROGRAM: Final = """
import os, sys
from pathlib import Path
from kohort.storage.files.syscalls import remove_tree
for each in sys.stdin.buffer.read().split(b"\\0")[:-1]:
    if each.endswith(b"-delete"):
        remove_tree(Path(os.fsdecode(each)))
"""
"""Each path has an end, so that one that was cut off with the life of the broker is not taken for another directory."""


class Removals:
    """
    Removes directories whose names no partition has. What a stop or a failure leaves is removed by the next start.
    """

    def __init__(self) -> None:
        self._thread: Final = BackgroundThread("kohort-removal")
        self._waiting: SimpleQueue[Path] = SimpleQueue()
        self._lock: Final = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping: Final = threading.Event()

    def add(self, directories: Sequence[Path]) -> None:
        """Remove directories; any thread may call this."""
        for each in directories:
            self._waiting.put(each)
        self._thread.submit(self._remove)

    def stop(self, timeout_s: float | None = None) -> bool:
        """Kill the process, and end the thread; False if the disk does not answer in time."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.kill()
        return self._thread.stop(timeout_s)

    def _remove(self) -> None:
        directories = [self._waiting.get() for _ in range(self._waiting.qsize())]
        if directories and not self._removed_by_process(directories):
            for each in directories:
                syscalls.remove_tree(each)

    def _removed_by_process(self, directories: Sequence[Path]) -> bool:
        """Whether a process has removed them, or a stop leaves them."""
        with self._lock:
            if self._stopping.is_set():
                return True
            try:
                process = self._process = start_python("-c", _PROGRAM, answers=False)
            except OSError:  # too many processes or open files
                return False
        process.communicate(b"".join(os.fsencode(each) + b"\0" for each in directories))
        with self._lock:
            self._process = None
            return self._stopping.is_set() or not process.returncode
