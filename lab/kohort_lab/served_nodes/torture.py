"""Faults at random under real clients, and what must hold after each fault and at the end."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.client.addresses import Address
from kohort_lab.checks import CheckError
from kohort_lab.served_nodes.faults import Faults
from kohort_lab.served_nodes.ledger import Ledger, Verdict, judge
from kohort_lab.served_nodes.load import Auditor, Client, Member, TransactionalWriter, Writer, create_topic, read_all
from kohort_lab.served_nodes.processes import NodesOnStore
from kohort_lab.served_nodes.replicated import ReplicatedDatabase

TOPIC: Final = "orders"
ENTRIES: Final = "entries"
PARTITIONS: Final = 6
ENTRY_PARTITIONS: Final = 3
GROUPS: Final = {"classic": 2, "consumer": 2}
"""Members of each group; its name is that of the protocol."""
SETTLE_S: Final = 60.0
PROGRESS_S: Final = 60.0


@dataclass
class Outcome:
    """
    The outcome of a run; its text is the report.

    Attributes:
        resumed_s: by kind of fault, for each fault the seconds from its end until all clients went on.
    """

    verdict: Verdict
    ledger: Ledger
    answers: int
    transactions: tuple[int, int]
    resumed_s: dict[str, list[float]]
    unread: int
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return self.verdict.is_right and not self.ledger.mistakes and not self.unread

    def __str__(self) -> str:
        v = self.verdict
        lines = ["| fault | count | clients went on after: median | longest |", "|---|---:|---:|---:|"]
        lines += [
            f"| {kind} | {len(seconds)} | {statistics.median(seconds):.1f} s | {max(seconds):.1f} s |"
            for kind, seconds in sorted(self.resumed_s.items())
        ]
        lines += [
            f"{sum(map(len, self.resumed_s.values()))} faults",
            f"{v.acknowledged} records acknowledged, {v.found} found",
            f"{v.lost} lost, {v.doubled} doubled, {v.reordered} reordered",
            f"{self.transactions[0]} transactions committed, {self.transactions[1]} aborted",
            f"{v.torn} transactions torn, {v.aborted_seen} aborted records found",
            f"{self.ledger.commit_count} commits acknowledged, {self.answers} answers about committed offsets compared",
            f"{self.unread} acknowledged records not read by a group",
        ]
        lines += [f"clients began anew {count} times: {problem}" for problem, count in self.problems.most_common(5)]
        return "\n".join([*lines, *self.ledger.mistakes])


def run(
    directory: Path,
    rng: random.Random,
    report: Callable[[str], None],
    *,
    seconds: float,
    lease_ms: int,
    kinds: Sequence[str] = (),
    faults_max: int | None = None,
) -> Outcome:
    """
    Run clients on three nodes, and cause faults.

    Args:
        kinds: of faults; all without it.
        faults_max: end after so many.

    Raises:
        CheckError: the nodes do not recover, or clients do not go on.
    """
    ledger = Ledger()
    resumed_s: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as closing:
        database = ReplicatedDatabase(lease_ms)
        closing.callback(database.close)
        cluster = closing.enter_context(NodesOnStore(database, directory))
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        create_topic(cluster.bootstrap, ENTRIES, ENTRY_PARTITIONS)
        transactional = TransactionalWriter(cluster.bootstrap, ledger, "t", ENTRIES, ENTRY_PARTITIONS)
        writers: list[Client] = [Writer(cluster.bootstrap, ledger, "w", TOPIC, PARTITIONS), transactional]
        readers: list[Client] = [
            Member(cluster.bootstrap, ledger, group, TOPIC, group)
            for group, count in GROUPS.items()
            for _ in range(count)
        ]
        auditors = [
            Auditor(Address("127.0.0.1", node.port), ledger, list(GROUPS), TOPIC, PARTITIONS)
            for node in cluster.nodes.values()
        ]
        clients: list[Client] = [*writers, *readers, *auditors]
        for client in clients:
            client.start()
            closing.callback(client.end)
        faults = Faults(cluster, database, lease_ms / 1000, rng)
        if kinds:
            faults.kinds = {kind: faults.kinds[kind] for kind in kinds}
        elif database.primary.space is None:
            report("the table space never becomes full: this user may not mount a file system")

        def progress() -> dict[str, int]:
            made = {f"commits of {group}": sum(ledger.commits(group).values()) for group in GROUPS}
            return made | {"records": ledger.record_count, "transactions": transactional.committed}

        _await_progress(progress, cluster)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (faults_max is None or faults.counts.total() < faults_max):
            begun = time.monotonic()
            kind = faults.cause()
            ended = time.monotonic()
            _await_settled(cluster, f"after {kind}")
            settled = time.monotonic()
            _await_progress(progress, cluster)
            resumed_s[kind].append(time.monotonic() - ended)
            report(
                f"{faults.counts.total():4} {kind}: {ended - begun:.1f} s, nodes settled {settled - ended:.1f} s and clients "
                f"went on {resumed_s[kind][-1]:.1f} s later"
            )
            faults.check()
            if ledger.mistakes:
                break
            time.sleep(rng.uniform(0, 0.5))
        for writer in writers:
            writer.end()
        unread = _await_read(ledger)
        for client in (*readers, *auditors):
            client.end()
        found = read_all(cluster.bootstrap, TOPIC, PARTITIONS) | read_all(cluster.bootstrap, ENTRIES, ENTRY_PARTITIONS)
        for node in cluster.running:
            node.stop()
    problems = Counter(problem for client in clients for problem in client.problems)
    return Outcome(
        judge(ledger, found),
        ledger,
        sum(auditor.answers for auditor in auditors),
        (transactional.committed, transactional.aborted),
        resumed_s,
        unread,
        problems,
    )


def _await_progress(progress: Callable[[], Mapping[str, int]], cluster: NodesOnStore) -> None:
    """Raises: CheckError: something does not go on."""
    before = progress()
    deadline = time.monotonic() + PROGRESS_S
    while behind := [what for what, count in progress().items() if count <= before[what]]:
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- node {node.node_id}\n{node.tail()}" for node in cluster.nodes.values())
            raise CheckError(f"no progress within {PROGRESS_S:g} s: {', '.join(behind)}\n{logs}")
        time.sleep(0.02)


def _await_settled(cluster: NodesOnStore, what: str) -> None:
    """Raises: CheckError: nodes are missing, or partitions have no leader."""
    deadline = time.monotonic() + SETTLE_S
    while not cluster.is_settled():
        if time.monotonic() > deadline:
            raise CheckError(f"{what} the nodes do not settle: {cluster.overview()}")
        time.sleep(0.05)


def _await_read(ledger: Ledger) -> int:
    """Wait until groups have read every record of the writer; how many they have not."""
    wanted = {value for value, (topic, _, _) in ledger.records().items() if topic == TOPIC}
    deadline = time.monotonic() + SETTLE_S
    while left := wanted - ledger.read.keys():
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return len(left)
