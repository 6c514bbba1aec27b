"""
A hierarchical timing wheel: arming, moving and cancelling a deadline cost the same however many are armed.

Deadlines near the present lie in buckets of 1 ms, later ones in buckets that are 256 times as wide a level; when a wide
bucket's time comes, its timers fall into narrower ones. Only buckets are ordered (by a heap), never timers. Moving a deadline
to later, which is what every heartbeat does, writes one number: the timer is looked at when its old bucket comes, and put
where it belongs.

The wheel knows no clock: whoever owns it calls `advance` at `next_ms`, and is told by `on_earlier` when that moves forward.

Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels"; Kafka org.apache.kafka.server.util.timer.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

_LEVEL_BITS: Final = 8


class WheelTimer:
    """One armed deadline. Made by `Wheel.arm`; move it with `Wheel.move`, end it with `cancel`."""

    __slots__ = ("action", "bucket_ms", "deadline_ms")

    def __init__(self, deadline_ms: int, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.bucket_ms = 0
        """When the bucket that holds it comes; never later than the deadline."""
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Never run the action; no effect when it has run."""
        self.action = None

    @property
    def is_armed(self) -> bool:
        return self.action is not None


class Wheel:
    """
    Timers of one node, in integer milliseconds.

    Not safe for threads: it belongs to the thread that runs the node.
    """

    __slots__ = ("_buckets", "_due", "now_ms", "on_earlier")

    def __init__(self, now_ms: int, on_earlier: Callable[[int], None] | None = None) -> None:
        self.now_ms = now_ms
        self.on_earlier = on_earlier
        self._buckets: dict[tuple[int, int], list[WheelTimer]] = {}
        """By (start of the bucket in ms, its level)."""
        self._due: list[tuple[int, int]] = []
        """A heap of the keys of `_buckets`, each once."""

    @property
    def next_ms(self) -> int | None:
        """When `advance` has something to do; None while nothing is armed."""
        return self._due[0][0] if self._due else None

    def arm(self, deadline_ms: int, action: Callable[[], None]) -> WheelTimer:
        """Run `action` once, in the first `advance` that reaches `deadline_ms`; one in the past runs in the next."""
        timer = WheelTimer(deadline_ms, action)
        self._place(timer)
        return timer

    def move(self, timer: WheelTimer, deadline_ms: int) -> WheelTimer:
        """
        Give an armed timer another deadline.

        Returns:
            The timer to keep: another one if the deadline had to come earlier.
        """
        if deadline_ms >= timer.bucket_ms:
            timer.deadline_ms = deadline_ms
            return timer
        action = timer.action
        assert action is not None, "only an armed timer moves"
        timer.cancel()
        return self.arm(deadline_ms, action)

    def advance(self, now_ms: int) -> int:
        """Run what is due, in the order of deadlines to the millisecond; how many ran. Time never goes back."""
        ran = 0
        due = self._due
        while due and due[0][0] <= now_ms:
            key = heappop(due)
            if key[0] > self.now_ms:
                self.now_ms = key[0]
            for timer in self._buckets.pop(key):
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
            return
        self._buckets[key] = [timer]
        is_earlier = not self._due or start_ms < self._due[0][0]
        heappush(self._due, key)
        if is_earlier and self.on_earlier is not None:
            self.on_earlier(start_ms)
