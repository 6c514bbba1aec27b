"""
Requests that wait for something to happen under a key, or for their time to be up: delayed produce and fetch.

Whoever waits is asked again each time something happens under one of its keys, and ends exactly once: because it could, because
its time was up, or because it was cancelled. Those that have ended stay in the lists of their other keys until something
happens there, or until enough of them have gathered.

Source: Kafka DelayedOperation, DelayedOperationPurgatory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)

CallLater: TypeAlias = Callable[[int, Callable[[], None]], Callable[[], None]]
"""`call_later(delay_ms, function)`: call it once in `delay_ms`, on the owner's thread; what is returned cancels it."""

PURGE_INTERVAL = 1000
"""Sweep when so many may have ended. Source: fetch.purgatory.purge.interval.requests."""

_NO_KEYS = "nothing would ever end what watches no key"


class Delayed(ABC):
    """Something that waits, for `delay_ms` at most."""

    __slots__ = ("_cancel", "_has_ended", "delay_ms")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self._cancel: Callable[[], None] | None = None
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
        if self._has_ended:
            return False
        self._end()
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """End without a word; whether this call did."""
        if self._has_ended:
            return False
        self._end()
        return True

    def _end(self) -> None:
        self._has_ended = True
        if self._cancel is not None:
            self._cancel()

    def _expire(self) -> None:
        if self.force_complete():
            self.on_expiration()


class Purgatory(Generic[K]):
    """
    Those that wait, by the keys they watch.

    Not safe for threads: it belongs to the thread that owns the node. What ends somebody may let somebody else go on: lists may
    change while they are walked.
    """

    def __init__(self, call_later: CallLater, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._call_later = call_later
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
        keys = tuple(keys)
        if not keys:
            raise ValueError(_NO_KEYS)
        if delayed.try_complete():
            return True
        self._list(delayed, keys)
        if delayed.try_complete() or delayed.has_ended:
            return True
        self._arm(delayed)
        return False

    def watch(self, delayed: Delayed, keys: Sequence[K]) -> None:
        """
        Have it wait for these keys. For who has just found, in this call, that it cannot end yet.

        Raises:
            ValueError: there are no keys to wait for.
        """
        if not keys:
            raise ValueError(_NO_KEYS)
        self._list(delayed, keys)
        self._arm(delayed)

    def _list(self, delayed: Delayed, keys: Sequence[K]) -> None:
        watched = self._watched
        for key in keys:
            waiting = watched.get(key)
            if waiting is None:
                watched[key] = [delayed]
            else:
                waiting.append(delayed)

    def _arm(self, delayed: Delayed) -> None:
        delayed._cancel = self._call_later(delayed.delay_ms, delayed._expire)
        self._since_purge += 1
        if self._since_purge > self._purge_interval:
            self.purge()

    def check_and_complete(self, key: K) -> int:
        """Something happened under a key: ask those that wait for it; how many ended by that."""
        waiting = self._watched.get(key)
        if waiting is None:
            return 0
        ended = 0
        for delayed in tuple(waiting):
            if not delayed._has_ended and delayed.try_complete():
                ended += 1
        if ended == len(waiting) and self._watched.get(key) is waiting:
            del self._watched[key]
        else:
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
        waiting = [delayed for delayed in self._watched.get(key, ()) if not delayed._has_ended]
        if waiting:
            self._watched[key] = waiting
        else:
            self._watched.pop(key, None)
