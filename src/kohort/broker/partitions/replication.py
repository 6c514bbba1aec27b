"""
The controller's part of replication: which broker leads a partition when brokers stop, start, or are told to by an admin.

Every change is one of the catalog, made from its newest view, and takes effect everywhere when it is durable.

Source: Kafka ReplicationControlManager.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeAlias

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.cluster import Cluster, RegisteredBroker
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.controller.placement import balanced, leader_counts, least_loaded
from kohort.broker.partitions.replicas import NO_LEADER, Election, PartitionState, adopted, caught_up, change, led_by
from kohort.model.errors import ErrorCode

_log = logging.getLogger("kohort.broker")

PARTITIONS_STEP: Final = 500
"""Partitions that are looked at in one step."""

Transition: TypeAlias = Callable[[PartitionState, int], PartitionState]
"""`transition(state, min_isr) -> state`; the same object if nothing changes."""


class ReplicationControl:
    """Leaders and in-sync replicas of all partitions."""

    def __init__(self, catalog: Catalog, configs: TopicConfigs, cluster: Cluster) -> None:
        self._catalog = catalog
        self._configs = configs
        self._cluster = cluster
        self._is_active = cluster.is_active
        self.is_healing = False
        """Whether the changes of the start are not durable yet. Until then partitions may be shown without a leader."""

    def min_isr(self, topic: Topic) -> int:
        """`min.insync.replicas` of a topic."""
        value = self._configs.parsed("min.insync.replicas", topic.configs)
        return value if isinstance(value, int) else 1

    # -- brokers -----------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """At the start all brokers run: bring partitions back whose replicas were stopped when the process ended."""
        if len(self._cluster.brokers) == 1 and not any(topic.partitions for topic in self._catalog.topics()):
            return
        self.is_healing = True
        for _ in self.settle(self._on_healed):
            pass

    def _on_healed(self, _code: ErrorCode) -> None:
        self.is_healing = False

    def fence(self, node_id: int, done: Callable[[ErrorCode], None]) -> Generator[None, None, None]:
        """
        Move the leaders of a broker that stops, and take it out of all ISRs, in steps.

        Args:
            done: called once, when the changes are durable, or with the error of one that could not be written.
        """
        self._cluster.brokers[node_id].is_fenced = True
        _log.info("broker.fenced broker=%d", node_id)
        yield from self.settle(done)

    def unfence(self, broker: RegisteredBroker, done: Callable[[ErrorCode], None]) -> Generator[None, None, None]:
        """
        Take a broker back into the ISRs of its partitions, and let it lead those without a leader, in steps.

        Args:
            done: as for `fence`.
        """
        self._cluster.register(broker)
        broker.is_fenced = False
        _log.info("broker.unfenced broker=%d", broker.node_id)
        yield from self.settle(done)

    def settle(self, done: Callable[[ErrorCode], None]) -> Generator[None, None, None]:
        """
        Let every partition have a leader that runs, and the in-sync replicas that run, in steps. If no replica runs, a node of
        a shared store takes the place of the first one: all have everything. The brokers of one process are as Kafka's there.

        Args:
            done: as for `fence`.
        """
        counts: Counter[int] = Counter()
        if self._cluster.is_shared:
            counts = leader_counts(self._newest_states(), self._cluster.active)

        def settled(state: PartitionState, min_isr: int) -> PartitionState:
            new = caught_up(state, self._is_active, min_isr=min_isr)
            broker = least_loaded(counts) if new.leader == NO_LEADER else NO_LEADER
            if broker != NO_LEADER:
                new = adopted(new, broker, self._is_active, min_isr=min_isr)
            if new.leader != state.leader and new.leader in counts:
                counts[new.leader] += 1
            return new

        yield from self._apply(settled, done)

    def balance(self, done: Callable[[ErrorCode], None]) -> Generator[None, None, None]:
        """
        Spread the leaders evenly over the brokers that run, in steps.

        Args:
            done: as for `fence`.
        """
        active = self._cluster.active
        counts = leader_counts(self._newest_states(), active)
        pending = _Pending(done)
        for name in list(self._catalog.newest_names()):
            topic = self._catalog.newest(name)
            if topic is None:
                continue
            states = list(self._catalog.states(topic))
            moves = balanced(states, active, counts)
            min_isr = self.min_isr(topic)
            for index, broker in moves:
                states[index] = led_by(states[index], broker, self._is_active, min_isr=min_isr)
            if moves:
                self._write([self._catalog.with_states(topic, states)], pending)
            yield
        pending.end()

    def _newest_states(self) -> Iterable[PartitionState]:
        for name in self._catalog.newest_names():
            topic = self._catalog.newest(name)
            if topic is not None:
                yield from self._catalog.states(topic)

    # -- transitions of all partitions -------------------------------------------------------------------------

    def _apply(self, transition: Transition, done: Callable[[ErrorCode], None]) -> Generator[None, None, None]:
        """Apply a transition to all partitions, some at a time."""
        pending = _Pending(done)
        names = list(self._catalog.newest_names())
        changed: list[Topic] = []
        visited = 0
        for name in names:
            topic = self._catalog.newest(name)
            if topic is None:
                continue
            moved = yield from self._moved(topic, transition)
            if moved is not None:
                changed.append(moved)
            visited += topic.partition_count
            if visited >= PARTITIONS_STEP:
                self._write(changed, pending)
                changed, visited = [], 0
                yield
        self._write(changed, pending)
        pending.end()

    def _write(self, changed: Iterable[Topic], pending: _Pending) -> None:
        put = tuple(changed)
        if put:
            pending.begin()
            self._catalog.change(CatalogChange(put=put), pending.on_done)

    def _moved(self, topic: Topic, transition: Transition) -> Generator[None, None, Topic | None]:
        """As `moved`, in steps; begins again if the topic changes between two of them."""
        newest: Topic | None = topic
        while newest is not None:
            topic, min_isr = newest, self.min_isr(newest)
            states: list[PartitionState] = []
            has_changed = False
            for index in range(topic.partition_count):
                if index and index % PARTITIONS_STEP == 0:
                    yield
                    newest = self._catalog.newest_by_id(topic.topic_id)
                    if newest is not topic:
                        break
                state = self._catalog.state(topic, index)
                states.append(transition(state, min_isr))
                has_changed |= states[-1] is not state
            else:
                return self._catalog.with_states(topic, states) if has_changed else None
        return None

    def moved(self, topic: Topic, transition: Transition, index: int) -> Topic | None:
        """A topic after a transition of one partition; None if nothing changes."""
        states = list(self._catalog.states(topic))
        new = transition(states[index], self.min_isr(topic))
        if new is states[index]:
            return None
        states[index] = new
        return self._catalog.with_states(topic, states)

    # -- admins ------------------------------------------------------------------------------------------------

    def elect(self, topic: Topic, index: int, election: Election) -> tuple[ErrorCode, Topic]:
        """
        Elect the leader of a partition. Returns an error, or the topic to write.

        Source: ReplicationControlManager.electLeader.
        """
        state = self._catalog.state(topic, index)
        if (state.leader == state.replicas[0]) if election is Election.PREFERRED else state.leader >= 0:
            return ErrorCode.ELECTION_NOT_NEEDED, topic
        moved = self.moved(topic, lambda state, min_isr: self._elected(state, min_isr, election), index)
        if moved is not None:
            return ErrorCode.NONE, moved
        if election is Election.PREFERRED:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, topic
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, topic

    def _elected(self, state: PartitionState, min_isr: int, election: Election) -> PartitionState:
        led = change(state, self._is_active, min_isr=min_isr, election=election)
        return state if led is state else caught_up(led, self._is_active, min_isr=min_isr)


class _Pending:
    """Counts changes that are written, and tells when the last one is durable."""

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done
        self._count = 1
        self._code = ErrorCode.NONE

    def begin(self) -> None:
        self._count += 1

    def on_done(self, code: ErrorCode) -> None:
        self._code = self._code or code
        self.end()

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self._done(self._code)
