"""The share coordinator as a node hosts it: shards on the partitions of `__share_group_state`, behind one service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kohort.broker.broker import Broker
from kohort.broker.features import SHARE_VERSION
from kohort.machine.shard import Deadlines, Runner
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.ids import SHARE_GROUP_STATE
from kohort.runtime.runtime import Runtime
from kohort.server.coordinators.hosted_coordinator import Coordinator, codec_of
from kohort.share.config import ShareConfig
from kohort.share.metrics import ShareMetrics
from kohort.share.records import ShareRecordSerde
from kohort.share.service import ShareService
from kohort.share.shard import ShareShard
from kohort.share.upkeep import Pruned

if TYPE_CHECKING:
    from kohort.scrape import Family


def share_coordinator(broker: Broker) -> Coordinator[ShareShard, ShareService]:
    """The share coordinator of a node."""
    config = broker.config
    share_config = ShareConfig(
        **{name: config.get_int(name.replace("_", ".")) for name in ShareConfig.__struct_fields__}
    )
    level = partial(broker.features.level, SHARE_VERSION)
    metrics = ShareMetrics()

    def make_shard(
        _runtime: Runtime[ShareShard], _partition: int, registry: SnapshotRegistry, _deadlines: Deadlines
    ) -> ShareShard:
        return ShareShard(registry, share_config, broker.catalog, level)

    def make_service(runner: Runner[ShareShard]) -> ShareService:
        return ShareService(runner, broker.clock.now_ms, metrics)

    def on_effects(partition: int, effects: Sequence[Pruned]) -> None:
        found = broker.partitions.find(SHARE_GROUP_STATE, partition)
        if found is not None:
            metrics.pruned[partition] = max(effect.offset for effect in effects)
            found.log.delete_before(metrics.pruned[partition])

    def figures(service: ShareService) -> Iterator[Family | None]:
        from kohort.server.metrics.coordinators import share_families

        yield from share_families(sum(service.counts()), metrics)

    return Coordinator(
        name="share",
        serde=ShareRecordSerde(),
        make_shard=make_shard,
        make_service=make_service,
        on_effects=on_effects,
        figures=figures,
        persister=lambda service: service,
        is_compacted=False,
        write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
        load_buffer_bytes=config.get_int("share.coordinator.load.buffer.size"),
        linger_ms=config.get_int("share.coordinator.append.linger.ms"),
        codec=codec_of(config, "share.coordinator.state.topic.compression.codec"),
    )
