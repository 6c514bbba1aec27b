"""A thread that calls back at given times."""

import threading
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from kohort.runtime.ports import Clock

K = TypeVar("K")


class DeadlineThread(Generic[K]):
    """One deadline per key: a new one replaces the old one. The callbacks run on this thread, so they must be short."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._numbers = count()
        self._heap: list[tuple[int, int, K]] = []
        """(time, number, key), earliest first; entries whose number is not in `_current` any more are skipped."""
        self._current: dict[K, tuple[int, Callable[[], None]]] = {}
        """The number of each key's deadline, and its callback."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kohort-runtime-timer", daemon=True)
        self._thread.start()

    def set(self, key: K, at_ms: int, action: Callable[[], None]) -> None:
        """Call `action` once at `at_ms`, instead of the key's earlier callback."""
        with self._changed:
            number = next(self._numbers)
            self._current[key] = (number, action)
            heappush(self._heap, (at_ms, number, key))
            self._changed.notify()

    def remove(self, keys: Iterable[K]) -> None:
        """Forget the deadlines of these keys."""
        with self._changed:
            for key in keys:
                self._current.pop(key, None)

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
                action = self._take_due()
                if action is None:
                    wait_ms = self._heap[0][0] - self._clock.now_ms() if self._heap else None
                    # Rounded up by a millisecond: a thread that wakes early finds nothing due.
                    self._changed.wait(None if wait_ms is None else (wait_ms + 1) / 1000)
                    continue
            action()

    def _take_due(self) -> Callable[[], None] | None:
        while self._heap:
            at_ms, number, key = self._heap[0]
            current = self._current.get(key)
            if current is None or current[0] != number:
                heappop(self._heap)
                continue
            if at_ms > self._clock.now_ms():
                return None
            heappop(self._heap)
            del self._current[key]
            return current[1]
        return None
