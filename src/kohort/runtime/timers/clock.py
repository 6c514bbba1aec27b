"""Time as a runtime wants it: the wall clock's at the start, and never back."""

import time


class SystemClock:
    """
    Milliseconds since the epoch, steady.

    Deadlines and timestamps come from one reading, so a wall clock that is set meanwhile would expire sessions. It is looked
    at once; from then on the monotonic clock (which is slewed with it, but never set) counts.
    """

    __slots__ = ("_base_ns", "_monotonic_ns")

    def __init__(self) -> None:
        self._monotonic_ns = time.monotonic_ns
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._base_ns + self._monotonic_ns()) // 1_000_000
