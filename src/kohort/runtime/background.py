"""
Work of a shard that must not block it: tasks that run beside it, and come back as operations.

A task runs on another thread and touches nothing of the shard; what it found is handed to an operation, which runs under the
shard's exclusivity like any other and may return records. One task a key at a time. A shard that is unloaded forgets its tasks:
one that has not begun never runs, and what the others find is dropped.

Source: Kafka CoordinatorExecutor, CoordinatorExecutorImpl.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from kohort.machine.shard import Result
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock
from kohort.runtime.processors import PartitionExecutor

_log = logging.getLogger("kohort.runtime")

Operation = Callable[[Any, Exception | None, int], Result[Any, None]]
"""`operation(found, error, now_ms)`: what the task returned, or what it raised."""

Expire = Callable[[Callable[[], bool], Callable[[int], Result[Any, None]], Callable[[Exception], None]], None]


class _Task:
    """What is under way for one key."""

    __slots__ = ("is_forgotten", "operation", "task")

    def __init__(self, task: Callable[[], Any], operation: Operation) -> None:
        self.task = task
        self.operation = operation
        self.is_forgotten = False
        """Set under the shard's exclusivity and read by the thread, where being late means to work in vain."""


class ShardExecutor:
    """
    `kohort.machine.shard.Executor` for one shard.

    Args:
        lane: the partition's; says where tasks run and brings what they found back.
        expire: runs an operation under the shard's exclusivity: `expire(is_current, operation, on_failure)`, as for timers.
        metrics: the partition's.
    """

    def __init__(self, executor: PartitionExecutor, clock: Clock, expire: Expire, metrics: ShardMetrics) -> None:
        self._executor = executor
        self._clock = clock
        self._expire = expire
        self._metrics = metrics
        self._tasks: dict[str, _Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def schedule(self, key: str, task: Callable[[], Any], operation: Operation, /) -> bool:
        if key in self._tasks:
            return False
        scheduled = self._tasks[key] = _Task(task, operation)
        queued_ms = self._clock.now_ms()
        self._executor.run_in_background(lambda: self._run(key, scheduled, queued_ms))
        return True

    def is_scheduled(self, key: str, /) -> bool:
        return key in self._tasks

    def cancel(self, key: str, /) -> None:
        scheduled = self._tasks.pop(key, None)
        if scheduled is not None:
            scheduled.is_forgotten = True

    def cancel_all(self) -> None:
        for key in list(self._tasks):
            self.cancel(key)

    def _run(self, key: str, scheduled: _Task, queued_ms: int) -> None:
        """On the thread of tasks."""
        if scheduled.is_forgotten:
            return
        started_ms = self._clock.now_ms()
        found, error = None, None
        try:
            found = scheduled.task()
        except Exception as exc:  # noqa: BLE001 -- whatever it is, the operation decides about it
            error = exc
        ended_ms = self._clock.now_ms()
        self._executor.call_soon_threadsafe(
            lambda: self._come_back(key, scheduled, found, error, (queued_ms, started_ms, ended_ms))
        )

    def _come_back(
        self, key: str, scheduled: _Task, found: Any, error: Exception | None, times_ms: tuple[int, int, int]
    ) -> None:
        def is_current() -> bool:
            # Taken off before it runs, so that the operation may schedule its own key again.
            if self._tasks.get(key) is not scheduled:
                return False
            del self._tasks[key]
            queued_ms, started_ms, ended_ms = times_ms
            self._metrics.background_queue_time.record(started_ms - queued_ms)
            self._metrics.background_processing_time.record(ended_ms - started_ms)
            return True

        def failed(failure: Exception) -> None:
            _log.error("shard.background_failed key=%s error=%s", key, failure)

        if not scheduled.is_forgotten:
            self._expire(is_current, lambda now_ms: scheduled.operation(found, error, now_ms), failed)


class BackgroundThread:
    """One thread for tasks, which begins with the first of them."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._changing = threading.Lock()

    def submit(self, task: Callable[[], None], /) -> None:
        """Run `task` when those before it have run; dropped when the thread is closed."""
        with self._changing:
            if self._is_closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kohort-background", daemon=True)
                self._thread.start()
            self._tasks.put(task)

    def close(self) -> None:
        """Drop what has not begun, and wait for what has."""
        with self._changing:
            self._is_closed = True
        self._tasks.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None or self._is_closed:
                return
            try:
                task()
            except Exception:  # noqa: BLE001 -- the loop of the thread: what failed is logged, the rest goes on
                _log.exception("background.failed")
