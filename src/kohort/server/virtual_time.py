"""
Virtual time: the clock of the brokers stands still, and goes on at the word of a test.

What the coordinators and the broker wait for is virtual: sessions, rebalances, transactions, retention, expiry of offsets and
tokens, idle connections. Pauses of up to `PAUSE_MS_MAX` are real: the next turn of a long work, a retry, the wait of a Fetch.
Real clients keep real clocks, and none of them could go on otherwise. The timers of sockets and of TLS are real, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import time_ns
from typing import Any, Final, NamedTuple

from kohort.runtime.timers.wheel import Wheel, WheelTimer

PAUSE_MS_MAX: Final = 1_000


class VirtualClock:
    """Milliseconds since the Unix epoch: `now_ms` or the wall clock at the start, and what was added since."""

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = time_ns() // 1_000_000 if now_ms is None else now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance_to(self, now_ms: int) -> None:
        """Go on; never back."""
        self._now_ms = max(self._now_ms, now_ms)


class PendingTimer(NamedTuple):
    """
    A timer.

    Attributes:
        owner: what it belongs to: the words of a deadline, such as "session billing worker-1", or the name of a function.
    """

    deadline_ms: int
    owner: str


class VirtualTimeDriver:
    """The timers of a node with a virtual clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: VirtualClock) -> None:
        self._loop = loop
        self.clock = clock
        self.wheel = Wheel(clock.now_ms(), self._schedule)
        self._is_closed = False

    def _schedule(self, at_ms: int) -> None:
        """A timer that is due already runs in the next turn."""
        if at_ms <= self.clock.now_ms():
            self._loop.call_soon(self._run_due)

    def _run_due(self) -> None:
        if not self._is_closed:
            self.wheel.advance(self.clock.now_ms())

    def pending(self) -> list[PendingTimer]:
        """The timers in the order of their deadlines."""
        return [_shown(timer) for timer in self._armed()]

    def _armed(self) -> list[WheelTimer]:
        return sorted(self.wheel.armed(), key=lambda timer: timer.deadline_ms)

    def run_to(self, now_ms: int) -> list[PendingTimer]:
        """
        Let the time be `now_ms`, and run the timers that are due by then, in the order of their deadlines. Each sees that time,
        as after a pause of the process.
        """
        self.clock.advance_to(now_ms)
        due = [_shown(timer) for timer in self._armed() if timer.deadline_ms <= now_ms]
        self.wheel.advance(now_ms)
        return due

    def call_later(self, defer: Callable[[Any], None], delay_ms: int, action: Any) -> Callable[[], None]:
        """`CallLater` of the broker: short pauses are real."""
        if delay_ms <= PAUSE_MS_MAX:
            return self._loop.call_later(delay_ms / 1_000, defer, action).cancel
        return self.wheel.arm(self.clock.now_ms() + delay_ms, action).cancel

    def close(self) -> None:
        self._is_closed = True


def _shown(timer: WheelTimer) -> PendingTimer:
    return PendingTimer(timer.deadline_ms, _owner(timer.action))


def _owner(action: Any) -> str:
    if isinstance(action, partial):
        key = getattr(action.args[0], "key", None) if action.args else None
        if isinstance(key, tuple):
            return " ".join(map(str, key))
        action = action.func
    return str(getattr(action, "__qualname__", type(action).__name__))
