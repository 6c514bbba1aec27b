"""A steady clock: wall-clock time at the start of the process, which never goes back."""

import time


class SystemClock:
    """
    Milliseconds since the Unix epoch.

    Deadlines and timestamps come from one reading, so a change of the wall clock would expire sessions. The wall clock is read
    once; from then on the monotonic clock counts, which is slewed but never set.
    """

    __slots__ = ("_base_ns", "_monotonic_ns")

    def __init__(self) -> None:
        self._monotonic_ns = time.monotonic_ns
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._base_ns + self._monotonic_ns()) // 1_000_000
