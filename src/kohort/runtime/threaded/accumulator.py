"""
Event queues by key. Events of one key run one after another, in order; events of different keys run in parallel.

Source: Kafka EventAccumulator.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
E = TypeVar("E")


class RejectedError(Exception):
    """The accumulator, or the key, is closed."""


class EventAccumulator(Generic[K, E]):
    """
    One event queue per key, for any number of threads.

    A thread that takes an event owns its key until it calls `done`. The next key is chosen at random among the free ones, so
    that no key starves another.

    Args:
        choose: returns the index of the next free key, given their number.
    """

    def __init__(self, choose: Callable[[int], int] = random.randrange) -> None:
        self._choose = choose
        self._lock = threading.Lock()
        self._available = threading.Condition(self._lock)
        """Notified when a key becomes free, and at the close."""
        self._released = threading.Condition(self._lock)
        """Notified when the event in progress of a closed key has ended."""
        self._queues: dict[K, deque[E]] = {}
        """Never empty queues."""
        self._free: list[K] = []
        """Keys with events that no thread owns."""
        self._taken: set[K] = set()
        """Keys with an event in progress."""
        self._closed_keys: frozenset[K] = frozenset()
        self._size = 0
        self._is_closed = False

    def __len__(self) -> int:
        """The number of queued events, without those in progress."""
        with self._lock:
            return self._size

    def add(self, key: K, event: E, *, first: bool = False) -> None:
        """
        Queue an event after the queued events of its key, or before them.

        Raises:
            RejectedError: the accumulator or the key is closed.
        """
        with self._lock:
            if self._is_closed or key in self._closed_keys:
                raise RejectedError("the event processor is closed")
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
                if key not in self._taken:
                    self._free.append(key)
                    self._available.notify()
            if first:
                queue.appendleft(event)
            else:
                queue.append(event)
            self._size += 1

    def take(self, timeout_seconds: float | None = None) -> tuple[K, E] | None:
        """
        Wait for an event of a free key; None after the timeout, or if the accumulator is closed and no key is free.

        After a close the queued events can still be taken.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._lock:
            while not self._free:
                if self._is_closed:
                    return None
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._available.wait(left)
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
        """End the event in progress of a key, so that its next event can be taken."""
        with self._lock:
            self._taken.discard(key)
            if key in self._closed_keys:
                self._released.notify_all()
            elif key in self._queues:
                self._free.append(key)
                self._available.notify()

    def close_keys(self, keys: Iterable[K]) -> list[E]:
        """
        Accept no more events of these keys.

        Returns:
            The events that were queued. One event of each key may still be in progress: see `wait_until_done`.
        """
        keys = frozenset(keys)
        with self._lock:
            self._closed_keys |= keys
            rejected: list[E] = []
            for key in keys:
                rejected += self._queues.pop(key, ())
            self._size -= len(rejected)
            self._free = [key for key in self._free if key not in keys]
        return rejected

    def wait_until_done(self, keys: Iterable[K]) -> None:
        """Wait until no event of these closed keys is in progress."""
        keys = frozenset(keys)
        with self._lock:
            while not self._taken.isdisjoint(keys):
                self._released.wait()

    def close(self) -> None:
        """Accept no more events, and wake every waiting thread."""
        with self._lock:
            self._is_closed = True
            self._available.notify_all()
