"""
Kafka's metrics under the names that the JMX exporter's example rules give them, so that dashboards for Kafka work.

An MBean `kafka.server:type=ReplicaManager,name=LeaderCount` becomes `kafka_server_replicamanager_leadercount`. The rules write
names in lower case, replace `PerSec` by `_total`, and take meters by their count. The help of each metric ends with its MBean.

Source: example rules kafka-2_0_0.yml and kafka-kraft-3_0_0.yml of the JMX exporter; names of MBeans of Apache Kafka 4.2.1.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.samples import Sample

from kohort.broker.records.traffic import TopicTraffic, Traffic
from kohort.broker.replicas import NO_LEADER, PartitionState
from kohort.group.kinds import KINDS
from kohort.group.metrics import GroupCounters, GroupGauges
from kohort.model.errors import ErrorCode
from kohort.runtime.metrics import Histogram, RuntimeMetrics
from kohort.runtime.purgatory import PurgatoryMetrics
from kohort.scrape import Family
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.metrics.latency import LatencyHistogram
from kohort.server.metrics.log_gauges import LogGauge
from kohort.storage.log import CleanerMetrics, FlushMetrics, LogMetrics
from kohort.transaction.metrics import TransactionGauges
from kohort.wire.apis import ApiKey

Labels = Mapping[str, str]
Value = tuple[Labels, float]

_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_QUANTILE_NAMES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
_NAMES: Final = {ApiKey.FETCH: ("Fetch", "FetchConsumer")}
"""Source: Kafka RequestChannel.updateRequestMetrics: a Fetch of a consumer counts under both names."""
LISTENER: Final = {"listener": "PLAINTEXT", "networkProcessor": "0"}
RUNNING: Final = 3
STOPPING: Final = 6
"""States of a broker. Source: Kafka BrokerState."""
STATES_OF_CLASSIC_GROUPS: Final = {
    "PreparingRebalance": "NumGroupsPreparingRebalance",
    "CompletingRebalance": "NumGroupsCompletingRebalance",
    "Stable": "NumGroupsStable",
    "Dead": "NumGroupsDead",
    "Empty": "NumGroupsEmpty",
}


def exporter_name(mbean: str) -> str:
    """
    The name of a metric, without the suffix of its samples.

    Args:
        mbean: `domain:type=T,name=N`, or `domain:type=T` and an attribute behind a slash for Kafka's own metrics.
    """
    bean, _, attribute = mbean.partition("/")
    domain, _, keys = bean.partition(":")
    pairs = dict(pair.split("=", 1) for pair in keys.split(",") if "=" in pair)
    name = pairs.get("name", attribute)
    name = re.sub(r"PerSec\w*$", "", name)
    name = re.sub(r"Percent\w*$", "_percent", name)
    return re.sub(r"[^a-z0-9]+", "_", f"{domain}_{pairs['type']}_{name}".lower())


def _gauge(mbean: str, about: str, *values: Value | float) -> Metric:
    family = GaugeMetricFamily(exporter_name(mbean), f"{about} {_shown(mbean)}")
    for labels, value in map(_pair, values):
        family.samples.append(Sample(family.name, dict(labels), value))
    return family


def _counter(mbean: str, about: str, *values: Value | float) -> Metric:
    """A counter: a meter by its count, or an attribute that ends with `-total`."""
    name = exporter_name(mbean).removesuffix("_total")
    family = CounterMetricFamily(name, f"{about} {_shown(mbean)}")
    for labels, value in map(_pair, values):
        family.samples.append(Sample(f"{name}_total", dict(labels), value))
    return family


def _count(mbean: str, about: str, value: float) -> Metric:
    """The count of a meter or timer whose name does not end with `PerSec`."""
    family = Metric(exporter_name(mbean), f"{about} {_shown(mbean)}", "summary")
    family.samples.append(Sample(f"{family.name}_count", {}, value))
    return family


def _summary(mbean: str, about: str, values: Iterable[tuple[Labels, int, Sequence[float]]]) -> Metric:
    """Quantiles and count of durations; `_sum`, which the exporter does not have, is left out."""
    family = SummaryMetricFamily(exporter_name(mbean), f"{about} {_shown(mbean)}")
    for labels, count, quantiles in values:
        family.samples.append(Sample(f"{family.name}_count", dict(labels), count))
        for name, value in zip(_QUANTILE_NAMES, quantiles, strict=True):
            family.samples.append(Sample(family.name, {**labels, "quantile": name}, value))
    return family


def _pair(value: Value | float) -> Value:
    return value if isinstance(value, tuple) else ({}, value)


def _shown(mbean: str) -> str:
    return f"MBean {mbean.replace('/', ' ')}."


class TrafficCounter:
    """
    A counter of all topics, and of each. Its samples are made while the text is made.

    Args:
        attribute: of `TopicTraffic`.
    """

    type = "counter"

    def __init__(self, mbean: str, about: str, traffic: Traffic, topics: Sequence[str], attribute: str) -> None:
        self.name = exporter_name(mbean)
        self.documentation = f"{about} {_shown(mbean)}"
        self._traffic = traffic
        self._topics = topics
        self._value: Callable[[TopicTraffic], int] = attrgetter(attribute)

    @property
    def samples(self) -> Iterator[Sample]:
        name, value, topics = f"{self.name}_total", self._value, self._traffic.topics
        yield Sample(name, {}, value(self._traffic.unknown) + sum(map(value, topics.values())))
        for topic in self._topics:
            traffic = topics.get(topic)
            if traffic is not None:
                yield Sample(name, {"topic": topic}, value(traffic))


def traffic_families(traffic: Traffic, invalid_offsets_or_sequences: int) -> Iterator[Family]:
    """BrokerTopicMetrics: of all topics, and of each."""
    counters = {
        "MessagesIn": ("messages_in", "Records that were appended for producers."),
        "BytesIn": ("bytes_in", "Bytes that were appended for producers."),
        "BytesOut": ("bytes_out", "Bytes of records in answers to Fetch."),
        "BytesRejected": ("bytes_rejected", "Bytes of batches that are too large."),
        "TotalProduceRequests": ("produce_requests", "Partitions in Produce requests."),
        "FailedProduceRequests": ("failed_produce_requests", "Those answered with an error of the broker."),
        "TotalFetchRequests": ("fetch_requests", "Partitions in Fetch requests."),
        "FailedFetchRequests": ("failed_fetch_requests", "Those answered with an error of the broker."),
    }
    topics = sorted(traffic.topics)
    for name, (attribute, about) in counters.items():
        mbean = f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec"
        yield TrafficCounter(mbean, about, traffic, topics, attribute)
    about = "Batches refused for their offsets or their sequence number."
    mbean = "kafka.server:type=BrokerTopicMetrics,name=InvalidOffsetOrSequenceRecordsPerSec"
    yield _counter(mbean, about, invalid_offsets_or_sequences)


def request_families(connections: ClientConnections) -> Iterator[Metric]:
    """RequestMetrics, and the connections of the listener."""
    requests: Counter[tuple[str, str]] = Counter()
    latencies: dict[str, LatencyHistogram] = {}
    for route in connections.routes:
        for name in _NAMES.get(route.api_key, (route.api_key.api_name,)):
            requests[name, str(route.version)] += route.requests
            latencies.setdefault(name, LatencyHistogram()).add(route.latency)
    values = [({"request": name, "version": version}, count) for (name, version), count in sorted(requests.items())]
    mbean = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request={},version={}"
    yield _counter(mbean, "Requests, by API and version.", *values)
    milliseconds = [
        ({"request": name}, each.count, [1000 * value for value in each.quantiles(_QUANTILES)])
        for name, each in sorted(latencies.items())
    ]
    about = "Milliseconds from the start of a request to its answer."
    yield _summary("kafka.network:type=RequestMetrics,name=TotalTimeMs,request={}", about, milliseconds)
    prefix = "kafka.server:type=socket-server-metrics,listener={},networkProcessor={}/"
    open_count = sum(limits.count for limits in connections.limits.values())
    yield _gauge(f"{prefix}connection-count", "Open connections.", (LISTENER, open_count))
    yield _counter(f"{prefix}connection-creation-total", "Accepted connections.", (LISTENER, connections.accepted))
    closed = max(connections.accepted - open_count, 0)
    yield _counter(f"{prefix}connection-close-total", "Closed connections.", (LISTENER, closed))


def broker_families(
    logs: Sequence[LogMetrics], topics: int, partitions: int, state: int, late: int, brokers: int, fenced: int
) -> Iterator[Metric]:
    """
    ReplicaManager, KafkaServer and KafkaController.

    Args:
        topics, partitions: those of the catalog; this broker leads all of them.
        state: the state of the broker.
        late: partitions with late transactions.
        brokers, fenced: the brokers of the process that run, and those that were stopped.
    """
    offline = sum(log.is_offline for log in logs)
    manager = "kafka.server:type=ReplicaManager,name="
    yield _gauge(f"{manager}PartitionCount", "Partitions of this broker.", partitions)
    yield _gauge(f"{manager}LeaderCount", "Partitions that this broker leads.", partitions - offline)
    yield _gauge(f"{manager}OfflineReplicaCount", "Partitions whose disk failed.", offline)
    producers = sum(log.producers for log in logs)
    yield _gauge(f"{manager}ProducerIdCount", "Producers whose state is known.", producers)
    about = "Partitions whose first open transaction should have timed out."
    yield _gauge(f"{manager}PartitionsWithLateTransactionsCount", about, late)
    yield _gauge("kafka.server:type=KafkaServer,name=BrokerState", "3 if running, 6 while stopping.", state)
    controller = "kafka.controller:type=KafkaController,name="
    yield _gauge(f"{controller}ActiveControllerCount", "1: this process keeps the catalog of topics.", 1)
    yield _gauge(f"{controller}ActiveBrokerCount", "Brokers that run.", brokers)
    yield _gauge(f"{controller}FencedBrokerCount", "Brokers that were stopped.", fenced)
    yield _gauge(f"{controller}GlobalTopicCount", "Topics.", topics)
    yield _gauge(f"{controller}GlobalPartitionCount", "Partitions.", partitions)
    yield _gauge(f"{controller}OfflinePartitionsCount", "Partitions without a leader.", offline)


def replica_families(states: Iterable[PartitionState]) -> Iterator[Metric]:
    """
    Replicas of virtual brokers: ReplicaManager and KafkaController.

    Args:
        states: of all partitions of topics with replicas. A topic of a cluster of one broker has no states.
    """
    under_replicated = not_preferred = 0
    for state in states:
        under_replicated += state.leader != NO_LEADER and len(state.isr) < len(state.replicas)
        not_preferred += state.leader != state.replicas[0]
    about = "Partitions with a leader and fewer in-sync replicas than replicas."
    yield _gauge("kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions", about, under_replicated)
    about = "Partitions that their first replica does not lead."
    yield _gauge("kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount", about, not_preferred)


def log_families(logs: Sequence[LogMetrics], flushes: FlushMetrics) -> Iterator[Family]:
    """Log, Partition and LogFlushStats."""
    named: dict[str, tuple[Callable[[LogMetrics], float], str]] = {
        "kafka.log:type=Log,name=Size": (attrgetter("size_bytes"), "Size of the batches, in bytes."),
        "kafka.log:type=Log,name=NumLogSegments": (attrgetter("segments"), "Segments."),
        "kafka.log:type=Log,name=LogStartOffset": (attrgetter("log_start_offset"), "First offset of the log."),
        "kafka.log:type=Log,name=LogEndOffset": (attrgetter("end_offset"), "The offset of the next record."),
        "kafka.cluster:type=Partition,name=LastStableOffsetLag": (
            attrgetter("last_stable_offset_lag"),
            "Offsets from the last stable offset to the high watermark.",
        ),
    }
    for bean, (value, about) in named.items():
        mbean = f"{bean},topic={{}},partition={{}}"
        yield LogGauge(exporter_name(mbean), f"{about} {_shown(mbean)}", logs, value)
    about = "Flushes before acknowledgements."
    yield _count("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", about, flushes.flushes)


def cleaner_families(metrics: CleanerMetrics) -> Iterator[Metric]:
    """LogCleaner and LogCleanerManager."""
    cleaner = "kafka.log:type=LogCleaner,name="
    about = "Last pass: bytes written, in percent of the bytes read."
    yield _gauge(f"{cleaner}cleaner-recopy-percent", about, metrics.recopy_percent)
    yield _gauge(f"{cleaner}max-clean-time-secs", "Duration of the last pass.", metrics.max_clean_time_s)
    about = "Fill level of the key map in the last pass."
    yield _gauge(f"{cleaner}max-buffer-utilization-percent", about, metrics.max_buffer_utilization_percent)
    about = "Seconds by which a log exceeds max.compaction.lag.ms."
    yield _gauge(f"{cleaner}max-compaction-delay-secs", about, metrics.max_compaction_delay_s)
    manager = "kafka.log:type=LogCleanerManager,name="
    yield _gauge(f"{manager}max-dirty-percent", "Dirty part of the dirtiest log.", metrics.max_dirty_percent)
    about = "Milliseconds since the cleaner last looked for a log to clean."
    yield _gauge(f"{manager}time-since-last-run-ms", about, 1000 * metrics.since_last_run_s)


def purgatory_families(operation: str, metrics: PurgatoryMetrics) -> Iterator[Metric]:
    """DelayedOperationPurgatory; `operation` is the value of its label, "Fetch"."""
    prefix = "kafka.server:type=DelayedOperationPurgatory,name={},delayedOperation={{}}"
    labels = {"delayedOperation": operation}
    yield _gauge(prefix.format("PurgatorySize"), "Entries in watch lists.", (labels, metrics.size))
    about = "Operations that wait."
    yield _gauge(prefix.format("NumDelayedOperations"), about, (labels, metrics.delayed_operations))


def session_families(sessions: int, partitions: int) -> Iterator[Metric]:
    """FetchSessionCache."""
    prefix = "kafka.server:type=FetchSessionCache,name="
    yield _gauge(f"{prefix}NumIncrementalFetchSessions", "Fetch sessions.", sessions)
    yield _gauge(f"{prefix}NumIncrementalFetchPartitionsCached", "Partitions of fetch sessions.", partitions)


def verification_families(failures: int, time: Histogram) -> Iterator[Metric]:
    """AddPartitionsToTxnManager."""
    prefix = "kafka.server:type=AddPartitionsToTxnManager,name="
    about = "Partitions that the transaction coordinator refused."
    yield _count(f"{prefix}VerificationFailureRate", about, failures)
    quantiles = [float(time.quantile_ms(fraction)) for fraction in _QUANTILES]
    about = "Milliseconds of the verification of a request's transaction."
    yield _summary(f"{prefix}VerificationTimeMs", about, [({}, time.count, quantiles)])


def group_families(gauges: GroupGauges, counters: GroupCounters) -> Iterator[Metric]:
    """GroupMetadataManager and group-coordinator-metrics."""
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name="
    classic = {state: gauges.groups["classic", state] for state in STATES_OF_CLASSIC_GROUPS}
    yield _gauge(f"{manager}NumGroups", "Groups of the classic protocol.", sum(classic.values()))
    yield _gauge(f"{manager}NumOffsets", "Committed offsets.", gauges.offsets)
    for state, name in STATES_OF_CLASSIC_GROUPS.items():
        yield _gauge(f"{manager}{name}", f"Groups of the classic protocol in state {state}.", classic[state])
    metrics = "kafka.server:type=group-coordinator-metrics"
    counts = [({"protocol": kind.name}, sum(gauges.groups[kind.name, one] for one in kind.states)) for kind in KINDS]
    yield _gauge(f"{metrics},protocol={{}}/group-count", "Groups, by protocol.", *counts)
    for kind in KINDS:
        if kind.name != "classic":
            states = [({"state": state}, gauges.groups[kind.name, state]) for state in kind.states]
            about = f"Groups of the {kind.name} protocol, by state."
            yield _gauge(f"{metrics},state={{}}/{kind.name}-group-count", about, *states)
    numbers = {
        "offset-commit-count": ("Accepted offsets.", counters.offset_commits),
        "offset-expiration-count": ("Expired offsets.", counters.offset_expirations),
        "offset-deletion-count": ("Offsets deleted by OffsetDelete.", counters.offset_deletions),
        "group-completed-rebalance-count": ("Completed rebalances of classic groups.", counters.completed_rebalances),
        "consumer-group-rebalance-count": ("Raised epochs of consumer groups.", counters.consumer_rebalances),
    }
    for name, (about, value) in numbers.items():
        yield _gauge(f"{metrics}/{name}", about, value)


def heartbeat_families(refused: Mapping[tuple[str, ErrorCode], int]) -> Iterator[Metric]:
    """RequestMetrics: of the errors by code, those of heartbeats that were refused."""
    about = "Refused heartbeats, by API and error; Kafka counts all requests, and REBALANCE_IN_PROGRESS and NONE, too."
    counts = [({"request": api, "error": error.name}, count) for (api, error), count in sorted(refused.items())]
    yield _counter("kafka.network:type=RequestMetrics,name=ErrorsPerSec,request={},error={}", about, *counts)


def runtime_families(coordinator: str, runtime: RuntimeMetrics) -> Iterator[Metric]:
    """group-coordinator-metrics and transaction-coordinator-metrics; of the latter Kafka has the times of loads only."""
    metrics = f"kafka.server:type={coordinator}-coordinator-metrics"
    loads = f"{metrics}/partition-load-time-"
    yield _gauge(f"{loads}max", "Longest load of the last 30 seconds, in milliseconds.", runtime.load_time_max_ms)
    yield _gauge(f"{loads}avg", "Mean load of the last 30 seconds, in milliseconds.", runtime.load_time_avg_ms)
    if coordinator != "group":
        return
    states = [({"state": state.value.lower()}, count) for state, count in runtime.partitions.items()]
    yield _gauge(f"{metrics},state={{}}/num-partitions", "Partitions of __consumer_offsets, by state.", *states)
    yield _gauge(f"{metrics}/event-queue-size", "Waiting operations.", runtime.event_queue_size)
    about = "Fraction of time in which the threads that run operations were idle."
    yield _gauge(f"{metrics}/thread-idle-ratio-avg", about, runtime.thread_idle_ratio)
    for histogram in ("event-queue", "event-processing", "event-purgatory", "batch-flush", "batch-linger"):
        times = runtime[f"{histogram.replace('-', '_')}_time"]
        about = f"{histogram.replace('-', ' ').capitalize()} time, in milliseconds:"
        yield _gauge(f"{metrics}/{histogram}-time-ms-max", f"{about} the longest.", times.max_ms)
        for name, fraction in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            yield _gauge(f"{metrics}/{histogram}-time-ms-{name}", f"{about} {name}.", times.quantile_ms(fraction))


def transaction_families(gauges: TransactionGauges) -> Iterator[Metric]:
    """TransactionMarkerChannelManager."""
    about = "Markers that a partition could not take, and that are sent again."
    name = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=LogAppendRetryQueueSize"
    yield _gauge(name, about, gauges.markers_retrying)
