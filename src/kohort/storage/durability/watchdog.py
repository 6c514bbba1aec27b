"""Log lines about a disk that does not answer: which call hangs, and for how long."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kohort.storage.segments.segment_file import SegmentWrite

_log = logging.getLogger("kohort.storage")

HANGS_S: Final = 5.0
"""A batch that takes longer is named in the log, and again each time that so long has passed."""


class Watchdog:
    """
    A thread that looks at what the disk thread does.

    Args:
        path: the data directory.

    Attributes:
        call: what the disk thread does; a text, or what it calls.
    """

    def __init__(self, path: Path) -> None:
        self.call: str | Callable[[], None] = ""
        self._path = path
        self._began_s: float | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="kohort-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def begin(self) -> None:
        """On the disk thread: a batch begins."""
        self._began_s = time.monotonic()

    def end(self) -> None:
        self._began_s = None
        self.call = ""

    def _run(self) -> None:
        while not self._stopping.wait(HANGS_S):
            began_s = self._began_s
            if began_s is not None and time.monotonic() - began_s >= HANGS_S:
                seconds = time.monotonic() - began_s
                _log.warning("disk.hangs path=%s seconds=%d call=%r", self._path, seconds, _name_of(self.call))


def _name_of(call: str | Callable[[], None]) -> str:
    if isinstance(call, str):
        return call
    target = getattr(call, "__self__", None)
    if isinstance(target, SegmentWrite):
        return f"write of {target.path}"
    if isinstance(call, partial):
        return " ".join([call.func.__name__.strip("_"), *(str(arg) for arg in call.args if isinstance(arg, Path))])
    return getattr(call, "__name__", "call").strip("_")
