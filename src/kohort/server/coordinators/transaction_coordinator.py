"""The transaction coordinator as a node hosts it: shards on the partitions of `__transaction_state`, behind one service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.broker.features import TRANSACTION_VERSION
from kohort.broker.ports import Handler
from kohort.machine.ports import Verification
from kohort.machine.shard import EndTransaction, Runner
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from kohort.model.image import ClusterImage, ImageDelta
from kohort.runtime.ports import PartitionLog
from kohort.runtime.runtime import Runtime
from kohort.runtime.states import State
from kohort.runtime.timers.shard_timers import ShardTimers
from kohort.server.coordinators.interface import CoordinatorEnvironment
from kohort.server.coordinators.local_runner import Leads, LocalRunner
from kohort.server.coordinators.transaction_events import log_transaction_event
from kohort.transaction.config import TransactionConfig
from kohort.transaction.markers import MarkerSender
from kohort.transaction.metrics import TransactionCounters
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.service import TransactionService
from kohort.transaction.shard import TransactionShard
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.scrape import Family

WRITE_TIMEOUT_MS: Final = 30_000
"""Source: request.timeout.ms of Kafka's brokers. Kafka waits for the timeout of the transaction, which a client chooses."""


class TransactionCoordinator:
    """The `kohort.server.coordinators.interface.HostedCoordinator` of transactions."""

    topic = TRANSACTION_STATE

    def __init__(self, environment: CoordinatorEnvironment) -> None:
        self._broker = broker = environment.broker
        self._call_later = environment.call_later
        config = broker.config
        self._config = TransactionConfig(
            **{name: config.get_int(name.replace("_", ".")) for name in TransactionConfig.__struct_fields__}
        )
        self._senders: dict[int, MarkerSender] = {}
        self._counters: defaultdict[int, TransactionCounters] = defaultdict(TransactionCounters)
        self._runtime = Runtime(
            partition_count=broker.creation.internal_partition_count(self.topic),
            make_shard=self._make_shard,
            serde=TransactionRecordSerde(self._level),
            image=broker.catalog,
            clock=environment.clock,
            processor=environment.make_processor(),
            write_timeout_ms=WRITE_TIMEOUT_MS,
            load_buffer_bytes=config.get_int("transaction.state.log.load.buffer.size"),
        )
        self._clock = environment.clock
        self._service = self._make_service(self._runtime)
        self._services = [self._service]
        """Of all brokers, and one that sees all shards."""

    def _make_service(self, runner: Runner[TransactionShard]) -> TransactionService:
        return TransactionService(
            runner,
            self._config,
            self._broker.catalog,
            self._broker.producer_ids,
            self._remaining,
            self._clock.now_ms,
            partial(self._broker.creation.internal_partition_count, CONSUMER_OFFSETS),
        )

    def _level(self) -> int:
        return self._broker.features.level(TRANSACTION_VERSION)

    def _make_shard(self, partition: int, registry: SnapshotRegistry, timers: ShardTimers) -> TransactionShard:
        sender = self._senders[partition] = MarkerSender(
            self._runtime,
            partition,
            self._broker.markers,
            self._broker.catalog,
            self._call_later,
            log_transaction_event,
        )
        return TransactionShard(
            registry,
            timers,
            self._config,
            self._broker.producer_ids,
            sender,
            log_transaction_event,
            self._level,
            self._counters[partition],
        )

    def _remaining(self, partition: int, transactional_id: str) -> frozenset[TopicPartition] | None:
        sender = self._senders.get(partition)
        return None if sender is None else sender.remaining(transactional_id)

    def handlers(self, leads: Leads | None = None) -> Mapping[ApiKey, Handler]:
        if leads is None:
            return self._service.handlers()
        service = self._make_service(LocalRunner(self._runtime, leads))
        self._services.append(service)
        return service.handlers()

    def marker_writer(self, _partition: int, _end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        """Write nothing: a client may name this topic in a transaction, but it cannot write to it."""
        done(ErrorCode.NONE)

    @property
    def verification(self) -> Verification | None:
        return self._service.partitions

    def load(self, partition: int, log: PartitionLog, leader_epoch: int) -> None:
        self._runtime.load(partition, log, leader_epoch)

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        self._runtime.unload(partition, leader_epoch)

    def on_image(self, _image: ClusterImage, delta: ImageDelta) -> None:
        self._runtime.on_image(delta)

    def metrics(self) -> Iterator[Family | None]:
        from kohort.server.metrics import families, kafka

        gauges = self._service.gauges()
        gauges.markers_waiting = sum(sender.waiting for sender in self._senders.values())
        gauges.markers_retrying = sum(sender.retrying for sender in self._senders.values())
        runtime = self._runtime.metrics()
        yield from families.transaction_families(gauges, TransactionCounters.total(self._counters.values()))
        yield from families.runtime_families("transaction", runtime)
        yield from kafka.transaction_families(gauges)
        yield from kafka.runtime_families("transaction", runtime)

    @property
    def loading(self) -> int:
        return list(self._runtime.states().values()).count(State.LOADING)

    def close(self) -> None:
        for service in self._services:
            service.is_active = False
        self._runtime.close()
