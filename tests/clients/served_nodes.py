"""Three nodes on one store, with the interface of three virtual brokers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from kohort.testing.served import ServedKohort

LEASE_MS = 1_500


class ServedNodes:
    """
    `kohort serve --store` as three processes. See `ServedKohort`.

    Attributes:
        nodes: the processes, by id.
    """

    def __init__(self, directory: Path, properties: Mapping[str, str], url: str, racks: Sequence[str]) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE kohort.store SET lease_ms = %s", (LEASE_MS,))
        self.nodes = {
            node_id: ServedKohort(
                directory / str(node_id),
                {**properties, "node.id": str(node_id), "broker.rack": rack},
                store=url,
            )
            for node_id, rack in enumerate(racks, 1)
        }

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def stop_broker(self, node_id: int) -> None:
        self.nodes[node_id].stop()

    def start_broker(self, node_id: int) -> None:
        self.nodes[node_id].start()

    def start(self) -> Self:
        for node in self.nodes.values():
            node.start()
        return self

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.__exit__(kind, exc, traceback)
