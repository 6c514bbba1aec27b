"""
One thing at a time in a partition: what arrives while something runs waits, and replies leave when the state is consistent
again, so a reply may well cause the next operation.
"""

import logging
from collections import deque
from collections.abc import Callable

from kohort.runtime.append.deferred import Answer
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock

_log = logging.getLogger("kohort.runtime")


class SerialExecution:
    """
    The base of a partition's context, which looks at `_busy` by itself where a call would be too dear.

    Not safe for threads: whoever calls has the partition to himself.
    """

    def __init__(self, partition: int, clock: Clock, metrics: ShardMetrics) -> None:
        self.partition = partition
        self._now_ms = clock.now_ms
        self._metrics = metrics
        self._busy = False
        self._queue: deque[Callable[[], None]] = deque()
        self._outbox: list[Answer] = []

    def _exclusively(self, action: Callable[[], None]) -> None:
        """Run something now, or when what runs and what waits already is over."""
        if self._busy:
            self._enqueue(action)
            return
        self._busy = True
        try:
            action()
        finally:
            self._busy = False
            if self._outbox or self._queue:
                self._settle()

    def _enqueue(self, action: Callable[[], None]) -> None:
        metrics, now_ms = self._metrics, self._now_ms
        arrived_ms = now_ms()
        metrics.events_queued += 1

        def run() -> None:
            metrics.events_queued -= 1
            metrics.event_queue_time.record(now_ms() - arrived_ms)
            action()

        self._queue.append(run)

    def _settle(self) -> None:
        """Answer who is to be answered, and run what arrived meanwhile, until nothing is left."""
        while self._outbox or self._queue:
            self._deliver()
            if self._queue and not self._busy:
                self._busy = True
                try:
                    self._queue.popleft()()
                finally:
                    self._busy = False

    def _deliver(self) -> None:
        while self._outbox:
            outbox, self._outbox = self._outbox, []
            for reply, response in outbox:
                try:
                    reply(response)
                except Exception:  # noqa: BLE001 -- one caller's failure must not keep the others waiting
                    _log.exception("shard.reply_failed partition=%d", self.partition)
