"""
Appends of many thousand records, in slices: between two slices the event loop serves other partitions and connections.

A partition whose records are being replayed is busy until its batch is appended, so a long operation takes effect as a whole.
"""

from collections import deque
from collections.abc import Callable, Generator

from kohort.runtime.append.deferred import DeferredEvent
from kohort.runtime.append.open_batch import OpenBatch
from kohort.runtime.processors import PartitionExecutor


class LongAppend:
    """
    The records of a long operation, and the event that waits for them.

    Args:
        steps: from `Appender.append_in_steps`.
        since_ms: the time of the operation.
    """

    __slots__ = ("_steps", "event", "since_ms")

    def __init__(self, steps: Generator[None, None, OpenBatch], event: DeferredEvent, since_ms: int) -> None:
        self._steps = steps
        self.event = event
        self.since_ms = since_ms

    def next_step(self) -> OpenBatch | None:
        """
        Take a step, and return the batch after the last one.

        Raises:
            Exception: no records were kept.
        """
        try:
            next(self._steps)
        except StopIteration as end:
            batch: OpenBatch = end.value
            return batch
        return None

    def close(self) -> None:
        """Drop the steps that are left: the shard is unloaded."""
        self._steps.close()


class LongAppends:
    """
    The long appends of a runtime on an event loop: one slice in each turn. Each append is run to its end before the next one,
    so that few partitions are busy.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], bool], PartitionExecutor]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, advance: Callable[[], bool], executor: PartitionExecutor) -> None:
        """Call `advance` in later turns until it returns True."""
        self._waiting.append((advance, executor))
        if len(self._waiting) == 1:
            executor.call_soon(self._run)

    def _run(self) -> None:
        advance, _ = self._waiting[0]
        try:
            has_ended = advance()
        except BaseException:
            self._next()
            raise
        if has_ended:
            self._next()
        else:
            self._waiting[0][1].call_soon(self._run)

    def _next(self) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._waiting[0][1].call_soon(self._run)
