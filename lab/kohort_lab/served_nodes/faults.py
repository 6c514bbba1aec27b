"""Faults of nodes, of their connections to the database and to each other, and of the database."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Final

from kohort_lab.bounded import filled
from kohort_lab.checks import CheckError
from kohort_lab.cutting_proxy import Cut, CuttingProxy
from kohort_lab.served_nodes.processes import Node, NodesOnStore, Proxies
from kohort_lab.served_nodes.replicated import ReplicatedDatabase

STALL_S: Final = (0.2, 1.5)
"""Parts of a lease: a stall may end before or after it."""
DOWN_S: Final = 0.5
HIT_S: Final = 2.0
"""The time in which something is sent through most proxies."""
TRIES: Final = 20
FULL_S: Final = 30.0
_FULL: Final = "No space left on device"


class Faults:
    """
    Causes one fault at a time, and ends it.

    Args:
        lease_s: the duration of leases.
    """

    def __init__(self, cluster: NodesOnStore, database: ReplicatedDatabase, lease_s: float, rng: random.Random) -> None:
        self._cluster = cluster
        self._database = database
        self._lease_s = lease_s
        self._rng = rng
        self.kinds: dict[str, Callable[[], None]] = {
            "SIGKILL of a node": lambda: self._kill(self._any()),
            "SIGKILL of the controller": lambda: self._kill(cluster.nodes[cluster.controller]),
            "SIGSTOP, shorter than the lease": lambda: self._pause(0.2, 0.8),
            "SIGSTOP, longer than the lease": lambda: self._pause(1.2, 2.0),
            "orderly stop": self._stop,
            "restart of the database": lambda: self._restart(signal.SIGINT),
            "crash of the database": lambda: self._restart(signal.SIGQUIT),
            "primary killed, standby promoted": self._promote,
            "cut connection to the database": lambda: self._cut(lambda proxies: proxies.database),
            "stalled connections to the database": lambda: self._stall(lambda proxies: proxies.database),
            "cut connection of peers": lambda: self._cut(lambda proxies: proxies.peers),
            "stalled connections of peers": lambda: self._stall(lambda proxies: proxies.peers),
        }
        if database.primary.space is not None:
            self.kinds["full table space"] = self._fill
        self._next: list[str] = []

    def cause(self) -> str:
        """
        Cause a fault, as often of each kind as of the others; return its kind.

        Raises:
            CheckError: nothing was cut, stalled or refused.
        """
        if not self._next:
            self._next = self._rng.sample(list(self.kinds), len(self.kinds))
        kind = self._next.pop()
        self.kinds[kind]()
        return kind

    def _any(self) -> Node:
        return self._rng.choice(self._cluster.running)

    def _kill(self, node: Node) -> None:
        node.kill()
        # Shorter and longer than the lease: others take over, or the node comes back before.
        time.sleep(self._rng.choice((0.0, self._rng.uniform(0, 2 * self._lease_s))))
        node.spawn()
        node.wait()

    def _pause(self, shortest: float, longest: float) -> None:
        node = self._any()
        node.pause()
        time.sleep(self._rng.uniform(shortest, longest) * self._lease_s)
        node.resume()

    def _stop(self) -> None:
        node = self._any()
        node.stop()
        self._wait()
        node.spawn()
        node.wait()

    def _wait(self) -> None:
        time.sleep(self._rng.uniform(0, DOWN_S))

    def _restart(self, how: signal.Signals) -> None:
        self._database.stop(how)
        self._wait()
        self._database.start()

    def _promote(self) -> None:
        self._database.primary.kill()
        self._wait()
        self._database.promote()

    def _cut(self, of: Callable[[Proxies], CuttingProxy]) -> None:
        sides: tuple[Cut, ...] = ("request", "answer")
        side = self._rng.choice(sides)

        def cut(proxy: CuttingProxy) -> None:
            proxy.cut = side

        self._hit(of, cut).flow()

    def _stall(self, of: Callable[[Proxies], CuttingProxy]) -> None:
        proxy = self._hit(of, CuttingProxy.stall)
        time.sleep(self._rng.uniform(*STALL_S) * self._lease_s)
        proxy.flow()

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
        raise CheckError("nothing is sent between nodes, or to the database")

    def _fill(self) -> None:
        primary = self._database.primary
        assert primary.space is not None, "the kind needs one"
        begun = len(primary.log)
        with filled(primary.space):
            if not _is_soon(lambda: _FULL in primary.log[begun:], FULL_S):
                raise CheckError("the table space is full, and nothing was refused")
            self._wait()


def _is_soon(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
