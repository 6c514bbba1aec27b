"""
A hierarchical timing wheel: to arm, move or cancel a timer costs the same with any number of timers.

Near deadlines lie in buckets of 1 ms, later ones in buckets that are 256 times as wide per level. When a wide bucket is due its
timers move to narrower buckets. A heap orders the buckets; timers are not ordered. To move a deadline to a later time, as every
heartbeat does, sets one number: when the old bucket is due, the timer moves to its new bucket. A cancelled timer stays in its
bucket until the bucket is due, or until half of the timers of a large bucket may be cancelled ones.

The wheel has no clock: its owner calls `advance` at `next_ms`, and `on_earlier` tells the owner that `next_ms` is earlier now.

Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels"; Kafka org.apache.kafka.server.util.timer.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

_LEVEL_BITS: Final = 8
_SWEEP_TIMERS_MIN: Final = 256
"""Timers of a bucket from which on cancelled ones are removed before the bucket is due: clients choose far deadlines."""


class WheelTimer:
    """One timer, made by `Wheel.arm`."""

    __slots__ = ("action", "bucket_ms", "deadline_ms")

    def __init__(self, deadline_ms: int, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.bucket_ms = 0
        """The time of the bucket that holds it, which is not after the deadline."""
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not run the action; no effect if it has run."""
        self.action = None

    @property
    def is_armed(self) -> bool:
        return self.action is not None


class Wheel:
    """
    The timers of one node, in integer milliseconds.

    Not thread-safe: called on the thread that owns the node.
    """

    __slots__ = ("_buckets", "_due", "_sweep_at", "now_ms", "on_earlier")

    def __init__(self, now_ms: int, on_earlier: Callable[[int], None] | None = None) -> None:
        self.now_ms = now_ms
        self.on_earlier = on_earlier
        self._buckets: dict[tuple[int, int], list[WheelTimer]] = {}
        """By (start of the bucket in ms, level)."""
        self._due: list[tuple[int, int]] = []
        """A heap of the keys of `_buckets`, each once."""
        self._sweep_at: dict[tuple[int, int], int] = {}
        """The number of timers at which a large bucket is swept next."""

    @property
    def next_ms(self) -> int | None:
        """The time at which `advance` is due; None without timers."""
        return self._due[0][0] if self._due else None

    def armed(self) -> list[WheelTimer]:
        """All timers that will run, in no order; for a look at them."""
        return [timer for timers in self._buckets.values() for timer in timers if timer.action is not None]

    def arm(self, deadline_ms: int, action: Callable[[], None]) -> WheelTimer:
        """Run `action` once, in the first `advance` that reaches the deadline; in the next one if it has passed."""
        timer = WheelTimer(deadline_ms, action)
        self._place(timer)
        return timer

    def move(self, timer: WheelTimer, deadline_ms: int) -> WheelTimer:
        """
        Give an armed timer another deadline.

        Returns:
            The timer to keep: another one if its bucket had to be an earlier one.
        """
        if deadline_ms >= timer.bucket_ms:
            timer.deadline_ms = deadline_ms
            return timer
        action = timer.action
        assert action is not None, "only an armed timer moves"
        timer.cancel()
        return self.arm(deadline_ms, action)

    def advance(self, now_ms: int) -> int:
        """Run the timers that are due by `now_ms` in the order of their deadlines, and return their number."""
        ran = 0
        due = self._due
        while due and due[0][0] <= now_ms:
            key = heappop(due)
            if key[0] > self.now_ms:
                self.now_ms = key[0]
            timers = self._buckets.pop(key)
            if self._sweep_at:
                self._sweep_at.pop(key, None)
            for timer in timers:
                action = timer.action
                if action is None:
                    continue
                if timer.deadline_ms > self.now_ms:
                    self._place(timer)
                    continue
                timer.action = None
                ran += 1
                action()
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        return ran

    def _place(self, timer: WheelTimer) -> None:
        deadline_ms = max(timer.deadline_ms, self.now_ms)
        level = max((deadline_ms - self.now_ms).bit_length() - 1, 0) // _LEVEL_BITS
        shift = level * _LEVEL_BITS
        start_ms = timer.bucket_ms = max(deadline_ms >> shift << shift, self.now_ms)
        key = (start_ms, level)
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.append(timer)
            if len(bucket) >= _SWEEP_TIMERS_MIN and len(bucket) >= self._sweep_at.get(key, _SWEEP_TIMERS_MIN):
                bucket[:] = [each for each in bucket if each.action is not None]
                self._sweep_at[key] = max(2 * len(bucket), _SWEEP_TIMERS_MIN)
            return
        self._buckets[key] = [timer]
        is_earlier = not self._due or start_ms < self._due[0][0]
        heappush(self._due, key)
        if is_earlier and self.on_earlier is not None:
            self.on_earlier(start_ms)
