"""
A coordinator as data, and its host: a runtime with a shard on each partition of a topic, and the service of each broker.

The host makes both when they are needed: a start does without the rooms of coordinators whose topics do not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from kohort.broker.broker import Broker
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Handler
from kohort.machine.ports import Persister, Verification
from kohort.machine.shard import Deadlines, EndTransaction, Producer, RecordSerde, Shard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ConfigError, ErrorCode, error_code
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import ADAPTIVE
from kohort.runtime.processors import Processor
from kohort.runtime.states import State
from kohort.wire.apis import ApiKey
from kohort.wire.compression import Codec

if TYPE_CHECKING:
    from kohort.machine.shard import Runner
    from kohort.runtime.runner import Leads
    from kohort.runtime.runtime import Runtime
    from kohort.scrape import Family

S = TypeVar("S", bound=Shard[Any])


class Service(Protocol):
    """The APIs of a coordinator on one broker."""

    is_active: bool
    """Whether requests are answered; they are refused after the end."""

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handler of each API."""


V = TypeVar("V", bound=Service)


class Coordinator(msgspec.Struct, Generic[S, V], frozen=True, kw_only=True):
    """
    A coordinator as data. To add one: write a function that returns it, and an entry of it in
    `kohort.server.coordinators.entries.COORDINATORS`.

    Attributes:
        name: "group" for the metrics of the group coordinator.
        make_shard: returns a new shard for (runtime, partition, snapshot registry, deadlines).
        make_service: returns the service of one broker over the shards that it sees.
        figures: the metrics beside those of the runtime, as they are now, from a service that sees all shards; None between
            steps of work.
        is_transactional: whether clients write to the topic within transactions. If not, they may name it in a transaction,
            but it takes no markers.
        verification: returns the verifier of the transactions of producers, from a service that sees all shards.
        persister: returns the share coordinator, as others in this process ask it, from a service that sees all shards.
        on_effects, is_compacted, write_timeout_ms, load_buffer_bytes, linger_ms, codec: see `kohort.runtime.runtime.Runtime`.
    """

    name: str
    serde: RecordSerde[Any]
    make_shard: Callable[[Runtime[S], int, SnapshotRegistry, Deadlines], S]
    make_service: Callable[[Runner[S]], V]
    figures: Callable[[V], Iterator[Family | None]]
    on_effects: Callable[[int, Sequence[Any]], None] | None = None
    is_transactional: bool = False
    is_compacted: bool = True
    verification: Callable[[V], Verification] | None = None
    persister: Callable[[V], Persister] | None = None
    write_timeout_ms: int
    load_buffer_bytes: int
    linger_ms: int = ADAPTIVE
    codec: Codec = Codec.NONE


def codec_of(config: BrokerConfig, key: str) -> Codec:
    """
    The codec of a coordinator's batches.

    Raises:
        ConfigError: the configuration is not the number of a codec.
    """
    number = config.get_int(key)
    try:
        return Codec(number)
    except ValueError:
        known = ", ".join(f"{int(codec)} ({codec.name.lower()})" for codec in Codec)
        raise ConfigError(f"{key} is {number}; it must be one of {known}") from None


class CoordinatorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a node knows of a coordinator before it is needed.

    Attributes:
        topic: the internal topic that holds its records; a shard runs on each of the partitions.
        apis: those that it handles.
        make: imports and makes it.
        check: checks its configurations at the start. Raises: ConfigError.
        has_verification, has_persister: whether it has what these functions of `Coordinator` return.
    """

    topic: str
    apis: frozenset[ApiKey]
    make: Callable[[Broker], Coordinator[Any, Any]]
    check: Callable[[BrokerConfig], None] = lambda _config: None
    has_verification: bool = False
    has_persister: bool = False


class HostedCoordinator:
    """
    One coordinator, as the node sees it. The loop of the node calls everything here on its thread.

    Args:
        processor: over the node's event loop, for this coordinator alone.
    """

    def __init__(self, entry: CoordinatorEntry, broker: Broker, processor: Processor) -> None:
        self.entry = entry
        self.topic = entry.topic
        self._broker = broker
        self._processor = processor
        self._services: list[Service] = []
        """Of all brokers, and one that sees all shards."""
        self._is_closed = False

    @property
    def is_made(self) -> bool:
        """Whether the coordinator was needed."""
        return "runtime" in vars(self)

    @cached_property
    def _coordinator(self) -> Coordinator[Any, Any]:
        return self.entry.make(self._broker)

    @cached_property
    def runtime(self) -> Runtime[Any]:
        """The shards."""
        from kohort.runtime.runtime import Runtime

        coordinator, broker = self._coordinator, self._broker
        return Runtime(
            partition_count=broker.creation.internal_partition_count(self.topic),
            make_shard=lambda partition, registry, deadlines: coordinator.make_shard(
                self.runtime, partition, registry, deadlines
            ),
            serde=coordinator.serde,
            image=broker.catalog,
            clock=broker.clock,
            processor=self._processor,
            verify=self._verify,
            write_timeout_ms=coordinator.write_timeout_ms,
            linger_ms=coordinator.linger_ms,
            codec=coordinator.codec,
            load_buffer_bytes=coordinator.load_buffer_bytes,
            is_compacted=coordinator.is_compacted,
            on_effects=coordinator.on_effects,
        )

    @cached_property
    def _service(self) -> Any:
        """The service that sees all shards."""
        return self._make_service(self.runtime)

    def _make_service(self, runner: Runner[Any]) -> Service:
        service: Service = self._coordinator.make_service(runner)
        service.is_active = not self._is_closed
        self._services.append(service)
        return service

    @cached_property
    def verification(self) -> Verification | None:
        """See `kohort.broker.ports.CoordinatorDirectory`."""
        made = self._coordinator.verification
        return None if made is None else made(self._service)

    @cached_property
    def persister(self) -> Persister | None:
        """See `kohort.broker.ports.CoordinatorDirectory`."""
        made = self._coordinator.persister
        return None if made is None else made(self._service)

    def _verify(self, partition: int, producer: Producer, verified: Callable[[Exception | None], None]) -> None:
        self._broker.verification.verify(TopicPartition(self.topic, partition), producer, verified)

    def handlers(self, leads: Leads | None = None) -> Mapping[ApiKey, Handler]:
        """
        Make the handlers of the coordinator's APIs, for one broker.

        Args:
            leads: whether the broker leads a partition of the topic. None for a broker that leads all.
        """
        service: Service = self._service if leads is None else self._make_service(self.runtime.led_by(leads))
        handlers = service.handlers()
        assert handlers.keys() == self.entry.apis, self.topic
        return handlers

    def marker_writer(self, partition: int, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        """See `kohort.broker.ports.MarkerWriter`."""
        if self._coordinator.is_transactional:
            self.runtime.end_transaction(
                partition, end, lambda error: done(ErrorCode.NONE if error is None else error_code(error))
            )
        else:
            done(ErrorCode.NONE)

    @property
    def loading(self) -> int:
        """How many partitions are being loaded, or will be."""
        states = self.runtime.states().values() if self.is_made else ()
        return sum(state in (State.INITIAL, State.LOADING) for state in states)

    def metrics(self) -> Iterator[Family | None]:
        """The metrics of the coordinator and of its runtime, as they are now, and None between steps of work."""
        from kohort.server.metrics.coordinators import runtime_families

        yield from self._coordinator.figures(self._service)
        yield from runtime_families(self._coordinator.name, self.runtime.metrics())

    def close(self) -> None:
        """Unload everything; waiting requests are answered NOT_COORDINATOR. Later requests are refused."""
        self._is_closed = True
        for service in self._services:
            service.is_active = False
        if self.is_made:
            self.runtime.close()
