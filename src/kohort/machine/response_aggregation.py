"""One response made of several: a request that concerns several partitions is answered when all parts are there."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from kohort.machine.shard import Reply

T = TypeVar("T")
R = TypeVar("R")


class ResponseAggregator(Generic[T, R]):
    """
    Collects one part per index and merges them in the order of the indexes.

    Pass `reply_to(index)` as the reply of each part and its immediate response, if there is one, to `put`. Then call `finish`:
    it returns the merged response if all parts are there; if not, `reply` gets it when the last part arrives.

    Parts may arrive on any thread.
    """

    __slots__ = ("_claim", "_is_open", "_merge", "_parts", "_reply", "_size")

    def __init__(self, size: int, merge: Callable[[Sequence[T]], R], reply: Reply[R]) -> None:
        self._parts: dict[int, T] = {}
        self._size = size
        self._merge = merge
        self._reply = reply
        self._is_open = True
        self._claim: list[None] = [None]
        """Taken by the thread that delivers the response; `list.pop` is atomic."""

    def reply_to(self, index: int) -> Reply[T]:
        return partial(self._arrive, index)

    def put(self, index: int, part: T | None) -> None:
        """Add a part; None if it arrives later."""
        if part is not None:
            self._arrive(index, part)

    def finish(self) -> R | None:
        """All parts have been asked for: the response, or None if parts are missing."""
        self._is_open = False
        return self._merged() if len(self._parts) == self._size and self._is_claimed() else None

    def _arrive(self, index: int, part: T) -> None:
        assert index not in self._parts, "a part was answered twice"
        self._parts[index] = part
        # The order matters: `finish` first closes and then counts.
        if len(self._parts) == self._size and not self._is_open and self._is_claimed():
            self._reply(self._merged())

    def _is_claimed(self) -> bool:
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def _merged(self) -> R:
        return self._merge([self._parts[index] for index in range(self._size)])
