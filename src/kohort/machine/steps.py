"""
The parts of a result that say what happens later: requests that wait, deadlines, and operations as data.

All of them are values. The runtime keeps the replies and the timers. It takes them back when records cannot be written, and
lets nothing leave before the commit.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

Key: TypeAlias = tuple[str, ...]
"""The name of a wait or a deadline in one shard, for example ("join", group id, member id). It is never parsed."""


class Operation:
    """
    A step of a shard as data: `function(shard, now_ms, *arguments)`. Arguments are ids and other values, and no objects of the
    state: they may have changed when the step runs.
    """

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function: Final = function
        self.arguments: Final = arguments

    def __call__(self, shard: Any, now_ms: int) -> Any:
        return self.run(shard, now_ms)

    def run(self, shard: Any, now_ms: int) -> Any:
        arguments = self.arguments
        # Most operations have one to three arguments. A call with a list of them costs a thousand instructions more.
        if len(arguments) == 1:
            return self.function(shard, now_ms, arguments[0])
        if len(arguments) == 2:
            return self.function(shard, now_ms, arguments[0], arguments[1])
        if len(arguments) == 3:
            return self.function(shard, now_ms, arguments[0], arguments[1], arguments[2])
        return self.function(shard, now_ms, *arguments)

    def __repr__(self) -> str:
        return f"Operation({self.function.__name__}, {', '.join(map(repr, self.arguments))})"


class Wait:
    """
    A response that comes later: the runtime keeps the request under `key` until another operation wakes it.

    Attributes:
        timeout_ms: the time after which the request is answered with `late`; None if another deadline of the shard ends the
            wait, so that thousands of requests that wait for one event have one timer.
        late: a response, or an Operation that gives it.
        replaced: the response to this request when another one waits under its key.
    """

    __slots__ = ("key", "late", "replaced", "timeout_ms")

    def __init__(self, key: Key, timeout_ms: int | None, late: Any, replaced: Any) -> None:
        self.key: Final = key
        self.timeout_ms: Final = timeout_ms
        self.late: Final = late
        self.replaced: Final = replaced


class Wake:
    """
    The answer to the request that waits under `key`; no effect if none does.

    Attributes:
        answer: a response, or an Operation that runs after the commit and gives it.
    """

    __slots__ = ("answer", "key")

    def __init__(self, key: Key, answer: Any) -> None:
        self.key: Final = key
        self.answer: Final = answer


class Deadline:
    """
    An operation that runs in `delay_ms`, in place of an earlier one with the same key. None cancels the earlier one. With a
    delay of 0 it is a step of a long work, and runs in a later turn, beside requests.

    Attributes:
        keeps_earlier: whether an earlier deadline with the same key stays, and this one is dropped.

    A deadline is gone when its operation runs. If the operation raises, or its records cannot be written, the deadline is back
    and due after `RETRY_BACKOFF_MS`.
    """

    __slots__ = ("delay_ms", "keeps_earlier", "key", "operation")

    def __init__(
        self, key: Key, delay_ms: int = 0, operation: Operation | None = None, *, keeps_earlier: bool = False
    ) -> None:
        self.key: Final = key
        self.keeps_earlier: Final = keeps_earlier
        self.delay_ms: Final = delay_ms
        self.operation: Final = operation
