"""The context of a partition with threads: every call is queued as an event, and answered by its reply."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from kohort.machine.shard import EndTransaction, Producer, Reply, Result, Shard
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.runtime.context import Context
from kohort.runtime.environment import Environment
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.processors import PartitionExecutor

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")


class ThreadedContext(Context[S]):
    """
    A context with threads. The methods that any thread may call are overridden here; all others run in events.

    `write` always returns None.
    """

    def __init__(
        self, environment: Environment[S], partition: int, executor: PartitionExecutor, metrics: ShardMetrics
    ) -> None:
        super().__init__(environment, partition, executor, metrics)
        self._moving = threading.Lock()
        self._moved_to: int | None = None

    def write(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        producer: Producer | None = None,
    ) -> T | None:
        def reject() -> None:
            response = on_error(CoordinatorError(ErrorCode.NOT_COORDINATOR))
            if reply is not None:
                reply(response)

        event = partial(self._write_queued, operation, reply, on_error, producer)
        self._executor.run(partial(self._exclusively, event), reject)
        return None

    def end_transaction(self, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None) -> None:
        self._executor.run(
            partial(super().end_transaction, end, reply, timeout_ms),
            lambda: reply(CoordinatorError(ErrorCode.NOT_COORDINATOR)),
        )

    def read(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        """
        Run a query as an event, and wait for its response.

        Raises:
            InvariantError: called on a thread of the processor, which would wait for itself.
        """
        if not self._executor.may_wait:
            raise InvariantError("a reply or an operation cannot wait for a query")
        answer: Future[T] = Future()
        run = partial(super().read, query, on_error)
        self._executor.run(
            lambda: answer.set_result(run()),
            lambda: answer.set_result(on_error(CoordinatorError(ErrorCode.NOT_COORDINATOR))),
        )
        return answer.result()

    def on_high_watermark(self, offset: int) -> None:
        """Queue an event for a new high watermark; moves before the event runs are merged."""
        with self._moving:
            is_queued = self._moved_to is not None
            self._moved_to = offset
        if not is_queued:
            self._executor.run_first(self._commit_moved)

    def _commit_moved(self) -> None:
        with self._moving:
            offset, self._moved_to = self._moved_to, None
        if offset is not None:
            super().on_high_watermark(offset)
