"""
The partitions of topics: their logs, opened at first use, and the requests that wait for them.

A `Partition` is a log with two kinds of waiting requests. A Produce request waits until the high watermark passes an offset;
these waits are in offset order, so that only the first ones are checked. A Fetch request waits for enough bytes in several
partitions together; it is in the purgatory and is checked each time the high watermark of one of them advances.

Source: Kafka Partition, ReplicaManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from kohort.broker.catalog import Catalog, Topic
from kohort.broker.configs.topic_configs import DEFAULTS_OF_TOPICS, TopicConfigs
from kohort.broker.ports import CallLater, PartitionLeader
from kohort.broker.records.produce_rules import ProduceRules
from kohort.broker.records.traffic import TopicTraffic, Traffic
from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode, StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta, TopicImage
from kohort.runtime.purgatory import Purgatory
from kohort.storage.log import NO_TOPIC_ID, Log, LogConfig, LogStore

_TOPICS_STEP: Final = 200
"""Topics that get a changed configuration of the broker at once."""
_REPLICATED: Final = ErrorCode.NONE
Replicated: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE when the high watermark has passed an offset, or with the error that prevents it."""
Fetches: TypeAlias = "Purgatory[Partition]"


class Partition:
    """
    One partition that this node leads.

    Attributes:
        is_deleted: its topic was deleted. Requests that still refer to the partition are answered
            UNKNOWN_TOPIC_OR_PARTITION.
        traffic: the counters of its topic.
    """

    __slots__ = ("_fetches", "_waiting", "is_deleted", "log", "rules", "topic", "topic_partition", "traffic")

    def __init__(
        self, topic: Topic, index: int, log: Log, rules: ProduceRules, fetches: Fetches, traffic: TopicTraffic
    ) -> None:
        self.topic = topic
        self.traffic = traffic
        self.rules = rules
        self.topic_partition = TopicPartition(topic.name, index)
        self.log = log
        self._waiting: deque[tuple[int, Replicated]] = deque()
        self._fetches = fetches
        self.is_deleted = False
        log.add_listener(self._on_high_watermark)
        log.when_offline(self._on_offline)

    def check(self) -> None:
        """
        Raises:
            UnavailableError: the log failed. In Kafka the partition has no leader then, so it answers no offsets either.
        """
        if self.log.refusal is not None:
            raise UnavailableError(self.log.refusal)

    def append(self, batch: bytes | bytearray) -> int:
        """Append a batch; returns the new end offset. Raises: as `PartitionLog.append`."""
        return self.log.append(batch, leader_epoch=self.log.leader_epoch)

    def append_marker(self, end: EndTransaction, timestamp_ms: int) -> int:
        """Append a transaction marker; returns the new end offset. Raises: as `PartitionLog.append_marker`."""
        return self.log.append_marker(end, leader_epoch=self.log.leader_epoch, timestamp_ms=timestamp_ms)

    def when_replicated(self, end_offset: int, replicated: Replicated) -> None:
        """
        Call `replicated` when the high watermark has reached `end_offset`, or the partition fails or is deleted; never at once.

        A wait for a lower offset than the last one (the retry of a batch) completes together with the last one.
        """
        if self._waiting:
            end_offset = max(end_offset, self._waiting[-1][0])
        self._waiting.append((end_offset, replicated))

    def _on_high_watermark(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](_REPLICATED)
        self._fetches.check_and_complete(self)

    def on_deleted(self) -> None:
        self.is_deleted = True
        self.log.remove_listener(self._on_high_watermark)
        self._end_waits(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _on_offline(self) -> None:
        self._end_waits(ErrorCode.KAFKA_STORAGE_ERROR)

    def _end_waits(self, code: ErrorCode) -> None:
        while self._waiting:
            self._waiting.popleft()[1](code)
        self._fetches.check_and_complete(self)


class _Settings(msgspec.Struct, frozen=True):
    overrides: dict[str, str]
    log_config: LogConfig
    rules: ProduceRules


class Partitions:
    """
    All partitions of the catalog's topics. Implements `kohort.broker.ports.Leadership`.

    Args:
        fetches: the waiting Fetch requests.
        call_later: runs the next step of a long change.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: Catalog,
        configs: TopicConfigs,
        fetches: Fetches,
        call_later: CallLater,
    ) -> None:
        self._store = store
        self._fetches = fetches
        self._catalog = catalog
        self._configs = configs
        self.traffic = Traffic()
        self._open: dict[tuple[str, int], Partition] = {}
        self._settings: dict[str, _Settings] = {}
        self._call_later = call_later
        self._stale: deque[str] = deque()
        """Topics that have not got the changed configuration of the broker yet."""
        catalog.watch(self._on_change)
        configs.broker.watch(self._on_broker_configs_changed)

    def find(self, topic: str, index: int) -> Partition | None:
        """
        Find a partition, opening its log if needed; None if there is no such topic or index.

        Raises:
            StorageError: the log cannot be opened, or has failed.
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
        partition = self._open[name, index] = Partition(
            topic, index, log, settings.rules, self._fetches, self.traffic.of(name)
        )
        return partition

    def leader(self, topic: TopicImage, index: int, /) -> PartitionLeader:
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
        """The parsed configuration of a topic, cached until it changes."""
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

    def _on_broker_configs_changed(self, names: frozenset[str]) -> None:
        """Give the topics the new defaults, the first ones at once and thousands of others in steps."""
        if names.isdisjoint(DEFAULTS_OF_TOPICS):
            return
        is_busy = bool(self._stale)
        self._settings.clear()
        self._stale = deque(topic.name for topic in self._catalog.topics())
        if not is_busy:
            self._renew_settings()

    def _renew_settings(self) -> None:
        known: dict[tuple[tuple[str, str], ...], _Settings] = {}
        for _ in range(min(_TOPICS_STEP, len(self._stale))):
            topic = self._catalog.topic(self._stale.popleft())
            if topic is not None:
                overrides = tuple(sorted(topic.configs.items()))
                settings = known.get(overrides) or known.setdefault(overrides, self._settings_of(topic))
                self._settings[topic.name] = settings
                self._reconfigure(topic)
        if self._stale:
            self._call_later(0, self._renew_settings)

    def _delete(self, topic: TopicImage) -> None:
        self._settings.pop(topic.name, None)
        self.traffic.forget(topic.name)
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
