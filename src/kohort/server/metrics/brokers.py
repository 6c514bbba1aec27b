"""
Metrics of each broker of the process, with the label `broker`.

The other metrics are those of the process: virtual brokers share its logs and coordinators.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from kohort.broker.broker import Broker
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.metrics.figures import by, figure


def broker_families(broker: Broker, connections: ClientConnections) -> Iterator[Metric]:
    """The brokers: whether they run, what they lead, and what their clients do."""
    nodes = list(broker.apis)
    leaders, replicas = _replicas(broker)
    opened = Counter(each.endpoint.node_id for each in connections.open)
    limits, sessions = connections.limits, {node_id: broker.apis[node_id].fetch.sessions for node_id in nodes}
    running = {n: int(broker.cluster.is_active(n)) for n in nodes}
    for name, about, values in (
        ("running", "1 if the broker runs, 0 if it was stopped.", running),
        ("leaders", "Partitions that the broker leads.", leaders),
        ("replicas", "Partitions of which the broker has a replica.", replicas),
        ("connections", "Open connections of the broker's clients.", opened),
        ("fetch_sessions", "Fetch sessions.", {n: len(sessions[n]) for n in nodes}),
        ("connections_accepted_total", "Accepted connections.", {n: limits[n].accepted for n in nodes}),
        (
            "connections_rejected_total",
            "Connections closed because their address had too many.",
            {n: limits[n].rejected for n in nodes},
        ),
    ):
        yield from figure(f"kohort_broker_{name}", "", about, *by("broker", ((str(n), values[n]) for n in nodes)))
    requests: Counter[tuple[int, str]] = Counter()
    for node_id in nodes:
        for route in list(connections.dispatches[node_id].routes.values()):
            requests[node_id, route.api_key.api_name] += route.requests
    counts = [({"broker": str(node_id), "api": api_name}, n) for (node_id, api_name), n in sorted(requests.items())]
    yield from figure("kohort_broker_requests_total", "", "Requests received.", *counts)


def _replicas(broker: Broker) -> tuple[Counter[int], Counter[int]]:
    """By broker: how many partitions it leads, and of how many it has a replica."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    first = broker.cluster.first
    for topic in broker.catalog.topics():
        if not topic.partitions:
            leaders[first] += topic.partition_count
            replicas[first] += topic.partition_count
        for state in topic.partitions:
            leaders[state.leader] += 1
            replicas.update(state.replicas)
    return leaders, replicas
