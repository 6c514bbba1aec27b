"""A node: the parts of the product for many nodes on one store, and a service of appends and reads in each partition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.controller.controller import Controller
from kohort.broker.controller.leaderships import Leaderships
from kohort.broker.controller.leases import Lease, LeaseWatch
from kohort.broker.controller.member import Member
from kohort.broker.controller.registrations import NODE_KIND, Registrations
from kohort.broker.partitions.replicas import NO_LEADER
from kohort.broker.partitions.replication import ReplicationControl
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta
from kohort.storage.shared import NodeRow, Registration
from kohort_lab.nodes.database import Database
from kohort_lab.nodes.history import NodeGuaranteeError
from kohort_lab.nodes.store import SimulatedLog, SimulatedStore
from kohort_lab.nodes.world import Process, World

LEASE_S: Final = 6.0
DRAIN_MS_MAX: Final = 10_000
_POLL_MS: Final = 10
_RESTART_MS: Final = 100
_CONFIGS: Final = TopicConfigs(BrokerConfig())


class Answer(NamedTuple):
    """
    What a client is told.

    Attributes:
        offset: of the value; of a read the last offset, -1 if the log is empty.
    """

    is_right: bool
    offset: int = -1
    value: bytes = b""


REFUSED: Final = Answer(is_right=False)
Reply: TypeAlias = Callable[[Answer], None]


class Surroundings(NamedTuple):
    """
    What a node meets.

    Attributes:
        is_dead: whether a process of another one's machine has ended, as a machine knows it.
        on_applied: called when a node has applied a change of the catalog: identity of the database, version, and the change.
        notify: tells the other nodes that the catalog has changed.
        on_taken: called with the row of a node that is about to lose it.
    """

    world: World
    database: Database
    is_dead: Callable[[Process, NodeRow], bool]
    on_applied: Callable[[int, int, str], None]
    notify: Callable[[Process], None]
    on_taken: Callable[[NodeRow], None]
    loss: float


class SimulatedNode:
    """
    A process that is a node. It begins anew, as another incarnation, when it has lost its row or the catalog.

    Attributes:
        member, catalog, store: of the present incarnation.
        refusal: the reason if it has ended because another process has its id.
    """

    member: Member
    catalog: Catalog
    store: SimulatedStore
    controller: Controller

    def __init__(self, surroundings: Surroundings, node_id: int, process: Process) -> None:
        self.node_id: Final = node_id
        self.process: Final = process
        self.refusal = ""
        self.is_draining = False
        self.losses = 0
        self.reasons: list[str] = []
        self._surroundings = surroundings
        self._waiting: dict[SimulatedLog, list[tuple[int, Reply]]] = {}
        self._begin()

    def _begin(self) -> None:
        around, process = self._surroundings, self.process
        cluster = self.cluster = Cluster(self.node_id, "simulation", is_shared=True)
        catalog = self.catalog = Catalog(None, process, cluster)
        self._identity = around.database.identity
        self.store = SimulatedStore(
            f"{process.name}.{self.losses}",
            process,
            around.database,
            lambda: around.notify(process),
            around.on_taken,
            lambda: self._lose("another database"),
            around.loss,
        )
        registrations = Registrations(catalog, cluster)
        replication = ReplicationControl(catalog, _CONFIGS, cluster)
        leaderships = Leaderships(self.node_id, self.store, catalog, process.defer, self._on_led)

        def controller(watch: LeaseWatch, look_again: Callable[[], None]) -> Controller:
            self.controller = Controller(
                self.node_id,
                self.store,
                catalog,
                registrations,
                replication,
                watch,
                process.call_later,
                look_again,
            )
            return self.controller

        self.member = Member(
            self.node_id,
            UUID(int=around.world.chance.getrandbits(128)),
            lambda: Registration({"PLAINTEXT": (process.name, 9092)}, process=f"{process.machine} {process.name}"),
            self.store,
            catalog,
            cluster,
            registrations,
            controller,
            leaderships,
            self,
            is_dead=partial(around.is_dead, process),
            seconds=process.seconds,
            duration_s=LEASE_S,
            call_later=process.call_later,
        )
        identity = self._identity
        catalog.watch(lambda delta: around.on_applied(identity, catalog.version, _text(catalog, delta)))
        catalog.watch_settings(
            NODE_KIND,
            lambda settings: around.on_applied(identity, -catalog.version, msgspec.json.encode(settings).decode()),
        )
        self.member.look()

    # -- what the member tells ---------------------------------------------------------------------------------

    def on_lost(self, reason: str, /) -> None:
        self.losses += 1
        self.reasons.append(reason)
        self.store.on_hint = lambda: None
        self.member.leave()
        self.store.close()
        self._waiting.clear()
        if not self.is_draining:
            self.process.call_later(_RESTART_MS, self._begin)
        else:
            self.process.kill()

    def on_refused(self, reason: str, /) -> None:
        self.refusal = reason
        self.process.kill()
        if "another process" not in reason:
            raise NodeGuaranteeError(f"{self.process.name}: {reason}")

    def _lose(self, reason: str) -> None:
        self.member.lose(reason)

    def hint(self) -> None:
        """Another node has changed the catalog."""
        self.store.on_hint()

    # -- stops -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop in an orderly way: other nodes lead first."""
        if not self.is_draining:
            self.is_draining = True
            self.member.drain()
            self._poll(0)

    def _poll(self, waited_ms: int) -> None:
        member = self.member
        if member.is_drained or not member.lease.is_held or waited_ms >= DRAIN_MS_MAX:
            member.leave()
            self.store.close()
            self.process.call_later(1_000, self.process.kill)
        else:
            self.process.call_later(_POLL_MS * 10, lambda: self._poll(waited_ms + _POLL_MS * 10))

    # -- requests ----------------------------------------------------------------------------------------------

    def leader_of(self, place: TopicPartition) -> int:
        """The leader as this node's view has it."""
        topic = self.catalog.topic(place.topic)
        return NO_LEADER if topic is None else self.catalog.state(topic, place.partition).leader

    def _log_of(self, place: TopicPartition) -> SimulatedLog | None:
        """The log of a partition that this node leads. Source: `kohort.broker.partitions.partitions`."""
        topic, log = self.catalog.topic(place.topic), self.store.logs.get(place)
        if topic is None or log is None or log.refusal is not None or log.topic_id != topic.topic_id:
            return None
        state = self.catalog.state(topic, place.partition)
        return log if (state.leader, state.leader_epoch) == (self.node_id, log.leader_epoch) else None

    def _on_led(self, _topic: str, _index: int) -> None:
        """The log was loaded with the claim."""

    def append(self, place: TopicPartition, value: bytes, reply: Reply) -> None:
        """Append a value once, however often it is asked for."""
        log = self._log_of(place)
        if log is None:
            self._answer(reply, REFUSED)
            return
        offset = log.places.get(value)
        if offset is None:
            offset = log.append_value(value)
        if offset < log.high_watermark:
            self._answer(reply, Answer(True, offset, value))
            return
        waiting = self._waiting.get(log)
        if waiting is None:
            waiting = self._waiting[log] = []
            log.add_listener(partial(self._on_high_watermark, log))
        waiting.append((offset, reply))

    def _on_high_watermark(self, log: SimulatedLog, high_watermark: int) -> None:
        waiting = self._waiting.get(log, [])
        self._waiting[log] = [each for each in waiting if each[0] >= high_watermark]
        for offset, reply in waiting:
            if offset < high_watermark:
                self._answer(reply, Answer(True, offset, log.values[offset]))

    def read(self, place: TopicPartition, reply: Reply) -> None:
        """Read all of a log; the answer has its last record."""
        log = self._log_of(place)
        if log is None:
            self._answer(reply, REFUSED)
            return
        last = log.high_watermark - 1
        self._answer(reply, Answer(True, last, log.values[last] if last >= 0 else b""))

    def _answer(self, reply: Reply, answer: Answer) -> None:
        """Let an answer leave in a later turn, if the lease is held then."""
        lease = self.member.lease
        self._surroundings.world.after(0.0001, lambda: self.process.post(partial(self._send, lease, reply, answer)))

    def _send(self, lease: Lease, reply: Reply, answer: Answer) -> None:
        if lease.is_held:
            self._surroundings.world.after(self._surroundings.world.latency_s(), partial(reply, answer))


def _text(catalog: Catalog, delta: ImageDelta) -> str:
    """A change of topics as a text that can be compared."""
    changed = [(each.name, catalog.topic(each.name)) for each in (*delta.created, *delta.changed)]
    return f"{changed} without {[each.name for each in delta.deleted]}"
