"""Virtual time, and processes in it: each has a clock and timers of its own, and may stop for a while between two events."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, TypeAlias

Action: TypeAlias = Callable[[], object]


class World:
    """
    Attributes:
        now: seconds since the start.
        is_calm: whether faults have ended.
        last_late: when the last late message arrives.
    """

    def __init__(self, chance: Random) -> None:
        self.chance: Final = chance
        self.now = 0.0
        self.is_calm = False
        self.last_late = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._count = 0

    def after(self, delay_s: float, action: Action) -> None:
        """Run an action later."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay_s, self._count, action))

    def run(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; returns early with True if `is_done` says so after an event."""
        until = self.now + seconds
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, action = heapq.heappop(events)
            action()
            if is_done():
                return True
        self.now = until
        return is_done()

    def latency_s(self) -> float:
        """The time that a message takes."""
        chance = self.chance
        if not self.is_calm:
            kind = chance.random()
            if kind < 0.03:
                return self.late_s(chance.uniform(0.05, 1.0) if kind > 0.003 else chance.uniform(2.0, 10.0))
        return chance.uniform(0.0005, 0.005)

    def late_s(self, delay_s: float) -> float:
        """A delay that belongs to the faults."""
        self.last_late = max(self.last_late, self.now + delay_s)
        return delay_s


class Process:
    """
    A process of an operating system. What it does is a sequence of turns, and it may stop between any two of them.

    Args:
        rate: of its clock: seconds there in a second of the world.

    Attributes:
        machine: processes of one machine know of each other whether they live.
    """

    def __init__(self, world: World, name: str, machine: str, rate: float = 1.0) -> None:
        self.world: Final = world
        self.name: Final = name
        self.machine: Final = machine
        self.rate: Final = rate
        self.is_alive = True
        self.is_paused = False
        self.suspended_s = 0.0
        self._pauses = 0
        self._offset = world.chance.uniform(0, 1000)
        self._waiting: deque[Action] = deque()
        self._deferred: deque[Action] = deque()

    def seconds(self) -> float:
        """The clock, which goes on while the process or the machine sleeps."""
        return self._offset + self.world.now * self.rate

    def now_ms(self) -> int:
        return round(self.seconds() * 1000)

    # Turns

    def post(self, action: Action) -> None:
        """Run an action as a turn of this process, when it runs; never if it has ended."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._waiting.append(action)
            return
        action()
        deferred = self._deferred
        while deferred:
            deferred.popleft()()

    def defer(self, action: Action) -> None:
        """Run an action at the end of the turn."""
        self._deferred.append(action)

    def call_later(self, delay_ms: int, action: Action) -> Callable[[], None]:
        """A timer, by a clock that does not count the time in which the machine sleeps."""
        is_cancelled = False

        def cancel() -> None:
            nonlocal is_cancelled
            is_cancelled = True

        def run() -> None:
            if not is_cancelled:
                action()

        def fire(suspended_s: float) -> None:
            slept_s = self.suspended_s - suspended_s
            if is_cancelled:
                return
            if slept_s > 0:
                self.world.after(slept_s, partial(fire, self.suspended_s))
            else:
                self.post(run)

        self.world.after(delay_ms / 1000 / self.rate, partial(fire, self.suspended_s))
        return cancel

    # Faults

    def pause(self, seconds: float, *, is_suspended: bool = False) -> None:
        """
        Stop for a while.

        Args:
            is_suspended: whether the machine sleeps: timers are late by that time.
        """
        if self.is_paused or not self.is_alive:
            return
        self.is_paused = True
        self._pauses += 1
        if is_suspended:
            self.suspended_s += seconds
        number = self._pauses
        self.world.after(seconds, lambda: self.resume() if self._pauses == number else None)

    def resume(self) -> None:
        """Go on, with what has happened meanwhile."""
        if not self.is_paused:
            return
        self.is_paused = False
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            self.post(waiting.popleft())

    def kill(self) -> None:
        self.is_alive = False
        self._waiting.clear()
        self._deferred.clear()
