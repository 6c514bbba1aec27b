"""The event loop of a node as its parts use it: turns, time and timers, and the threads beside it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kohort.broker.ports import Cancel, Elsewhere
from kohort.model.limits import LOG_READS_MAX, LOGIN_THREADS
from kohort.runtime.background import DaemonThreads
from kohort.runtime.ports import Clock
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.clock import SystemClock
from kohort.server.timer_driver import TimerDriver
from kohort.server.virtual_time import VirtualClock, VirtualTimeDriver

_log = logging.getLogger("kohort.server")


class Turns:
    """
    Args:
        virtual_clock: of a node in virtual time.

    Attributes:
        ready_queue: what runs at the end of the present turn.
        virtual_time: the timers of a node in virtual time.
        background: the thread of the shards.
        computations, reads, searches, logins: the threads of requests.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, virtual_clock: VirtualClock | None) -> None:
        self._loop: Final = loop
        self.ready_queue: Final = ReadyQueue(loop.call_soon)
        self.defer: Final = self.ready_queue.defer
        self.virtual_time: Final = None if virtual_clock is None else VirtualTimeDriver(loop, virtual_clock)
        self.clock: Final[Clock] = SystemClock() if virtual_clock is None else virtual_clock
        self._driver: Final = self.virtual_time or TimerDriver(loop, self.clock)
        self.background: Final = DaemonThreads()
        self.computations: Final = DaemonThreads()
        self.reads: Final = DaemonThreads("kohort-read", LOG_READS_MAX)
        self.searches: Final = DaemonThreads("kohort-search", LOG_READS_MAX)
        self.logins: Final = DaemonThreads("kohort-login", LOGIN_THREADS)

    def call_soon(self, action: Any) -> None:
        """Run a function in the next turn."""
        self._loop.call_soon(self.defer, action)

    def call_soon_threadsafe(self, action: Any) -> None:
        """Run a function on the event-loop thread. Any thread may call, also while the loop is closing."""
        try:
            self._loop.call_soon_threadsafe(self.defer, action)
        except RuntimeError:
            _log.debug("node.post_after_close")

    def call_later(self, delay_ms: int, action: Any) -> Any:
        """`kohort.broker.ports.CallLater`."""
        if self.virtual_time is not None:
            return self.virtual_time.call_later(self.defer, delay_ms, action)
        return self._driver.wheel.arm(self.clock.now_ms() + delay_ms, action).cancel

    def seconds(self) -> float:
        """The time by which connections are idle."""
        return self._loop.time() if self.virtual_time is None else self.clock.now_ms() / 1_000

    def call_in(self, seconds: float, action: Callable[[], None]) -> Cancel:
        """Run a function when so much of that time has gone by."""
        if self.virtual_time is None:
            return self._loop.call_later(seconds, action).cancel
        return self.virtual_time.wheel.arm(self.clock.now_ms() + round(seconds * 1_000), action).cancel

    def elsewhere(self, threads: DaemonThreads) -> Elsewhere:
        """A function that runs long work on some of the threads, and then `done` on the event-loop thread."""
        return partial(self._elsewhere, threads)

    def _elsewhere(self, threads: DaemonThreads, work: Callable[[], None], done: Callable[[], None]) -> None:
        def compute() -> None:
            work()
            self.call_soon_threadsafe(done)

        threads.submit(compute)

    def processor(self) -> InlineProcessor:
        """Runs the shards of a coordinator."""
        return InlineProcessor(
            self._driver.wheel,
            self.defer,
            self.call_soon,
            background=self.background.submit,
            call_soon_threadsafe=self.call_soon_threadsafe,
        )

    def close_request_threads(self, *, waits: bool) -> None:
        """End the threads of requests; wait for the computations that have begun if it `waits`."""
        self.computations.close(waits=waits)
        self.reads.close()
        self.searches.close()
        self.logins.close()

    def close(self) -> None:
        """Run no timer any more."""
        self._driver.close()
