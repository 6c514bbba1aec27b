"""
Serial execution of a partition's actions. An action that arrives while another runs is queued, and replies are delivered
between actions, so that a reply may start the next operation.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from kohort.machine.shard import Reply
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock, PartitionLog

_log = logging.getLogger("kohort.runtime")

Answer: TypeAlias = tuple[Reply[Any], Any]
"""A reply and its response."""


class SerialExecution:
    """
    The base class of a partition's context, which checks `_busy` inline where a method call would cost too much.

    Not thread-safe: every method is called under the partition's exclusivity.
    """

    def __init__(self, partition: int, clock: Clock, metrics: ShardMetrics) -> None:
        self.partition = partition
        self.log: PartitionLog | None = None
        self._now_ms = clock.now_ms
        self._metrics = metrics
        self._busy = False
        self._held: Generator[None, None, None] | None = None
        """The operation whose records are replayed in slices. The partition is busy until its end."""
        self._queue: deque[Callable[[], None]] = deque()
        self._outbox: list[Answer] = []

    @property
    def name(self) -> str:
        """For log lines: topic and partition; before the first load the number alone."""
        return str(self.partition if self.log is None else self.log.topic_partition)

    def _exclusively(self, action: Callable[[], object]) -> None:
        """Run an action now, or after the one in progress and the queued ones."""
        if self._busy:
            self._enqueue(action)
            return
        self._busy = True
        try:
            action()
        finally:
            self._busy = self._held is not None
            if self._outbox or self._queue:
                self._settle()

    def _enqueue(self, action: Callable[[], object]) -> None:
        self._queue.append(self._measured(action))

    def _measured(self, action: Callable[[], object]) -> Callable[[], None]:
        """Count an action as queued until it runs."""
        metrics, now_ms = self._metrics, self._now_ms
        arrived_ms = now_ms()
        metrics.events_queued += 1

        def run() -> None:
            metrics.events_queued -= 1
            metrics.event_queue_time.record(now_ms() - arrived_ms)
            action()

        return run

    def _settle(self) -> None:
        """Deliver replies and run queued actions until none is left, or a long operation has begun."""
        metrics = self._metrics
        while self._outbox or (self._queue and not self._busy):
            self._deliver()
            if self._queue and not self._busy:
                processed = metrics.event_processing_time.count
                self._busy = True
                try:
                    self._queue.popleft()()
                finally:
                    self._busy = self._held is not None
                    metrics.events_processed_late += metrics.event_processing_time.count - processed

    def _deliver(self) -> None:
        while self._outbox:
            outbox, self._outbox = self._outbox, []
            for reply, response in outbox:
                try:
                    reply(response)
                except Exception:  # noqa: BLE001 -- the failure of one reply must not stop the others
                    _log.exception("shard.reply_failed partition=%s", self.name)
