"""
The simulation of nodes that share a store: faults at random times from a seed, and the guarantees that hold whatever happens.

- One process writes in each leader epoch of a log.
- No acknowledged record is lost, doubled or reordered. No read is answered that an earlier acknowledged operation should have
  changed. No acknowledged change of the catalog is lost.
- The catalog is one history: at each offset every node has seen the same change.
- Within two lease times after the last fault every partition has a leader that appends and reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from kohort.broker.catalog.catalog import CATALOG, CATALOG_ID, Catalog
from kohort.broker.catalog.view import CatalogChange, Setting, Topic
from kohort.broker.cluster import Cluster
from kohort.broker.controller.leases import MARGIN
from kohort.broker.partitions.replicas import first_state, placed
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.shared import NodeRow
from kohort.testing.simulation import SimulationError
from kohort_lab.nodes.client import SimulatedClient
from kohort_lab.nodes.database import Database
from kohort_lab.nodes.history import History, NodeGuaranteeError, Operation
from kohort_lab.nodes.node import LEASE_S, Answer, SimulatedNode, Surroundings
from kohort_lab.nodes.world import Process, World

LIVENESS_S: Final = 2 * LEASE_S * (1 + MARGIN) + 1.0
"""How long after the last fault a partition may be without a leader."""
RATE_OFF: Final = 0.045
"""How far the rate of a clock is off at most: two clocks then differ by less than the margin of a lease."""
_TEST_KIND: Final = "simulated"
_PROBE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """
    Args:
        nodes: how many there are, at most.
        seconds: how long faults happen.
        pause_s: between two faults, on average.
        loss: the share of statements whose answer is lost.
        rate_off: of clocks, at most.
    """

    nodes: int = 3
    seconds: float = 40.0
    pause_s: float = 2.5
    loss: float = 0.01
    rate_off: float = RATE_OFF


CALM: Final = NodeFaults(pause_s=4.0, loss=0.003)
STORM: Final = NodeFaults(nodes=4, pause_s=1.2, loss=0.04)
LONG: Final = NodeFaults(nodes=2, seconds=60.0)


class NodeSimulation:
    """The database, the nodes, the clients, and the moves of the simulation."""

    def __init__(self, seed: int, faults: NodeFaults | None = None, database: Database | None = None) -> None:
        chance = Random(seed)
        self.faults = faults = faults or chance.choice((CALM, STORM, LONG))
        self.chance = chance
        self.world = World(chance)
        self.database = database or Database()
        self.history = History()
        self.moves: list[str] = []
        self.processes: dict[str, Process] = {}
        self.nodes: list[SimulatedNode] = []
        self._around = Surroundings(
            self.world, self.database, self._is_dead, self._on_applied, self._notify, self._on_taken, faults.loss
        )
        self._applied: dict[int, dict[int, str]] = {0: {}}
        self._rates: dict[int, float] = {}
        self._hints = chance.choice((0.2, 0.9))
        self._changes = self._probes = 0
        self.topics: dict[str, int] = {}
        for node_id in range(1, faults.nodes + 1):
            self.world.after(chance.choice((0.0, chance.uniform(0, 3))), partial(self.start, node_id))
        think_s = chance.choice((0.1, 0.6))
        self.clients = [
            SimulatedClient(
                f"client{number}",
                self.world,
                self.history,
                self._reachable,
                self._places,
                think_s,
                is_naive=number > 0,
            )
            for number in range(3)
        ]
        self._create("first", 2)
        self._create("second", 2)

    # -- what nodes meet ---------------------------------------------------------------------------------------

    def _is_dead(self, asker: Process, row: NodeRow) -> bool:
        machine, name = row.registration.process.split()
        return machine == asker.machine and not self.processes[name].is_alive

    def _on_applied(self, identity: int, version: int, change: str) -> None:
        """Compare what nodes have applied at one offset of the catalog."""
        seen = self._applied[identity].setdefault(version, change)
        _promise(
            seen == change, f"the catalog at offset {abs(version)} is\n  {seen}\nfor one node, for another\n  {change}"
        )

    def _notify(self, process: Process) -> None:
        for node in self.nodes:
            if node.process is not process and node.process.is_alive and self.chance.random() < self._hints:
                self.world.after(self.world.latency_s(), partial(node.process.post, node.hint))

    def _on_taken(self, row: NodeRow) -> None:
        """A process that stands still goes on sometimes, in the moment in which its lease is about to be ended."""
        process = self.processes[row.registration.process.split()[1]]
        if process.is_paused and self.chance.random() < 0.5:
            self.world.after(self.world.latency_s() * self.chance.choice((0, 1, 2)), process.resume)

    def _reachable(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.process.is_alive]

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name, count in self.topics.items() for index in range(count)]

    # -- moves -------------------------------------------------------------------------------------------------

    def start(self, node_id: int, machine: str | None = None) -> SimulatedNode:
        """Start a process that is a node."""
        chance = self.chance
        rate = self._rates.setdefault(node_id, 1 + chance.uniform(-1, 1) * self.faults.rate_off)
        name = f"node{node_id}.{len(self.processes)}"
        process = self.processes[name] = Process(self.world, name, machine or f"machine{node_id}", rate)
        node = SimulatedNode(self._around, node_id, process)
        self.nodes.append(node)
        return node

    def _running(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.process.is_alive and not node.is_draining]

    def _kill(self) -> None:
        if running := self._running():
            self.chance.choice(running).process.kill()

    def _start_stopped(self) -> None:
        """Start a node that has stopped, on its machine or on another one."""
        stopped = set(range(1, self.faults.nodes + 1)) - {node.node_id for node in self._running()}
        if stopped:
            self.start(self.chance.choice(sorted(stopped)), self.chance.choice((None, None, "other")))

    def _start_second(self) -> None:
        """Start a second process with the id of one that runs."""
        if running := self._running():
            self.start(self.chance.choice(running).node_id, self.chance.choice((None, "other")))

    def _pause(self) -> None:
        if running := self._running():
            seconds = self.chance.choice((0.5, 2.0, LEASE_S, LEASE_S * 1.2, 2 * LEASE_S)) * self.chance.uniform(
                0.7, 1.3
            )
            self.chance.choice(running).process.pause(seconds, is_suspended=self.chance.random() < 0.3)

    def _pause_controller(self) -> None:
        for node in self._running():
            if node.catalog.is_led:
                node.process.pause(self.chance.uniform(0.1, 2 * LEASE_S))

    def _drain(self) -> None:
        if len(running := self._running()) > 1:
            node = self.chance.choice(running)
            node.process.post(node.stop)

    def _mark(self) -> None:
        """An operator drains a node, and lets it lead again later."""
        node_id = self.chance.randrange(1, self.faults.nodes + 1)
        self.database.mark_drained(node_id, is_drained=True)
        self.world.after(self.chance.uniform(0.5, 8), partial(self.database.mark_drained, node_id, is_drained=False))

    def _cut(self) -> None:
        """All statements of a node fail for some time."""
        if running := self._running():
            store = self.chance.choice(running).store
            store.loss = 1.0
            self.world.after(self.chance.choice((1.0, 4.0, 9.0)), lambda: setattr(store, "loss", self.faults.loss))

    def _slow(self) -> None:
        """One of the connections of a node is slow for some time."""
        if running := self._running():
            connection = self.chance.choice(self.chance.choice(running).store.connections)
            connection.delay_s = self.chance.choice((0.2, 1.0, 3.0))
            self.world.after(self.chance.uniform(1, 10), lambda: setattr(connection, "delay_s", 0.0))

    def _freeze(self) -> None:
        """The standby does not follow for some time; then it does, or it takes the place of the primary."""
        if not self.database.is_frozen:
            self.database.freeze()
            self.world.after(self.chance.uniform(0.01, 3.0), self.chance.choice((self.database.thaw, self._promote)))

    def _promote(self) -> None:
        before = self._applied[self.database.identity]
        self.database.promote()
        end = self.database.catalog().next_offset
        self._applied[self.database.identity] = {at: change for at, change in before.items() if abs(at) <= end}

    def _controllers(self) -> list[SimulatedNode]:
        return [node for node in self._reachable() if node.catalog.is_led and not node.process.is_paused]

    def _change(self) -> None:
        """Change a setting."""
        for node in self._controllers():
            self._changes += 1
            name = f"change-{self._changes}"

            def done(code: ErrorCode, name: str = name, node: SimulatedNode = node) -> None:
                if not code and node.member.lease.is_held:
                    self.history.changes.append(name)

            setting = Setting(_TEST_KIND, name, {"at": self._changes})
            node.process.post(partial(node.catalog.change, CatalogChange(settings=(setting,)), done))

    def _create(self, name: str, count: int) -> None:
        """Create a topic as soon as there is a controller."""
        for node in self._controllers():
            active = node.cluster.active
            if node.controller.is_active and active:
                factor = self.chance.choice((1, 1, min(2, len(active)), len(active)))
                replicas = placed([(each, None) for each in active], count, factor, 0, node.cluster.is_active)
                states = tuple(first_state(each, node.cluster.is_active) for each in replicas)
                topic = Topic(name, UUID(int=self.chance.getrandbits(128)), count, partitions=states)

                def done(code: ErrorCode) -> None:
                    if not code:
                        self.topics[name] = count

                node.process.post(partial(self._put, node, topic, done))
                self.world.after(1.0, lambda: None if name in self.topics else self._create(name, count))
                return
        self.world.after(0.2, lambda: self._create(name, count))

    @staticmethod
    def _put(node: SimulatedNode, topic: Topic, done: Callable[[ErrorCode], None]) -> None:
        if node.catalog.topic(topic.name) is not None:
            done(ErrorCode.NONE)
        elif node.catalog.newest(topic.name) is None:
            node.catalog.change(CatalogChange(put=(topic,)), done)

    def _move(self) -> None:
        moves: dict[str, tuple[float, Callable[[], None]]] = {
            "pause": (4, self._pause),
            "pause controller": (2, self._pause_controller),
            "kill": (2, self._kill),
            "start": (4, self._start_stopped),
            "second": (0.7, self._start_second),
            "drain": (2, self._drain),
            "mark": (1, self._mark),
            "cut": (2, self._cut),
            "slow": (3, self._slow),
            "restart": (0.7, self.database.restart),
            "freeze": (1, self._freeze),
            "promote": (0.3, self._promote),
            "change": (3, self._change),
        }
        name = self.chance.choices(list(moves), [weight for weight, _ in moves.values()])[0]
        self.moves.append(f"{self.world.now:.2f} {name}")
        self.history.counts[name] += 1
        moves[name][1]()

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """
        Let faults happen, then let everything settle, and check the guarantees.

        Raises:
            NodeGuaranteeError: a guarantee was broken.
        """
        world = self.world
        while world.now < self.faults.seconds:
            world.run(self.chance.uniform(0, 2 * self.faults.pause_s))
            self._move()
        self.moves.append(f"{world.now:.2f} finish")
        self._finish()

    def _finish(self) -> None:
        world = self.world
        world.is_calm = True
        self.database.thaw()
        for node_id in self.database.nodes:
            self.database.mark_drained(node_id, is_drained=False)
        self._around = self._around._replace(loss=0.0)
        for node in self.nodes:
            node.store.loss = 0.0
        world.run(2 * LEASE_S, lambda: not any(node.process.is_paused for node in self._reachable()))
        world.run(max(world.last_late - world.now, 0.0))
        if not self._running():
            self._start_stopped()
        for node in self.nodes:
            node.store.loss = 0.0
        since = world.now
        answered: set[tuple[TopicPartition, bool]] = set()
        wanted = {(place, is_read) for place in self._places() for is_read in (False, True)}
        while answered < wanted:
            if world.now > since + LIVENESS_S:
                raise NodeGuaranteeError(self._stuck(sorted(wanted - answered)))
            if not self._running():
                # A late renewal of a dead process can refuse the next one, which its host starts again.
                self._start_stopped()
                since = world.now
            for place, is_read in sorted(wanted - answered):
                self._probe(place, is_read, answered)
            world.run(_PROBE_S)
        self.history.counts["settled_ms"] = max(self.history.counts["settled_ms"], round((world.now - since) * 1000))
        for client in self.clients:
            client.is_stopped = True
        world.run(1.0)
        self._check()

    def _probe(self, place: TopicPartition, is_read: bool, answered: set[tuple[TopicPartition, bool]]) -> None:
        for node in self._reachable():
            if node.leader_of(place) != node.node_id:
                continue
            self._probes += 1
            value = b"" if is_read else f"probe {self._probes}".encode()
            operation = Operation(is_read, place, self.world.now, value)
            self.history.begin(operation)

            def reply(answer: Answer, operation: Operation = operation) -> None:
                if answer.is_right:
                    operation.answered, operation.offset, operation.value = self.world.now, answer.offset, answer.value
                    answered.add((place, is_read))

            if is_read:
                node.process.post(partial(node.read, place, reply))
            else:
                node.process.post(partial(node.append, place, value, reply))

    def _stuck(self, places: list[tuple[TopicPartition, bool]]) -> str:
        lines = [f"{places} have no leader that answers {self.world.now:.2f}"]
        for node in self._reachable():
            member = node.member
            lines.append(
                f"  {node.process.name}: registered {member.is_registered}, lease {member.lease.is_held}, "
                f"version {node.catalog.version}, leads the catalog {node.catalog.is_led}, draining {node.is_draining}, "
                f"leads {[str(place) for place, _ in places if node.leader_of(place) == node.node_id]}, "
                f"logs {[(str(place), log.refusal) for place, log in node.store.logs.items()]}"
            )
        lines += [f"  {row}" for row in self.database.nodes.values()]
        lines.append(f"  {self.database.catalog()}")
        return "\n".join(lines)

    def _check(self) -> None:
        database = self.database
        logs = {
            place: [data for _, data in row.batches] for (place, _), row in database.logs.items() if place != CATALOG
        }
        self.history.check(logs)
        whole = Catalog(None, Process(self.world, "check", "check"), Cluster(0, "check", is_shared=True))
        row = database.logs[CATALOG, CATALOG_ID]
        whole.follow(b"".join(data for _, data in row.batches), row.next_offset)
        settings = whole.settings(_TEST_KIND)
        lost = [name for name in self.history.changes if name not in settings]
        _promise(not lost, f"the catalog has lost the acknowledged changes {lost}")
        for node in self._running():
            if node.member.is_ready:
                ours = {topic.name: topic for topic in node.catalog.topics()}
                _promise(
                    node.catalog.version != whole.version or ours == {topic.name: topic for topic in whole.topics()},
                    f"{node.process.name} has another catalog than its log",
                )


def _promise(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise NodeGuaranteeError(otherwise)


def simulate_nodes(
    seed: int,
    faults: NodeFaults | None = None,
    *,
    repeat: str = "simulate_nodes({seed})",
    database: Database | None = None,
) -> NodeSimulation:
    """
    Let faults happen at random times, chosen by the seed, and check the guarantees.

    Args:
        faults: one of three weathers by default, chosen by the seed.
        repeat: the command that repeats a failure, with `{seed}` in it.
        database: with other fences, for tests of the simulation.

    Raises:
        SimulationError: a guarantee was broken.
    """
    simulation = NodeSimulation(seed, faults, database)
    try:
        simulation.run()
    except Exception as error:
        raise SimulationError.of(error, simulation.moves, seed, repeat) from error
    return simulation
