"""A client: it finds the leader of a partition, asks, and asks again until it knows the outcome or gives up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kohort.model.ids import TopicPartition
from kohort_lab.nodes.history import History, Operation
from kohort_lab.nodes.node import REFUSED, Answer, SimulatedNode
from kohort_lab.nodes.world import World

_TIMEOUT_S: Final = 1.5
_TRIES_MAX: Final = 40


class SimulatedClient:
    """
    Args:
        nodes: the processes that answer a client now; two may have one id.
        places: the partitions that are asked for.
        is_naive: whether the client believes each node of itself, so that it finds those that are wrong.
    """

    def __init__(
        self,
        name: str,
        world: World,
        history: History,
        nodes: Callable[[], Sequence[SimulatedNode]],
        places: Callable[[], Sequence[TopicPartition]],
        think_s: float,
        *,
        is_naive: bool,
    ) -> None:
        self._name = name
        self._world = world
        self._history = history
        self._nodes = nodes
        self._places = places
        self._think_s = think_s
        self._is_naive = is_naive
        self._count = 0
        self._leaders: dict[TopicPartition, int] = {}
        self.is_stopped = False
        self._next()

    def _next(self) -> None:
        if not self.is_stopped:
            self._world.after(self._world.chance.uniform(0, self._think_s), self._begin)

    def _begin(self) -> None:
        chance, places = self._world.chance, self._places()
        if self.is_stopped or not places:
            self._next()
            return
        place = chance.choice(places)
        operation = Operation(chance.random() < 0.5, place, self._world.now)
        if not operation.is_read:
            self._count += 1
            operation.value = f"{self._name}-{self._count}".encode()
        self._history.begin(operation)
        self._try(operation, 0)

    def _leader(self, place: TopicPartition, nodes: Sequence[SimulatedNode]) -> SimulatedNode | None:
        """A node that says that it leads the partition, or the one that any node says, now or earlier."""
        chance = self._world.chance
        if self._is_naive:
            leading = [node for node in nodes if node.leader_of(place) == node.node_id]
            return chance.choice(leading) if leading else None
        leader = self._leaders.get(place)
        if leader is None and nodes:
            leader = self._leaders[place] = chance.choice(nodes).leader_of(place)
        leading = [node for node in nodes if node.node_id == leader]
        return chance.choice(leading) if leading else None

    def _try(self, operation: Operation, tries: int) -> None:
        """Ask the leader; a read that is asked again is another one, which begins now."""
        world = self._world
        if self.is_stopped:
            return
        if tries >= _TRIES_MAX or (tries > 3 and world.chance.random() < 0.03):
            self._history.counts["given up"] += 1
            self._next()
            return
        nodes, place = self._nodes(), operation.place
        node = self._leader(place, nodes)
        is_ended = False

        def answered(answer: Answer) -> None:
            nonlocal is_ended
            if is_ended:
                return
            is_ended = True
            if answer.is_right:
                operation.answered, operation.offset = world.now, answer.offset
                operation.value = answer.value
                self._history.counts["read" if operation.is_read else "append"] += 1
                self._next()
            else:
                self._leaders.pop(place, None)
                world.after(world.chance.uniform(0.01, 0.3), partial(self._try, operation, tries + 1))

        if node is None:
            world.after(0.05, lambda: answered(REFUSED))
            return
        world.after(_TIMEOUT_S * world.chance.uniform(0.5, 1.5), lambda: answered(REFUSED))
        if operation.is_read:
            operation.invoked = world.now
            ask = partial(node.read, place, answered)
        else:
            ask = partial(node.append, place, operation.value, answered)
        world.after(world.latency_s(), partial(node.process.post, ask))
