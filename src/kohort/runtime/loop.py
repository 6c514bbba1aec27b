"""The smallest owner of a runtime and its logs: one thread, which runs what is to be done while it waits for something."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import TypeVar

from kohort.runtime.background import BackgroundThread
from kohort.runtime.ports import Clock, PartitionLog
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.clock import SystemClock
from kohort.runtime.timers.wheel import Wheel

T = TypeVar("T")


class Loop:
    """
    For programs of one thread without an event loop of another kind.

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
        """There is one thread; here for what runs on a `LogOwner` as well."""
        self._background = BackgroundThread()
        self.processor = InlineProcessor(
            self.wheel,
            self.defer,
            self.call_soon_threadsafe,
            background=self._background.submit,
            call_soon_threadsafe=self.call_soon_threadsafe,
        )

    def call_soon_threadsafe(self, action: Callable[[], None], /) -> None:
        """Run `action` in a turn of its own."""
        self._posted.put(lambda: self.defer(action))

    def share(self, log: PartitionLog) -> PartitionLog:
        """The log as the runtime may use it, which is as it is: there is one thread."""
        return log

    def run_until(self, condition: Callable[[], bool], *, timeout_ms: int = 60_000) -> None:
        """
        Run what is to be done until the condition holds.

        Raises:
            TimeoutError: it did not in time.
        """
        until_ms = self.clock.now_ms() + timeout_ms
        while not condition():
            now_ms = self.clock.now_ms()
            if now_ms >= until_ms:
                raise TimeoutError(f"{timeout_ms} ms have passed")
            self.wheel.advance(now_ms)
            next_ms = until_ms if self.wheel.next_ms is None else min(until_ms, self.wheel.next_ms)
            try:
                # A millisecond is rounded up: coming early would find nothing due.
                action = self._posted.get(timeout=max(next_ms - now_ms, 0) / 1000 + 0.001)
            except Empty:
                continue
            action()
            self._turn.run()

    def wait(self, future: "Future[T]", *, timeout_ms: int = 60_000) -> T:
        """
        The result of a future, run to its completion.

        Raises:
            TimeoutError: it did not come in time.
            Exception: what the future holds instead of a result.
        """
        self.run_until(future.done, timeout_ms=timeout_ms)
        return future.result()
