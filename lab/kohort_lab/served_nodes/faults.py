"""Faults of nodes, of their connections to the database, and of the database."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Final

from kohort_lab.served_nodes.processes import Node, NodesOnStore

STALL_S: Final = (0.2, 1.5)
"""Parts of a lease: a stall may end before or after it."""
DOWN_S: Final = 0.5

Wait = Callable[[float], None]


class Faults:
    """
    Causes one fault at a time, and ends it.

    Args:
        lease_s: the duration of leases.
    """

    def __init__(self, cluster: NodesOnStore, lease_s: float, rng: random.Random) -> None:
        self._cluster = cluster
        self._lease_s = lease_s
        self._rng = rng
        self.kinds: dict[str, Callable[[Node], None]] = {
            "kill": self._kill,
            "kill of the controller": lambda _node: self._kill(cluster.nodes[cluster.controller]),
            "pause shorter than the lease": lambda node: self._pause(node, 0.2, 0.8),
            "pause longer than the lease": lambda node: self._pause(node, 1.2, 2.0),
            "orderly stop": self._stop,
            "restart of the database": lambda _node: self._restart(signal.SIGINT),
            "crash of the database": lambda _node: self._restart(signal.SIGQUIT),
        }
        if all(node.proxy is not None for node in cluster.nodes.values()):
            self.kinds |= {
                "cut connection to the database": self._cut,
                "stalled connection to the database": self._stall,
            }
        self._next: list[str] = []

    def cause(self) -> str:
        """Cause a fault, as often of each kind as of the others; return its kind."""
        if not self._next:
            self._next = self._rng.sample(list(self.kinds), len(self.kinds))
        kind = self._next.pop()
        self.kinds[kind](self._rng.choice(self._cluster.running))
        return kind

    def _kill(self, node: Node) -> None:
        node.kill()
        # Shorter and longer than the lease: others take over, or the node comes back before.
        time.sleep(self._rng.choice((0.0, self._rng.uniform(0, 2 * self._lease_s))))
        node.spawn()
        node.wait()

    def _pause(self, node: Node, shortest: float, longest: float) -> None:
        node.pause()
        time.sleep(self._rng.uniform(shortest, longest) * self._lease_s)
        node.resume()

    def _stop(self, node: Node) -> None:
        node.stop()
        time.sleep(self._rng.uniform(0, DOWN_S))
        node.spawn()
        node.wait()

    def _restart(self, how: signal.Signals) -> None:
        self._cluster.database.stop(how)
        time.sleep(self._rng.uniform(0, DOWN_S))
        self._cluster.database.start()

    def _cut(self, node: Node) -> None:
        assert node.proxy is not None, "the kind needs one"
        node.proxy.cut = self._rng.choice(("request", "answer"))
        time.sleep(self._rng.uniform(0, DOWN_S))

    def _stall(self, node: Node) -> None:
        assert node.proxy is not None, "the kind needs one"
        node.proxy.stall()
        time.sleep(self._rng.uniform(*STALL_S) * self._lease_s)
        node.proxy.flow()
