"""
Background tasks of a shard: long computations that run on another thread and hand their result to an operation.

A task touches no state of the shard. Its result goes to an operation, which runs under the shard's exclusivity and may return
records. There is at most one task per key. An unload cancels the tasks: those that have not begun never run, and the results
of the others are dropped.

Source: Kafka CoordinatorExecutor, CoordinatorExecutorImpl.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import Any

from kohort.machine.shard import Reply, Result
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock
from kohort.runtime.processors import PartitionExecutor

_log = logging.getLogger("kohort.runtime")

Operation = Callable[[Any, Exception | None, int], Result[Any, None]]
"""`operation(result, error, now_ms)`: the task's return value, or None and its exception."""

_Task = tuple[Callable[[], Any], Operation]
Write = Callable[[Callable[[Any, int], Result[Any, Any]], Reply[Any], Callable[[Exception], None]], object]


class ShardExecutor:
    """
    `kohort.machine.shard.Executor` for one shard.

    Args:
        executor: the partition's; runs the tasks, and the events that bring back their results.
        write: runs an operation under the shard's exclusivity: `write(operation, reply, on_error)`.
        metrics: of the partition.
    """

    def __init__(self, executor: PartitionExecutor, clock: Clock, write: Write, metrics: ShardMetrics) -> None:
        self._executor = executor
        self._clock = clock
        self._write = write
        self._metrics = metrics
        self._tasks: dict[str, _Task] = {}
        """Changed under the shard's exclusivity, and read by the thread: a task that is cancelled too late runs in vain."""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def schedule(self, key: str, task: Callable[[], Any], operation: Operation, /) -> bool:
        if key in self._tasks or self._is_closed:
            return False
        scheduled = self._tasks[key] = task, operation
        queued_ms = self._clock.now_ms()
        self._executor.run_in_background(lambda: self._run(key, scheduled, queued_ms))
        return True

    def is_scheduled(self, key: str, /) -> bool:
        return key in self._tasks

    def cancel(self, key: str, /) -> None:
        self._tasks.pop(key, None)

    def close(self) -> None:
        """Cancel all tasks, and take none from now on."""
        self._is_closed = True
        self._tasks.clear()

    def _run(self, key: str, scheduled: _Task, queued_ms: int) -> None:
        """Run the task; called on the background thread."""
        if self._tasks.get(key) is not scheduled:
            return
        started_ms = self._clock.now_ms()
        result, error = None, None
        try:
            found = scheduled[0]()
            result = _run_steps(found) if isinstance(found, Generator) else found
        except Exception as exc:  # noqa: BLE001 -- the operation decides what follows from it
            error = exc
        ended_ms = self._clock.now_ms()
        self._executor.call_soon_threadsafe(
            lambda: self._complete(key, scheduled, result, error, (queued_ms, started_ms, ended_ms))
        )

    def _complete(
        self, key: str, scheduled: _Task, result: Any, error: Exception | None, times_ms: tuple[int, int, int]
    ) -> None:
        def run(_: Any, now_ms: int) -> Result[Any, Any]:
            if self._tasks.get(key) is not scheduled:
                return Result()
            # Removed before the operation runs, so that it may schedule its own key again.
            del self._tasks[key]
            queued_ms, started_ms, ended_ms = times_ms
            self._metrics.background_queue_time.record(started_ms - queued_ms)
            self._metrics.background_processing_time.record(ended_ms - started_ms)
            done = scheduled[1](result, error, now_ms)
            # With a response the operation has a deadline, and a timeout is a failure.
            return done.replace(response=_DONE) if done.records else done

        def failed(failure: Exception) -> None:
            # Nobody waits for the tasks of a shard that was unloaded.
            if not self._is_closed:
                _log.error("shard.background_failed key=%s error=%s", key, failure)

        if self._tasks.get(key) is scheduled:
            self._write(run, _ignore, failed)


def _ignore(_: object) -> None:
    """No caller waits for a task."""


_DONE: Any = object()


def _run_steps(steps: Generator[None, None, Any]) -> Any:
    """Run a generator to its end. Compiled code does not give up the interpreter's lock by itself: this does, at each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(0)


class DaemonThreads:
    """
    Up to `count` threads, started by the first tasks. They do not hold up the end of the process: a task may hang for ever,
    such as a read of a disk.
    """

    def __init__(self, name: str = "kohort-background", count: int = 1) -> None:
        self._name = name
        self._count = count
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._idle = 0
        self._is_closed = False

    def submit(self, task: Callable[[], None], /) -> None:
        """Run `task` after the earlier ones; drop it if the threads are closed."""
        with self._lock:
            if self._is_closed:
                return
            self._tasks.put(task)
            if self._idle:
                self._idle -= 1
            elif len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, *, waits: bool = False) -> None:
        """Drop the tasks that have not begun, and let the threads end after those that have; wait for that if it `waits`."""
        with self._lock:
            self._is_closed = True
            for _ in self._threads:
                self._tasks.put(None)
        if waits:
            for thread in self._threads:
                thread.join()

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None or self._is_closed:
                return
            try:
                task()
            except Exception:  # noqa: BLE001 -- the loop of the thread: the failure is logged, the loop goes on
                _log.exception("background.failed")
            del task
            with self._lock:
                self._idle += 1
