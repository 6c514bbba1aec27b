"""The metrics of a node, without those of its coordinators and of each broker; docs/metrics.md lists them."""

import math
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from kohort.broker.acls.authorizer import AclAuthorizer
from kohort.broker.broker import Broker
from kohort.broker.partitions.replicas import NO_LEADER, PartitionState
from kohort.broker.records.produce_verification import VerificationMetrics
from kohort.broker.records.traffic import TopicTraffic, Traffic
from kohort.broker.telemetry.received import Series
from kohort.broker.telemetry.telemetry import Telemetry
from kohort.model.text import printable
from kohort.runtime.purgatory import PurgatoryMetrics
from kohort.scrape import Family
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.listeners.logins import Logins
from kohort.server.metrics.figures import QUANTILES, LongFamily, by, exporter_name, figure, kafka_help, summary, times
from kohort.server.metrics.latency import LatencyHistogram
from kohort.storage.log import CleanerMetrics, FlushMetrics, LogMetrics
from kohort.wire.apis import ApiKey

_LATE_TRANSACTION_BUFFER_MS: Final = 300_000
"""Source: Kafka ProducerStateManager.LATE_TRANSACTION_BUFFER_MS."""
_SERIES_STEP: Final = 100
"""Pushed values that are looked at between two yields."""
_STATM: Final = Path("/proc/self/statm")
_OPEN_FILES: Final = Path("/proc/self/fd")
_NAMES: Final = {ApiKey.FETCH: ("Fetch", "FetchConsumer")}
"""Source: Kafka RequestChannel.updateRequestMetrics: a Fetch of a consumer counts under both names."""
LISTENER: Final = {"listener": "PLAINTEXT", "networkProcessor": "0"}
RUNNING: Final = 3
STOPPING: Final = 6
"""States of a broker. Source: Kafka BrokerState."""


def process_families(started_at_s: float) -> Iterator[Metric]:
    """The process, under the names that every exporter uses. Memory and files need a `/proc`."""
    about = "Start of the broker, in seconds since 1970."
    yield from figure("process_start_time_seconds", "", about, started_at_s)
    yield from figure("process_cpu_seconds_total", "", "Processor time, user and system.", time.process_time())
    yield from figure("kohort_uptime_seconds", "", "Time since the start of the broker.", time.time() - started_at_s)
    if _STATM.exists():
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield from figure("process_resident_memory_bytes", "", "Resident memory.", resident)
        yield from figure("process_open_fds", "", "Open files and sockets.", len(os.listdir(_OPEN_FILES)))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield from figure("process_max_fds", "", "How many files and sockets may be open.", limit)


def server_families(connections: ClientConnections) -> Iterator[Metric]:
    """The listener: connections, and requests by API; Kafka's socket-server-metrics and RequestMetrics."""
    kafka = "kafka.server:type=socket-server-metrics,listener={},networkProcessor={}/connection-"
    opened, accepted = sum(limits.count for limits in connections.limits.values()), connections.accepted
    about = "Open connections of clients."
    own = len(connections.open)
    yield from figure("kohort_connections", f"{kafka}count", about, own, kafka=[(LISTENER, opened)])
    about = "Accepted connections."
    labelled = [(LISTENER, accepted)]
    yield from figure("kohort_connections_accepted_total", f"{kafka}creation-total", about, accepted, kafka=labelled)
    closed = max(accepted - opened, 0)
    yield from figure("", f"{kafka}close-total", "Closed connections.", (LISTENER, closed))
    about = "Connections that are not read for a time, because their client has exceeded a quota."
    yield from figure("kohort_throttled_connections", "", about, connections.throttled)
    about = "Replies that slow clients have not taken."
    yield from figure("kohort_unsent_bytes", "", about, connections.unsent_bytes)
    about = "Connections closed because their address had too many."
    rejected = sum(limits.rejected for limits in connections.limits.values())
    yield from figure("kohort_connections_rejected_total", "", about, rejected)
    requests: Counter[str] = Counter()
    by_version: Counter[tuple[str, str]] = Counter()
    latencies: dict[str, LatencyHistogram] = {}
    kafka_latencies: dict[str, LatencyHistogram] = {}
    for route in connections.routes:
        api_name = route.api_key.api_name
        requests[api_name] += route.requests
        latencies.setdefault(api_name, LatencyHistogram()).add(route.latency)
        for name in _NAMES.get(route.api_key, (api_name,)):
            by_version[name, str(route.version)] += route.requests
            kafka_latencies.setdefault(name, LatencyHistogram()).add(route.latency)
    yield from figure("kohort_requests_total", "", "Requests received, by API.", *by("api", sorted(requests.items())))
    mbean = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request={},version={}"
    counts = [({"request": name, "version": version}, count) for (name, version), count in sorted(by_version.items())]
    yield from figure("", mbean, "Requests, by API and version.", *counts)
    about = "Seconds from the start of a request to its answer, by API; includes waiting for a flush or for records."
    histogram = HistogramMetricFamily("kohort_request_seconds", about, labels=["api"])
    for api_name, latency in sorted(latencies.items()):
        buckets = [("+Inf" if math.isinf(bound) else repr(bound), count) for bound, count in latency.bounded()]
        histogram.add_metric([api_name], buckets, sum_value=latency.seconds)
    yield histogram
    milliseconds = [
        ({"request": name}, each.count, [1000 * value for value in each.quantiles(QUANTILES)])
        for name, each in sorted(kafka_latencies.items())
    ]
    about = "Milliseconds from the start of a request to its answer."
    yield summary("kafka.network:type=RequestMetrics,name=TotalTimeMs,request={}", about, milliseconds)


def login_families(logins: Logins) -> Iterator[Metric]:
    """Authentications of all listeners; Kafka's socket-server-metrics."""
    kafka = "kafka.server:type=socket-server-metrics,listener={},networkProcessor={}/"
    first, again = {"session": "first"}, {"session": "renewed"}
    for result, verb, counts in (
        ("success", "successful", (logins.successes, logins.repeated_successes)),
        ("failure", "failed", (logins.failures, logins.repeated_failures)),
    ):
        about = f"Authentications that ended with {result}, of TLS without SASL, and of SASL."
        values = [(first, counts[0]), (again, counts[1])]
        yield from figure(f"kohort_authentication_{result}_total", "", about, *values)
        for name, count in zip(("authentication", "reauthentication"), counts, strict=True):
            yield from figure("", f"{kafka}{verb}-{name}-total", about, (LISTENER, count))
    about = "Connections that were closed because their session had ended."
    yield from figure(
        "kohort_expired_sessions_total",
        f"{kafka}expired-connections-killed-count",
        about,
        logins.expired,
        kafka=[(LISTENER, logins.expired)],
    )
    about = "Connections that are not authenticated yet, on listeners with TLS or SASL."
    yield from figure("kohort_unauthenticated_connections", "", about, len(logins.pending))
    about = "Bytes that these connections have sent of handshakes and unfinished frames."
    yield from figure("kohort_unauthenticated_bytes", "", about, logins.pending.bytes)
    about = "Connections that were disconnected because too many were not authenticated, or held too many bytes."
    yield from figure("kohort_unauthenticated_evicted_total", "", about, logins.pending.evicted)


def telemetry_families(telemetry: Telemetry, now_ms: int) -> Iterator[Family | None]:
    """Client telemetry (KIP-714), and the metrics that clients have pushed; None between steps."""
    for name, about, value in (
        ("instances", "Instances of clients with subscriptions.", len(telemetry.instances)),
        ("pushes_total", "Accepted pushes of clients.", telemetry.pushes),
        ("refused_total", "Pushes that could not be read.", telemetry.refused),
        (
            "unknown_subscriptions_total",
            "Pushes for a subscription that has changed.",
            telemetry.unknown_subscriptions,
        ),
        ("dropped_total", "Pushed data points for which there was no room.", telemetry.received.dropped),
    ):
        yield from figure(f"kohort_telemetry_{name}", "", about, value)
    by_name: dict[str, list[Series]] = {}
    for number, series in enumerate(telemetry.received.series(now_ms), 1):
        by_name.setdefault(series.name, []).append(series)
        if number % _SERIES_STEP == 0:
            yield None
    for name, values in by_name.items():
        kind = "counter" if values[0].is_counter else "gauge"
        name = name.removesuffix("_total") if kind == "counter" else name
        yield LongFamily(name, kind, "Pushed by clients.", partial(_pushed_samples, values))


def _pushed_samples(values: Sequence[Series]) -> Iterator[Sample]:
    return (Sample(series.name, dict(series.labels), series.value) for series in values)


def authorizer_families(authorizer: AclAuthorizer) -> Iterator[Metric]:
    """The authorizer: Kafka's authorizer-metrics."""
    kafka = "kafka.server:type=authorizer-metrics/acls-total-count"
    yield from figure("kohort_acls", kafka, "Access rules.", len(authorizer.acls.index))
    refusals = sorted(authorizer.refusals.items())
    counts = [({"principal": printable(principal), "api": api}, count) for (principal, api), count in refusals]
    about = "Refused operations on resources, by `principal` and `api`; those of users beyond a thousand together."
    yield from figure("kohort_authorization_refused_total", "", about, *counts)


def log_families(logs: Sequence[LogMetrics], flushes: FlushMetrics) -> Iterator[Family]:
    """The logs; Kafka's Log, Partition, LogManager and LogFlushStats."""
    kafka = "kafka.log:type=Log,name="
    for own, mbean, about, attribute in (
        ("size_bytes", f"{kafka}Size", "Size of the batches, in bytes.", "size_bytes"),
        ("segments", f"{kafka}NumLogSegments", "Segments.", "segments"),
        ("start_offset", f"{kafka}LogStartOffset", "First offset of the log.", "log_start_offset"),
        ("end_offset", f"{kafka}LogEndOffset", "Log end offset: the offset of the next record.", "end_offset"),
        (
            "last_stable_offset_lag",
            "kafka.cluster:type=Partition,name=LastStableOffsetLag",
            "Offsets from the last stable offset to the high watermark.",
            "last_stable_offset_lag",
        ),
        (
            "retention_percent",
            f"{kafka}RetentionSizeInPercent",
            "Size in percent of `retention.bytes`; 0 without it.",
            "retention_percent",
        ),
    ):
        mbean += ",topic={},partition={}"
        for name, text in ((f"kohort_log_{own}", about), (exporter_name(mbean), kafka_help(mbean, about))):
            yield LongFamily(name, "gauge", text, partial(_log_samples, name, logs, attribute))
    offline = sum(log.is_offline for log in logs)
    mbean = "kafka.server:type=ReplicaManager,name=OfflineReplicaCount"
    about = "Partitions whose disk failed; they answer KAFKA_STORAGE_ERROR until the next start."
    yield from figure("kohort_log_offline_partitions", mbean, about, offline)
    mbean = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
    yield from figure("kohort_log_flushes_total", mbean, "Flushes before acknowledgements.", flushes.flushes)
    yield from figure("kohort_log_flush_seconds_total", "", "Total time of the flushes.", flushes.flush_time_s)


def _log_samples(name: str, logs: Sequence[LogMetrics], attribute: str) -> Iterator[Sample]:
    value = attrgetter(attribute)
    for log in logs:
        topic, partition = log.topic_partition
        yield Sample(name, {"topic": topic, "partition": str(partition)}, value(log))


def late_transactions(logs: Sequence[LogMetrics], now_ms: int, transaction_max_timeout_ms: int) -> int:
    """Partitions whose first open transaction should have timed out. Source: Kafka ReplicaManager."""
    late_ms = now_ms - transaction_max_timeout_ms - _LATE_TRANSACTION_BUFFER_MS
    return sum(log.oldest_transaction_ms is not None and log.oldest_transaction_ms < late_ms for log in logs)


def producer_families(logs: Sequence[LogMetrics], late: int) -> Iterator[Metric]:
    """The producers of all logs, and the number of `late_transactions`; Kafka's ReplicaManager."""
    kafka, producers = "kafka.server:type=ReplicaManager,name=", sum(log.producers for log in logs)
    yield from figure("kohort_log_producers", f"{kafka}ProducerIdCount", "Producers whose state is known.", producers)
    own = "kohort_log_partitions_with_late_transactions"
    about = "Partitions whose first open transaction should have timed out; readers of committed records wait there."
    yield from figure(own, f"{kafka}PartitionsWithLateTransactionsCount", about, late)


def produce_families(invalid: int, verification: VerificationMetrics) -> Iterator[Metric]:
    """Produce; Kafka's BrokerTopicMetrics and AddPartitionsToTxnManager."""
    own = "kohort_produce_invalid_offset_or_sequence_total"
    mbean = "kafka.server:type=BrokerTopicMetrics,name=InvalidOffsetOrSequenceRecordsPerSec"
    yield from figure(own, mbean, "Batches refused for their offsets or their sequence number.", invalid)
    own, kafka = "kohort_transaction_verification", "kafka.server:type=AddPartitionsToTxnManager,name=Verification"
    about = "Partitions that the transaction coordinator refused."
    yield from figure(f"{own}_failures_total", f"{kafka}FailureRate", about, verification.failures)
    about = "Verification of a request's transaction, in milliseconds."
    yield times(f"{own}_time_ms", about, verification.time)
    quantiles = [float(verification.time.quantile_ms(fraction)) for fraction in QUANTILES]
    yield summary(f"{kafka}TimeMs", about, [({}, verification.time.count, quantiles)])


def cleaner_families(metrics: CleanerMetrics) -> Iterator[Metric]:
    """The log cleaner; Kafka's LogCleaner and LogCleanerManager."""
    cleaner, manager = "kafka.log:type=LogCleaner,name=", "kafka.log:type=LogCleanerManager,name="
    recopied = "Last pass: bytes written, in percent of the bytes read."
    filled = "Fill level of the key map in the last pass."
    delayed = "Seconds by which a log exceeds max.compaction.lag.ms."
    failed = "Partitions whose cleaning failed; they are not cleaned until the next start."
    for own, mbean, about, value in (
        ("passes_total", "", "Compacted logs.", metrics.passes),
        ("read_bytes_total", "", "Bytes read; dirty parts are read twice.", metrics.bytes_read),
        ("written_bytes_total", "", "Bytes retained and written.", metrics.bytes_written),
        ("invalid_records_total", "", "Records dropped for lack of a key.", metrics.invalid_records),
        ("recopy_percent", f"{cleaner}cleaner-recopy-percent", recopied, metrics.recopy_percent),
        (
            "max_clean_time_seconds",
            f"{cleaner}max-clean-time-secs",
            "Duration of the last pass.",
            metrics.max_clean_time_s,
        ),
        (
            "max_buffer_utilization_percent",
            f"{cleaner}max-buffer-utilization-percent",
            filled,
            metrics.max_buffer_utilization_percent,
        ),
        (
            "max_dirty_percent",
            f"{manager}max-dirty-percent",
            "Dirty part of the dirtiest log.",
            metrics.max_dirty_percent,
        ),
        (
            "max_compaction_delay_seconds",
            f"{cleaner}max-compaction-delay-secs",
            delayed,
            metrics.max_compaction_delay_s,
        ),
        ("uncleanable_partitions", "", failed, metrics.uncleanable_partitions),
        ("uncleanable_bytes", "", "Size of the uncleanable partitions.", metrics.uncleanable_bytes),
    ):
        yield from figure(f"kohort_log_cleaner_{own}", mbean, about, value)
    own, mbean = "kohort_log_cleaner_since_last_run_seconds", f"{manager}time-since-last-run-ms"
    about = "Time since the cleaner last looked for a log to clean."
    since_s = metrics.since_last_run_s
    yield from figure(own, mbean, about, since_s, kafka=[1000 * since_s])


def purgatory_families(metrics: PurgatoryMetrics) -> Iterator[Metric]:
    """The purgatory of Fetch; Kafka's DelayedOperationPurgatory."""
    labels = {"delayedOperation": "Fetch"}
    for name, kafka, about, value in (
        ("size", "PurgatorySize", "Entries in watch lists, one per operation and key.", metrics.size),
        ("delayed_operations", "NumDelayedOperations", "Operations that wait.", metrics.delayed_operations),
    ):
        mbean = f"kafka.server:type=DelayedOperationPurgatory,name={kafka},delayedOperation={{}}"
        yield from figure(f"kohort_fetch_purgatory_{name}", mbean, about, value, kafka=[(labels, value)])


def controller_families(broker: Broker, logs: Sequence[LogMetrics], *, is_stopping: bool) -> Iterator[Metric]:
    """Kafka's ReplicaManager, KafkaServer and KafkaController. The process leads all partitions of the catalog."""
    offline = sum(log.is_offline for log in logs)
    topics = list(broker.catalog.topics())
    partitions = sum(topic.partition_count for topic in topics)
    brokers = broker.cluster.brokers.values()
    fenced = sum(each.is_fenced for each in brokers)
    state = STOPPING if is_stopping else RUNNING
    manager, controller = "kafka.server:type=ReplicaManager,name=", "kafka.controller:type=KafkaController,name="
    for mbean, about, value in (
        (f"{manager}PartitionCount", "Partitions of this broker.", partitions),
        (f"{manager}LeaderCount", "Partitions that this broker leads.", partitions - offline),
        ("kafka.server:type=KafkaServer,name=BrokerState", "3 if running, 6 while stopping.", state),
        (
            f"{controller}ActiveControllerCount",
            "1 if this process changes the catalog, else 0.",
            int(broker.catalog.is_led),
        ),
        (f"{controller}ActiveBrokerCount", "Brokers that run.", len(brokers) - fenced),
        (f"{controller}FencedBrokerCount", "Brokers that were stopped.", fenced),
        (f"{controller}GlobalTopicCount", "Topics.", len(topics)),
        (f"{controller}GlobalPartitionCount", "Partitions.", partitions),
        (f"{controller}OfflinePartitionsCount", "Partitions without a leader.", offline),
    ):
        yield from figure("", mbean, about, value)
    yield from replica_families(state for topic in topics for state in topic.partitions)


def replica_families(states: Iterable[PartitionState]) -> Iterator[Metric]:
    """
    Replicas of virtual brokers: Kafka's ReplicaManager and KafkaController.

    Args:
        states: of all partitions of topics with replicas. A topic of a cluster of one broker has no states.
    """
    under_replicated = not_preferred = 0
    for state in states:
        under_replicated += state.leader != NO_LEADER and len(state.isr) < len(state.replicas)
        not_preferred += state.leader != state.replicas[0]
    about = "Partitions with a leader and fewer in-sync replicas than replicas."
    yield from figure("", "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions", about, under_replicated)
    about = "Partitions that their first replica does not lead."
    yield from figure(
        "", "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount", about, not_preferred
    )


def traffic_families(traffic: Traffic) -> Iterator[Family]:
    """Kafka's BrokerTopicMetrics: of all topics, and of each."""
    topics = sorted(traffic.topics)
    for name, attribute, about in (
        ("MessagesIn", "messages_in", "Records that were appended for producers."),
        ("BytesIn", "bytes_in", "Bytes that were appended for producers."),
        ("BytesOut", "bytes_out", "Bytes of records in answers to Fetch."),
        ("BytesRejected", "bytes_rejected", "Bytes of batches that are too large."),
        ("TotalProduceRequests", "produce_requests", "Partitions in Produce requests."),
        ("FailedProduceRequests", "failed_produce_requests", "Those answered with an error of the broker."),
        ("TotalFetchRequests", "fetch_requests", "Partitions in Fetch requests."),
        ("FailedFetchRequests", "failed_fetch_requests", "Those answered with an error of the broker."),
    ):
        mbean = f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec"
        name = exporter_name(mbean)
        samples = partial(_traffic_samples, f"{name}_total", traffic, topics, attribute)
        yield LongFamily(name, "counter", kafka_help(mbean, about), samples)


def _traffic_samples(name: str, traffic: Traffic, topics: Sequence[str], attribute: str) -> Iterator[Sample]:
    value: Callable[[TopicTraffic], int] = attrgetter(attribute)
    yield Sample(name, {}, value(traffic.unknown) + sum(map(value, traffic.topics.values())))
    for topic in topics:
        counted = traffic.topics.get(topic)
        if counted is not None:
            yield Sample(name, {"topic": topic}, value(counted))
