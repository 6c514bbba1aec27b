"""Faults of nodes, of their connections to the database and to each other, and of the database."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from kohort_lab.bounded import filled
from kohort_lab.cutting_proxy import Cut, CuttingProxy
from kohort_lab.served_nodes.processes import Node, NodesOnStore, Proxies
from kohort_lab.served_nodes.replicated import ReplicatedDatabase

DOWN_S: Final = 0.5
HIT_S: Final = 0.5
"""The time in which something is sent through most proxies."""
TRIES: Final = 10
FULL_S: Final = 30.0
_FULL: Final = "No space left on device"


class NotCausedError(Exception):
    """Nothing was cut, stalled or refused."""


class Kind(NamedTuple):
    """
    A kind of fault.

    Attributes:
        begin: returns what ends it. Raises NotCausedError.
        shortest_s, longest_s: until it is ended. A part of a lease may be before or after its end.
    """

    begin: Callable[[], Callable[[], None]]
    shortest_s: float
    longest_s: float


class Faults:
    """
    One fault at a time, as often of each kind as of the others.

    Args:
        lease_s: the duration of leases.

    Attributes:
        counts: of the faults that were begun.
    """

    def __init__(self, cluster: NodesOnStore, database: ReplicatedDatabase, lease_s: float, rng: random.Random) -> None:
        self._cluster = cluster
        self._database = database
        self._rng = rng
        self.kinds: dict[str, Kind] = {
            "SIGKILL of a node": Kind(lambda: self._kill(self._any()), 0, 2 * lease_s),
            "SIGKILL of the controller": Kind(lambda: self._kill(cluster.nodes[cluster.controller]), 0, 2 * lease_s),
            "SIGSTOP, shorter than the lease": Kind(self._pause, 0.2 * lease_s, 0.8 * lease_s),
            "SIGSTOP, longer than the lease": Kind(self._pause, 1.2 * lease_s, 2 * lease_s),
            "orderly stop": Kind(self._stop, 0, DOWN_S),
            "restart of the database": Kind(lambda: self._restart(signal.SIGINT), 0, DOWN_S),
            "crash of the database": Kind(lambda: self._restart(signal.SIGQUIT), 0, DOWN_S),
            "primary killed, standby promoted": Kind(self._promote, 0, DOWN_S),
            "cut connection to the database": Kind(lambda: self._cut(_to_database), 0, 0),
            "cut connection of peers": Kind(lambda: self._cut(_to_node), 0, 0),
            "stalled connections to the database": Kind(
                lambda: self._stall(_to_database), 0.2 * lease_s, 1.5 * lease_s
            ),
            "stalled connections of peers": Kind(lambda: self._stall(_to_node), 0.2 * lease_s, 1.5 * lease_s),
        }
        if database.primary.space is not None:
            self.kinds["full table space"] = Kind(self._fill, 0, DOWN_S)
        self.counts: Counter[str] = Counter()
        self._next: list[str] = []

    def begin(self) -> tuple[str, Callable[[], None]]:
        """
        Begin a fault; return its kind, and what ends it.

        Raises:
            NotCausedError.
        """
        if not self._next:
            self._next = self._rng.sample(list(self.kinds), len(self.kinds))
        kind = self._next.pop()
        end = self.kinds[kind].begin()
        self.counts[kind] += 1
        return kind, end

    def check(self) -> None:
        """Raises: NodeFailedError: a node has ended by itself."""
        for node in self._cluster.nodes.values():
            node.check()

    def cause(self) -> str:
        """Begin a fault and end it; return its kind. Raises: NotCausedError."""
        kind, end = self.begin()
        _, shortest_s, longest_s = self.kinds[kind]
        time.sleep(self._rng.choice((shortest_s, self._rng.uniform(shortest_s, longest_s))))
        end()
        return kind

    def _any(self) -> Node:
        return self._rng.choice(self._cluster.running)

    def _kill(self, node: Node) -> Callable[[], None]:
        node.kill()
        return lambda: self._cluster.start([node.node_id])

    def _pause(self) -> Callable[[], None]:
        node = self._any()
        node.pause()
        return node.resume

    def _stop(self) -> Callable[[], None]:
        node = self._any()
        node.stop()
        return lambda: self._cluster.start([node.node_id])

    def _restart(self, how: signal.Signals) -> Callable[[], None]:
        self._database.stop(how)
        return self._database.start

    def _promote(self) -> Callable[[], None]:
        self._database.primary.kill()
        return self._database.promote

    def _cut(self, of: Callable[[Proxies], CuttingProxy]) -> Callable[[], None]:
        sides: tuple[Cut, ...] = ("request", "answer")
        side = self._rng.choice(sides)

        def cut(proxy: CuttingProxy) -> None:
            proxy.cut = side

        return self._hit(of, cut).flow

    def _stall(self, of: Callable[[Proxies], CuttingProxy]) -> Callable[[], None]:
        return self._hit(of, CuttingProxy.stall).flow

    def _hit(self, of: Callable[[Proxies], CuttingProxy], begin: Callable[[CuttingProxy], None]) -> CuttingProxy:
        """The proxy of a node with which something was begun, and through which something was sent then."""
        for node in self._rng.choices(self._cluster.running, k=TRIES):
            assert node.proxies is not None, "the database is replicated"
            proxy = of(node.proxies)
            before = proxy.hits
            begin(proxy)
            if _is_soon(lambda proxy=proxy, before=before: proxy.hits > before, HIT_S):  # type: ignore[misc]
                return proxy
            proxy.flow()
        raise NotCausedError("nothing is sent between nodes, or to the database")

    def _fill(self) -> Callable[[], None]:
        primary = self._database.primary
        assert primary.space is not None, "the kind needs one"
        begun = len(primary.log)
        with ExitStack() as full:
            full.enter_context(filled(primary.space))
            if not _is_soon(lambda: _FULL in primary.log[begun:], FULL_S):
                raise NotCausedError("the table space is full, and nothing was refused")
            return full.pop_all().close


def _to_database(proxies: Proxies) -> CuttingProxy:
    return proxies.database


def _to_node(proxies: Proxies) -> CuttingProxy:
    return proxies.peers


def _is_soon(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
