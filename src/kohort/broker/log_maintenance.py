"""
What is done for the logs from time to time: retention, compaction, and producers that wrote nothing for long.

Compacted logs are deleted from by their cleaner, the others every `log.retention.check.interval.ms`. Some partitions are looked
at in one go and the others a moment later, so that nobody waits for long.

Source: Kafka LogManager.cleanupLogs, LogCleaner, ProducerStateManager.removeExpiredProducers.
"""

from __future__ import annotations

import logging
from collections import deque

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions import Partitions
from kohort.broker.ports import CallLater, Cancel
from kohort.model.errors import StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock
from kohort.storage.log import CleanerConfig, LogStore

_log = logging.getLogger("kohort.broker")

AT_ONCE = 20
"""Partitions that are looked at in one go."""
PAUSE_MS = 5


class LogMaintenance:
    """Goes round all partitions that have a log, and again after `log.retention.check.interval.ms`."""

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
        self._expiration_ms = config.get_int("producer.id.expiration.ms")
        self._due: deque[TopicPartition] = deque()
        self._cancel: Cancel = call_later(
            min(config.get_int("log.initial.task.delay.ms"), self._interval_ms), self._begin
        )
        self._backoff_ms = max(config.get_int("log.cleaner.backoff.ms"), 1)
        self._cleaner_config = cleaner_config(config)
        self._cancel_cleaning: Cancel = lambda: None
        if config.get_bool("log.cleaner.enable"):
            self._cancel_cleaning = call_later(self._backoff_ms, self._clean)

    def close(self) -> None:
        self._cancel()
        self._cancel_cleaning()

    def _clean(self) -> None:
        self._store.clean(self._cleaner_config)
        self._cancel_cleaning = self._call_later(self._backoff_ms, self._clean)

    def _begin(self) -> None:
        self._due.extend(self._store.partitions())
        self._go_on()

    def _go_on(self) -> None:
        for _ in range(min(AT_ONCE, len(self._due))):
            self._keep(self._due.popleft())
        if self._due:
            self._cancel = self._call_later(PAUSE_MS, self._go_on)
        else:
            self._cancel = self._call_later(self._interval_ms, self._begin)

    def _keep(self, topic_partition: TopicPartition) -> None:
        """A log that no topic owns is let alone."""
        now_ms = self._clock.now_ms()
        try:
            partition = self._partitions.find(*topic_partition)
            if partition is not None:
                partition.log.producers.expire(now_ms, self._expiration_ms)
                if "compact" not in partition.log.config.cleanup_policy.split(","):
                    partition.log.apply_retention(now_ms)
        except (StorageError, OSError) as error:
            _log.warning("log.not_kept partition=%s error=%r", topic_partition, str(error))


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """What the broker's `log.cleaner.` configurations say to the cleaner."""
    return CleanerConfig(
        threads=config.get_int("log.cleaner.threads"),
        dedupe_buffer_size=config.get_int("log.cleaner.dedupe.buffer.size"),
        io_buffer_size=config.get_int("log.cleaner.io.buffer.size"),
        io_buffer_load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
        io_max_bytes_per_second=config.get_float("log.cleaner.io.max.bytes.per.second"),
    )
