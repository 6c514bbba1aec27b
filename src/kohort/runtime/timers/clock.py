"""A steady clock: wall-clock time at the start of the process, which never goes back."""

import time
from typing import Final


class SystemClock:
    """
    Milliseconds since the Unix epoch.

    Deadlines and timestamps come from one reading, so a change of the wall clock would expire sessions. The wall clock is read
    once; from then on the monotonic clock counts, which is slewed but never set.
    """

    __slots__ = ("_base_ms", "_monotonic_s")

    def __init__(self) -> None:
        self._monotonic_s: Final = time.monotonic
        self._base_ms: Final = (time.time() - time.monotonic()) * 1000

    def now_ms(self) -> int:
        # Floats, which have microseconds here: integers of nanoseconds take half as long again.
        return int(self._base_ms + self._monotonic_s() * 1000)
