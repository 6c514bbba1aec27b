"""All metrics of a node: each is computed when it is asked for, in steps."""

from collections.abc import Iterator
from typing import Final

from kohort.broker.broker import Broker
from kohort.runtime.ports import Clock
from kohort.scrape import Family
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.logs import LogWriter
from kohort.server.metrics import brokers, families
from kohort.storage.log import LogMetrics

_STEP: Final = 100
"""Logs that are looked at between two yields."""


def node_families(
    broker: Broker,
    connections: ClientConnections,
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
    yield from brokers.broker_families(broker, connections)
    yield from families.line_families(log)
    yield from families.log_families(logs, flushes)
    yield from families.producer_families(logs, late)
    yield from families.produce_families(invalid, verification)
    yield from families.cleaner_families(cleaner)
    yield from families.purgatory_families("fetch", fetches)
    yield from families.telemetry_families(broker.telemetry, now_ms)
    yield from coordinators.metrics()
    topics = list(broker.catalog.topics())
    partitions = sum(topic.partition_count for topic in topics)
    registered = broker.cluster.brokers
    fenced = sum(each.is_fenced for each in registered.values())
    state = families.STOPPING if connections.is_draining else families.RUNNING
    yield from families.controller_families(logs, len(topics), partitions, state, len(registered) - fenced, fenced)
    yield from families.replica_families(state for topic in topics for state in topic.partitions)
    yield from families.traffic_families(broker.partitions.traffic)
    yield from families.session_families(
        sum(len(each.fetch.sessions) for each in apis), sum(each.fetch.sessions.partition_count for each in apis)
    )
