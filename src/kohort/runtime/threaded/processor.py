"""
A processor with threads of its own, for programs without an event loop.

The events of a partition run one at a time, on any of N threads. Each partition has a timing wheel of its own, and one more
thread queues an event when the earliest deadline of a wheel is due. Nothing relies on the interpreter's global lock.

Source: Kafka MultiThreadedEventProcessor.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple, Self, TypeAlias

from kohort.model.errors import InvariantError
from kohort.runtime.background import DaemonThreads
from kohort.runtime.metrics import EventMetrics, Histogram, IdleRatio
from kohort.runtime.ports import Clock
from kohort.runtime.threaded.accumulator import EventAccumulator, RejectedError
from kohort.runtime.timers.clock import SystemClock
from kohort.runtime.timers.wheel import Wheel

_log = logging.getLogger("kohort.runtime")

Key: TypeAlias = tuple[int, int]
"""The number of an event queue set, and a partition."""


class _Event(NamedTuple):
    """An event with its rejection. `queues` counts it."""

    queues: "ThreadedEventQueues"
    run: Callable[[], None]
    reject: Callable[[], None]
    queued_ms: int


def _dropped() -> None:
    """Reject an event that no caller waits for."""


class DeadlineThread:
    """One deadline per key: a new one replaces the old one. The callbacks run on this thread, so they must be short."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._deadlines: dict[Key, tuple[int, Callable[[], None]]] = {}
        """The time of each key's deadline, and its callback. There is a key for each partition."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kohort-runtime-timer", daemon=True)
        self._thread.start()

    def set(self, key: Key, at_ms: int, action: Callable[[], None]) -> None:
        """Call `action` once at `at_ms`, instead of the key's earlier callback."""
        with self._changed:
            self._deadlines[key] = (at_ms, action)
            self._changed.notify()

    def remove(self, keys: Iterable[Key]) -> None:
        """Forget the deadlines of these keys."""
        with self._changed:
            for key in keys:
                self._deadlines.pop(key, None)

    def close(self) -> None:
        """Call nothing from now on, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                earliest = min(self._deadlines.items(), key=_at_ms, default=None)
                if earliest is None:
                    self._changed.wait()
                    continue
                key, (at_ms, action) = earliest
                wait_ms = at_ms - self._clock.now_ms()
                if wait_ms > 0:
                    # Rounded up by a millisecond: a thread that wakes early finds nothing due.
                    self._changed.wait((wait_ms + 1) / 1000)
                    continue
                del self._deadlines[key]
            action()


def _at_ms(item: tuple[object, tuple[int, object]]) -> int:
    return item[1][0]


class ThreadedProcessor:
    """
    N threads that run the events of partitions. Several runtimes can share a processor: each has event queues of its own.

    The workers are plain threads and not a `ThreadPoolExecutor`: order by key, insertion at the head and rejection at the
    close need the accumulator's queues, and an executor would put its own queue and a future for each event in front of them.
    Background tasks, which need none of that, run on one (`DaemonThreads`).

    Args:
        threads: the number of threads. Source: group.coordinator.threads.
        clock: steady milliseconds.
    """

    def __init__(self, threads: int = 1, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._events: EventAccumulator[Key, _Event] = EventAccumulator()
        self.deadlines = DeadlineThread(self.clock)
        self._numbers = count()
        self._is_stopping = threading.Event()
        self._busy_ns = 0
        self._measuring = threading.Lock()
        """Held while histograms and `_busy_ns` change."""
        self._idle_ratio = IdleRatio(threads, lambda: self._busy_ns)
        self.background = DaemonThreads()
        self._threads = [
            threading.Thread(target=self._work, name=f"kohort-runtime-{index}", daemon=True) for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of queued events of all runtimes."""
        return len(self._events)

    @property
    def thread_idle_ratio(self) -> float:
        """The fraction of time that the threads waited for events since the last reading, 0 to 1."""
        return self._idle_ratio.read()

    def event_queues(self) -> "ThreadedEventQueues":
        return ThreadedEventQueues(self, next(self._numbers))

    def is_own_thread(self) -> bool:
        """Whether the caller is one of the threads that run events, which must not wait for another event."""
        return threading.current_thread() in self._threads

    def close(self) -> None:
        """Let the events in progress end, reject the queued ones, and end the threads. A second call does nothing."""
        self._is_stopping.set()
        self.background.close(waits=True)
        self.deadlines.close()
        self._events.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # -- for the event queues ----------------------------------------------------------------------------------

    def enqueue(self, key: Key, event: _Event, *, first: bool = False) -> None:
        try:
            self._events.add(key, event, first=first)
        except RejectedError:
            event.queues.left()
            event.reject()

    def close_keys(self, keys: list[Key]) -> None:
        """Reject the queued events of these keys, and all later ones; wait for those in progress."""
        self.deadlines.remove(keys)
        for event in self._events.close_keys(keys):
            event.queues.left()
            event.reject()
        self._events.wait_until_done(keys)

    # -- the threads -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            taken = self._events.take()
            if taken is None:
                if self._is_stopping.is_set():
                    return
                continue
            key, event = taken
            try:
                self._run(event)
            except Exception:  # noqa: BLE001 -- the loop of the thread: the failure is logged, the loop goes on
                _log.exception("event.failed partition=%d", key[1])
            finally:
                self._events.done(key)

    def _run(self, event: _Event) -> None:
        event.queues.left()
        if self._is_stopping.is_set():
            event.reject()
            return
        started_ms, started_ns = self.clock.now_ms(), time.monotonic_ns()
        try:
            event.run()
        finally:
            ended_ms = self.clock.now_ms()
            with self._measuring:
                self._busy_ns += time.monotonic_ns() - started_ns
                event.queues.queue_time.record(started_ms - event.queued_ms)
                event.queues.processing_time.record(ended_ms - started_ms)


class ThreadedEventQueues:
    """`kohort.runtime.processors.EventQueues` on the threads of a processor: one queue for each partition."""

    def __init__(self, processor: ThreadedProcessor, number: int) -> None:
        self._processor = processor
        self._number = number
        self._executors: dict[int, ThreadedPartitionExecutor] = {}
        self._changing = threading.Lock()
        self._size = 0
        self._is_closed = False
        self.queue_time = Histogram()
        self.processing_time = Histogram()

    def executor(self, partition: int, /) -> "ThreadedPartitionExecutor":
        with self._changing:
            executor = self._executors.get(partition)
            if executor is None:
                executor = ThreadedPartitionExecutor(self._processor, self, (self._number, partition))
                self._executors[partition] = executor
            is_closed = self._is_closed
        if is_closed:
            self._processor.close_keys([executor.key])
        return executor

    def metrics(self) -> EventMetrics:
        return EventMetrics(self._size, self.queue_time, self.processing_time)

    def close(self) -> None:
        """
        Raises:
            InvariantError: called on a thread of the processor, which would wait for itself.
        """
        if self._processor.is_own_thread():
            raise InvariantError("a reply or an operation cannot close its runtime")
        with self._changing:
            self._is_closed = True
            keys = [executor.key for executor in self._executors.values()]
        self._processor.close_keys(keys)

    def entered(self) -> None:
        with self._changing:
            self._size += 1

    def left(self) -> None:
        with self._changing:
            self._size -= 1


class ThreadedPartitionExecutor:
    """`kohort.runtime.processors.PartitionExecutor` on the threads of a processor."""

    is_inline = False

    def __init__(self, processor: ThreadedProcessor, queues: ThreadedEventQueues, key: Key) -> None:
        self._processor = processor
        self._queues = queues
        self.key = key
        self.wheel = Wheel(processor.clock.now_ms(), self._wake_at)
        self.run_in_background = processor.background.submit

    @property
    def may_wait(self) -> bool:
        return not self._processor.is_own_thread()

    def run(self, event: Callable[[], None], reject: Callable[[], None], /, *, first: bool = False) -> None:
        self._queues.entered()
        queued = _Event(self._queues, event, reject, self._processor.clock.now_ms())
        self._processor.enqueue(self.key, queued, first=first)

    def run_first(self, event: Callable[[], None]) -> None:
        self.run(event, _dropped, first=True)

    def defer(self, event: Callable[[], None], /) -> None:
        self.run(event, _dropped)

    call_soon = call_soon_threadsafe = defer

    def _wake_at(self, at_ms: int) -> None:
        self._processor.deadlines.set(self.key, at_ms, lambda: self.defer(self._advance))

    def _advance(self) -> None:
        self.wheel.advance(self._processor.clock.now_ms())
        if self.wheel.next_ms is not None:
            self._wake_at(self.wheel.next_ms)
