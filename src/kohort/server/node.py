"""
Composition of a node: builds the parts, starts them and stops them.

Order of the start: the store (which recovers after a crash), the catalog, the coordinators of the existing partitions, the
listener. Order of the stop: the listener, the requests that have begun (no connection is read any more; waiting Fetch requests
are answered with the records that there are), the coordinators (members that wait for their group are answered
NOT_COORDINATOR), the connections (replies that are ready are sent), the store.
"""

import asyncio
import gc
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from kohort.broker.broker import Broker
from kohort.broker.catalog.catalog import forward_batch
from kohort.broker.catalog.credentials import BrokerCredentials
from kohort.broker.cluster import Cluster, Endpoint, RegisteredBroker
from kohort.broker.configs.definitions import BROKER_KEYS
from kohort.broker.features import Features
from kohort.model.errors import ConfigError, ErrorCode, StorageError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.model.limits import HELD_BYTES_MAX
from kohort.server.connections.client_connections import ClientConnections, OpenConnection
from kohort.server.connections.connection_limits import ConnectionLimits, Descriptors
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.entries import COORDINATORS
from kohort.server.listeners.addresses import addresses_of_brokers
from kohort.server.listeners.broker_listeners import BrokerListeners
from kohort.server.listeners.listener import connections_max
from kohort.server.listeners.logins import Logins
from kohort.server.listeners.sessions import reauthentication
from kohort.server.logs import LogWriter
from kohort.server.requests.dispatch import Dispatch
from kohort.server.requests.slices import Slices
from kohort.server.requests.throttling import throttle_for
from kohort.server.settings import Settings
from kohort.server.stores import Content, disk_store, memory_store, new_cluster_id, shared_store
from kohort.server.turns import Turns
from kohort.server.virtual_time import VirtualClock, VirtualTimeDriver
from kohort.storage.log import LogStore
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.scrape import Family
    from kohort.security.credentials import Token
    from kohort.server.cluster.membership import Former, Membership
    from kohort.server.control import Control
    from kohort.server.virtual_brokers import VirtualBrokers
    from kohort.storage.logs.recovery import RecoveryProgress

_log = logging.getLogger("kohort.server")

_IS_BEGUN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""The answer for a topic that is being created."""
YOUNG_OBJECTS_MAX = 10_000
"""New objects that wait for a garbage collection."""
DRAIN_SECONDS_MAX = 5.0
"""How long a stop waits until the requests that have begun are answered; a flush may take as long (`FLUSH_MS_MIN`)."""
REJOIN_SECONDS_MIN = 0.2
REJOIN_SECONDS_MAX = 2.0
"""Between two attempts of a node to join the others again."""
ABANDON_SECONDS_MAX = 0.2
"""How long a node that has lost its lease waits for its threads."""
STOP_SECONDS_MAX = 1.0
"""How long it waits then until the sockets have taken the last replies."""


class Node:
    """
    The brokers of one process, on one event loop: one, or several virtual brokers over one store.

    Args:
        on_failure: called with the reason, a sentence, when a flush has failed. Nothing is acknowledged from then on; stop the
            node. The next start recovers the data on the disk.
        on_recovery: called with the progress of a recovery of the data directory.
        log: the writer of the log, for the metric of dropped lines.

    Raises:
        ConfigError: a configuration is invalid, or the data directory belongs to another node.
        StorageError: the data directory cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        on_failure: Callable[[str], None] = lambda _reason: None,
        on_recovery: "Callable[[RecoveryProgress], None]" = lambda _recovered: None,
        log: LogWriter | None = None,
    ) -> None:
        self._settings = settings
        self._on_failure = on_failure
        self._on_recovery = on_recovery
        self._log = log
        for key, hint in sorted(settings.config.unknown.items()):
            _log.warning("config.unknown key=%s hint=%r", key, hint)
        for key in sorted(name for name in settings.config.explicit if not BROKER_KEYS[name].has_effect):
            _log.warning("config.without_effect key=%s", key)
        self._loop = loop
        self.cluster_id = ""
        self._rejoining: asyncio.Task[None] | None = None
        self._is_starting = False
        self._times_lost = 0
        self._former: Former | None = None
        """Parts of this process in the cluster that have ended; None before the node joins again."""
        self._virtual_clock = VirtualClock(settings.virtual_from_ms) if settings.virtual_time else None
        self._build(settings)

    def _build(self, settings: Settings, content: Content = MappingProxyType({}), newer: bytes = b"") -> None:
        """
        Make the parts.

        Args:
            content: of the store in memory.
            newer: a batch of the catalog, behind its content.
        """
        self._settings = settings
        turns = self._turns = Turns(self._loop, self._virtual_clock)
        self._store = self._make_store(content, newer)
        self._cluster = self._make_cluster()
        self._coordinators = Coordinators(turns.defer)
        self._broker = Broker(
            self._store,
            self._cluster,
            settings.config,
            turns.clock,
            turns.call_later,
            coordinators=self._coordinators,
            features=Features(settings.features, release=settings.config.release),
            fetch_bytes_left=self._fetch_bytes_left,
            elsewhere=turns.elsewhere(turns.computations),
            elsewhere_reads=turns.elsewhere(turns.reads),
            elsewhere_searches=turns.elsewhere(turns.searches),
        )
        self._coordinators.start(COORDINATORS, self._broker, turns.processor)
        self._membership = self._make_membership()
        self._dispatches = {
            node_id: Dispatch(apis.handlers, self._broker.versions, {ApiKey.SASL_HANDSHAKE: reauthentication})
            for node_id, apis in self._broker.apis.items()
        }
        self._throttle_by_quotas()
        self._broker.quotas.on_change = self._throttle_by_quotas
        descriptors = Descriptors(connections_max())
        limits = {
            node_id: ConnectionLimits(config, descriptors)
            for node_id, config in self._broker.dynamic_configs.brokers.items()
        }
        held_bytes_max = settings.config.get_int("queued.max.request.bytes")
        self._connections = ClientConnections(
            self._dispatches,
            turns.ready_queue,
            Slices(turns.call_soon),
            limits,
            frame_bytes_max=settings.config.get_int("socket.request.max.bytes"),
            held_bytes_max=held_bytes_max if held_bytes_max > 0 else HELD_BYTES_MAX,
        )
        if self._membership is not None:
            self._connections.guard = self._membership.leased
        self._logins = Logins(
            turns.elsewhere(turns.logins),
            turns.clock.now_ms,
            BrokerCredentials(self._broker.catalog, settings.users, self._login_of_token),
            has_users=bool(settings.users),
        )
        configs = self._broker.dynamic_configs.brokers
        addresses = addresses_of_brokers(configs, settings.host, settings.port, settings.advertised, settings.protocol)
        if settings.users and not any(each.protocol.has_sasl for own in addresses.values() for each in own):
            raise ConfigError(
                "users are given, and no listener has SASL: give one of listeners SASL_PLAINTEXT or SASL_SSL"
            )
        if self._membership is not None:
            self._membership.ask_others(addresses[self._node_id], self._dispatches[self._node_id])
        self._listeners = {
            node_id: BrokerListeners(
                self._loop,
                self._cluster.brokers[node_id],
                configs[node_id],
                addresses[node_id],
                dispatch,
                self._connections,
                self._logins,
                limits[node_id],
                self._broker.quotas.connection_delay_ms,
                may_be_open=settings.allow_anonymous,
            )
            for node_id, dispatch in self._dispatches.items()
        }
        for node_id, listeners in self._listeners.items():
            self._broker.dynamic_configs.listener_checks[node_id] = listeners.check
        self.bound: dict[int, list[Endpoint]] = {}
        """By broker: the addresses of its listeners. Set by `start`."""
        self._control: Control | None = None
        self._registered = dict(self._cluster.brokers)
        self._metrics_server: asyncio.Server | None = None
        self._started_at_s = time.time()
        self._stop_idle_checks: Callable[[], None] | None = None

    def _fetch_bytes_left(self) -> int:
        return self._connections.fetch_bytes_left()

    def _login_of_token(self, token_id: str) -> "Token | None":
        return self._broker.tokens.login(token_id)

    def _throttle_by_quotas(self) -> None:
        """Wrap the handlers of the APIs that have a quota now, and no others."""
        for dispatch in self._dispatches.values():
            dispatch.throttle_by(partial(throttle_for, self._broker.quotas))

    # -- building ----------------------------------------------------------------------------------------------

    @property
    def _node_id(self) -> int:
        """The node id; 1 by default, as in Kafka's quick start. Kafka itself has no default."""
        return self._settings.config.get_int("node.id") if "node.id" in self._settings.config.explicit else 1

    def _make_cluster(self) -> Cluster:
        """The brokers: the ids that follow the first one's are those of the others."""
        settings = self._settings
        racks = settings.racks or (settings.config.get_str("broker.rack"),) * settings.brokers
        cluster = Cluster(self._node_id, self.cluster_id, rack=racks[0], is_shared=settings.store is not None)
        for number in range(1, settings.brokers):
            cluster.register(RegisteredBroker(self._node_id + number, racks[number]))
        return cluster

    def _make_store(self, content: Content, newer: bytes) -> LogStore:
        settings, turns = self._settings, self._turns
        if settings.store is not None:
            shared = shared_store(settings.store, turns, self._on_lost)
            self.cluster_id = shared.cluster_id
            return shared
        if settings.data_dir is not None:
            on_disk = disk_store(settings.data_dir, settings, self._node_id, turns, self._on_failure, self._on_recovery)
            self.cluster_id = on_disk.cluster_id
            return on_disk
        self.cluster_id = self.cluster_id or new_cluster_id()
        return memory_store(settings.config, turns, content, newer)

    def _make_membership(self) -> "Membership | None":
        """This node's part among others on the same store; None if the store is its own."""
        if self._settings.store is None:
            return None
        from kohort.server.cluster.membership import Former, Membership
        from kohort.storage.postgres import PostgresStore

        assert isinstance(self._store, PostgresStore), "the settings name a database"
        self._former = self._former or Former()
        return Membership(
            self._broker,
            self._coordinators,
            self._store,
            self._loop,
            self._turns.defer,
            self._former,
            self._on_lost,
            self._on_refused,
        )

    # -- start and stop ----------------------------------------------------------------------------------------

    async def start(self) -> tuple[str, int]:
        """
        Start serving and return the host and port of the listener.

        Raises:
            ConfigError: the address is not available.
        """
        self._is_starting = True
        try:
            await self._begin()
        except StorageError as error:
            if self._membership is None or not self._membership.member.lost:
                raise
            await self._rejoin(str(error))
        finally:
            self._is_starting = False
        host, port = self.bound[self._node_id][0]
        return host, port

    async def _begin(self) -> None:
        """
        Serve, or join and serve.

        Raises:
            ConfigError: the address is not available, or another process has the id of this node.
            StorageError: the lease was lost meanwhile.
        """
        settings = self._settings
        if self._membership is None:
            self._coordinators.load()
            while self._broker.replication.is_healing:
                await asyncio.sleep(0.001)
            if settings.makes_internal_topics:
                await self._make_internal_topics()
        self.bound = {node_id: listeners.bind() for node_id, listeners in self._listeners.items()}
        if settings.metrics_port is not None:
            from kohort.server.metrics.scraping import listen_for_scrapes

            self._metrics_server = await listen_for_scrapes(settings, self._metric_steps, self.not_ready)
        if self._membership is not None:
            # Clients and other nodes are told the addresses, and then they come.
            await self._membership.join()
            if settings.makes_internal_topics:
                await self._make_internal_topics()
            self._membership.check()
        self._close_idle_connections()
        for listeners in self._listeners.values():
            listeners.start()
        if settings.brokers > 1:
            from kohort.server.control import Control, control_path

            commands = {"stop": self.brokers.stop, "start": self.brokers.start}
            self._control = Control(control_path(self.cluster_id), commands)
            await self._control.start()

    async def _make_internal_topics(self) -> None:
        hosted = [name for name in INTERNAL_TOPICS if self._coordinators.is_hosted(name)]
        begun = [name for name in hosted if self._broker.creation.auto_create(name) is _IS_BEGUN]
        while self._coordinators.loading or any(self._broker.catalog.topic(name) is None for name in begun):
            if self._membership is not None:
                self._membership.check()
            await asyncio.sleep(0.001)

    @property
    def broker(self) -> Broker:
        """The brokers and what they share, for the testing kit."""
        return self._broker

    @property
    def virtual_time(self) -> VirtualTimeDriver | None:
        """The clock that tests let go on; None with a real one."""
        return self._turns.virtual_time

    @property
    def brokers(self) -> "VirtualBrokers":
        """The brokers, to stop and start them."""
        from kohort.server.virtual_brokers import VirtualBrokers

        return VirtualBrokers(self._registered, self._broker, self._listeners, self._connections)

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of the brokers."""
        return self._coordinators

    @property
    def dispatches(self) -> Mapping[int, Dispatch]:
        """The routes of each broker, by its id."""
        return self._dispatches

    def metrics(self) -> Iterator["Family"]:
        """The families of metrics as they are now; docs/metrics.md lists them."""
        return (family for family in self._metric_steps() if family is not None)

    def _metric_steps(self) -> Iterator["Family | None"]:
        from kohort.server.metrics.collection import node_families

        yield from node_families(
            self._broker,
            self._connections,
            self._logins,
            self._coordinators,
            self._turns.clock,
            self._log,
            self._started_at_s,
        )
        if self._membership is not None:
            from kohort.server.metrics.nodes import membership_families

            yield from membership_families(self._membership.figures(self._times_lost))

    def not_ready(self) -> list[str]:
        """The reasons for which clients should not use the node now; empty if it is ready."""
        reasons = []
        if self._stop_idle_checks is None:
            reasons.append("The broker is starting.")
        if self._connections.is_draining:
            reasons.append("The broker is stopping.")
        if loading := self._coordinators.loading:
            reasons.append(f"{loading} partitions of coordinators are being loaded.")
        if problem := self._store.volume().problem:
            reasons.append(problem)
        if self._membership is not None:
            reasons += self._membership.not_ready()
        return reasons

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics listener; None without one."""
        return None if self._metrics_server is None else int(self._metrics_server.sockets[0].getsockname()[1])

    @property
    def location(self) -> str:
        """The place of the logs: the path of the data directory, the address of the database, or `memory`."""
        return self._store.location

    @property
    def missing_data(self) -> str | None:
        """A sentence about data that the stop found missing."""
        return self._store.missing_data

    @property
    def control_path(self) -> Path | None:
        """The socket that takes the commands of `kohort brokers`; None without one."""
        return None if self._control is None else self._control.path

    @property
    def connections(self) -> list[OpenConnection]:
        """The open connections."""
        return list(self._connections.open)

    async def stop(self) -> None:
        """Stop in order; on return the data directory is closed cleanly, unless a file of it is missing."""
        if self._rejoining is not None:
            self._rejoining.cancel()
        if self._membership is not None:
            await self._membership.drain()
        if self._control is not None:
            await self._control.close()
        for listeners in self._listeners.values():
            await listeners.close()
        if self._stop_idle_checks is not None:
            self._stop_idle_checks()
        await self._drain()
        self._coordinators.close()
        self._turns.background.close(waits=True)
        self._broker.partitions.deletions.end_all()
        self._turns.ready_queue.run()
        for connection in list(self._connections.open):
            connection.close()
        deadline = self._loop.time() + STOP_SECONDS_MAX
        while (self._connections.open or self._connections.closing) and self._loop.time() < deadline:
            await asyncio.sleep(0)
        self._connections.abort_all()
        if self._metrics_server is not None:
            self._metrics_server.close()
        self._turns.close()
        if self._membership is None:
            self._store.close()
        else:
            self._membership.close(STOP_SECONDS_MAX)

    # -- nodes that share a store ------------------------------------------------------------------------------

    def _on_refused(self, reason: str) -> None:
        """A start raises it; a node that runs, or joins again, cannot go on."""
        if self._stop_idle_checks is not None:
            self._on_failure(reason)

    def _on_lost(self, reason: str) -> None:
        """Another node may answer for the partitions of this one: begin anew, as after a start, unless a start is under way."""
        self._times_lost += 1
        if self._rejoining is None and not self._is_starting:
            self._connections.abort_all()
            self._rejoining = self._loop.create_task(self._rejoin(reason))
            self._rejoining.add_done_callback(self._on_rejoined)

    def _on_rejoined(self, task: asyncio.Task[None]) -> None:
        self._rejoining = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("node.not_rejoined", exc_info=error)
            self._on_failure(f"the node could not join the others again: {error}")
        elif self._membership is not None and self._membership.member.lost:
            self._on_lost(self._membership.member.lost)

    async def _rejoin(self, reason: str) -> None:
        _log.error("node.rejoins reason=%r", reason)
        listeners, settings = self._listeners, self._settings_of_now()
        self._abandon()
        pause_s = REJOIN_SECONDS_MIN
        while True:
            for each in listeners.values():
                await each.close()
            try:
                self._build(settings)
                for node_id, each in self._listeners.items():
                    each.use_addresses(listeners[node_id])
                await self._begin()
            except (ConfigError, StorageError) as error:
                _log.warning("node.cannot_rejoin error=%r", str(error))
                listeners = self._listeners
                self._abandon()
            else:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, REJOIN_SECONDS_MAX)

    def _abandon(self) -> None:
        """Stop without an answer to anyone."""
        self._connections.abort_all()
        if self._stop_idle_checks is not None:
            self._stop_idle_checks()
        self._coordinators.close()
        self._turns.background.close(waits=False)
        self._turns.close_request_threads(waits=False)
        self._turns.ready_queue.run()
        self._connections.abort_all()
        self._turns.close()
        if self._metrics_server is not None:
            self._metrics_server.close()
        if self._membership is not None:
            self._membership.abandon(ABANDON_SECONDS_MAX)

    # -- snapshots, for tests of clients -----------------------------------------------------------------------

    def content(self) -> Content:
        """
        What the node has stored.

        Raises:
            ConfigError: it is not in memory.
        """
        from kohort.storage.memory import MemoryStore

        if not isinstance(self._store, MemoryStore):
            raise ConfigError("only a broker in memory has snapshots: start it with --memory")
        self._broker.partitions.deletions.end_all()
        self._turns.ready_queue.run()
        self._store.flush()
        return self._store.content()

    async def restore(self, content: Content) -> None:
        """
        Go on with what the node had stored once, as after a restart: connections are cut, leader epochs are higher than any
        before, and producer ids do not come again. The addresses stay, and so does virtual time.

        Raises:
            ConfigError: as `content`.
        """
        self.content()
        catalog, listeners = self._broker.catalog, self._listeners
        newer = forward_batch(catalog.starts, catalog.next_producer_id, self._turns.clock.now_ms())
        settings = self._settings_of_now()
        self._connections.abort_all()
        await self.stop()
        self._build(settings, content, bytes(newer))
        for node_id, each in self._listeners.items():
            each.use_addresses(listeners[node_id])
        await self.start()

    async def _drain(self) -> None:
        """Give the requests that have begun some time, as Kafka finishes them; then drop the work on them."""
        connections = self._connections
        slices = connections.slices
        connections.drain()
        deadline = self._loop.time() + DRAIN_SECONDS_MAX
        while self._loop.time() < deadline:
            self._broker.fetches.complete_all()
            self._turns.ready_queue.run()
            if not len(slices) and not connections.has_begun_requests:
                break
            await asyncio.sleep(0.001)
        slices.close()
        self._turns.close_request_threads(waits=True)

    def _settings_of_now(self) -> Settings:
        """The settings with the port of metrics that was taken, for parts that are made anew."""
        if self.metrics_port is None:
            return self._settings
        return msgspec.structs.replace(self._settings, metrics_port=self.metrics_port)

    def _close_idle_connections(self) -> None:
        idle_ms = self._settings.config.get_int("connections.max.idle.ms")
        idle_seconds_max = idle_ms / 1000 if idle_ms >= 0 else math.inf
        self._connections.close_idle(self._turns.seconds(), idle_seconds_max)
        seconds = idle_check_seconds(idle_seconds_max)
        self._stop_idle_checks = self._turns.call_in(seconds, self._close_idle_connections)


def idle_check_seconds(idle_seconds_max: float) -> float:
    """The interval of checks for idle connections. These are closed at most two intervals late: 5 % of the time, or 0.01 s."""
    return min(max(idle_seconds_max / 40, 0.005), 5.0)


def configure_garbage_collector() -> None:
    """
    Exempt the objects of the start from garbage collection, and collect less often. A collection of the start itself finds a
    hundred objects and takes a twentieth of its time.

    A collection visits all objects of a generation, and holds the event loop. 10 000 take at most 3 ms; 100 000 of a long
    request took up to 27 ms. Every third collection visits the middle generation, too, some 30 000 objects: a load of offsets
    filled it with five million, which took 300 ms. All objects are visited after 500 million new ones. `kohort serve` collects
    nothing before this call; a node in a process of others does without. Benchmarks of parts of the server call it, too.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 1, 25_000)
    gc.enable()
