"""One answer out of several: a request whose groups live in different partitions is answered when all of them are."""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from kohort.machine.shard import Reply

T = TypeVar("T")
R = TypeVar("R")


class ResponseAggregator(Generic[T, R]):
    """
    Collects one part per question, in the order of the questions.

    Ask with `reply_to(index)`, pass what comes back at once to `put`, and end with `finish`: the whole answer if every part is
    there, else None, and `reply` is called when the last one arrives.
    """

    __slots__ = ("_is_open", "_merge", "_missing", "_parts", "_reply")

    def __init__(self, size: int, merge: Callable[[list[T]], R], reply: Reply[R]) -> None:
        self._parts: dict[int, T] = {}
        self._missing = size
        self._merge = merge
        self._reply = reply
        self._is_open = True

    def reply_to(self, index: int) -> Reply[T]:
        return partial(self._arrive, index)

    def put(self, index: int, part: T | None) -> None:
        """What was answered at once; None when the answer comes later."""
        if part is not None:
            self._arrive(index, part)

    def finish(self) -> R | None:
        self._is_open = False
        return self._whole() if self._missing == 0 else None

    def _arrive(self, index: int, part: T) -> None:
        assert index not in self._parts, "a part was answered twice"
        self._parts[index] = part
        self._missing -= 1
        if self._missing == 0 and not self._is_open:
            self._reply(self._whole())

    def _whole(self) -> R:
        return self._merge([part for _, part in sorted(self._parts.items(), key=lambda item: item[0])])
