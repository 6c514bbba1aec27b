"""Logs that live as long as the process: for tests, and for brokers without a data directory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock, Defer
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.log import CallSoon, CleanerConfig, CleanerMetrics, FlushMetrics, LogConfig, LogMetrics, Volume
from kohort.storage.memory.log import LogContent, MemoryLog, Watermarks

if TYPE_CHECKING:
    from kohort.storage.memory.cleaner import MemoryCleaner

MEMORY: Final = "memory"
"""The name of the place of the logs."""


class MemoryStore:
    """
    Logs without a disk: an append counts as durable when the turn ends.

    Args:
        call_soon: runs a step of compaction on the owner's thread in a later turn. None compacts a log in one piece.
        clock: for retention and delete horizons; None takes the system's.
        cleaner_config: with it, the first roll of a log begins to compact, as Kafka's cleaner does at its start. None
            compacts from the first `clean` on.
    """

    data_dir: Path | None = None
    location: str = MEMORY
    offline_reason: str | None = None
    missing_data: str | None = None

    def __init__(
        self,
        defer: Defer,
        *,
        call_soon: CallSoon | None = None,
        clock: Clock | None = None,
        cleaner_config: Callable[[], CleanerConfig] | None = None,
    ) -> None:
        self._watermarks = Watermarks(defer)
        self._clock = clock or SystemClock()
        self._logs: dict[TopicPartition, MemoryLog] = {}
        self._is_closed = False
        self._call_soon = call_soon
        self._cleaner: MemoryCleaner | None = None
        self._cleaner_config = cleaner_config
        self._opened_ms = self._clock.now_ms()

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> MemoryLog:
        if self._is_closed:
            raise UnavailableError("the store is closed")
        log = self._logs.get(topic_partition)
        if log is not None and log.topic_id == topic_id:
            log.config = config
            return log
        self.delete(topic_partition)
        log = self._logs[topic_partition] = MemoryLog(
            topic_partition,
            topic_id,
            config,
            watermarks=self._watermarks,
            clock=self._clock,
            on_roll=self._on_roll,
        )
        return log

    @property
    def cleaner(self) -> "MemoryCleaner":
        """The cleaner, which the first use makes and imports: a start does without it."""
        if self._cleaner is None:
            from kohort.storage.memory.cleaner import MemoryCleaner

            self._cleaner = MemoryCleaner(self._logs.values, call_soon=self._call_soon, clock=self._clock)
        return self._cleaner

    def _on_roll(self, log: MemoryLog) -> None:
        if self._cleaner is None and self._cleaner_config is not None:
            self.cleaner.config = self._cleaner_config()
        if self._cleaner is not None:
            self._cleaner.on_roll(log)

    def content(self) -> dict[TopicPartition, LogContent]:
        """What all logs have now."""
        return {topic_partition: LogContent(log) for topic_partition, log in self._logs.items()}

    def fill(self, content: Mapping[TopicPartition, LogContent]) -> None:
        """Let a new store have what another one had."""
        for topic_partition, each in content.items():
            self.open(topic_partition, each.topic_id, each.config).fill(each)

    def get(self, topic_partition: TopicPartition) -> MemoryLog | None:
        return self._logs.get(topic_partition)

    def missing(self) -> Iterable[TopicPartition]:
        return ()

    def forget_missing(self, topic_partition: TopicPartition) -> None:
        """No partition is missing."""

    def partitions(self) -> Iterable[TopicPartition]:
        return sorted(self._logs)

    def after_deletions(self, action: Callable[[], None]) -> None:
        action()

    def delete(self, topic_partition: TopicPartition) -> None:
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            log.refusal = f"{topic_partition} was deleted"
            log.forget_listeners()
            if self._cleaner is not None:
                self._cleaner.forget(topic_partition)

    def flush_aged(self) -> None:
        """Nothing is ever unflushed."""

    def clean(self, config: CleanerConfig) -> None:
        if not self._is_closed:
            self.cleaner.clean(config)

    def log_metrics(self) -> Iterator[LogMetrics]:
        return (log.metrics() for log in list(self._logs.values()))

    def volume(self) -> Volume:
        return Volume()

    def flush_metrics(self) -> FlushMetrics:
        return FlushMetrics()

    def cleaner_metrics(self) -> CleanerMetrics:
        if self._cleaner is None:
            return CleanerMetrics(since_last_run_s=(self._clock.now_ms() - self._opened_ms) / 1000)
        return self._cleaner.metrics()

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        self.delete(topic_partition)

    def flush(self) -> None:
        self._watermarks.advance_all()

    def close(self) -> None:
        if self._is_closed:
            return
        self.flush()
        self._is_closed = True
        for topic_partition, log in self._logs.items():
            log.refusal = f"{topic_partition} is closed"
