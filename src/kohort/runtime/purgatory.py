"""
Delayed operations: requests that wait until a condition on one of their keys holds, or until a timeout. A delayed fetch waits
for data of its partitions.

A delayed operation is tried again each time one of its keys changes. It ends exactly once: by completion, by its timeout, or by
cancellation. An ended operation stays in the watch lists of its other keys until such a key changes, or until the next purge.

Source: Kafka DelayedOperation, DelayedOperationPurgatory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)

CallLater: TypeAlias = Callable[[int, Callable[[], None]], Callable[[], None]]
"""`call_later(delay_ms, function)`: call it once in `delay_ms` on the owner's thread; the returned function cancels that."""

PURGE_INTERVAL = 1000
"""Purge after so many new operations. Source: fetch.purgatory.purge.interval.requests."""


class PurgatoryMetrics(NamedTuple):
    """
    Gauges of a purgatory.

    Attributes:
        size: operations in watch lists, counted once per key, ended ones included. Kafka: PurgatorySize.
        delayed_operations: operations that wait. Kafka: NumDelayedOperations.
    """

    size: int
    delayed_operations: int


class Delayed(ABC):
    """A delayed operation, which waits for at most `delay_ms`."""

    __slots__ = ("_cancel", "_has_ended", "delay_ms")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self._cancel: Callable[[], None] | None = None
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @abstractmethod
    def try_complete(self, key: Hashable | None = None) -> bool:
        """
        Call `force_complete` if the condition holds, and return whether this call has ended the operation.

        Args:
            key: the one that has changed; None if the operation is tried for another reason.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Called once when the operation has ended by completion or timeout."""

    def on_expiration(self) -> None:  # noqa: B027 -- most operations do nothing here
        """Called after `on_complete` if the operation has ended by its timeout."""

    def force_complete(self) -> bool:
        """Complete the operation now, and return whether this call has ended it."""
        if self._has_ended:
            return False
        self._end()
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """End the operation without `on_complete`, and return whether this call has ended it."""
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
    Delayed operations in watch lists by key.

    Not thread-safe: called on the thread that owns the node. The completion of one operation may complete others, so watch
    lists may change while they are iterated.

    Attributes:
        watched_by: the watch list of each key that has one. A key that changes often looks here before `check_and_complete`.
    """

    def __init__(self, call_later: CallLater, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._call_later = call_later
        self._purge_interval = purge_interval
        self.watched_by: Final[dict[K, list[Delayed]]] = {}
        self._since_purge = 0

    @property
    def watched(self) -> int:
        """Entries of all watch lists, ended operations included."""
        return sum(len(waiting) for waiting in self.watched_by.values())

    @property
    def delayed(self) -> int:
        """Operations that wait."""
        return len({id(each) for waiting in self.watched_by.values() for each in waiting if not each.has_ended})

    def metrics(self) -> PurgatoryMetrics:
        return PurgatoryMetrics(self.watched, self.delayed)

    def watch(self, delayed: Delayed, keys: Sequence[K]) -> None:
        """
        Let an operation watch these keys. The caller has tried it in the same call.

        Raises:
            ValueError: no keys.
        """
        if not keys:
            raise ValueError("a delayed operation needs at least one key")
        self.put(delayed, keys)
        self.arm(delayed)

    def put(self, delayed: Delayed, keys: Sequence[K]) -> None:
        """Put an operation into the watch lists of some keys. It is tried from then on, and has no timeout until `arm`."""
        watched = self.watched_by
        for key in keys:
            waiting = watched.get(key)
            if waiting is None:
                watched[key] = [delayed]
            else:
                waiting.append(delayed)

    def arm(self, delayed: Delayed) -> None:
        """Begin the time of an operation that is in its watch lists."""
        delayed._cancel = self._call_later(delayed.delay_ms, delayed._expire)
        self._since_purge += 1
        if self._since_purge > self._purge_interval:
            self.purge()

    def check_and_complete(self, key: K) -> int:
        """Try the operations that watch a key, and return the number of those that ended."""
        waiting = self.watched_by.get(key)
        if waiting is None:
            return 0
        ended = 0
        for delayed in tuple(waiting):
            if not delayed._has_ended and delayed.try_complete(key):
                ended += 1
        if ended == len(waiting) and self.watched_by.get(key) is waiting:
            del self.watched_by[key]
        else:
            self._drop_ended(key)
        return ended

    def cancel(self, key: K) -> list[Delayed]:
        """Cancel the operations that watch a key, which no longer exists, and return them."""
        return [delayed for delayed in self.watched_by.pop(key, []) if delayed.cancel()]

    def complete_all(self) -> None:
        """Complete every operation now, before the node stops."""
        for waiting in list(self.watched_by.values()):
            for delayed in tuple(waiting):
                delayed.force_complete()
        self.purge()

    def purge(self) -> None:
        """Remove ended operations from all watch lists."""
        self._since_purge = 0
        for key in list(self.watched_by):
            self._drop_ended(key)

    def _drop_ended(self, key: K) -> None:
        waiting = [delayed for delayed in self.watched_by.get(key, ()) if not delayed._has_ended]
        if waiting:
            self.watched_by[key] = waiting
        else:
            self.watched_by.pop(key, None)
