"""Three nodes in the place of one broker, for checks that kill, pause and stop it: each fault meets one of the nodes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from kohort_lab.database import Database
from kohort_lab.served_nodes.processes import Node, NodesOnStore

LEASE_MS = 2_000


class NodesAsBroker:
    """
    As `kohort.testing.served.ServedKohort`.

    Attributes:
        data_dir: of the logs of the nodes; their data is in the database.
        expected: has no meaning here.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], rng: random.Random) -> None:
        self.data_dir = directory
        self.expected: list[str] = []
        self._settings = settings
        self._rng = rng
        self._closing = ExitStack()
        self._cluster: NodesOnStore | None = None
        self._chosen: Node | None = None

    def __enter__(self) -> Self:
        with ExitStack() as closing:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            database = Database().make_store(LEASE_MS)
            closing.callback(database.close)
            self._cluster = closing.enter_context(NodesOnStore(database, self.data_dir, settings=self._settings))
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def _nodes(self) -> NodesOnStore:
        assert self._cluster is not None, "the context was entered"
        return self._cluster

    @property
    def bootstrap(self) -> str:
        return self._nodes.bootstrap

    def _choose(self) -> Node:
        for node in self._nodes.nodes.values():
            node.check()
        self._chosen = self._rng.choice(self._nodes.running)
        return self._chosen

    def kill(self) -> None:
        self._choose().kill()

    def stop(self) -> None:
        self._choose().stop()

    def start(self) -> None:
        """Start the node that was killed or stopped last."""
        assert self._chosen is not None, "it was chosen"
        self._chosen.spawn()
        self._chosen.wait()

    def pause(self) -> None:
        self._choose().pause()

    def resume(self) -> None:
        assert self._chosen is not None, "it was chosen"
        self._chosen.resume()
