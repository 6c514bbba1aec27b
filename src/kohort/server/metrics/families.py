"""
The metrics of a node as families of prometheus-client, computed at each scrape.

Imported with `--metrics-port` only: importing prometheus-client costs a third of the budget of a start. A coordinator has its
families in `Coordinator.figures`; `runtime_families` has those of its runtime.
"""

import math
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from kohort.broker.records.produce_verification import VerificationMetrics
from kohort.broker.telemetry.received import Series
from kohort.broker.telemetry.telemetry import Telemetry
from kohort.group.kinds import KINDS
from kohort.group.metrics import GroupCounters, GroupGauges
from kohort.model.errors import ErrorCode
from kohort.runtime.metrics import Histogram, RuntimeMetrics
from kohort.runtime.purgatory import PurgatoryMetrics
from kohort.scrape import Family
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.logs import LogWriter
from kohort.server.metrics.latency import LatencyHistogram
from kohort.server.metrics.log_gauges import LogGauge
from kohort.storage.log import CleanerMetrics, FlushMetrics, LogMetrics
from kohort.transaction.metrics import TransactionCounters, TransactionGauges

_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)
_LATE_TRANSACTION_BUFFER_MS = 300_000
"""Source: Kafka ProducerStateManager.LATE_TRANSACTION_BUFFER_MS."""
_SERIES_STEP = 100
"""Pushed values that are looked at between two yields."""
_STATM = Path("/proc/self/statm")
_OPEN_FILES = Path("/proc/self/fd")


def counter(name: str, about: str, value: float) -> Metric:
    """A counter without labels; `name` ends with `_total`."""
    return CounterMetricFamily(name, about, value=value)


def gauge(name: str, about: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, about, value=value)


def gauges_by(label: str, name: str, about: str, values: Iterable[tuple[str, float]]) -> Metric:
    """A gauge with one label."""
    family = GaugeMetricFamily(name, about, labels=[label])
    for text, value in values:
        family.add_metric([text], value)
    return family


def process_families(started_at_s: float) -> Iterator[Metric]:
    """The process, under the names that every exporter uses. Memory and files need a `/proc`."""
    yield gauge("process_start_time_seconds", "Start of the broker, in seconds since 1970.", started_at_s)
    yield counter("process_cpu_seconds_total", "Processor time, user and system.", time.process_time())
    yield gauge("kohort_uptime_seconds", "Time since the start of the broker.", time.time() - started_at_s)
    if _STATM.exists():
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield gauge("process_resident_memory_bytes", "Resident memory.", resident)
        yield gauge("process_open_fds", "Open files and sockets.", len(os.listdir(_OPEN_FILES)))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield gauge("process_max_fds", "How many files and sockets may be open.", limit)


def server_families(connections: ClientConnections) -> Iterator[Metric]:
    """The listener: connections, and requests by API."""
    yield gauge("kohort_connections", "Open connections of clients.", len(connections.open))
    yield counter("kohort_connections_accepted_total", "Accepted connections.", connections.accepted)
    about = "Connections that are not read for a time, because their client has exceeded a quota."
    yield gauge("kohort_throttled_connections", about, connections.throttled)
    yield gauge("kohort_unsent_bytes", "Replies that slow clients have not taken.", connections.unsent_bytes)
    requests: Counter[str] = Counter()
    latencies: dict[str, LatencyHistogram] = {}
    for route in connections.routes:
        requests[route.api_key.api_name] += route.requests
        latencies.setdefault(route.api_key.api_name, LatencyHistogram()).add(route.latency)
    family = CounterMetricFamily("kohort_requests_total", "Requests received, by API.", labels=["api"])
    for api_name, count in sorted(requests.items()):
        family.add_metric([api_name], count)
    yield family
    about = "Connections closed because their address had too many."
    rejected = sum(limits.rejected for limits in connections.limits.values())
    yield counter("kohort_connections_rejected_total", about, rejected)
    about = "Seconds from the start of a request to its answer, by API; includes waiting for a flush or for records."
    histogram = HistogramMetricFamily("kohort_request_seconds", about, labels=["api"])
    for api_name, latency in sorted(latencies.items()):
        buckets = [("+Inf" if math.isinf(bound) else repr(bound), count) for bound, count in latency.bounded()]
        histogram.add_metric([api_name], buckets, sum_value=latency.seconds)
    yield histogram


class PushedMetric:
    """A metric that clients have pushed. Its samples are made while the text is made."""

    documentation = "Pushed by clients."

    def __init__(self, name: str, values: Sequence[Series]) -> None:
        self.type = "counter" if values[0].is_counter else "gauge"
        self.name = name.removesuffix("_total") if values[0].is_counter else name
        self._values = values

    @property
    def samples(self) -> Iterator[Sample]:
        for series in self._values:
            yield Sample(series.name, dict(series.labels), series.value)


def telemetry_families(telemetry: Telemetry, now_ms: int) -> Iterator[Family | None]:
    """Client telemetry (KIP-714), and the metrics that clients have pushed; None between steps."""
    yield gauge("kohort_telemetry_instances", "Instances of clients with subscriptions.", len(telemetry.instances))
    yield counter("kohort_telemetry_pushes_total", "Accepted pushes of clients.", telemetry.pushes)
    yield counter("kohort_telemetry_refused_total", "Pushes that could not be read.", telemetry.refused)
    about = "Pushes for a subscription that has changed."
    yield counter("kohort_telemetry_unknown_subscriptions_total", about, telemetry.unknown_subscriptions)
    about = "Pushed data points for which there was no room."
    yield counter("kohort_telemetry_dropped_total", about, telemetry.received.dropped)
    by_name: dict[str, list[Series]] = {}
    for number, series in enumerate(telemetry.received.series(now_ms), 1):
        by_name.setdefault(series.name, []).append(series)
        if number % _SERIES_STEP == 0:
            yield None
    for name, values in by_name.items():
        yield PushedMetric(name, values)


def log_family(log: LogWriter | None) -> Metric:
    """The log of the broker itself."""
    dropped = 0 if log is None else log.dropped
    return counter("kohort_log_lines_dropped_total", "Log lines that nobody read in time.", dropped)


def group_families(gauges: GroupGauges, counters: GroupCounters) -> Iterator[Metric]:
    """The group coordinator. Source: Kafka's documentation, section "group-coordinator-metrics"."""
    prefix = "kohort_group_coordinator"
    totals = [(kind.name, sum(gauges.groups[kind.name, state] for state in kind.states)) for kind in KINDS]
    yield gauges_by("protocol", f"{prefix}_groups", "Groups, by protocol.", totals)
    for kind in KINDS:
        by_state = [(state, gauges.groups[kind.name, state]) for state in kind.states]
        about = f"{kind.name.capitalize()} groups, by state."
        yield gauges_by("state", f"{prefix}_{kind.name}_groups", about, by_state)
        yield gauge(f"{prefix}_{kind.name}_members", f"Members of {kind.name} groups.", gauges.members[kind.name])
    yield gauge(f"{prefix}_offsets", "Committed offsets.", gauges.offsets)
    yield counter(
        f"{prefix}_offset_commits_total", "Accepted offsets, one for each partition.", counters.offset_commits
    )
    yield counter(f"{prefix}_offset_expirations_total", "Expired offsets.", counters.offset_expirations)
    yield counter(f"{prefix}_offset_deletions_total", "Offsets deleted by OffsetDelete.", counters.offset_deletions)
    about = "Completed rebalances: transitions of classic groups to Stable."
    yield counter(f"{prefix}_completed_rebalances_total", about, counters.completed_rebalances)
    about = "Epochs of consumer groups that a heartbeat, a join or resolved regular expressions raised."
    yield counter(f"{prefix}_consumer_rebalances_total", about, counters.consumer_rebalances)


def group_event_families(
    refused_heartbeats: Mapping[tuple[str, ErrorCode], int], rebalance_timeouts: int
) -> Iterator[Metric]:
    """Kafka counts neither: its ErrorsPerSec is about all requests, and time-outs of rebalances are in its log only."""
    prefix = "kohort_group_coordinator"
    about = "Heartbeats that were refused by their group or for their form; REBALANCE_IN_PROGRESS does not count."
    refused = CounterMetricFamily(f"{prefix}_refused_heartbeats_total", about, labels=["api", "error"])
    for (api, error), count in sorted(refused_heartbeats.items()):
        refused.add_metric([api, error.name], count)
    yield refused
    about = (
        "Members removed because they did not join, synchronise or revoke partitions within their rebalance timeout."
    )
    yield counter(f"{prefix}_rebalance_timeouts_total", about, rebalance_timeouts)


def transaction_families(gauges: TransactionGauges, counters: TransactionCounters) -> Iterator[Metric]:
    """The transaction coordinator. Source: Kafka's TransactionMarkerChannelManager; the counters are Kohort's own."""
    prefix = "kohort_transaction_coordinator"
    yield gauge(f"{prefix}_ids", "Transactional ids.", gauges.ids)
    yield gauge(
        f"{prefix}_ongoing_transactions", "Transactions that are neither committed nor aborted.", gauges.ongoing
    )
    about = "Transactions that are decided, and whose completion is not written yet."
    yield gauge(f"{prefix}_ending_transactions", about, gauges.ending)
    yield gauge(f"{prefix}_markers_waiting", "Markers that are not durable yet.", gauges.markers_waiting)
    about = "Markers that a partition could not take, and that are sent again."
    yield gauge(f"{prefix}_markers_retrying", about, gauges.markers_retrying)
    yield counter(f"{prefix}_commits_total", "Transactions decided to be committed.", counters.committed)
    yield counter(f"{prefix}_aborts_total", "Transactions decided to be aborted.", counters.aborted)
    yield counter(f"{prefix}_timeouts_total", "Transactions aborted after their timeout.", counters.timed_out)
    about = "Transactions aborted because another producer began to use their transactional id."
    yield counter(f"{prefix}_fences_total", about, counters.fenced)
    yield counter(f"{prefix}_expired_ids_total", "Transactional ids that were forgotten.", counters.expired)


def log_families(logs: Sequence[LogMetrics], flushes: FlushMetrics) -> Iterator[Family]:
    """The logs. Source: Kafka's gauges of `Log` and `LogManager`, and its `LogFlushStats`."""
    gauges: dict[str, tuple[str, Callable[[LogMetrics], float]]] = {
        "size_bytes": ("Size of the batches.", attrgetter("size_bytes")),
        "segments": ("Segments.", attrgetter("segments")),
        "start_offset": ("First offset of the log.", attrgetter("log_start_offset")),
        "end_offset": ("Log end offset: the offset of the next record.", attrgetter("end_offset")),
        "last_stable_offset_lag": (
            "Offsets from the last stable offset to the high watermark.",
            attrgetter("last_stable_offset_lag"),
        ),
    }
    for name, (about, value) in gauges.items():
        yield LogGauge(f"kohort_log_{name}", about, logs, value)
    about = "Partitions whose disk failed; they answer KAFKA_STORAGE_ERROR until the next start."
    yield gauge("kohort_log_offline_partitions", about, sum(log.is_offline for log in logs))
    yield counter("kohort_log_flushes_total", "Flushes before acknowledgements.", flushes.flushes)
    yield counter("kohort_log_flush_seconds_total", "Total time of the flushes.", flushes.flush_time_s)


def late_transactions(logs: Sequence[LogMetrics], now_ms: int, transaction_max_timeout_ms: int) -> int:
    """Partitions whose first open transaction should have timed out. Source: Kafka ReplicaManager."""
    late_ms = now_ms - transaction_max_timeout_ms - _LATE_TRANSACTION_BUFFER_MS
    return sum(log.oldest_transaction_ms is not None and log.oldest_transaction_ms < late_ms for log in logs)


def producer_families(logs: Sequence[LogMetrics], late: int) -> Iterator[Metric]:
    """The producers of all logs, and the number of `late_transactions`. Source: Kafka's gauges of `ReplicaManager`."""
    yield gauge("kohort_log_producers", "Producers whose state is known.", sum(log.producers for log in logs))
    about = "Partitions whose first open transaction should have timed out; readers of committed records wait there."
    yield gauge("kohort_log_partitions_with_late_transactions", about, late)


def produce_families(invalid: int, verification: VerificationMetrics) -> Iterator[Metric]:
    """Produce. Source: Kafka's meters of `BrokerTopicMetrics` and `AddPartitionsToTxnManager`."""
    yield counter(
        "kohort_produce_invalid_offset_or_sequence_total",
        "Batches refused for their offsets or their sequence number.",
        invalid,
    )
    prefix = "kohort_transaction_verification"
    about = "Partitions that the transaction coordinator refused."
    yield counter(f"{prefix}_failures_total", about, verification.failures)
    about = "Verification of a request's transaction, in milliseconds."
    yield HistogramMetricFamily(
        f"{prefix}_time_ms", about, _buckets(verification.time), sum_value=verification.time.sum_ms
    )


def cleaner_families(metrics: CleanerMetrics) -> Iterator[Metric]:
    """The log cleaner. Source: Kafka's gauges of `LogCleaner` and `LogCleanerManager`."""
    prefix = "kohort_log_cleaner"
    yield counter(f"{prefix}_passes_total", "Compacted logs.", metrics.passes)
    yield counter(f"{prefix}_read_bytes_total", "Bytes read; dirty parts are read twice.", metrics.bytes_read)
    yield counter(f"{prefix}_written_bytes_total", "Bytes retained and written.", metrics.bytes_written)
    yield counter(f"{prefix}_invalid_records_total", "Records dropped for lack of a key.", metrics.invalid_records)
    about = "Last pass: bytes written, in percent of the bytes read."
    yield gauge(f"{prefix}_recopy_percent", about, metrics.recopy_percent)
    yield gauge(f"{prefix}_max_clean_time_seconds", "Duration of the last pass.", metrics.max_clean_time_s)
    about = "Fill level of the key map in the last pass."
    yield gauge(f"{prefix}_max_buffer_utilization_percent", about, metrics.max_buffer_utilization_percent)
    yield gauge(f"{prefix}_max_dirty_percent", "Dirty part of the dirtiest log.", metrics.max_dirty_percent)
    about = "Time by which a log exceeds max.compaction.lag.ms."
    yield gauge(f"{prefix}_max_compaction_delay_seconds", about, metrics.max_compaction_delay_s)
    about = "Partitions whose cleaning failed; they are not cleaned until the next start."
    yield gauge(f"{prefix}_uncleanable_partitions", about, metrics.uncleanable_partitions)
    yield gauge(f"{prefix}_uncleanable_bytes", "Size of the uncleanable partitions.", metrics.uncleanable_bytes)
    about = "Time since the cleaner last looked for a log to clean."
    yield gauge(f"{prefix}_since_last_run_seconds", about, metrics.since_last_run_s)


def runtime_families(coordinator: str, metrics: RuntimeMetrics) -> Iterator[Metric]:
    """
    The runtime of one coordinator. Source: Kafka CoordinatorRuntimeMetrics.

    Args:
        coordinator: the word in the names, "group" or "transaction".
    """
    prefix = f"kohort_{coordinator}_coordinator"
    partitions = [(state.value, count) for state, count in metrics.partitions.items()]
    yield gauges_by("state", f"{prefix}_partitions", "Partitions, by state.", partitions)
    yield gauge(f"{prefix}_event_queue_size", "Waiting operations.", metrics.event_queue_size)
    idle = "Fraction of time in which the threads that run operations were idle, since the last scrape."
    yield gauge(f"{prefix}_thread_idle_ratio", idle, metrics.thread_idle_ratio)
    about = "Records that loads could not decode, and left out."
    yield counter(f"{prefix}_records_set_aside_total", about, metrics.records_set_aside)
    yield gauge(f"{prefix}_load_time_max_ms", "Longest load of the last 30 seconds.", metrics.load_time_max_ms)
    yield gauge(f"{prefix}_load_time_avg_ms", "Mean load of the last 30 seconds.", metrics.load_time_avg_ms)
    for name in metrics:
        about = f"{name.replace('_', ' ').capitalize()}, in milliseconds."
        histogram = metrics[name]
        yield HistogramMetricFamily(f"{prefix}_{name}_ms", about, _buckets(histogram), sum_value=histogram.sum_ms)


def purgatory_families(operation: str, metrics: PurgatoryMetrics) -> Iterator[Metric]:
    """
    A purgatory. Source: Kafka DelayedOperationPurgatory.

    Args:
        operation: the word in the names, "fetch".
    """
    prefix = f"kohort_{operation}_purgatory"
    yield gauge(f"{prefix}_size", "Entries in watch lists, one per operation and key.", metrics.size)
    yield gauge(f"{prefix}_delayed_operations", "Operations that wait.", metrics.delayed_operations)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    counts = histogram.count_up_to(_BOUNDS_MS)
    bounded = [(str(bound), float(count)) for bound, count in zip(_BOUNDS_MS, counts, strict=True)]
    return [*bounded, ("+Inf", float(histogram.count))]
