"""Drives the node's timing wheel from the event loop, with one scheduled call for the earliest bucket."""

import asyncio

from kohort.runtime.ports import Clock
from kohort.runtime.timers.wheel import Wheel

STALL_MS = 1_000
"""A timer that runs this much too late shows that the process was suspended, for example by SIGSTOP or a hanging disk."""
READ_SECONDS = 0.01
"""After such a stall the sockets are read for this time before any timer runs."""


class TimerDriver:
    """Scheduler of `wheel.advance`: called when the next bucket of the wheel is due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._has_read_sockets = False
        self.wheel = Wheel(clock.now_ms(), self._schedule)

    def _schedule(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._due_ms = at_ms
        delay_ms = max(at_ms - self._clock.now_ms(), 0)
        # One millisecond more: a call that comes early would find nothing due.
        self._handle = self._loop.call_later((delay_ms + 1) / 1000 if delay_ms else 0, self._on_due)

    def _on_due(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._due_ms >= STALL_MS and not self._has_read_sockets:
            # uvloop runs timers before it reads sockets: members would expire although their heartbeats have arrived.
            self._has_read_sockets = True
            self._handle = self._loop.call_later(READ_SECONDS, self._on_due)
            return
        self._handle = None
        self._has_read_sockets = False
        self.wheel.advance(now_ms)
        if self.wheel.next_ms is not None and self._handle is None:
            self._schedule(self.wheel.next_ms)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
