"""The group coordinator as a node hosts it: shards on the partitions of `__consumer_offsets`, behind one service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from kohort.broker.catalog import new_topic_id
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.group_configs import check_broker
from kohort.broker.features import GROUP_VERSION
from kohort.broker.ports import Handler
from kohort.group.configs import GroupConfig, MigrationPolicy
from kohort.group.groups import CONSUMER
from kohort.group.kinds import record_serde
from kohort.group.metrics import GroupCounters
from kohort.group.service import GroupService
from kohort.group.shard import GroupShard
from kohort.machine.shard import EndTransaction, Producer
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ConfigError, ErrorCode, error_code
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition, uuid_text
from kohort.model.image import ClusterImage, ImageDelta
from kohort.runtime.ports import PartitionLog
from kohort.runtime.runtime import Runtime
from kohort.runtime.states import State
from kohort.runtime.timers.shard_timers import ShardTimers
from kohort.server.coordinators.assignors import load_assignors
from kohort.server.coordinators.group_events import GroupEventLog
from kohort.server.coordinators.interface import CoordinatorEnvironment
from kohort.server.coordinators.local_runner import Leads, LocalRunner
from kohort.wire.apis import ApiKey
from kohort.wire.compression import Codec

if TYPE_CHECKING:
    from kohort.scrape import Family


class GroupCoordinator:
    """The `kohort.server.coordinators.interface.HostedCoordinator` of groups."""

    topic = CONSUMER_OFFSETS

    def __init__(self, environment: CoordinatorEnvironment) -> None:
        broker = environment.broker
        self._verification = broker.verification
        self._catalog = broker.catalog
        config = broker.config
        check_broker(config)
        self._assignors = load_assignors(config.get_list("group.consumer.assignors"))
        protocols = config.get_list("group.coordinator.rebalance.protocols")
        if not broker.features.level(GROUP_VERSION):
            protocols = tuple(name for name in protocols if name != CONSUMER)
        self._config = _group_config(config, tuple(self._assignors), protocols)
        self._counters: defaultdict[int, GroupCounters] = defaultdict(GroupCounters)
        self._events = GroupEventLog()
        self._runtime = Runtime(
            partition_count=broker.creation.internal_partition_count(self.topic),
            make_shard=self._make_shard,
            serde=record_serde(),
            image=broker.catalog,
            clock=environment.clock,
            processor=environment.make_processor(),
            verify=self._verify,
            write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            linger_ms=config.get_int("group.coordinator.append.linger.ms"),
            codec=_codec(config),
            load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
        )
        self._service = GroupService(self._runtime, self._config, broker.catalog, emit=self._events)
        self._services = [self._service]
        """Of all brokers, and one that sees all shards."""

    def _make_shard(self, partition: int, registry: SnapshotRegistry, timers: ShardTimers) -> GroupShard:
        return GroupShard(
            registry,
            timers,
            self._config,
            lambda: str(uuid4()),
            self._counters[partition],
            self._events,
            overrides=self._overrides,
            assignors=list(self._assignors.values()),
            new_member_id=lambda: uuid_text(new_topic_id()),
        )

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self._catalog.configured_group(group_id).configs

    def _verify(self, partition: int, producer: Producer, verified: Callable[[Exception | None], None]) -> None:
        self._verification.verify(TopicPartition(self.topic, partition), producer, verified)

    def handlers(self, leads: Leads | None = None) -> Mapping[ApiKey, Handler]:
        if leads is None:
            return self._service.handlers()
        service = GroupService(LocalRunner(self._runtime, leads), self._config, self._catalog, emit=self._events)
        self._services.append(service)
        return service.handlers()

    def marker_writer(self, partition: int, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        """Commit or drop the pending offsets of a transaction in one partition."""

        def reply(error: Exception | None) -> None:
            done(ErrorCode.NONE if error is None else error_code(error))

        self._runtime.end_transaction(partition, end, reply)

    verification = None

    def load(self, partition: int, log: PartitionLog, leader_epoch: int) -> None:
        self._runtime.load(partition, log, leader_epoch)

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        self._runtime.unload(partition, leader_epoch)

    def on_image(self, _image: ClusterImage, delta: ImageDelta) -> None:
        self._runtime.on_image(delta)

    def metrics(self) -> Iterator[Family | None]:
        from kohort.server.metrics import families, kafka

        gauges = yield from self._service.gauges_in_steps()
        counters = GroupCounters.total(self._counters.values())
        runtime = self._runtime.metrics()
        yield from families.group_families(gauges, counters)
        yield from families.group_event_families(self._events.refused_heartbeats, self._events.rebalance_timeouts)
        yield from families.runtime_families("group", runtime)
        yield from kafka.group_families(gauges, counters)
        yield from kafka.heartbeat_families(self._events.refused_heartbeats)
        yield from kafka.runtime_families("group", runtime)

    @property
    def loading(self) -> int:
        return list(self._runtime.states().values()).count(State.LOADING)

    def close(self) -> None:
        for service in self._services:
            service.is_active = False
        self._runtime.close()


def _group_config(config: BrokerConfig, assignors: tuple[str, ...], protocols: tuple[str, ...]) -> GroupConfig:
    """The configurations of the group coordinator; the others than these three are numbers."""
    texts = ("group_consumer_assignors", "group_consumer_migration_policy", "group_coordinator_rebalance_protocols")
    numbers = {
        name: config.get_int(name.replace("_", ".")) for name in GroupConfig.__struct_fields__ if name not in texts
    }
    policy = (config.get_str("group.consumer.migration.policy") or "").lower()
    return GroupConfig(
        **numbers,
        group_consumer_assignors=assignors,
        group_consumer_migration_policy=cast("MigrationPolicy", policy),
        group_coordinator_rebalance_protocols=protocols,
    )


def _codec(config: BrokerConfig) -> Codec:
    """
    Raises:
        ConfigError: offsets.topic.compression.codec is not the number of a codec.
    """
    number = config.get_int("offsets.topic.compression.codec")
    try:
        return Codec(number)
    except ValueError:
        known = ", ".join(f"{int(codec)} ({codec.name.lower()})" for codec in Codec)
        raise ConfigError(f"offsets.topic.compression.codec is {number}; it must be one of {known}") from None
