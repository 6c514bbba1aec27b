"""Points inside the brokers at which holds stop what goes on. Nobody asks at a point while no hold is about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kohort.control.cluster.inside import Inside
from kohort.control.requests.holds import (
    APPEND,
    COORDINATOR_LOAD,
    FETCH_COMPLETION,
    FLUSH,
    MARKER_WRITE,
    REBALANCE_COMPLETION,
    Hold,
)
from kohort.group.kinds import KINDS
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicPartition, coordinator_partition
from kohort.runtime.ports import HoldAt
from kohort.server.node import Node

Go = Callable[[], None]


class Points:
    """
    The points of one node.

    Args:
        holds: those that have not ended, in the order in which they are asked.
    """

    def __init__(self, node: Node, inside: Inside, holds: list[Hold]) -> None:
        self._node = node
        self._inside = inside
        self._holds = holds
        self._rebalances: set[str] = set()
        """The groups that are held."""
        self._passing: set[str] = set()
        """Groups that a hold has let go while it goes on: it must not take the same rebalance again."""

    def watch(self) -> None:
        """Have the brokers ask at the points that holds are about, and at no others."""
        points = {hold.spec.point for hold in self._holds}
        broker = self._inside.broker

        def at(point: str) -> HoldAt | None:
            return partial(self._at, point) if point in points else None

        broker.local_markers.hold = at(MARKER_WRITE)
        broker.partitions.hold_flushes(at(FLUSH))
        for apis in broker.apis.values():
            apis.produce.hold = at(APPEND)
            apis.fetch_broker.hold = at(FETCH_COMPLETION)
        for topic in INTERNAL_TOPICS:
            runtime = self._node.coordinators.runtime(topic)
            if runtime is not None:
                runtime.hold_load = partial(self._at_load, topic) if COORDINATOR_LOAD in points else None
        broker.hold_rebalance = self._at_rebalance if REBALANCE_COMPLETION in points else None
        if broker.hold_rebalance is None:
            self._passing.clear()

    def drop(self) -> None:
        """Forget the groups that are held: their coordinators begin anew."""
        self._rebalances.clear()
        self._passing.clear()

    def _at(self, point: str, place: TopicPartition, go: Go) -> bool:
        facts = {"topic": place.topic, "partition": place.partition}
        return any(hold.take_point(point, facts, str(place), go) for hold in self._holds)

    def _at_load(self, topic: str, partition: int, go: Go) -> bool:
        return self._at(COORDINATOR_LOAD, TopicPartition(topic, partition), go)

    def _at_rebalance(self, group: str) -> bool:
        if group in self._rebalances:
            return True
        if group in self._passing:
            self._passing.remove(group)
            return False
        for hold in self._holds:
            if hold.take_point(REBALANCE_COMPLETION, {"group": group}, group, partial(self._complete, hold, group)):
                self._rebalances.add(group)
                return True
        return False

    def _complete(self, hold: Hold, group: str) -> None:
        """Let a rebalance go. A group of members with heartbeats of KIP-848 goes on with the next of these."""
        self._rebalances.discard(group)
        if not hold.is_ended:
            self._passing.add(group)
        runtime: Any = self._node.coordinators.runtime(CONSUMER_OFFSETS)
        index = coordinator_partition(group, runtime.partition_count)
        for kind in KINDS:
            if (complete := kind.complete_held) is not None:
                runtime.write(index, lambda shard, now_ms, go=complete: go(shard, now_ms, group), _ignore, _ignore)


def _ignore(_answer: object) -> None:
    """Nobody asks for the outcome: a coordinator that has moved has forgotten the rebalance."""
