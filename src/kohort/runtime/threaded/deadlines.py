"""A thread that calls back at given times."""

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kohort.runtime.ports import Clock

K = TypeVar("K")


class DeadlineThread(Generic[K]):
    """One deadline per key: a new one replaces the old one. The callbacks run on this thread, so they must be short."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._deadlines: dict[K, tuple[int, Callable[[], None]]] = {}
        """The time of each key's deadline, and its callback. There is a key for each partition."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kohort-runtime-timer", daemon=True)
        self._thread.start()

    def set(self, key: K, at_ms: int, action: Callable[[], None]) -> None:
        """Call `action` once at `at_ms`, instead of the key's earlier callback."""
        with self._changed:
            self._deadlines[key] = (at_ms, action)
            self._changed.notify()

    def remove(self, keys: Iterable[K]) -> None:
        """Forget the deadlines of these keys."""
        with self._changed:
            for key in keys:
                self._deadlines.pop(key, None)

    def close(self) -> None:
        """Call nothing from now on, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                earliest = min(self._deadlines.items(), key=_at_ms, default=None)
                if earliest is None:
                    self._changed.wait()
                    continue
                key, (at_ms, action) = earliest
                wait_ms = at_ms - self._clock.now_ms()
                if wait_ms > 0:
                    # Rounded up by a millisecond: a thread that wakes early finds nothing due.
                    self._changed.wait((wait_ms + 1) / 1000)
                    continue
                del self._deadlines[key]
            action()


def _at_ms(item: tuple[object, tuple[int, object]]) -> int:
    return item[1][0]
