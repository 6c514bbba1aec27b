"""
How long commits wait when a node or the database fails: `python -m kohort_lab.served_nodes.failover`.

Clients commit on a connection each, all the time, and go to the new coordinator as soon as a node names it. They give up a
request after 0.3 s, earlier than clients of Kafka do: the times are those of the cluster. The database has a standby that
confirms commits.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kohort.cli.nodes.moves import move_to
from kohort.client.addresses import Address
from kohort.client.cluster import Client
from kohort.client.commits import NO_GENERATION
from kohort.client.connection import Connection, Versions
from kohort.model.errors import KohortError
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.served_nodes.load import create_topic
from kohort_lab.served_nodes.processes import OFFSETS_PARTITIONS, NodesOnStore
from kohort_lab.served_nodes.replicated import ReplicatedDatabase

TOPIC: Final = "orders"
CLIENTS: Final = 64
INTERVAL_S: Final = 0.1
ANSWER_S: Final = 0.3
RETRY_S: Final = 0.02
WAIT_S: Final = 60.0
QUIET_S: Final = 1.5
_BY_NAME: Final = Versions(2, 9)
_FIND: Final = Versions(4, 4)


class Wait(NamedTuple):
    """A commit: when it was tried first, and when it was acknowledged."""

    begun: float
    ended: float


class Committer:
    """One client that commits for a group of its own."""

    def __init__(self, group: str, addresses: list[Address]) -> None:
        self._group = group
        self._addresses = addresses
        self._connection: Connection | None = None
        self._silent: Address | None = None
        """The node that has not answered, and is not asked for the coordinator."""
        self.waits: list[Wait] = []
        self.begun = 0.0
        """Of the commit that is under way."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        offset = 0
        while not self._ended.is_set():
            self.begun = time.monotonic()
            while not self._ended.is_set() and not self._commits(offset):
                self._drop()
                time.sleep(RETRY_S)
            self.waits.append(Wait(self.begun, time.monotonic()))
            offset += 1
            self._ended.wait(INTERVAL_S)
        self._drop()

    def _commits(self, offset: int) -> bool:
        with suppress(KohortError):
            if self._connection is None:
                self._connection = self._find()
            partition = m.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=""
            )
            request = m.OffsetCommitRequest(
                group_id=self._group,
                generation_id_or_member_epoch=NO_GENERATION,
                topics=[m.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            )
            self._silent = self._connection.address
            answer = self._connection.send(ApiKey.OFFSET_COMMIT, request, within=_BY_NAME)
            self._silent = None
            return not answer.topics[0].partitions[0].error_code
        return False

    def _find(self) -> Connection:
        """Raises: KohortError: the node that was asked, or the coordinator, does not answer."""
        with Connection(random.choice(self._addresses), ANSWER_S) as asked:
            request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
            (found,) = asked.send(ApiKey.FIND_COORDINATOR, request, within=_FIND).coordinators
        if found.error_code:
            raise KohortError("no coordinator")
        self._silent = Address(found.host, found.port)
        return Connection(self._silent, ANSWER_S)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Failovers:
    """Causes events, and measures the longest wait of a commit from each on."""

    def __init__(
        self, cluster: NodesOnStore, database: ReplicatedDatabase, committers: list[Committer], lease_s: float
    ) -> None:
        self._cluster = cluster
        self._database = database
        self._committers = committers
        self._lease_s = lease_s
        self._begun = 0.0
        """Of the event: what is to be done before it, a move of partitions, is no part of it."""
        self.events: dict[str, Callable[[], Callable[[], None]]] = {
            "SIGKILL of a node": lambda: self._kill(self._other()),
            "SIGKILL of the controller": lambda: self._kill(cluster.controller),
            "SIGKILL of the controller, which has all groups": self._kill_both,
            "SIGSTOP of a node, longer than the lease": lambda: self._pause(self._other()),
            "orderly stop of a node": lambda: self._stop(self._other()),
            "orderly stop of the controller": lambda: self._stop(cluster.controller),
            "restart of the database": lambda: self._restart(signal.SIGINT),
            "crash of the database": lambda: self._restart(signal.SIGQUIT),
            "SIGKILL of the database, promotion of its standby": self._promote,
        }

    def measure(self, event: str) -> tuple[float, int]:
        """The longest wait of a commit, and how many clients have waited longer than half a second."""
        self._await_quiet()
        self._begun = time.monotonic()
        mend = self.events[event]()
        begun = self._begun
        self._await_quiet()
        longest = [
            max(wait.ended - max(wait.begun, begun) for wait in list(each.waits) if wait.ended > begun)
            for each in self._committers
        ]
        mend()
        return max(longest), sum(wait > 0.5 for wait in longest)

    def _await_quiet(self) -> None:
        """Wait until the nodes are settled and every client has committed fast for a while."""
        deadline = time.monotonic() + WAIT_S
        quiet_from = time.monotonic()
        while time.monotonic() - quiet_from < QUIET_S:
            now = time.monotonic()
            if any(now - each.begun > 0.5 for each in self._committers) or not self._cluster.is_settled():
                quiet_from = now
            if now > deadline:
                raise TimeoutError("commits do not go on")
            time.sleep(0.05)

    def _other(self) -> int:
        controller = self._cluster.controller
        return next(node.node_id for node in self._cluster.running if node.node_id != controller)

    def _kill(self, node_id: int) -> Callable[[], None]:
        self._cluster.nodes[node_id].kill()
        return lambda: self._cluster.start([node_id])

    def _kill_both(self) -> Callable[[], None]:
        controller = self._cluster.controller
        with Client(self._cluster.bootstrap) as client:
            for index in range(OFFSETS_PARTITIONS):
                move_to(client, TopicPartition(CONSUMER_OFFSETS, index), controller)
        self._await_quiet()
        self._begun = time.monotonic()
        return self._kill(controller)

    def _pause(self, node_id: int) -> Callable[[], None]:
        node = self._cluster.nodes[node_id]
        node.pause()
        time.sleep(2 * self._lease_s)
        node.resume()
        return lambda: None

    def _stop(self, node_id: int) -> Callable[[], None]:
        self._cluster.nodes[node_id].stop()
        return lambda: self._cluster.start([node_id])

    def _restart(self, how: signal.Signals) -> Callable[[], None]:
        self._database.stop(how)
        self._database.start()
        return lambda: None

    def _promote(self) -> Callable[[], None]:
        self._database.primary.kill()
        self._database.promote()
        return lambda: None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kohort_lab.served_nodes.failover", description=__doc__)
    parser.add_argument("--lease-ms", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=3, help="of each event")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--event", action="append", default=[], help="all of them without it")
    options = parser.parse_args()
    with ExitStack() as closing:
        directory = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="kohort-failover-")))
        database = ReplicatedDatabase(options.lease_ms)
        closing.callback(database.close)
        cluster = closing.enter_context(NodesOnStore(database, directory))
        create_topic(cluster.bootstrap, TOPIC, 1)
        addresses = [Address("127.0.0.1", node.port) for node in cluster.nodes.values()]
        committers = [Committer(f"g{number}", addresses) for number in range(options.clients)]
        for committer in committers:
            closing.callback(committer.end)
        failovers = Failovers(cluster, database, committers, options.lease_ms / 1000)
        print(
            f"lease {options.lease_ms} ms, {options.clients} clients, {options.runs} runs: longest wait of a commit\n"
        )
        print("| event | shortest | median | longest | clients that waited > 0.5 s |\n|---|---:|---:|---:|---:|")
        for event in options.event or failovers.events:
            found = [failovers.measure(event) for _ in range(options.runs)]
            waits = [wait for wait, _ in found]
            print(
                f"| {event} | {min(waits):.2f} s | {statistics.median(waits):.2f} s | {max(waits):.2f} s | "
                f"{max(count for _, count in found)} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
