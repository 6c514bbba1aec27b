"""
Three nodes on one store in a minute: `make cluster`, or `python -m kohort_lab.served_nodes.show`.

Starts a database and three nodes. A producer writes, and a consumer group reads and commits. One node is killed, one drained,
and one stopped in an orderly way. Then all are restarted one by one. If a claim does not hold, the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from kohort.cli.main import run as kohort
from kohort.model.leases import LEASE_MS_MIN
from kohort_lab.database import Database, NoDatabaseError, programs_of_system
from kohort_lab.served_nodes.ledger import Ledger, judge
from kohort_lab.served_nodes.load import Member, Writer, create_topic, leaders, read_all
from kohort_lab.served_nodes.processes import Node, NodeFailedError, NodesOnStore

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 6
LEASE_MS: Final = 2000
WAIT_S: Final = 60.0
COMMITS: Final = 20
"""That a group makes before and after each event."""


class ClaimError(Exception):
    """What was to be shown does not hold."""


class Show:
    """
    The run.

    Args:
        is_brief: without the drain and the rolling restart.
    """

    def __init__(self, console: Console, directory: Path, lease_ms: int, *, is_brief: bool) -> None:
        self._console = console
        self._directory = directory
        self._lease_ms = lease_ms
        self._is_brief = is_brief
        self._begun = time.monotonic()
        self._ledger = Ledger()
        self._commits_at: list[float] = []
        self._rows: list[tuple[str, dict[int, int], dict[int, int], float]] = []

    def run(self) -> None:
        """Raises: ClaimError, NodeFailedError."""
        with ExitStack() as closing:
            programs = programs_of_system()
            database = Database(programs)
            closing.callback(database.close)
            self._say(f"PostgreSQL runs, with the programs of {'a wheel' if programs is None else programs}")
            self._command("store", "init", database.url, "--lease-ms", str(self._lease_ms))
            cluster = closing.enter_context(NodesOnStore(database, self._directory))
            self._say(f"three nodes: {cluster.bootstrap}")
            create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
            writer = Writer(cluster.bootstrap, self._ledger, "w", TOPIC, PARTITIONS)
            members = [
                Member(cluster.bootstrap, self._ledger, GROUP, TOPIC, on_commit=self._commits_at.append)
                for _ in range(2)
            ]
            for client in (writer, *members):
                client.start()
                closing.callback(client.end)
            self._await_commits()
            self._say("a producer writes, and two members of a group commit")
            self._events(cluster)
            writer.end()
            self._await(self._has_read_all, "the group has read every record")
            for member in members:
                member.end()
            self._report(cluster)
            for node in cluster.running:
                node.stop()
            self._say("all nodes have stopped, with exit code 0")

    def _events(self, cluster: NodesOnStore) -> None:
        if not self._is_brief:
            self._command("cluster", "status", cluster.database.url)
        dead = cluster.nodes[cluster.coordinator(GROUP)]
        self._event(f"SIGKILL of node {dead.node_id}, which coordinates the group", cluster, dead.kill)
        self._event(f"start of node {dead.node_id}", cluster, lambda: cluster.start([dead.node_id]))
        if not self._is_brief:
            drained = str(cluster.coordinator(GROUP))
            url = cluster.database.url
            self._event(f"drain of node {drained}", cluster, lambda: self._command("cluster", "drain", url, drained))
            self._command("cluster", "status", cluster.database.url)
            self._event(
                f"end of the drain of node {drained}",
                cluster,
                lambda: self._command("cluster", "drain", url, drained, "--end"),
            )
        stopped = cluster.nodes[cluster.controller]
        self._event(f"orderly stop of node {stopped.node_id}, the controller", cluster, stopped.stop)
        cluster.start([stopped.node_id])
        if not self._is_brief:
            for node in cluster.nodes.values():
                self._event(f"restart of node {node.node_id}", cluster, partial(self._restart, cluster, node))

    @staticmethod
    def _restart(cluster: NodesOnStore, node: Node) -> None:
        node.stop()
        cluster.start([node.node_id])

    def _event(self, what: str, cluster: NodesOnStore, cause: Callable[[], None]) -> None:
        """Cause something, and measure the longest time without an acknowledged commit from then on."""
        self._await_commits()
        before = leaders(cluster.bootstrap, TOPIC)
        begun = time.monotonic()
        first = len(self._commits_at)
        cause()
        self._await(cluster.is_settled, "every partition has a leader that runs")
        self._await_commits()
        after = leaders(cluster.bootstrap, TOPIC)
        times = [begun, *self._commits_at[first:]]
        gap = max(later - earlier for earlier, later in pairwise(times))
        self._rows.append((what, before, after, gap))
        self._say(f"{what}: commits stopped for {gap:.2f} s")

    def _await_commits(self) -> None:
        wanted = len(self._commits_at) + COMMITS
        self._await(lambda: len(self._commits_at) >= wanted, "the group commits")

    def _has_read_all(self) -> bool:
        return self._ledger.records().keys() <= self._ledger.read.keys()

    def _report(self, cluster: NodesOnStore) -> None:
        verdict = judge(self._ledger, read_all(cluster.bootstrap, TOPIC, PARTITIONS))
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for title in ("event", "leaders before", "leaders after", "commits stopped for"):
            table.add_column(title)
        for what, before, after, gap in self._rows:
            table.add_row(what, _shown(before), _shown(after), f"{gap:.2f} s")
        self._console.print(table)
        again = sum(self._ledger.read.values()) - len(self._ledger.read)
        self._say(
            f"{verdict.acknowledged} records acknowledged, {verdict.found} there, {verdict.lost} lost, {verdict.doubled} "
            f"doubled, {verdict.reordered} in a wrong order; {self._ledger.commit_count} commits; {again} records read again"
        )
        problems = [*verdict.examples, *self._ledger.mistakes]
        if problems:
            raise ClaimError("\n".join(problems))

    def _command(self, *words: str) -> None:
        """Run a command of Kohort, as from a shell."""
        self._console.print(f"$ kohort {' '.join(words)}", style="bold", markup=False, highlight=False, soft_wrap=True)
        sys.stdout.flush()
        if kohort(list(words)) != 0:
            raise ClaimError(f"kohort {' '.join(words)} has failed")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline or self._ledger.mistakes:
                raise ClaimError(f"not within {WAIT_S:g} s: {what}. {'. '.join(self._ledger.mistakes)}")
            time.sleep(0.02)

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self._begun
        self._console.print(f"{seconds:5.1f} s  {text}", highlight=False, soft_wrap=True)


def _shown(found: dict[int, int]) -> str:
    """The leaders of partitions 0, 1, ..."""
    return " ".join(map(str, found.values()))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kohort_lab.served_nodes.show", description="Three nodes on one store."
    )
    parser.add_argument(
        "--lease-ms",
        type=int,
        default=LEASE_MS,
        help=f"duration of the leases, at least {LEASE_MS_MIN}; default {LEASE_MS}",
    )
    parser.add_argument("--brief", action="store_true", help="a kill, a start and a stop only")
    parser.add_argument(
        "--directory", type=Path, help="for the logs of the nodes, which are kept; default: a temporary one"
    )
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    try:
        with ExitStack() as closing:
            directory = options.directory
            if directory is None:
                directory = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="kohort-cluster-")))
            directory.mkdir(parents=True, exist_ok=True)
            Show(console, directory, options.lease_ms, is_brief=options.brief).run()
    except (ClaimError, NodeFailedError, NoDatabaseError) as error:
        console.print(f"It did not hold: {error}", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print("Everything held.", style="bold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
