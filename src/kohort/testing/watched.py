"""A shard of a simulation whose operations of timers and background tasks are watched, and timers that never fire."""

from collections.abc import Callable
from typing import Any

from kohort.machine.shard import Executor, Result, Timers

Watch = Callable[[Result[Any, Any]], Result[Any, Any]]
"""Sees the result of an operation, and returns it."""


class WatchedTimers:
    """The timers of a shard; their operations are watched."""

    def __init__(self, timers: Timers, watch: Watch) -> None:
        self._timers = timers
        self._watch = watch
        self.cancel = timers.cancel
        self.is_scheduled = timers.is_scheduled

    def schedule(self, key: str, delay_ms: int, operation: Any, **retry: Any) -> None:
        self._timers.schedule(key, delay_ms, lambda now_ms: self._watch(operation(now_ms)), **retry)

    def schedule_if_absent(self, key: str, delay_ms: int, operation: Any, **retry: Any) -> None:
        self._timers.schedule_if_absent(key, delay_ms, lambda now_ms: self._watch(operation(now_ms)), **retry)


class WatchedExecutor:
    """The background tasks of a shard; the operations that get their results are watched."""

    def __init__(self, executor: Executor, watch: Watch) -> None:
        self._executor = executor
        self._watch = watch
        self.cancel = executor.cancel
        self.is_scheduled = executor.is_scheduled

    def schedule(
        self, key: str, task: Callable[[], Any], operation: Callable[[Any, Exception | None, int], Result[Any, None]], /
    ) -> bool:
        return self._executor.schedule(
            key, task, lambda result, error, now_ms: self._watch(operation(result, error, now_ms))
        )


class WatchedShard:
    """A shard whose background tasks are watched; a proxy, because shards may be compiled classes."""

    def __init__(self, shard: Any, watch: Watch) -> None:
        self._shard = shard
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._shard, name)
        if name != "use_executor":
            return found
        return lambda executor: found(WatchedExecutor(executor, self._watch))


class NoTimers:
    """Timers of a shard that only replays."""

    def schedule(self, key: str, delay_ms: int, operation: Any, **_: Any) -> None: ...

    def schedule_if_absent(self, key: str, delay_ms: int, operation: Any, **_: Any) -> None: ...

    def cancel(self, key: str) -> None: ...

    def is_scheduled(self, _key: str) -> bool:
        return False
