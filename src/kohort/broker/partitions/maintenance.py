"""
Periodic maintenance of the logs: retention, compaction, and expiry of producers.

Retention applies to all logs that are not compacted, every `log.retention.check.interval.ms`; the cleaner deletes old segments
of the others. Partitions are visited in groups with pauses between, so that requests are not held up for long.

Source: Kafka LogManager.cleanupLogs, LogCleaner, ProducerStateManager.removeExpiredProducers.
"""

from __future__ import annotations

import logging
from collections import deque

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions.partitions import Partitions
from kohort.broker.ports import CallLater, Cancel
from kohort.model.errors import StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.log import LONG_MAX, CleanerConfig, LogStore

_log = logging.getLogger("kohort.broker")

GROUP_SIZE = 20
"""Partitions visited between two pauses."""
PAUSE_MS = 5


class LogMaintenance:
    """A visit to every partition that has a log, once in each `log.retention.check.interval.ms`."""

    def __init__(
        self,
        store: LogStore,
        partitions: Partitions,
        config: BrokerConfig,
        clock: Clock,
        call_later: CallLater,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._clock = clock
        self._call_later = call_later
        self._interval_ms = config.get_int("log.retention.check.interval.ms")
        self._config = config
        self._due: deque[TopicPartition] = deque()
        self._cancel: Cancel = call_later(
            min(config.get_int("log.initial.task.delay.ms"), self._interval_ms), self._begin
        )
        self._flush_interval_ms = config.get_int("log.flush.scheduler.interval.ms")
        self._cancel_flushing: Cancel = lambda: None
        if self._flush_interval_ms < LONG_MAX:
            self._cancel_flushing = call_later(config.get_int("log.initial.task.delay.ms"), self._flush)
        self._cancel_cleaning: Cancel = lambda: None
        if config.get_bool("log.cleaner.enable"):
            self._cancel_cleaning = call_later(self._backoff_ms, self._clean)
            config.watch(self._on_configs_changed)

    def close(self) -> None:
        self._cancel()
        self._cancel_cleaning()
        self._cancel_flushing()

    def _flush(self) -> None:
        """Source: Kafka LogManager, the task kafka-log-flusher."""
        self._store.flush_aged()
        self._cancel_flushing = self._call_later(max(self._flush_interval_ms, 1), self._flush)

    @property
    def _backoff_ms(self) -> int:
        return max(self._config.get_int("log.cleaner.backoff.ms"), 1)

    def _on_configs_changed(self, names: frozenset[str]) -> None:
        """Search for logs to clean after the new interval, with the other new values. Passes that run keep the old ones."""
        if any(name.startswith("log.cleaner.") for name in names):
            self._cancel_cleaning()
            self._cancel_cleaning = self._call_later(self._backoff_ms, self._clean)

    def _clean(self) -> None:
        self._store.clean(cleaner_config(self._config))
        self._cancel_cleaning = self._call_later(self._backoff_ms, self._clean)

    def _begin(self) -> None:
        self._due.extend(self._store.partitions())
        self._visit_group()

    def _visit_group(self) -> None:
        for _ in range(min(GROUP_SIZE, len(self._due))):
            self._maintain(self._due.popleft())
        if self._due:
            self._cancel = self._call_later(PAUSE_MS, self._visit_group)
        else:
            self._cancel = self._call_later(self._interval_ms, self._begin)

    def _maintain(self, topic_partition: TopicPartition) -> None:
        """Expire producers and apply retention. A log without a topic is left as it is."""
        now_ms = self._clock.now_ms()
        try:
            partition = self._partitions.find(*topic_partition)
            if partition is not None:
                partition.log.producers.expire(now_ms, self._config.get_int("producer.id.expiration.ms"))
                if "compact" not in partition.log.config.cleanup_policy.split(","):
                    partition.log.apply_retention(now_ms)
        except (StorageError, OSError) as error:
            _log.warning("log.maintenance_failed partition=%s error=%r", topic_partition, str(error))


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """
    The cleaner's configuration from the broker's `log.cleaner.` keys.

    As in Kafka, any number may be set as the load factor. One below 0, and NaN, is 0 here: a pass takes one key.
    """
    load_factor = config.get_float("log.cleaner.io.buffer.load.factor")
    return CleanerConfig(
        threads=config.get_int("log.cleaner.threads"),
        dedupe_buffer_size=config.get_int("log.cleaner.dedupe.buffer.size"),
        io_buffer_size=config.get_int("log.cleaner.io.buffer.size"),
        io_buffer_load_factor=min(load_factor, 1.0) if load_factor > 0 else 0.0,
        io_max_bytes_per_second=config.get_float("log.cleaner.io.max.bytes.per.second"),
    )
