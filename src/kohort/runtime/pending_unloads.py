"""
What is left to do for shards that are gone, a step at a time: thousands may be parked in one, and others use the thread.
"""

import threading
from collections.abc import Iterator
from functools import partial

from kohort.runtime.loading.loader import STEP_MS
from kohort.runtime.ports import Clock
from kohort.runtime.processors import PartitionExecutor


class PendingUnloads:
    """Those under way in one runtime."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changing = threading.Lock()
        self._under_way: set[Iterator[None]] = set()

    def begin(self, farewell: Iterator[None], lane: PartitionExecutor) -> None:
        """Advance an iterator to its end: for some milliseconds now, then in turns of its own under the lane's exclusivity."""
        with self._changing:
            self._under_way.add(farewell)
        self._go_on(farewell, lane)

    def finish(self) -> None:
        """All that is left of them, now; for when no lane runs anything any more."""
        with self._changing:
            under_way, self._under_way = self._under_way, set()
        for farewell in under_way:
            for _ in farewell:
                pass

    def _go_on(self, farewell: Iterator[None], lane: PartitionExecutor) -> None:
        if farewell not in self._under_way:
            return
        until_ms = self._clock.now_ms() + STEP_MS
        for _ in farewell:
            if self._clock.now_ms() >= until_ms:
                lane.soon(partial(self._go_on, farewell, lane))
                return
        with self._changing:
            self._under_way.discard(farewell)
