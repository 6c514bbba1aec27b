"""A node's part in a cluster of several processes: the broker's parts, put together over a shared store."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID, uuid4

from kohort import __version__
from kohort.broker.broker import Broker
from kohort.broker.catalog.catalog import CATALOG
from kohort.broker.controller.controller import Controller
from kohort.broker.controller.leaderships import Leaderships
from kohort.broker.controller.leases import LeaseWatch
from kohort.broker.controller.member import Member
from kohort.broker.controller.registrations import NODE_KIND, Registrations
from kohort.broker.ports import Cancel
from kohort.model.errors import ConfigError, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Defer
from kohort.server.cluster.leased_transport import LeasedTransport
from kohort.server.cluster.processes import is_dead, this_process
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.listeners.addresses import ListenerAddress
from kohort.server.metrics.nodes import NodeFigures
from kohort.server.peers.login import inter_broker_listener, inter_broker_security
from kohort.server.peers.peering import Peering
from kohort.server.peers.peers import CatalogDirectory
from kohort.server.requests.dispatch import Dispatch
from kohort.storage.postgres.shared import SharedDatabase
from kohort.storage.postgres.store import PostgresStore
from kohort.storage.shared import Registration

_log = logging.getLogger("kohort.server")

DRAIN_SECONDS_MAX = 10.0
"""How long a stop waits until other nodes lead the partitions of this one."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has CLOCK_BOOTTIME. Where there is none, a machine that has slept renews its lease first."""
LOOK_S = 0.01
READY_LOG_S = 5.0
"""When a start that waits says why, and how often."""


class LostError(StorageError):
    """The node has lost its lease or its row while it started, and has to begin anew."""


def boot_seconds() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class Former:
    """
    What a process keeps of its parts in the cluster that have ended.

    Attributes:
        acknowledged: by log, the offset below which its records are acknowledged: the database must have them.
        incarnations: of these parts, which answer nothing any more.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[TopicPartition, UUID], int] = {}
        self.incarnations: set[UUID] = set()


class Membership:
    """
    Args:
        former: parts of this process before this one.
        on_lost: called with the reason when the node has to begin anew.
        on_refused: called with the reason when a new start does not help.
    """

    def __init__(
        self,
        broker: Broker,
        coordinators: Coordinators,
        store: PostgresStore,
        loop: asyncio.AbstractEventLoop,
        defer: Defer,
        former: Former,
        on_lost: Callable[[str], None],
        on_refused: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._store = store
        self._former = former
        self._coordinators = coordinators
        self._loop = loop
        self._defer = defer
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._refusal = ""
        self._peering: Peering | None = None
        self._database = SharedDatabase(store, CATALOG, former.acknowledged, self._on_database_lost)
        catalog, cluster = broker.catalog, broker.cluster
        registrations = Registrations(catalog, cluster)
        catalog.watch_settings(NODE_KIND, lambda _: self._on_nodes_changed())
        self._leaderships = Leaderships(cluster.node_id, self._database, catalog, defer, self._on_led)
        self.member = Member(
            cluster.node_id,
            uuid4(),
            self._registration,
            self._database,
            catalog,
            cluster,
            registrations,
            partial(self._controller, registrations),
            self._leaderships,
            self,
            is_dead=lambda row: row.incarnation in former.incarnations or is_dead(row.registration),
            seconds=boot_seconds,
            duration_s=self._database.read_lease_ms() / 1000,
            call_later=self._call_later,
        )

    def _controller(
        self, registrations: Registrations, watch: LeaseWatch, look_again: Callable[[], None]
    ) -> Controller:
        broker = self._broker
        return Controller(
            broker.cluster.node_id,
            self._database,
            broker.catalog,
            registrations,
            broker.replication,
            watch,
            self._call_later,
            look_again,
        )

    def _call_later(self, delay_ms: int, action: Callable[[], None]) -> Cancel:
        """In real time: leases are not those of a test."""
        return self._loop.call_later(delay_ms / 1000, self._defer, action).cancel

    def _registration(self) -> Registration:
        here = self._broker.cluster.here
        endpoints = {name: (endpoint.host, endpoint.port) for name, endpoint in here.endpoints.items()}
        return Registration(endpoints, here.rack, __version__, this_process())

    def _on_led(self, topic: str, index: int) -> None:
        if self._coordinators.is_hosted(topic):
            self._coordinators.load_one(topic, index)

    def _on_nodes_changed(self) -> None:
        """Nodes have come, gone or moved."""
        if self._peering is not None:
            self._peering.refresh()

    # -- what the member tells ---------------------------------------------------------------------------------

    def on_lost(self, reason: str, /) -> None:
        self._on_lost(reason)

    def on_refused(self, reason: str, /) -> None:
        self._refusal = reason
        self._on_refused(reason)

    def _on_database_lost(self, reason: str) -> None:
        self.member.lose(reason)

    # -- for the node ------------------------------------------------------------------------------------------

    def leased(self, transport: asyncio.Transport) -> asyncio.Transport:
        """The transport of a client's connection, which sends nothing without the lease."""
        member = self.member
        return LeasedTransport(transport, lambda: member.lease.is_held)

    def ask_others(self, addresses: Sequence[ListenerAddress], dispatch: Dispatch) -> None:
        """
        Ask the other nodes, and answer them.

        Args:
            addresses: of this node's listeners.
            dispatch: of its requests.

        Raises:
            ConfigError: no listener is for other nodes, or they cannot be asked there.
        """
        broker = self._broker
        config = broker.dynamic_configs.brokers[broker.cluster.node_id]
        address = inter_broker_listener(config, addresses)
        self._peering = Peering(
            broker,
            CatalogDirectory(broker.cluster, broker.catalog, address.name),
            address.name,
            partial(inter_broker_security, config, address),
            self._loop,
            self._defer,
            self.member.when_current,
        )
        self._peering.join(dispatch)

    async def join(self) -> None:
        """
        Join the cluster, and wait until this node answers for its partitions.

        Raises:
            ConfigError: another process has its id.
            LostError: the lease was lost meanwhile.
        """
        self.member.look()
        said_at = self._loop.time()
        while not self.member.is_ready:
            if self._refusal:
                raise ConfigError(self._refusal)
            self.check()
            if self._loop.time() - said_at > READY_LOG_S:
                said_at = self._loop.time()
                _log.warning("node.waits reason=%r", "; ".join(self.not_ready()))
            await asyncio.sleep(LOOK_S)

    def check(self) -> None:
        """Raises: LostError: this node has lost its part in the cluster."""
        if self.member.lost:
            raise LostError(self.member.lost)

    def not_ready(self) -> list[str]:
        """The reasons for which this node answers nothing now."""
        member = self.member
        if self._database.problem:
            return [self._database.problem]
        if not member.is_registered:
            return [
                "The node has not joined the cluster: it waits for the end of a lease, or for the controller to register it."
            ]
        if not member.lease.is_held:
            return ["The lease of the node has run out."]
        return []

    def figures(self, times_lost: int) -> NodeFigures:
        """The metrics of the node."""
        statements, batches, fenced = self._store.append_counts()
        return NodeFigures(
            self._broker.catalog.is_led,
            self.member.lease.left_s,
            self._leaderships.count,
            self._leaderships.waiting,
            self._broker.catalog.version,
            times_lost,
            fenced,
            statements,
            batches,
        )

    async def drain(self) -> None:
        """Let other nodes lead the partitions of this one."""
        self.member.drain()
        deadline = self._loop.time() + DRAIN_SECONDS_MAX
        while not self.member.is_drained and self.member.lease.is_held and self._loop.time() < deadline:
            await asyncio.sleep(LOOK_S)

    def close(self, timeout_s: float) -> None:
        """Close the store, and give the lease back."""
        self._stop()
        self._store.close()
        self.member.leave()
        self._database.close(timeout_s)

    def abandon(self, timeout_s: float) -> None:
        """
        As `close`, without waiting for what the store has not written: this node must not write any more. The part becomes
        a former one.
        """
        self._stop()
        self._former.acknowledged |= self._store.acknowledged()
        self._former.incarnations.add(self.member.incarnation)
        self._store.abandon()
        self.member.leave()
        self._database.close(timeout_s)

    def _stop(self) -> None:
        """Ask the other nodes nothing any more, and react to nothing."""
        if self._peering is not None:
            self._peering.close()
        self.member.stop()
