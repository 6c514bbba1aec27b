"""
A runtime on threads of its own, for programs without an event loop.

Each partition's events run one at a time on any of N threads; its deadlines lie in a wheel of its own, and one more thread
wakes it when the earliest comes. A store's logs belong to one owner, as in the node; here the owner is a lock (`LogOwner`).
Nothing relies on the interpreter's own lock.

Source: Kafka MultiThreadedEventProcessor.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from heapq import heappop, heappush
from typing import Any, Self

from kohort.machine.shard import EndTransaction
from kohort.model.ids import TopicPartition
from kohort.runtime.background import BackgroundThread
from kohort.runtime.metrics import Histogram
from kohort.runtime.ports import Clock, HighWatermarkListener, PartitionLog
from kohort.runtime.threaded.accumulator import EventAccumulator, RejectedError
from kohort.runtime.timers.clock import SystemClock
from kohort.runtime.timers.wheel import Wheel

_log = logging.getLogger("kohort.runtime")

Key = int | str


class _Event:
    """Something to run, or to turn away."""

    __slots__ = ("queued_ms", "reject", "run")

    def __init__(self, run: Callable[[], None], reject: Callable[[], None], queued_ms: int) -> None:
        self.run = run
        self.reject = reject
        self.queued_ms = queued_ms


def _dropped() -> None:
    """Nobody waits for it."""


class ThreadedProcessor:
    """
    N threads that run the events of partitions.

    Args:
        threads: how many. Source: group.coordinator.threads.
        clock: steady milliseconds.

    Attributes:
        event_queue_time, event_processing_time: of every event; read them when the processor is closed, or live with a reading
            that is a little off.
    """

    def __init__(self, threads: int = 1, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._events: EventAccumulator[Key, _Event] = EventAccumulator()
        self._alarms = _Alarms(self.clock)
        self._executors: dict[int, ThreadedPartitionExecutor] = {}
        self._making = threading.Lock()
        self._is_stopping = threading.Event()
        self.event_queue_time = Histogram()
        self.event_processing_time = Histogram()
        self._measuring = threading.Lock()
        self._background = BackgroundThread()
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
        """How many events wait for their turn."""
        return len(self._events)

    def executor(self, partition: int, /) -> "ThreadedPartitionExecutor":
        with self._making:
            executor = self._executors.get(partition)
            if executor is None:
                executor = self._executors[partition] = ThreadedPartitionExecutor(self, partition)
            return executor

    def is_own_thread(self) -> bool:
        """Whether the caller is one of the threads that run events, which must not wait for another event."""
        return threading.current_thread() in self._threads

    def enqueue(self, key: Key, run: Callable[[], None], reject: Callable[[], None], *, first: bool = False) -> None:
        """Run an event when its key's turn comes; `reject` is called, here or on a thread, when the processor is closed."""
        try:
            self._events.add(key, _Event(run, reject, self.clock.now_ms()), first=first)
        except RejectedError:
            reject()

    def wake(self, partition: int, at_ms: int, action: Callable[[], None]) -> None:
        """Enqueue `action` for a partition at a time; a partition's earlier wish is forgotten."""
        self._alarms.set(partition, at_ms, lambda: self.enqueue(partition, action, _dropped))

    def background(self, task: Callable[[], None]) -> None:
        """Run a task beside the partitions, on one thread for all of them."""
        self._background.submit(task)

    def close(self) -> None:
        """Let what runs end, turn away what waits, and end the threads. A second call does nothing."""
        self._is_stopping.set()
        self._background.close()
        self._alarms.close()
        self._events.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

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
            except Exception:  # noqa: BLE001 -- the loop of the thread: what failed is logged, the rest goes on
                _log.exception("event.failed key=%s", key)
            finally:
                self._events.done(key)

    def _run(self, event: _Event) -> None:
        if self._is_stopping.is_set():
            event.reject()
            return
        started_ms = self.clock.now_ms()
        try:
            event.run()
        finally:
            ended_ms = self.clock.now_ms()
            with self._measuring:
                self.event_queue_time.record(started_ms - event.queued_ms)
                self.event_processing_time.record(ended_ms - started_ms)


class ThreadedPartitionExecutor:
    """`kohort.runtime.processors.Lane` of one partition."""

    is_inline = False

    def __init__(self, processor: ThreadedProcessor, partition: int) -> None:
        self._processor = processor
        self._partition = partition
        self.wheel = Wheel(processor.clock.now_ms(), self._set)

    @property
    def may_wait(self) -> bool:
        return not self._processor.is_own_thread()

    def run(self, event: Callable[[], None], reject: Callable[[], None], /) -> None:
        self._processor.enqueue(self._partition, event, reject)

    def run_first(self, event: Callable[[], None]) -> None:
        self._processor.enqueue(self._partition, event, _dropped, first=True)

    def defer(self, event: Callable[[], None], /) -> None:
        self._processor.enqueue(self._partition, event, _dropped)

    call_soon = call_soon_threadsafe = defer

    def run_in_background(self, task: Callable[[], None], /) -> None:
        self._processor.background(task)

    def _set(self, at_ms: int) -> None:
        self._processor.wake(self._partition, at_ms, self._advance)

    def _advance(self) -> None:
        self.wheel.advance(self._processor.clock.now_ms())
        if self.wheel.next_ms is not None:
            self._set(self.wheel.next_ms)


class _Alarms:
    """Calls back at times, on a thread of its own: per key one time, the latest that was wished."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: list[tuple[int, int]] = []
        """A heap of (time, key); entries that are not in `_wishes` any more are skipped."""
        self._wishes: dict[int, tuple[int, Callable[[], None]]] = {}
        self._is_closed = False
        self._thread = threading.Thread(target=self._watch, name="kohort-runtime-timer", daemon=True)
        self._thread.start()

    def set(self, key: int, at_ms: int, action: Callable[[], None]) -> None:
        with self._changed:
            self._wishes[key] = (at_ms, action)
            heappush(self._due, (at_ms, key))
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                action = self._next()
                if action is None:
                    wait_ms = self._due[0][0] - self._clock.now_ms() if self._due else None
                    # A millisecond is rounded up: coming early would find nothing due.
                    self._changed.wait(None if wait_ms is None else (wait_ms + 1) / 1000)
                    continue
            action()

    def _next(self) -> Callable[[], None] | None:
        """What is due, taken off."""
        while self._due:
            at_ms, key = self._due[0]
            wish = self._wishes.get(key)
            if wish is not None and wish[0] == at_ms:
                if at_ms > self._clock.now_ms():
                    return None
                del self._wishes[key]
                heappop(self._due)
                return wish[1]
            heappop(self._due)
        return None


class LogOwner:
    """
    What a store takes for its owner where there is no owning thread: a lock.

    Hand `defer` and `call_soon_threadsafe` to the store, open logs under `lock`, and give `share(log)` to the runtime. What the
    store defers runs on the processor's threads. Close the runtime first, then the store.
    """

    def __init__(self, processor: ThreadedProcessor) -> None:
        self.processor = processor
        self.clock = processor.clock
        self.lock = threading.RLock()

    def defer(self, action: Callable[[], None], /) -> None:
        def run() -> None:
            with self.lock:
                action()

        self.processor.enqueue("log", run, _dropped)

    call_soon_threadsafe = defer

    def share(self, log: PartitionLog) -> "SharedLog":
        return SharedLog(log, self.lock)


class SharedLog:
    """`kohort.runtime.ports.PartitionLog` for threads: one call into the store at a time."""

    def __init__(self, log: PartitionLog, lock: AbstractContextManager[Any]) -> None:
        self._log = log
        self._lock = lock

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.topic_partition

    @property
    def log_start_offset(self) -> int:
        with self._lock:
            return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        with self._lock:
            return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        with self._lock:
            return self._log.high_watermark

    @property
    def batch_bytes_max(self) -> int:
        with self._lock:
            return self._log.batch_bytes_max

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        with self._lock:
            return self._log.append(batch, leader_epoch=leader_epoch)

    def start_verification(self, producer_id: int) -> object:
        with self._lock:
            return self._log.start_verification(producer_id)

    def append_transactional(
        self,
        batch: bytes | bytearray,
        *,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        guard: object | None,
    ) -> int:
        with self._lock:
            return self._log.append_transactional(
                batch,
                leader_epoch=leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                guard=guard,
            )

    def append_marker(self, end: EndTransaction, *, leader_epoch: int, timestamp_ms: int) -> int:
        with self._lock:
            return self._log.append_marker(end, leader_epoch=leader_epoch, timestamp_ms=timestamp_ms)

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        with self._lock:
            return self._log.read(offset, bytes_max=bytes_max, up_to=up_to)

    def add_listener(self, listener: HighWatermarkListener) -> None:
        with self._lock:
            self._log.add_listener(listener)

    def remove_listener(self, listener: HighWatermarkListener) -> None:
        with self._lock:
            self._log.remove_listener(listener)
