"""Three nodes in the place of one broker, for checks that kill, pause and stop it: each time, any fault is caused."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from kohort_lab.served_nodes.faults import Faults, NotCausedError
from kohort_lab.served_nodes.processes import NodesOnStore
from kohort_lab.served_nodes.replicated import ReplicatedDatabase

LEASE_MS = 2_000


class NodesAsBroker:
    """
    As `kohort.testing.served.ServedKohort`. What is killed, stopped or paused is decided by `Faults`; their counts are printed
    at the end.

    Attributes:
        data_dir: of the logs of the nodes; their data is in the database.
        expected: has no meaning here.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], rng: random.Random) -> None:
        self.data_dir = directory
        self.expected: list[str] = []
        self.bootstrap = ""
        self._settings = settings
        self._rng = rng
        self._closing = ExitStack()
        self._faults: Faults | None = None
        self._end_fault: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        with ExitStack() as closing:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            database = ReplicatedDatabase(LEASE_MS)
            closing.callback(database.close)
            cluster = closing.enter_context(NodesOnStore(database, self.data_dir, settings=self._settings))
            self.bootstrap = cluster.bootstrap
            self._faults = Faults(cluster, database, LEASE_MS / 1000, self._rng)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
        if self._faults is not None:
            print("\n".join(f"{count:4} x {kind}" for kind, count in sorted(self._faults.counts.items())), flush=True)

    def kill(self) -> None:
        """Begin a fault, which `start` ends."""
        assert self._faults is not None, "the context was entered"
        self._faults.check()
        while True:
            # Clients without transactions make nodes send each other hardly anything.
            with suppress(NotCausedError):
                _, self._end_fault = self._faults.begin()
                return

    stop = pause = kill

    def start(self) -> None:
        self._end_fault()

    resume = start
