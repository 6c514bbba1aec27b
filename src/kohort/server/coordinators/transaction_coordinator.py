"""The transaction coordinator as a node hosts it: shards on the partitions of `__transaction_state`, behind one service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kohort.broker.broker import Broker
from kohort.broker.features import TRANSACTION_VERSION
from kohort.machine.shard import Deadlines, Runner
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.runtime.runtime import Runtime
from kohort.server.coordinators.event_lines import EventLog
from kohort.server.coordinators.hosted_coordinator import Coordinator
from kohort.transaction.config import TransactionConfig
from kohort.transaction.context import TransactionContext
from kohort.transaction.effects import TransactionEffects
from kohort.transaction.events import MarkerRefused
from kohort.transaction.markers import MarkerSender
from kohort.transaction.metrics import TransactionCounters
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.service import TransactionService
from kohort.transaction.shard import TransactionShard

if TYPE_CHECKING:
    from kohort.scrape import Family

WRITE_TIMEOUT_MS: Final = 30_000
"""Source: request.timeout.ms of Kafka's brokers. Kafka waits for the timeout of the transaction, which a client chooses."""


def transaction_coordinator(broker: Broker) -> Coordinator[TransactionShard, TransactionService]:
    """The transaction coordinator of a node."""
    config = broker.config
    transaction_config = TransactionConfig(
        **{name: config.get_int(name.replace("_", ".")) for name in TransactionConfig.__struct_fields__}
    )
    senders: dict[int, MarkerSender] = {}
    contexts: dict[int, TransactionContext] = {}
    counters: defaultdict[int, TransactionCounters] = defaultdict(TransactionCounters)
    events = EventLog("kohort.transaction", warnings=(MarkerRefused,))
    level = partial(broker.features.level, TRANSACTION_VERSION)

    def make_shard(
        runtime: Runtime[TransactionShard], partition: int, registry: SnapshotRegistry, _deadlines: Deadlines
    ) -> TransactionShard:
        sender = senders[partition] = MarkerSender(
            runtime, partition, broker.markers, broker.catalog, broker.call_later, events
        )
        shard = TransactionShard(registry, transaction_config, broker.producer_ids, sender, level, counters[partition])
        contexts[partition] = shard.context
        return shard

    def remaining(partition: int, transactional_id: str) -> frozenset[TopicPartition] | None:
        sender = senders.get(partition)
        return None if sender is None else sender.remaining(transactional_id)

    def make_service(runner: Runner[TransactionShard]) -> TransactionService:
        return TransactionService(
            runner,
            transaction_config,
            broker.catalog,
            broker.producer_ids,
            remaining,
            broker.clock.now_ms,
            partial(broker.creation.internal_partition_count, CONSUMER_OFFSETS),
        )

    def figures(service: TransactionService) -> Iterator[Family | None]:
        from kohort.server.metrics.coordinators import transaction_families

        gauges = service.gauges()
        gauges.markers_waiting = sum(sender.waiting for sender in senders.values())
        gauges.markers_retrying = sum(sender.retrying for sender in senders.values())
        yield from transaction_families(gauges, TransactionCounters.total(counters.values()))

    return Coordinator(
        name="transaction",
        serde=TransactionRecordSerde(level),
        make_shard=make_shard,
        make_service=make_service,
        on_effects=TransactionEffects(contexts, events),
        figures=figures,
        verification=attrgetter("partitions"),
        write_timeout_ms=WRITE_TIMEOUT_MS,
        load_buffer_bytes=config.get_int("transaction.state.log.load.buffer.size"),
    )
