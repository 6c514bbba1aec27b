"""
Long work of partitions in slices: between two slices the event loop serves other partitions and connections.

The records of a long operation are encoded and replayed in slices. The partition is busy until their batch is appended, so the
operation takes effect as a whole. An unload answers thousands of requests that wait in slices.
"""

import threading
from collections import deque
from collections.abc import Iterator

from kohort.runtime.ports import Clock
from kohort.runtime.processors import PartitionExecutor


class Slices:
    """
    The long work of one runtime: one slice in each turn. Each work is run to its end before the next one, so that few
    partitions are busy. A work is an iterator, and each item that it yields is a possible pause.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changing = threading.Lock()
        self._waiting: deque[tuple[Iterator[None], PartitionExecutor, int]] = deque()
        self._is_scheduled = False
        self._has_time = True

    def begin(self, work: Iterator[None], executor: PartitionExecutor, slice_ms: int) -> None:
        """Run a slice now, and the others as `add` does."""
        if not self._run_slice(work, slice_ms):
            self.add(work, executor, slice_ms)

    def add(self, work: Iterator[None], executor: PartitionExecutor, slice_ms: int) -> None:
        """Run work to its end as events of a partition. A slice ends at the first pause after `slice_ms`."""
        with self._changing:
            self._waiting.append((work, executor, slice_ms))
            is_scheduled, self._is_scheduled = self._is_scheduled, True
        if not is_scheduled:
            executor.call_soon(self._run)

    def finish(self) -> None:
        """Run all work to its end now; called when no executor runs events any more, or by a reply of a slice."""
        self._has_time = False
        while self._waiting:
            self._run_slice(self._waiting.popleft()[0], 0)

    def _run(self) -> None:
        with self._changing:
            # The slice that runs is not in the queue: one of its replies may close the runtime, and so call `finish`.
            first = self._waiting.popleft() if self._waiting else None
        has_ended = True
        try:
            has_ended = first is None or self._run_slice(first[0], first[2])
        finally:
            with self._changing:
                if first is not None and not has_ended:
                    self._waiting.appendleft(first)
                self._is_scheduled = bool(self._waiting)
                following = self._waiting[0][1] if self._waiting else None
            if following is not None:
                following.call_soon(self._run)

    def _run_slice(self, work: Iterator[None], slice_ms: int) -> bool:
        """Run a slice up to the first pause after its time, and return whether the work has ended."""
        until_ms = self._clock.now_ms() + slice_ms
        return not any(self._has_time and self._clock.now_ms() >= until_ms for _ in work)
