"""The processes of a cluster: a database, and nodes that share a store in it."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from kohort.broker.catalog.catalog import CATALOG
from kohort.model.ids import CONSUMER_OFFSETS, coordinator_partition
from kohort.storage.postgres.connect import Target, connect
from kohort.storage.postgres.schema import SCHEMA
from kohort.storage.postgres.tools.operators import Overview, overview
from kohort.storage.shared import NodeState
from kohort.testing import free_ports
from kohort.testing.process import KOHORT, end, first_line, spawn
from kohort_lab.cutting_proxy import CuttingProxy, connect_in, listen_in
from kohort_lab.database import Database, url_of
from kohort_lab.served_nodes.replicated import ReplicatedDatabase

HOST = "127.0.0.1"
OFFSETS_PARTITIONS = 6
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A member that could not leave has its partitions until its session ends.
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


class NodeFailedError(Exception):
    """A node did not start, or ended by itself or with another exit code than 0. The message has the end of its log."""


class Proxies:
    """
    The proxies of a node.

    Attributes:
        database: is between the node and the servers of its database.
        peers: is between the other nodes and this one.
        url: of the database, for the node.
        settings: for the node; clients come to it as without proxies.
    """

    def __init__(self, database: ReplicatedDatabase, port: int, directory: Path) -> None:
        self.database, self.peers = CuttingProxy(), CuttingProxy()
        places = [directory / str(number) for number in range(len(database.directories))]
        for number, place in enumerate(places):
            place.mkdir(parents=True)
            self.database.stand_before(partial(self._connect, database, number), listen_in(place))
        self.url = url_of(*places)
        own, told = free_ports(2)
        self.peers.stand_before(partial(socket.create_connection, (HOST, own)), socket.create_server((HOST, told)))
        self.settings = {
            "listeners": f"CLIENTS://{HOST}:{port},PEERS://{HOST}:{own}",
            "advertised.listeners": f"CLIENTS://{HOST}:{port},PEERS://{HOST}:{told}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PEERS:PLAINTEXT",
            "inter.broker.listener.name": "PEERS",
        }

    @staticmethod
    def _connect(database: ReplicatedDatabase, number: int) -> socket.socket:
        return connect_in(database.directories[number])

    def close(self) -> None:
        self.database.close()
        self.peers.close()


class Node:
    """
    One node: at most one process at a time, always on the same port.

    Attributes:
        proxies: None without any.
    """

    def __init__(
        self,
        node_id: int,
        port: int,
        url: str,
        directory: Path,
        settings: Mapping[str, str],
        proxies: Proxies | None,
    ) -> None:
        self.node_id = node_id
        self.port = port
        self.proxies = proxies
        self.log = directory / f"node{node_id}.log"
        sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self._command = [
            *KOHORT, "serve", "--store", url, "--host", HOST, "--port", str(port), "--set", f"node.id={node_id}", *sets
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def spawn(self) -> None:
        """Start the process, and return at once."""
        with self.log.open("ab") as log:
            self._process = spawn(self._command, log)

    def wait(self) -> None:
        """
        Wait until the node answers for its partitions.

        Raises:
            NodeFailedError: it has ended.
        """
        assert self._process is not None, "it was started"
        if "node_id" not in (line := first_line(self._process)) and not line:
            raise NodeFailedError(f"node {self.node_id} did not start:\n{self.tail()}")

    def kill(self) -> None:
        self._end(is_forced=True)

    def stop(self) -> None:
        """
        An orderly stop.

        Raises:
            NodeFailedError: the exit code is not 0.
        """
        code = self._end(is_forced=False)
        if code != 0:
            raise NodeFailedError(f"node {self.node_id} ended with {code}:\n{self.tail()}")

    def _end(self, *, is_forced: bool) -> int:
        process, self._process = self._process, None
        assert process is not None, "it runs"
        return end(process, is_forced=is_forced)

    def pause(self) -> None:
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGCONT)

    def check(self) -> None:
        """Raises: NodeFailedError: the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            code, self._process = self._process.returncode, None
            raise NodeFailedError(f"node {self.node_id} ended by itself with {code}:\n{self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]


class NodesOnStore:
    """
    Nodes 1, 2, ... on a store. As a context manager, it starts all of them on entry, and ends them on exit.

    Args:
        database: proxies are before the servers of a replicated one, and before each node.
    """

    def __init__(
        self,
        database: Database | ReplicatedDatabase,
        directory: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.database = database
        self.nodes: dict[int, Node] = {}
        for node_id, port in enumerate(free_ports(count), 1):
            proxies, url, own = None, database.url, SETTINGS | dict(settings or {})
            if isinstance(database, ReplicatedDatabase):
                proxies = Proxies(database, port, directory / f"node{node_id}")
                url, own = proxies.url, own | proxies.settings
            self.nodes[node_id] = Node(node_id, port, url, directory, own, proxies)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes.values())

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_running]

    def overview(self) -> Overview:
        """The rows of the nodes."""
        with connect(Target(self.database.url, SCHEMA)) as connection:
            return overview(connection, CATALOG)

    @property
    def controller(self) -> int:
        return self.overview().look.catalog.leader_id

    def leader(self, topic: str, partition: int) -> int:
        """The node that has claimed a partition last."""
        with connect(Target(self.database.url, SCHEMA)) as connection:
            row = connection.execute(
                b"SELECT leader_id FROM log WHERE topic = $1 AND partition = $2 AND state = 0", (topic, partition)
            ).fetchone()
        return -1 if row is None else int(row[0])

    def coordinator(self, group: str) -> int:
        """The node that coordinates a group."""
        return self.leader(CONSUMER_OFFSETS, coordinator_partition(group, OFFSETS_PARTITIONS))

    def is_settled(self) -> bool:
        """Whether every running node lives, and no other one leads anything."""
        seen, ids = self.overview(), {node.node_id for node in self.running}
        live = {node_id for node_id, row in seen.look.nodes.items() if row.state is NodeState.LIVE}
        return live == ids and set(seen.leads) <= ids and seen.look.catalog.leader_id in ids

    def start(self, node_ids: Iterable[int] | None = None) -> None:
        """Start nodes at the same time, and wait for all of them."""
        started = [self.nodes[node_id] for node_id in (self.nodes if node_ids is None else node_ids)]
        for node in started:
            node.spawn()
        for node in started:
            node.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self.running:
            node.kill()
        for node in self.nodes.values():
            if node.proxies is not None:
                node.proxies.close()
