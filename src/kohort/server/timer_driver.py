"""Drives the node's timing wheel by the event loop: one armed call for the earliest bucket, whatever the number of timers."""

import asyncio

from kohort.runtime.ports import Clock
from kohort.runtime.timers.wheel import Wheel

LATE_MS = 1_000
"""How late the loop has to be for it to have been held up: a process that was stopped, a disk that hung."""
LISTEN_SECONDS = 0.01
"""How long what clients have sent meanwhile is then read, before anybody's time is up."""


class TimerDriver:
    """Calls `wheel.advance` when the wheel has something to do."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._has_listened = False
        self.wheel = Wheel(clock.now_ms(), self._set)

    def _set(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._due_ms = at_ms
        delay_ms = max(at_ms - self._clock.now_ms(), 0)
        # A millisecond is rounded up: coming early would find nothing due.
        self._handle = self._loop.call_later((delay_ms + 1) / 1000 if delay_ms else 0, self._ring)

    def _ring(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._due_ms >= LATE_MS and not self._has_listened:
            # uvloop runs timers before it reads: members would be removed whose heartbeats have been there for long.
            self._has_listened = True
            self._handle = self._loop.call_later(LISTEN_SECONDS, self._ring)
            return
        self._handle = None
        self._has_listened = False
        self.wheel.advance(now_ms)
        if self.wheel.next_ms is not None and self._handle is None:
            self._set(self.wheel.next_ms)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
