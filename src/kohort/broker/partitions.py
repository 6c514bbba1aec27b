"""
The partitions of topics: their logs, opened at first use, and who waits for them.

A `Partition` is a log with its two kinds of waiting. A producer waits for an offset that the high watermark has to pass:
those who wait are in order, so that only the first ones are looked at. A consumer waits until there is enough in several
partitions together: it is in the purgatory, and is asked each time one of them goes on.

Source: Kafka Partition, ReplicaManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kohort.broker.catalog import Catalog, Topic
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.records.produce_rules import ProduceRules
from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode, StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta, TopicImage
from kohort.runtime.purgatory import Purgatory
from kohort.storage.log import NO_TOPIC_ID, Log, LogConfig, LogStore
from kohort.wire.batches import BatchHeader

_WRITTEN: Final = ErrorCode.NONE
Written: TypeAlias = Callable[[ErrorCode], None]
Fetches: TypeAlias = "Purgatory[Partition]"


class PartitionLeader(NamedTuple):
    """
    What clients are told of a partition's leader.

    Attributes:
        is_offline: the partition has no leader: its log failed or cannot be opened.
    """

    leader_epoch: int
    is_offline: bool = False


class Partition:
    """
    One partition that this node leads.

    Attributes:
        is_deleted: its topic is gone; whoever has it still in hand answers so.
    """

    __slots__ = ("_fetches", "_writes", "is_deleted", "log", "rules", "topic", "topic_partition")

    def __init__(self, topic: Topic, index: int, log: Log, rules: ProduceRules, fetches: Fetches) -> None:
        self.topic = topic
        self.rules = rules
        self.topic_partition = TopicPartition(topic.name, index)
        self.log = log
        self._writes: deque[tuple[int, Written]] = deque()
        self._fetches = fetches
        self.is_deleted = False
        log.add_listener(self._on_high_watermark)
        log.when_offline(self._on_offline)

    def check(self) -> None:
        """
        Raises:
            UnavailableError: the log failed. Kafka has no leader then, so that nobody is told offsets either.
        """
        if self.log.refusal is not None:
            raise UnavailableError(self.log.refusal)

    def append(self, batch: bytes | bytearray) -> int:
        """Write a batch; returns the new end offset. Raises: as `PartitionLog.append`."""
        return self.log.append(batch, leader_epoch=self.log.leader_epoch)

    def append_transactional(self, batch: bytes | bytearray, header: BatchHeader, guard: object | None) -> int:
        """Append a batch of a transaction; returns the new end offset. Raises: as `PartitionLog.append_transactional`."""
        return self.log.append_transactional(
            batch,
            leader_epoch=self.log.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            guard=guard,
        )

    def append_marker(self, end: EndTransaction, timestamp_ms: int) -> int:
        """Append a transaction marker; returns the new end offset. Raises: as `PartitionLog.append_marker`."""
        return self.log.append_marker(end, leader_epoch=self.log.leader_epoch, timestamp_ms=timestamp_ms)

    def when_replicated(self, end_offset: int, written: Written) -> None:
        """
        Call `written` when the high watermark has reached `end_offset`, or the partition is gone. Not at once.

        Whoever waits for an earlier offset than the one before him (a batch that was sent again) is told together with him.
        """
        if self._writes:
            end_offset = max(end_offset, self._writes[-1][0])
        self._writes.append((end_offset, written))

    def _on_high_watermark(self, high_watermark: int) -> None:
        writes = self._writes
        while writes and writes[0][0] <= high_watermark:
            writes.popleft()[1](_WRITTEN)
        self._fetches.check_and_complete(self)

    def on_deleted(self) -> None:
        self.is_deleted = True
        self.log.remove_listener(self._on_high_watermark)
        self._end_waits(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _on_offline(self) -> None:
        self._end_waits(ErrorCode.KAFKA_STORAGE_ERROR)

    def _end_waits(self, code: ErrorCode) -> None:
        while self._writes:
            self._writes.popleft()[1](code)
        self._fetches.check_and_complete(self)


class _Settings(msgspec.Struct, frozen=True):
    overrides: dict[str, str]
    log_config: LogConfig
    rules: ProduceRules


class Partitions:
    """All partitions of the catalog's topics; `fetches` holds the consumers that wait for them."""

    def __init__(self, store: LogStore, catalog: Catalog, configs: TopicConfigs, fetches: Fetches) -> None:
        self._store = store
        self._fetches = fetches
        self._catalog = catalog
        self._configs = configs
        self._open: dict[tuple[str, int], Partition] = {}
        self._settings: dict[str, _Settings] = {}
        catalog.watch(self._on_change)

    def find(self, topic: str, index: int) -> Partition | None:
        """
        The partition; None when there is no such topic or index.

        Raises:
            StorageError: its log cannot be opened, or has failed.
        """
        partition = self._open.get((topic, index)) or self._open_log(topic, index)
        if partition is not None:
            partition.check()
        return partition

    def _open_log(self, name: str, index: int) -> Partition | None:
        topic = self._catalog.topic(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return None
        settings = self._settings_of(topic)
        log = self._store.open(TopicPartition(name, index), topic.topic_id, settings.log_config)
        log.become_leader(max(log.leader_epoch, 0))
        partition = self._open[name, index] = Partition(topic, index, log, settings.rules, self._fetches)
        return partition

    def leader(self, topic: Topic, index: int) -> PartitionLeader:
        """
        Describe the leader of a partition, without opening its log.

        Kafka's controller begins a new leader epoch when a partition goes offline. Here the epoch stays: the next start would
        announce an older epoch, which clients ignore as stale metadata. For the same reason the epoch of a deleted topic's
        log, which a crash may have left under this name, is not announced.
        """
        partition = self._open.get((topic.name, index))
        try:
            log = partition.log if partition else self._store.get(TopicPartition(topic.name, index))
        except StorageError:
            return PartitionLeader(0, is_offline=True)
        if log is None or log.topic_id not in (topic.topic_id, NO_TOPIC_ID):
            return PartitionLeader(0)
        return PartitionLeader(max(log.leader_epoch, 0), log.refusal is not None)

    def _settings_of(self, topic: Topic) -> _Settings:
        """Parsed once for all partitions of a topic, until its configuration changes."""
        settings = self._settings.get(topic.name)
        if settings is None or settings.overrides != topic.configs:
            rules = ProduceRules.of(self._configs, topic.configs)
            settings = _Settings(topic.configs, self._configs.log_config(topic.configs), rules)
            self._settings[topic.name] = settings
        return settings

    def _on_change(self, delta: ImageDelta) -> None:
        for deleted in delta.deleted:
            self._delete(deleted)
        for changed in delta.changed:
            topic = self._catalog.topic(changed.name)
            if topic is not None:
                self._reconfigure(topic)

    def _delete(self, topic: TopicImage) -> None:
        self._settings.pop(topic.name, None)
        for index in range(topic.partition_count):
            partition = self._open.pop((topic.name, index), None)
            if partition is not None:
                partition.on_deleted()
            self._store.delete(TopicPartition(topic.name, index))

    def _reconfigure(self, topic: Topic) -> None:
        for index in range(topic.partition_count):
            partition = self._open.get((topic.name, index))
            if partition is not None:
                partition.topic = topic
                settings = self._settings_of(topic)
                partition.rules, partition.log.config = settings.rules, settings.log_config
