"""A shard of a simulation whose later operations and background tasks are watched, and deadlines that are never extended."""

from collections.abc import Callable
from typing import Any

from kohort.machine.shard import Executor, Result
from kohort.machine.steps import Deadline, Key, Operation, Wait, Wake

Watch = Callable[[Result[Any, Any]], Result[Any, Any]]
"""Sees the result of an operation, and returns it."""


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
        if name == "use_executor":
            return lambda executor: found(WatchedExecutor(executor, self._watch))
        if name == "on_loaded":
            return lambda image, now_ms: None if (result := found(image, now_ms)) is None else self._watch(result)
        return found


def watched_steps(result: Result[Any, Any], watch: Watch) -> Result[Any, Any]:
    """The result with its later operations watched."""

    def watched(answer: Any) -> Any:
        return Operation(_run_watched, answer, watch) if isinstance(answer, Operation) else answer

    response: Any = result.response
    if isinstance(response, Wait):
        response = Wait(response.key, response.timeout_ms, watched(response.late), response.replaced)
    return result.replace(
        response=response,
        wakes=[Wake(wake.key, watched(wake.answer)) for wake in result.wakes],
        deadlines=[
            Deadline(each.key, each.delay_ms, watched(each.operation), keeps_earlier=each.keeps_earlier)
            for each in result.deadlines
        ],
        then=watched(result.then),
        otherwise=watched(result.otherwise),
    )


def _run_watched(shard: Any, now_ms: int, operation: Operation, watch: Watch, *outcome: Any) -> Result[Any, Any]:
    return watch(operation.function(shard, now_ms, *operation.arguments, *outcome))


class NoDeadlines:
    """Deadlines of a shard that only replays."""

    def extend(self, _key: Key, _delay_ms: int, /) -> None: ...
