"""
The partitions of topics: their logs, opened at first use, the requests that wait for them, and who leads them.

All brokers of the process share one `Partitions`. The handlers of each broker see it through `LocalPartitions`, the one place
where a request for a partition that another broker leads is refused.

A `Partition` is a log with two kinds of waiting requests. A Produce request waits until the high watermark passes an offset;
these waits are in offset order, so that only the first ones are checked. A Fetch request waits for enough bytes in several
partitions together; it is in the purgatory and is checked each time the high watermark of one of them advances.

Source: Kafka Partition, ReplicaManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import Topic
from kohort.broker.cluster import Cluster
from kohort.broker.configs.topic_configs import DEFAULTS_OF_TOPICS, TopicConfigs
from kohort.broker.partitions.replicas import NO_LEADER, PartitionState
from kohort.broker.ports import CallLater, PartitionLeader
from kohort.broker.records.produce_rules import ProduceRules
from kohort.broker.records.traffic import TopicTraffic, Traffic
from kohort.broker.topics.deletions import Deletions
from kohort.machine.shard import EndTransaction
from kohort.model.errors import (
    CoordinatorError,
    ErrorCode,
    NotLeaderError,
    NotReplicaError,
    StorageError,
    UnavailableError,
)
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta, TopicImage
from kohort.runtime.ports import HoldAt
from kohort.runtime.purgatory import Purgatory
from kohort.storage.log import NO_EPOCH, NO_OFFSET, NO_TOPIC_ID, Log, LogConfig, LogStore

_TOPICS_STEP: Final = 200
"""Topics that get a changed configuration of the broker at once."""
_REPLICATED: Final = ErrorCode.NONE
Replicated: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE when the high watermark has passed an offset, or with the error that prevents it."""
Fetches: TypeAlias = "Purgatory[Hashable]"
"""Waiting Fetch requests, by partition; those of a large session also by session."""


class OpenTopic:
    """
    A topic of which partitions were opened. Its deletion is one change, however many they are.

    Attributes:
        partitions: those that were opened, by index.
        is_deleted: requests that still refer to one of them are answered UNKNOWN_TOPIC_OR_PARTITION.
    """

    __slots__ = ("is_deleted", "name", "partitions")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.partitions: Final[dict[int, Partition]] = {}
        self.is_deleted = False


class Partition:
    """
    One partition.

    Attributes:
        leader_id, leader_epoch: of the broker that leads it.
        replicas: the brokers that have it; consumers may fetch from each of them.
        isr_count: the number of in-sync replicas.
        is_left: a node of another process leads it, or this one in a later epoch.
        traffic: the counters of its topic.
        quiet: what large fetch sessions are to be told by when something changes here, by their partitions; each once.
    """

    __slots__ = (
        "_fetches",
        "_waiting",
        "_watched",
        "is_left",
        "isr_count",
        "leader_epoch",
        "leader_id",
        "log",
        "quiet",
        "replicas",
        "rules",
        "topic",
        "topic_partition",
        "traffic",
    )

    def __init__(
        self,
        topic: OpenTopic,
        index: int,
        log: Log,
        rules: ProduceRules,
        fetches: Fetches,
        traffic: TopicTraffic,
        state: PartitionState,
    ) -> None:
        self.topic = topic
        self.traffic = traffic
        self.rules = rules
        self.topic_partition = TopicPartition(topic.name, index)
        self.log = log
        self._waiting: deque[tuple[int, Replicated]] = deque()
        self._fetches = fetches
        self._watched = fetches.watched_by
        self.is_left = False
        self.quiet: dict[object, Callable[[], None]] = {}
        self._set(state)
        log.add_listener(self._on_high_watermark)
        log.when_start_rises(self._tell)
        log.when_offline(self._on_offline)

    def _set(self, state: PartitionState) -> None:
        self.leader_id = state.leader
        self.replicas = state.replicas
        self.isr_count = len(state.isr)
        # A log that lost records began a leader epoch by itself.
        self.leader_epoch = max(state.leader_epoch, self.log.leader_epoch)

    def on_state(self, state: PartitionState) -> None:
        """Take another leader or other replicas. Waiting Fetch requests that their broker may not answer now are refused."""
        is_moved = state.leader != self.leader_id or state.replicas != self.replicas
        self._set(state)
        self._tell()
        if is_moved:
            self._fetches.check_and_complete(self)

    def _tell(self) -> None:
        """Tell the fetch sessions that have seen nothing new here."""
        if self.quiet:
            quiet, self.quiet = self.quiet, {}
            for wake in quiet.values():
                wake()

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin a leader epoch at the end of the log. Raises: as `Log.become_leader`."""
        self.log.become_leader(leader_epoch)
        self.leader_epoch = leader_epoch
        self._tell()

    def check(self) -> None:
        """
        Raises:
            UnavailableError: the log failed. In Kafka the partition has no leader then, so it answers no offsets either.
        """
        if self.log.refusal is not None:
            raise UnavailableError(self.log.refusal)

    def check_isr(self) -> None:
        """
        Raises:
            CoordinatorError: NOT_ENOUGH_REPLICAS. `min.insync.replicas` counts up to the number of replicas.

        Source: Kafka Partition.appendRecordsToLeader, effectiveMinIsr.
        """
        if self.isr_count < min(self.rules.min_insync_replicas, len(self.replicas)):
            raise CoordinatorError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def append(self, batch: bytes | bytearray) -> int:
        """Append a batch; returns the new end offset. Raises: as `PartitionLog.append`."""
        return self.log.append(batch, leader_epoch=self.leader_epoch)

    def append_marker(self, end: EndTransaction, timestamp_ms: int) -> int:
        """Append a transaction marker; returns the new end offset. Raises: as `PartitionLog.append_marker`."""
        return self.log.append_marker(end, leader_epoch=self.leader_epoch, timestamp_ms=timestamp_ms)

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; the log has the present one from its next append on."""
        return self.leader_epoch if offset >= self.log.end_offset else self.log.epoch_for_offset(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """As `Log.end_offset_for_epoch`, with the present leader epoch."""
        if leader_epoch >= self.leader_epoch:
            return (leader_epoch, self.log.end_offset) if leader_epoch == self.leader_epoch else (NO_EPOCH, NO_OFFSET)
        return self.log.end_offset_for_epoch(min(leader_epoch, self.log.leader_epoch))

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
        if self.quiet:
            self._tell()
        if self in self._watched:
            self._fetches.check_and_complete(self)

    def on_deleted(self) -> None:
        self.log.remove_listener(self._on_high_watermark)
        self._end_waits(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def on_left(self) -> None:
        """
        A broker of another process leads the partition now, or this one in another epoch.

        Produce requests wait on for the outcome of their appends. Kafka answers them NOT_LEADER_OR_FOLLOWER at once. Producers
        take this code for "not appended", and a batch that was appended is doubled when its producer changes its epoch before
        it sends the batch again.
        """
        self.leader_id = NO_LEADER
        self.is_left = True
        self._tell()
        self._fetches.check_and_complete(self)

    def _on_offline(self) -> None:
        self._end_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER if self.is_left else ErrorCode.KAFKA_STORAGE_ERROR)

    def _end_waits(self, code: ErrorCode) -> None:
        while self._waiting:
            self._waiting.popleft()[1](code)
        self._tell()
        self._fetches.check_and_complete(self)


NOT_OPEN: Final = OpenTopic("")
"""In place of a topic of which no partition was opened."""


class _Settings(msgspec.Struct, frozen=True):
    overrides: dict[str, str]
    log_config: LogConfig
    rules: ProduceRules


class Partitions:
    """
    All partitions of the catalog's topics. Implements `kohort.broker.ports.Leadership`.

    Args:
        configs: the configurations of topics by broker. A partition has those of its leader; all replicas share its log.
        fetches: the waiting Fetch requests.
        call_later: runs the next step of a long change.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: Catalog,
        configs: Mapping[int, TopicConfigs],
        cluster: Cluster,
        fetches: Fetches,
        call_later: CallLater,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._fetches = fetches
        self._catalog = catalog
        self._configs = configs
        self.traffic = Traffic()
        self.opened: Final[dict[str, OpenTopic]] = {}
        """By name."""
        self.deletions: Final = Deletions(store, call_later)
        self._settings: dict[str, dict[int, _Settings]] = {}
        """By topic and leader."""
        self._call_later = call_later
        self._hold_flush: HoldAt | None = None
        self._stale: deque[str] = deque()
        """Topics that have not got the changed configuration of the broker yet."""
        catalog.watch(self._on_change)
        for each in configs.values():
            each.broker.watch(self._on_broker_configs_changed)

    def find(self, topic: str, index: int) -> Partition | None:
        """
        Find a partition, opening its log if needed; None if there is no such topic or index.

        Raises:
            StorageError: the log cannot be opened, or has failed.
        """
        partition = self.opened.get(topic, NOT_OPEN).partitions.get(index) or self.open(topic, index)
        if partition is not None:
            partition.check()
        return partition

    def find_led(self, topic: str, index: int) -> Partition | None:
        """As `find`; also raises NotLeaderError if no broker leads the partition."""
        partition = self.find(topic, index)
        if partition is not None and partition.leader_id == NO_LEADER:
            raise NotLeaderError(f"no broker leads {partition.topic_partition}")
        return partition

    def open(self, name: str, index: int) -> Partition | None:
        """
        Open the log of a partition; None if there is no such topic or index.

        Raises:
            NotLeaderError: a broker of another process leads it, or this one does not yet.
            StorageError: as `find`.
        """
        topic = self._catalog.topic(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return None
        state = self._catalog.state(topic, index)
        settings = self._settings_of(topic, state.leader)
        self.deletions.end(name, index)
        log = self._store.open(TopicPartition(name, index), topic.topic_id, settings.log_config)
        if self._cluster.is_shared and log.leader_epoch != state.leader_epoch:
            raise NotLeaderError(
                f"broker {state.leader} does not lead {name}-{index} in epoch {state.leader_epoch} yet"
            )
        log.become_leader(max(log.leader_epoch, 0))
        log.hold_flush = self._hold_flush
        opened = self.opened.get(name)
        if opened is None:
            opened = self.opened[name] = OpenTopic(name)
        partition = opened.partitions[index] = Partition(
            opened, index, log, settings.rules, self._fetches, self.traffic.of(name), state
        )
        return partition

    def all_open(self) -> Iterator[Partition]:
        """The partitions that were opened, of all topics."""
        return (partition for topic in self.opened.values() for partition in topic.partitions.values())

    def hold_flushes(self, hold: HoldAt | None) -> None:
        """Let all logs ask `hold` before their high watermark advances; for tests of clients."""
        self._hold_flush = hold
        for partition in self.all_open():
            partition.log.hold_flush = hold

    def leader(self, topic: Topic, index: int, /) -> PartitionLeader:
        """
        Describe the leader and the replicas of a partition, without opening its log.

        Kafka's controller begins a new leader epoch when a partition goes offline. Here the epoch stays: if a later request can
        open the log, the partition has its leader again, in an epoch that clients would ignore as stale metadata. The epoch of
        a deleted topic's log, which a crash may have left under this name, is not announced.
        """
        state = self._catalog.state(topic, index)
        leader_epoch = state.leader_epoch
        partition = self.opened.get(topic.name, NOT_OPEN).partitions.get(index)
        try:
            log = partition.log if partition else self._store.get(TopicPartition(topic.name, index))
        except StorageError:
            return _offline(state, leader_epoch)
        if log is not None and log.topic_id in (topic.topic_id, NO_TOPIC_ID):
            leader_epoch = max(leader_epoch, log.leader_epoch)
            if log.refusal is not None:
                return _offline(state, leader_epoch)
        is_active = self._cluster.is_active
        return PartitionLeader(
            state.leader,
            leader_epoch,
            state.replicas,
            state.isr,
            [replica for replica in state.replicas if not is_active(replica)],
            state.elr,
            () if state.last_known_leader == NO_LEADER else (state.last_known_leader,),
        )

    def _settings_of(self, topic: Topic, leader: int) -> _Settings:
        """
        The parsed configuration of a topic at the leader of a partition, cached until it changes.

        A partition without a leader has the configuration of the first broker.
        """
        by_leader = self._settings.setdefault(topic.name, {})
        settings = by_leader.get(leader)
        if settings is None or settings.overrides != topic.configs:
            configs = self._configs.get(leader) or self._configs[self._cluster.node_id]
            rules = ProduceRules.of(configs, topic.configs)
            settings = _Settings(topic.configs, configs.log_config(topic.configs), rules)
            by_leader[leader] = settings
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
        known: dict[tuple[tuple[str, str], ...], dict[int, _Settings]] = {}
        for _ in range(min(_TOPICS_STEP, len(self._stale))):
            topic = self._catalog.topic(self._stale.popleft())
            if topic is not None:
                alike = known.setdefault(tuple(sorted(topic.configs.items())), {})
                self._settings[topic.name] = dict(alike)
                self._reconfigure(topic)
                alike |= self._settings[topic.name]
        if self._stale:
            self._call_later(0, self._renew_settings)

    def _delete(self, topic: TopicImage) -> None:
        """Delete a topic: none of its partitions is found any more, and their logs are deleted in steps."""
        self._settings.pop(topic.name, None)
        self.traffic.forget(topic.name)
        opened = self.opened.pop(topic.name, None) or OpenTopic(topic.name)
        opened.is_deleted = True
        self.deletions.add(topic.name, topic.partition_count, opened.partitions)
        opened.partitions.clear()  # They refer to their topic, and would be left to the garbage collector.

    def _reconfigure(self, topic: Topic) -> None:
        opened = self.opened.get(topic.name, NOT_OPEN).partitions
        for index, partition in list(opened.items()):
            state = self._catalog.state(topic, index)
            if self._cluster.is_shared and (state.leader, state.leader_epoch) != (
                partition.leader_id,
                partition.leader_epoch,
            ):
                del opened[index]
                partition.on_left()
                continue
            settings = self._settings_of(topic, state.leader)
            partition.rules, partition.log.config = settings.rules, settings.log_config
            partition.on_state(state)


def _offline(state: PartitionState, leader_epoch: int) -> PartitionLeader:
    """A partition whose log cannot be used: all replicas share it."""
    replicas = state.replicas
    return PartitionLeader(NO_LEADER, leader_epoch, replicas, (), replicas, replicas, replicas)


class LocalPartitions:
    """The partitions as the handlers of one broker see them."""

    def __init__(self, partitions: Partitions, node_id: int) -> None:
        self._partitions = partitions
        self._opened = partitions.opened
        self.traffic = partitions.traffic
        self.node_id = node_id

    def find(self, topic: str, index: int) -> Partition | None:
        """
        Find a partition that this broker leads; None if there is no such topic or index.

        Raises:
            NotLeaderError: another broker leads it, or no broker.
            StorageError: the log cannot be opened, or has failed.
        """
        partition = self._opened.get(topic, NOT_OPEN).partitions.get(index) or self._partitions.open(topic, index)
        if partition is not None:
            if partition.leader_id != self.node_id:
                raise self._refusal(partition)
            partition.check()
        return partition

    def find_replica(self, topic: str, index: int) -> Partition | None:
        """
        Find a partition of which this broker has a replica; None if there is no such topic or index.

        Raises:
            NotLeaderError: this broker has no replica.
            StorageError: the log cannot be opened, or has failed.
        """
        partition = self._opened.get(topic, NOT_OPEN).partitions.get(index) or self._partitions.open(topic, index)
        if partition is not None:
            if self.node_id not in partition.replicas:
                raise self._refusal(partition)
            partition.check()
        return partition

    def check(self, partition: Partition, *, is_leader_asked: bool) -> None:
        """
        Check again, some time after `find` or `find_replica`.

        Raises: as these.
        """
        if partition.leader_id != self.node_id and (is_leader_asked or self.node_id not in partition.replicas):
            raise self._refusal(partition)
        partition.check()

    def _refusal(self, partition: Partition) -> NotLeaderError:
        where, leader = partition.topic_partition, partition.leader_id
        if self.node_id in partition.replicas:
            return NotLeaderError(f"broker {self.node_id} does not lead {where}; its leader is {leader}")
        return NotReplicaError(f"broker {self.node_id} has no replica of {where}; its leader is {leader}")
