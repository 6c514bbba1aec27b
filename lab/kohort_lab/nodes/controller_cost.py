"""
What one controller costs: `python -m kohort_lab.nodes.controller_cost`.

A fail-over is counted in records and bytes of the catalog and in this machine's time of Python; looks and statements are
counted by the number of nodes, from the intervals of the product. No database is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from kohort.broker.catalog.catalog import Catalog, topic_record
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.cluster import Cluster, RegisteredBroker
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.controller.leaderships import CLAIMS_MAX
from kohort.broker.controller.member import LOOKS_IN_LEASE
from kohort.broker.partitions.replicas import PartitionState
from kohort.broker.partitions.replication import ReplicationControl
from kohort.model.errors import ErrorCode
from kohort.storage.memory import MemoryStore
from kohort.testing.virtual import VirtualNode
from kohort_lab.nodes.node import LEASE_S

PARTITIONS = 10_000
PARTITIONS_OF_TOPIC = 100
STATEMENTS_OF_LOOK = 3
"""The renewal, the rows of the nodes, and the row of the catalog's log."""


@dataclass(frozen=True, slots=True)
class FailOver:
    """
    The loss of one node of many.

    Attributes:
        moved: partitions that got another leader.
        records, size_bytes: of the catalog.
        seconds: of Python, for the leaders that the node had, and for the even spread after it has come back.
        claims: statements of the other nodes that claim partitions, at most.
        steps, longest_step_s: of the work, between which the node does other things.
    """

    nodes: int
    partitions: int
    moved: int
    records: int
    size_bytes: int
    seconds: float
    claims: int
    steps: int
    longest_step_s: float


def fail_over(nodes: int, partitions: int = PARTITIONS, of_topic: int = PARTITIONS_OF_TOPIC) -> FailOver:
    """Fence one of the nodes, settle, bring it back, settle and balance; each partition has one replica."""
    node = VirtualNode()
    cluster = Cluster(1, "cost", is_shared=True)
    for node_id in range(1, nodes + 1):
        cluster.register(RegisteredBroker(node_id))
    catalog = Catalog(MemoryStore(node.defer, clock=node.clock), node.clock, cluster)
    node.settle()
    control = ReplicationControl(catalog, TopicConfigs(BrokerConfig()), cluster)
    leaders = [1 + index % nodes for index in range(partitions)]
    for first in range(0, partitions, of_topic):
        states = tuple(PartitionState((leader,), (leader,), leader) for leader in leaders[first : first + of_topic])
        topic = Topic(f"topic-{first}", UUID(int=first + 1), len(states), start=catalog.starts, partitions=states)
        catalog.change(CatalogChange(put=(topic,)), lambda _: None)
    node.settle()
    before, start = _states(catalog), catalog.version
    steps: list[float] = []
    sizes: list[int] = []
    catalog.watch(
        lambda delta: sizes.extend(
            sum(map(len, topic_record(topic)))
            for each in delta.changed
            if (topic := catalog.topic(each.name)) is not None
        )
    )
    codes: list[ErrorCode] = []
    lost = cluster.brokers[nodes]
    moved = 0
    for is_fenced, works in ((True, [control.settle]), (False, [control.settle, control.balance])):
        lost.is_fenced = is_fenced
        for work in works:
            _run(partial(work, codes.append), steps)
            node.settle()
        if is_fenced:
            moved = sum(old.leader != new.leader for old, new in zip(before, _states(catalog), strict=True))
    assert codes == [ErrorCode.NONE] * 3, "the log is in memory"
    claims = min(nodes - 1, moved) * -(-moved // (CLAIMS_MAX * max(nodes - 1, 1)))
    return FailOver(
        nodes=nodes,
        partitions=partitions,
        moved=moved,
        records=catalog.version - start,
        size_bytes=sum(sizes),
        seconds=sum(steps),
        claims=claims,
        steps=len(steps),
        longest_step_s=max(steps),
    )


def _states(catalog: Catalog) -> list[PartitionState]:
    return [state for topic in catalog.topics() for state in catalog.states(topic)]


def _run(work: Callable[[], Iterable[None]], steps: list[float]) -> None:
    started = time.perf_counter()
    for _ in work():
        steps.append(time.perf_counter() - started)
        started = time.perf_counter()
    steps.append(time.perf_counter() - started)


def statements_per_second(nodes: int, lease_s: float = LEASE_S) -> tuple[float, float, float]:
    """Looks, statements, and rows that are read, per second, of a cluster at rest."""
    looks = nodes * LOOKS_IN_LEASE / lease_s
    return looks, looks * STATEMENTS_OF_LOOK, looks * (nodes + 1)


def main() -> None:
    """Print the curve as two tables."""
    print("| nodes | partitions | moved | catalog records | catalog bytes | Python ms | longest step ms | claims |")
    print("|---|---|---|---|---|---|---|---|")
    for nodes in (3, 10, 30, 100):
        cost = fail_over(nodes)
        print(
            f"| {cost.nodes} | {cost.partitions} | {cost.moved} | {cost.records} | {cost.size_bytes} "
            f"| {cost.seconds * 1000:.0f} | {cost.longest_step_s * 1000:.0f} | {cost.claims} |"
        )
    print()
    print("| nodes | looks/s | statements/s | rows read/s |")
    print("|---|---|---|---|")
    for nodes in (1, 3, 10, 30, 100):
        looks, statements, rows = statements_per_second(nodes)
        print(f"| {nodes} | {looks:.0f} | {statements:.0f} | {rows:.0f} |")


if __name__ == "__main__":
    main()
