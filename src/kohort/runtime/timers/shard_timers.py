"""The timers of one shard, by key, on the node's timing wheel. The expiry of a timer is an operation."""

from collections.abc import Callable, Iterator
from typing import Any

from kohort.machine.shard import RETRY_BACKOFF_MS, Result
from kohort.runtime.ports import Clock
from kohort.runtime.timers.wheel import Wheel, WheelTimer
from kohort.runtime.waits import Deadlines

Operation = Callable[[int], Result[Any, None]]


class _Armed:
    """The timer of one key. Every member of every group has one, so it is small."""

    __slots__ = ("backoff_ms", "key", "operation", "retry", "timer", "timers")

    def __init__(self, timers: "ShardTimers", key: str, operation: Operation, *, retry: bool, backoff_ms: int) -> None:
        self.timers = timers
        self.key = key
        self.operation = operation
        self.retry = retry
        self.backoff_ms = backoff_ms
        self.timer: WheelTimer | None = None

    def fire(self) -> None:
        if self.timers._armed.get(self.key) is not self:
            return
        self.timers._expire(self.remove, self.operation, self.retry_later)

    def remove(self) -> bool:
        """Remove this timer before its operation runs, so that it may schedule its key again; False if it was replaced."""
        armed = self.timers._armed
        if armed.get(self.key) is not self:
            return False
        del armed[self.key]
        return True

    def retry_later(self, _: Exception) -> None:
        if self.retry and self.key not in self.timers._armed:
            self.timers.schedule(self.key, self.backoff_ms, self.operation, retry=True, backoff_ms=self.backoff_ms)


class ShardTimers:
    """
    `kohort.machine.shard.Timers` for one shard.

    Args:
        expire: `expire(is_current, operation, on_failure)` runs an operation under the shard's exclusivity, if `is_current()`
            holds when the event starts: the timer may have been cancelled while the event was queued.
        deadlines: the deadlines of results.
    """

    __slots__ = ("_armed", "_clock", "_expire", "_is_closed", "_wheel", "deadlines")

    def __init__(
        self,
        wheel: Wheel,
        clock: Clock,
        expire: Callable[[Callable[[], bool], Operation, Callable[[Exception], None]], None],
        deadlines: Deadlines,
    ) -> None:
        self.deadlines = deadlines
        self._wheel = wheel
        self._clock = clock
        self._expire = expire
        self._armed: dict[str, _Armed] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._armed)

    def schedule(
        self,
        key: str,
        delay_ms: int,
        operation: Operation,
        *,
        retry: bool = False,
        backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        deadline_ms = self._clock.now_ms() + max(0, delay_ms)
        armed = self._armed.get(key)
        if armed is not None:
            timer = armed.timer
            if timer is not None and timer.action is not None:
                armed.operation = operation
                armed.retry = retry
                armed.backoff_ms = backoff_ms
                if deadline_ms >= timer.bucket_ms:
                    # Inlined from `Wheel.move`: most timers are moved to a later time by heartbeats.
                    timer.deadline_ms = deadline_ms
                else:
                    armed.timer = self._wheel.move(timer, deadline_ms)
                return
        if self._is_closed:
            return
        armed = self._armed[key] = _Armed(self, key, operation, retry=retry, backoff_ms=backoff_ms)
        armed.timer = self._wheel.arm(deadline_ms, armed.fire)

    def schedule_if_absent(
        self,
        key: str,
        delay_ms: int,
        operation: Operation,
        *,
        retry: bool = False,
        backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        if key not in self._armed:
            self.schedule(key, delay_ms, operation, retry=retry, backoff_ms=backoff_ms)

    def cancel(self, key: str) -> None:
        armed = self._armed.pop(key, None)
        if armed is not None and armed.timer is not None:
            armed.timer.cancel()

    def close(self) -> Iterator[None]:
        """
        Cancel all timers now, and arm none from now on: an operation may fail after its shard was unloaded, and arm some.

        There may be thousands of timers: their memory is freed while the iterator is advanced.
        """
        self._is_closed = True
        armed, self._armed = self._armed, {}
        return _free(armed)

    def is_scheduled(self, key: str) -> bool:
        return key in self._armed


def _free(armed: dict[str, _Armed]) -> Iterator[None]:
    for each in armed.values():
        if each.timer is not None:
            each.timer.cancel()
        yield
