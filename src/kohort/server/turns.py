"""The event loop of a node as its parts use it: turns, time and timers, and the threads beside it."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from kohort.broker.ports import Cancel, Elsewhere
from kohort.model.limits import LOG_READS_MAX, LOGIN_THREADS
from kohort.runtime.background import DaemonThreads
from kohort.runtime.ports import Clock, Defer
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.clock import SystemClock
from kohort.server.timer_driver import TimerDriver
from kohort.server.virtual_time import VirtualClock, VirtualTimeDriver

_log = logging.getLogger("kohort.server")

TURN_SECONDS: Final = 0.001
"""The steps of a turn end with the one that exceeds it."""
OTHERS_TIMES: Final = 3
"""How many times as long as its steps everything else has the loop before the next ones, if it wants it."""
IDLE_SECONDS: Final = 0.0001
"""A turn without a step that is as short as this has had nothing to do."""
Step: TypeAlias = Callable[[], None]


class BackgroundSteps:
    """
    The steps of all long works of a node, first in, first out; one of each work in a turn of the event loop at most. They get
    what requests leave of its time, and a quarter of it in any case.

    Requests that arrive during a step wait for its end. Without a pause between two steps, more requests than the loop answers
    in one turn would wait for several of them.

    Args:
        call_soon: runs a function in the next turn.
        defer: runs a function at the end of the present turn.
        now: the time in seconds.
    """

    def __init__(
        self, call_soon: Callable[[Step], object], defer: Defer, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._call_soon: Final = call_soon
        self._defer: Final = defer
        self._now: Final = now
        self._waiting: deque[Step] = deque()
        self._is_scheduled = False
        self._seen = now()
        """The end of the last step, or of the last look at the time since then."""
        self._owed = 0.0
        """The time that others are to have until the next step."""

    def add(self, step: Step) -> None:
        """Run a step in a later turn."""
        self._waiting.append(step)
        self._schedule()

    def cancel(self, step: Step) -> None:
        """Do not run a step, unless it has run."""
        with suppress(ValueError):
            self._waiting.remove(step)

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._look)

    def _look(self) -> None:
        """Take a step at the end of this turn, if it is time for one."""
        now = self._now()
        passed, self._seen = now - self._seen, now
        self._owed = self._owed - passed if passed > IDLE_SECONDS else 0.0
        if not self._waiting:
            self._is_scheduled = False
        elif self._owed > 0:
            self._call_soon(self._look)
        else:
            self._defer(self._take)

    def _take(self) -> None:
        began = self._now()
        try:
            for _ in range(len(self._waiting)):
                if self._waiting:
                    self._waiting.popleft()()
                if self._now() - began >= TURN_SECONDS:
                    break
        finally:
            self._seen = self._now()
            self._owed = OTHERS_TIMES * (self._seen - began)
            self._is_scheduled = False
            self._schedule()


class Turns:
    """
    Args:
        virtual_clock: of a node in virtual time.

    Attributes:
        ready_queue: what runs at the end of the present turn.
        call_soon: runs a step of a long work in a later turn (`BackgroundSteps`).
        virtual_time: the timers of a node in virtual time.
        background: the thread of the shards.
        computations, reads, searches, logins: the threads of requests.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, virtual_clock: VirtualClock | None) -> None:
        self._loop: Final = loop
        self.ready_queue: Final = ReadyQueue(loop.call_soon)
        self.defer: Final = self.ready_queue.defer
        # The steps of a simulation do not depend on how quick the machine is.
        now = time.perf_counter if virtual_clock is None else float
        self._steps: Final = BackgroundSteps(loop.call_soon, self.defer, now)
        self.call_soon: Final = self._steps.add
        self.virtual_time: Final = None if virtual_clock is None else VirtualTimeDriver(loop, virtual_clock)
        self.clock: Final[Clock] = SystemClock() if virtual_clock is None else virtual_clock
        self._driver: Final = self.virtual_time or TimerDriver(loop, self.clock)
        self.background: Final = DaemonThreads()
        self.computations: Final = DaemonThreads()
        self.reads: Final = DaemonThreads("kohort-read", LOG_READS_MAX)
        self.searches: Final = DaemonThreads("kohort-search", LOG_READS_MAX)
        self.logins: Final = DaemonThreads("kohort-login", LOGIN_THREADS)

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
        if not delay_ms:
            self._steps.add(action)
            return partial(self._steps.cancel, action)
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
