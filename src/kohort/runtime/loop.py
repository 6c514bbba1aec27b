"""An event loop for programs of one thread: callbacks run while the program waits for a result."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import TypeVar

from kohort.runtime.background import DaemonThreads
from kohort.runtime.ports import Clock, PartitionLog
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.clock import SystemClock
from kohort.runtime.timers.wheel import Wheel

T = TypeVar("T")


class Loop:
    """
    The owner of a runtime and its logs in a program without another event loop.

    Hand `processor` and `clock` to the runtime, `defer`, `call_soon_threadsafe` and `clock` to a store. Callbacks run while the
    program is in `run_until` or `wait`. Only `call_soon_threadsafe` may be called from other threads.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._turn = ReadyQueue(self._posted.put)
        self.wheel = Wheel(self.clock.now_ms())
        self.defer = self._turn.defer
        self.lock = nullcontext()
        """No lock is needed on one thread; `LogOwner.lock` is one."""
        self._background = DaemonThreads()
        self.processor = InlineProcessor(
            self.wheel,
            self.defer,
            self.call_soon_threadsafe,
            background=self._background.submit,
            call_soon_threadsafe=self.call_soon_threadsafe,
        )

    def call_soon_threadsafe(self, action: Callable[[], None], /) -> None:
        """Run `action` in a later turn; called from any thread."""
        self._posted.put(lambda: self.defer(action))

    def close(self) -> None:
        """End the thread of background tasks."""
        self._background.close(waits=True)

    def share(self, log: PartitionLog) -> PartitionLog:
        """Return the log itself; `LogOwner.share` of a program with threads returns one with a lock."""
        return log

    def run_until(self, condition: Callable[[], bool], *, timeout_ms: int = 60_000) -> None:
        """
        Run callbacks and timers until the condition holds.

        Raises:
            TimeoutError: the condition did not hold in time.
        """
        until_ms = self.clock.now_ms() + timeout_ms
        while not condition():
            now_ms = self.clock.now_ms()
            if now_ms >= until_ms:
                raise TimeoutError(f"{timeout_ms} ms have passed")
            self.wheel.advance(now_ms)
            next_ms = until_ms if self.wheel.next_ms is None else min(until_ms, self.wheel.next_ms)
            try:
                # Rounded up by a millisecond: a wait that ends early finds nothing due.
                action = self._posted.get(timeout=max(next_ms - now_ms, 0) / 1000 + 0.001)
            except Empty:
                continue
            action()
            self._turn.run()

    def wait(self, future: "Future[T]", *, timeout_ms: int = 60_000) -> T:
        """
        Run callbacks and timers until the future is done, and return its result.

        Raises:
            TimeoutError: the future was not done in time.
            Exception: the exception of the future.
        """
        self.run_until(future.done, timeout_ms=timeout_ms)
        return future.result()
