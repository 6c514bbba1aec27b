"""
Metrics of each broker of the process, with the label `broker`.

The other metrics are those of the process: virtual brokers share its logs and coordinators.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from kohort.broker.broker import Broker
from kohort.server.connections.client_connections import ClientConnections


def broker_families(broker: Broker, connections: ClientConnections) -> Iterator[Metric]:
    """The brokers: whether they run, what they lead, and what their clients do."""
    nodes = list(broker.apis)
    leaders, replicas = _replicas(broker)
    opened = Counter(each.endpoint.node_id for each in connections.open)
    limits, sessions = connections.limits, {node_id: broker.apis[node_id].fetch.sessions for node_id in nodes}
    yield from (
        _by_broker(name, about, values)
        for name, about, values in (
            (
                "running",
                "1 if the broker runs, 0 if it was stopped.",
                {n: int(broker.cluster.is_active(n)) for n in nodes},
            ),
            ("leaders", "Partitions that the broker leads.", {n: leaders[n] for n in nodes}),
            ("replicas", "Partitions of which the broker has a replica.", {n: replicas[n] for n in nodes}),
            ("connections", "Open connections of the broker's clients.", {n: opened[n] for n in nodes}),
            ("fetch_sessions", "Fetch sessions.", {n: len(sessions[n]) for n in nodes}),
        )
    )
    yield _by_broker(
        "connections_accepted", "Accepted connections.", {n: limits[n].accepted for n in nodes}, is_counter=True
    )
    yield _by_broker(
        "connections_rejected",
        "Connections closed because their address had too many.",
        {n: limits[n].rejected for n in nodes},
        is_counter=True,
    )
    family = CounterMetricFamily("kohort_broker_requests_total", "Requests received.", labels=["broker", "api"])
    for node_id in nodes:
        requests: Counter[str] = Counter()
        for route in list(connections.dispatches[node_id].routes.values()):
            requests[route.api_key.api_name] += route.requests
        for api_name, count in sorted(requests.items()):
            family.add_metric([str(node_id), api_name], count)
    yield family


def _by_broker(name: str, about: str, values: dict[int, int], *, is_counter: bool = False) -> Metric:
    full = f"kohort_broker_{name}"
    family: CounterMetricFamily | GaugeMetricFamily
    if is_counter:
        family = CounterMetricFamily(f"{full}_total", about, labels=["broker"])
    else:
        family = GaugeMetricFamily(full, about, labels=["broker"])
    for node_id, value in values.items():
        family.add_metric([str(node_id)], value)
    return family


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
