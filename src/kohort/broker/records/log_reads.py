"""
Reads of logs on other threads, for requests whose records are not in memory. A read that hangs holds up its own request, and
those that read the same log from the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kohort.broker.ports import Elsewhere
from kohort.model.errors import StorageError, UnavailableError
from kohort.model.limits import LOG_READS_MAX
from kohort.storage.log import Log, ReadView

T = TypeVar("T")

_TRIES_MAX: Final = 4


class AbandonedError(Exception):
    """The client has disconnected: nobody waits for the answer."""


class LogRead(Generic[T]):
    """
    One read of one log, and its outcome.

    Args:
        work: reads from a view of the log, on another thread.

    Attributes:
        is_done: whether there is an outcome; not if the read was dropped.
    """

    __slots__ = ("_error", "_os_error", "_results", "_tries", "_view", "_work", "is_done", "log")

    def __init__(self, log: Log, work: Callable[[ReadView | Log], T]) -> None:
        self.log = log
        self.is_done = False
        self._work: Final = work
        self._view: ReadView | None = None
        """None for a log in memory, which is read itself."""
        self._results: list[T] = []
        self._tries = 0
        self._error: Exception | None = None
        self._os_error: OSError | None = None

    def open(self) -> bool:
        """Take a view of the log, on the owner's thread; False if the log refuses."""
        try:
            self._view = self.log.view()
        except StorageError as error:
            self._fail(error)
            return False
        return True

    def run(self) -> None:
        """Do the work; called on another thread."""
        view = self._view
        try:
            self._results.append(self._work(self.log if view is None else view))
        except OSError as error:
            self._os_error = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 -- raised again by `result`, on the owner's thread
            self._error = error.with_traceback(None)

    def end(self) -> None:
        """Note the outcome, on the owner's thread. There is none if the segments of the log have changed: it is read again."""
        view, self._view = self._view, None
        if view is not None:
            view.end()
        error, self._os_error = self._os_error, None
        self._tries += 1
        if error is None:
            self.is_done = True
        elif view is None or not self.log.read_failed(view, error) or self._tries == _TRIES_MAX:
            self._fail(UnavailableError(self.log.refusal or f"{self.log.topic_partition} cannot be read: {error}"))

    def _fail(self, error: StorageError) -> None:
        self._error = error.with_traceback(None)
        self.is_done = True

    @property
    def is_failed(self) -> bool:
        return self._error is not None

    def result(self) -> T:
        """
        Raises:
            StorageError: the read has failed.
            Exception: what else the work raised.
        """
        if self._error is not None:
            raise self._error
        return self._results[0]


class LogReads:
    """
    The reads under way, and those that wait: one of a log at a time, `LOG_READS_MAX` of all logs.

    A request has one read at a time, so no more reads wait than there are connections.

    Args:
        elsewhere: runs a function on another thread, `LOG_READS_MAX` at the same time.
    """

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere: Final = elsewhere
        self._running: set[Log] = set()
        self._waiting: dict[Log, dict[LogRead[Any], Callable[[], None]]] = {}
        """By log: reads, oldest first, with what they resume."""
        self._ready: dict[Log, None] = {}
        """Logs with a read that waits for a thread only, in their order."""

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def begin(self, read: LogRead[Any], resume: Callable[[], None]) -> None:
        """Call `resume` when the read has ended, on the owner's thread."""
        self._waiting.setdefault(read.log, {})[read] = resume
        if read.log not in self._running:
            self._ready[read.log] = None
            self._start()

    def drop(self, read: LogRead[Any]) -> None:
        """Resume at once, without an outcome, unless the read has begun."""
        waiting = self._waiting.get(read.log, {})
        resume = waiting.pop(read, None)
        if resume is not None:
            if not waiting:
                del self._waiting[read.log]
                self._ready.pop(read.log, None)
            resume()

    def _start(self) -> None:
        while self._ready and len(self._running) < LOG_READS_MAX:
            log = next(iter(self._ready))
            del self._ready[log]
            waiting = self._waiting[log]
            read = next(iter(waiting))
            resume = waiting.pop(read)
            if not waiting:
                del self._waiting[log]
            self._running.add(log)
            if read.open():
                self._elsewhere(read.run, partial(self._end, read, resume))
            else:
                self._end(read, resume)

    def _end(self, read: LogRead[Any], resume: Callable[[], None]) -> None:
        self._running.discard(read.log)
        read.end()
        if not read.is_done:
            self.begin(read, resume)
            return
        if read.log in self._waiting:
            self._ready[read.log] = None
        self._start()
        resume()
