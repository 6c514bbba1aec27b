"""
How two threads that take turns wake each other.

While one of them works the other one waits, so one processor is enough for both. A wake-up across processors takes some 40
microseconds on a virtual machine, because the hypervisor has to start the idle processor; a wake-up on the same one takes 4.
The wake-up is a byte in a pipe: two system calls, and no thread is woken only to find the interpreter in use.
"""

import ctypes
import os
import select
import sys
import threading
from typing import Final

_current_processor = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None
_ANY: Final = -1
_read: Final = os.read
_write: Final = os.write
"""Names of a module are free in compiled code; one of another module costs as much as a call."""


class Bell:
    """A wake-up for one thread. Every ring is waited for once."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._read_fd, select.POLLIN)

    def ring(self) -> None:
        _write(self._write_fd, b"\0")

    def wait(self) -> None:
        _read(self._read_fd, 1)

    def wait_for(self, timeout_ms: int) -> bool:
        """Wait for a time at most; False if the bell did not ring."""
        if not self._poll.poll(timeout_ms):
            return False
        _read(self._read_fd, 1)
        return True

    def close(self) -> None:
        """Give the descriptors back; nobody may use the bell any more."""
        if self._read_fd >= 0:
            os.close(self._read_fd)
            os.close(self._write_fd)
            self._read_fd = self._write_fd = -1

    def __del__(self) -> None:  # An alias of `close` fails when it is compiled.
        self.close()


class Follower:
    """
    A thread that runs on the processor of another thread, or anywhere. Where the system cannot bind threads, it runs anywhere.

    Args:
        thread: the thread, which is started.
    """

    def __init__(self, thread: threading.Thread) -> None:
        self._id = thread.native_id or 0
        self._processor = _ANY
        self._can_bind = _current_processor is not None

    def follow(self) -> None:
        """Bind the thread to the processor that the calling thread is on."""
        if _current_processor is not None and self._can_bind:
            processor = _current_processor()
            if processor != self._processor:
                self._bind(processor, {processor})

    def free(self) -> None:
        """Let the thread run anywhere that the calling thread may run."""
        if self._processor != _ANY:
            self._bind(_ANY, os.sched_getaffinity(0))

    def _bind(self, processor: int, processors: set[int]) -> None:
        try:
            os.sched_setaffinity(self._id, processors)
        except OSError:  # a sandbox forbids it
            self._can_bind = False
        else:
            self._processor = processor
