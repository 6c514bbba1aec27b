"""
Requests that wait for something to happen under a key, or for their time to be up: delayed produce and fetch.

Whoever waits is asked again each time something happens under one of its keys, and ends exactly once: because it could, because
its time was up, or because it was cancelled. Those that have ended stay in the lists of their other keys until something
happens there, or until enough of them have gathered.

Source: Kafka DelayedOperation, DelayedOperationPurgatory.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from kohort.runtime.ports import Clock
from kohort.runtime.wheel import Wheel, WheelTimer

K = TypeVar("K", bound=Hashable)

PURGE_INTERVAL = 1000
"""Sweep when so many may have ended. Source: fetch.purgatory.purge.interval.requests."""


class Delayed(ABC):
    """Something that waits, for `delay_ms` at most."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self._timer: WheelTimer | None = None
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @abstractmethod
    def try_complete(self) -> bool:
        """End by `force_complete` if what is waited for is there; whether this call did."""

    @abstractmethod
    def on_complete(self) -> None:
        """It has ended; called exactly once, unless it was cancelled."""

    def on_expiration(self) -> None:  # noqa: B027 -- most need not know
        """It ended because its time was up; called after `on_complete`."""

    def force_complete(self) -> bool:
        """End now, whatever is waited for; whether this call did."""
        if not self._end():
            return False
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """End without a word; whether this call did."""
        return self._end()

    def _end(self) -> bool:
        if self._has_ended:
            return False
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        return True

    def _expire(self) -> None:
        if self.force_complete():
            self.on_expiration()


class Purgatory(Generic[K]):
    """
    Those that wait, by the keys they watch.

    Not safe for threads: it belongs to the thread that owns the node. What ends somebody may let somebody else go on: lists may
    change while they are walked.
    """

    def __init__(self, wheel: Wheel, clock: Clock, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._wheel = wheel
        self._clock = clock
        self._purge_interval = purge_interval
        self._watched: dict[K, list[Delayed]] = {}
        self._since_purge = 0

    @property
    def watched(self) -> int:
        """How many places in lists are taken, ended ones included."""
        return sum(len(waiting) for waiting in self._watched.values())

    @property
    def delayed(self) -> int:
        """How many wait."""
        return len({id(each) for waiting in self._watched.values() for each in waiting if not each.has_ended})

    def try_complete_else_watch(self, delayed: Delayed, keys: Iterable[K]) -> bool:
        """
        End it, or have it wait for these keys; whether it has ended.

        It is asked again after it has been listed, so that what happens between the two is not missed.

        Raises:
            ValueError: there are no keys to wait for.
        """
        keys = list(keys)
        if not keys:
            raise ValueError("nothing would ever end what watches no key")
        if delayed.try_complete():
            return True
        for key in keys:
            self._watched.setdefault(key, []).append(delayed)
        if delayed.try_complete() or delayed.has_ended:
            return True
        delayed._timer = self._wheel.arm(self._clock.now_ms() + delayed.delay_ms, delayed._expire)
        self._since_purge += 1
        if self._since_purge > self._purge_interval:
            self.purge()
        return False

    def check_and_complete(self, key: K) -> int:
        """Something happened under a key: ask those that wait for it; how many ended by that."""
        waiting = self._watched.get(key)
        if waiting is None:
            return 0
        ended = sum(not delayed.has_ended and delayed.try_complete() for delayed in list(waiting))
        self._drop_ended(key)
        return ended

    def cancel(self, key: K) -> list[Delayed]:
        """Nothing will ever happen under a key: end those that wait for it without a word, and return them."""
        return [delayed for delayed in self._watched.pop(key, []) if delayed.cancel()]

    def purge(self) -> None:
        """Take those that have ended off all lists."""
        self._since_purge = 0
        for key in list(self._watched):
            self._drop_ended(key)

    def _drop_ended(self, key: K) -> None:
        waiting = [delayed for delayed in self._watched.get(key, ()) if not delayed.has_ended]
        if waiting:
            self._watched[key] = waiting
        else:
            self._watched.pop(key, None)
