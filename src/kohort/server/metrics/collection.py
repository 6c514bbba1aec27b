"""
All metrics of a node: each is computed when it is asked for, in steps.

Metrics of each broker of the process have the label `broker`. The others are those of the process: virtual brokers share its
logs and coordinators.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from kohort.broker.acls.authorizer import AclAuthorizer
from kohort.broker.broker import Broker
from kohort.runtime.ports import Clock
from kohort.scrape import Family
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.listeners.logins import Logins
from kohort.server.logs import LogWriter
from kohort.server.metrics import families
from kohort.server.metrics.figures import by, figure
from kohort.server.metrics.share_families import share_families
from kohort.storage.log import LogMetrics

_STEP: Final = 100
"""Logs that are looked at between two yields."""


def node_families(
    broker: Broker,
    connections: ClientConnections,
    logins: Logins,
    coordinators: Coordinators,
    clock: Clock,
    log: LogWriter | None,
    started_at_s: float,
) -> Iterator[Family | None]:
    """
    The families of metrics as they are now, and None between steps of work; docs/metrics.md lists them.

    Args:
        log: the writer of the log, for the metric of dropped lines.
        started_at_s: the time of the start, in seconds since 1970.
    """
    now_ms = clock.now_ms()
    logs: list[LogMetrics] = []
    for each in broker.store.log_metrics():
        logs.append(each)
        if len(logs) % _STEP == 0:
            yield None
    flushes, fetches, verification = broker.store.flush_metrics(), broker.fetches.metrics(), broker.verifier.metrics
    apis = broker.apis.values()
    invalid = sum(api.produce.invalid_offsets_or_sequences for api in apis)
    cleaner = broker.store.cleaner_metrics()
    late = families.late_transactions(logs, now_ms, broker.config.get_int("transaction.max.timeout.ms"))
    yield from families.process_families(started_at_s)
    yield from families.server_families(connections)
    yield from families.login_families(logins)
    yield from _broker_families(broker, connections)
    dropped = 0 if log is None else log.dropped
    yield from figure("kohort_log_lines_dropped_total", "", "Log lines that nobody read in time.", dropped)
    yield from families.log_families(logs, flushes)
    yield from families.producer_families(logs, late)
    yield from families.produce_families(invalid, verification)
    yield from families.cleaner_families(cleaner)
    yield from families.purgatory_families(fetches)
    yield from share_families(broker)
    yield from families.telemetry_families(broker.telemetry, now_ms)
    if isinstance(broker.authorizer, AclAuthorizer):
        yield from families.authorizer_families(broker.authorizer)
    yield from coordinators.metrics()
    yield from families.controller_families(broker, logs, is_stopping=connections.is_draining)
    yield from families.traffic_families(broker.partitions.traffic)
    prefix = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetch"
    sessions = [api.fetch.sessions for api in apis]
    yield from figure("", f"{prefix}Sessions", "Fetch sessions.", sum(map(len, sessions)))
    cached = sum(each.partition_count for each in sessions)
    yield from figure("", f"{prefix}PartitionsCached", "Partitions of fetch sessions.", cached)


def _broker_families(broker: Broker, connections: ClientConnections) -> Iterator[Metric]:
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
    cordoned, manager = len(broker.cluster.cordoned), "kafka.log:type=LogManager,name="
    about = "Cordoned log directories: each broker counts its own."
    yield from figure("", f"{manager}CordonedLogDirectoryCount", about, cordoned)
    about = "1 if the directory is cordoned for a broker, which gets no new partitions."
    labels = {"logDirectory": broker.config.log_dir}
    yield from figure("", f"{manager}LogDirectoryCordoned,logDirectory={{}}", about, (labels, int(cordoned > 0)))
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
