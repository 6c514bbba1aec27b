"""The group coordinator as a node hosts it: shards on the partitions of `__consumer_offsets`, behind one service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from kohort.broker.broker import Broker
from kohort.broker.catalog.catalog import new_topic_id
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.group_configs import check_broker
from kohort.broker.features import GROUP_VERSION
from kohort.group.configs import GroupConfig, MigrationPolicy
from kohort.group.events import GroupEvent
from kohort.group.groups import CONSUMER
from kohort.group.kinds import record_serde
from kohort.group.metrics import EventCounts, GroupCounters
from kohort.group.service import GroupService
from kohort.group.shard import GroupShard
from kohort.machine.shard import Deadlines, Runner
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.ids import uuid_text
from kohort.runtime.runtime import Runtime
from kohort.server.coordinators.assignors import load_assignors
from kohort.server.coordinators.event_lines import EventLog
from kohort.server.coordinators.hosted_coordinator import Coordinator, codec_of

if TYPE_CHECKING:
    from kohort.scrape import Family


def group_coordinator(broker: Broker) -> Coordinator[GroupShard, GroupService]:
    """
    Raises:
        ConfigError: a configuration of groups is invalid, or an assignor cannot be loaded.
    """
    catalog, config = broker.catalog, broker.config
    check_broker(config)
    assignors = load_assignors(config.get_list("group.consumer.assignors"))
    protocols = config.get_list("group.coordinator.rebalance.protocols")
    if not broker.features.level(GROUP_VERSION):
        protocols = tuple(name for name in protocols if name != CONSUMER)
    group_config = _group_config(config, tuple(assignors), protocols)
    counters: defaultdict[int, GroupCounters] = defaultdict(GroupCounters)
    counts = EventCounts()
    events = EventLog("kohort.group", count=counts.count)

    def make_shard(
        _runtime: Runtime[GroupShard], partition: int, registry: SnapshotRegistry, deadlines: Deadlines
    ) -> GroupShard:
        return GroupShard(
            registry,
            deadlines,
            group_config,
            lambda: str(uuid4()),
            counters[partition],
            overrides=broker.group_configs.in_force,
            assignors=list(assignors.values()),
            new_member_id=lambda: uuid_text(new_topic_id()),
            assignment_interval_ms=lambda kind: config.get_int(f"group.{kind}.assignment.interval.ms"),
            is_held=lambda group_id: broker.hold_rebalance is not None and broker.hold_rebalance(group_id),
            authorizer=broker.authorizer,
        )

    def make_service(runner: Runner[GroupShard]) -> GroupService:
        return GroupService(
            runner,
            group_config,
            catalog,
            emit=events,
            persister=broker.persister,
            latest_offsets=broker.latest_offsets,
        )

    def on_effects(_partition: int, effects: Sequence[GroupEvent]) -> None:
        for event in effects:
            events(event)

    def figures(service: GroupService) -> Iterator[Family | None]:
        from kohort.server.metrics.coordinators import group_families

        gauges = yield from service.gauges_in_steps()
        yield from group_families(gauges, GroupCounters.total(counters.values()), counts)

    return Coordinator(
        name="group",
        serde=record_serde(),
        make_shard=make_shard,
        make_service=make_service,
        on_effects=on_effects,
        figures=figures,
        is_transactional=True,
        write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
        linger_ms=config.get_int("group.coordinator.append.linger.ms"),
        codec=codec_of(config, "offsets.topic.compression.codec"),
    )


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
