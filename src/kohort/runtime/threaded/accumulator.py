"""
Events by key: those of one key run one after the other, in order; those of different keys side by side.

Source: Kafka EventAccumulator.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
E = TypeVar("E")


class RejectedError(Exception):
    """The accumulator is closed."""


class EventAccumulator(Generic[K, E]):
    """
    Queues of events, one a key, for any number of threads.

    Whoever takes an event owns its key until he says `done`. Among the keys that are free one is taken by chance, so that
    no key starves another.

    Args:
        choose: the index of a free key, given how many there are.
    """

    def __init__(self, choose: Callable[[int], int] = random.randrange) -> None:
        self._choose = choose
        self._changed = threading.Condition()
        self._queues: dict[K, deque[E]] = {}
        """Without empty ones."""
        self._free: list[K] = []
        """Keys with events that nobody owns."""
        self._taken: set[K] = set()
        self._size = 0
        self._is_closed = False

    def __len__(self) -> int:
        """How many events are queued; those that were taken are not counted."""
        with self._changed:
            return self._size

    def add(self, key: K, event: E, *, first: bool = False) -> None:
        """
        Queue an event behind those of its key, or before them.

        Raises:
            RejectedError: the accumulator is closed.
        """
        with self._changed:
            if self._is_closed:
                raise RejectedError("the events of this runtime are closed")
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
                if key not in self._taken:
                    self._free.append(key)
                    self._changed.notify()
            if first:
                queue.appendleft(event)
            else:
                queue.append(event)
            self._size += 1

    def take(self, timeout_seconds: float | None = None) -> tuple[K, E] | None:
        """
        An event of a free key; waits for one. None when the time is up, or when it is closed and no key is free.

        After a close the events that are left are still handed out.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._changed:
            while not self._free:
                if self._is_closed:
                    return None
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)
            free = self._free
            index = self._choose(len(free))
            key, free[index] = free[index], free[-1]
            free.pop()
            queue = self._queues[key]
            event = queue.popleft()
            if not queue:
                del self._queues[key]
            self._taken.add(key)
            self._size -= 1
            return key, event

    def done(self, key: K) -> None:
        """The event that was taken is over: the next of its key may be taken."""
        with self._changed:
            self._taken.discard(key)
            if key in self._queues:
                self._free.append(key)
                self._changed.notify()

    def close(self) -> None:
        """Take nothing more, and let nobody wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
