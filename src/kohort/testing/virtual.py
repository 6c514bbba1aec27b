"""A node's thread in virtual time: turns, callbacks and timers are run by hand."""

from collections import deque
from collections.abc import Callable

from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.wheel import Wheel
from kohort.testing.clock import ManualClock


class VirtualNode:
    """
    Takes the place of the server's event loop.

    Hand `clock`, `wheel`, `defer` and `call_soon` to the objects under test. `run_turn` ends the current turn, `settle` runs
    everything that does not wait for time, and `advance` lets time pass and fires every timer in its millisecond.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.clock = ManualClock(now_ms)
        self.wheel = Wheel(now_ms)
        self._later: deque[Callable[[], None]] = deque()
        self._turn = ReadyQueue(lambda _: None)
        self.defer = self._turn.defer

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run `action` after the present turn; also the `call_soon_threadsafe` of a store."""
        self._later.append(action)

    def run_turn(self) -> None:
        """End the current turn: run the deferred callbacks, and none of a later turn."""
        self._turn.run()

    def run_later_turn(self) -> bool:
        """Run one callback of a later turn, and that turn; returns whether there was one."""
        self._turn.run()
        if not self._later:
            return False
        self._later.popleft()()
        self._turn.run()
        return True

    def settle(self) -> None:
        """Run turns until no callback is left that does not wait for time."""
        while self.run_later_turn():
            pass

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> Callable[[], None]:
        """Run `action` in `delay_ms`; the returned function cancels it."""
        return self.wheel.arm(self.clock.now_ms() + delay_ms, action).cancel

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and stop at every deadline on the way."""
        until_ms = self.clock.now_ms() + duration_ms
        self.settle()
        while self.wheel.next_ms is not None and self.wheel.next_ms <= until_ms:
            self.clock.set(max(self.wheel.next_ms, self.clock.now_ms()))
            self.wheel.advance(self.clock.now_ms())
            self.settle()
        self.clock.set(until_ms)
        self.wheel.advance(until_ms)
        self.settle()
