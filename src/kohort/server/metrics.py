"""
What a node shows about itself: the numbers that its rooms keep, as families of samples.

Nothing is computed before somebody looks. A coordinator of another kind is added as one more `runtime_families` with its
name, and one more function beside `group_families`.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from kohort.group.kinds import KINDS
from kohort.group.metrics import GroupCounters, GroupGauges
from kohort.runtime.metrics import Histogram, RuntimeMetrics
from kohort.server.connection import Connections
from kohort.server.exposition import Family, Sample, counter, gauge, labelled
from kohort.storage.log import CleanerMetrics, StoreMetrics

_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)
_STATM = Path("/proc/self/statm")
_OPEN_FILES = Path("/proc/self/fd")


def process_families(started_at_s: float) -> Iterator[Family]:
    """The process, under the names that all exporters use; memory and files where there is a /proc."""
    yield gauge("process_start_time_seconds", "When the broker started, since 1970.", started_at_s)
    yield counter("process_cpu_seconds_total", "Processor time, of user and system.", time.process_time())
    yield gauge("kohort_uptime_seconds", "For how long the broker has been running.", time.time() - started_at_s)
    if _STATM.exists():
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield gauge("process_resident_memory_bytes", "Memory in use.", resident)
        yield gauge("process_open_fds", "Open files and sockets.", len(os.listdir(_OPEN_FILES)))


def server_families(connections: Connections) -> Iterator[Family]:
    """The listener: connections, and requests by API."""
    yield gauge("kohort_connections", "Open connections of clients.", len(connections.open))
    yield counter("kohort_connections_accepted_total", "Connections that were accepted.", connections.accepted)
    requests: Counter[str] = Counter()
    for route in connections.dispatch.routes.values():
        requests[route.api_key.api_name] += route.requests
    about = "Requests that were read, by API."
    yield labelled("kohort_requests_total", "counter", about, "api", sorted(requests.items()))


def group_families(gauges: GroupGauges, counters: GroupCounters) -> Iterator[Family]:
    """Section "group-coordinator-metrics" of Kafka's documentation, as far as there are groups of these kinds."""
    prefix = "kohort_group_coordinator"
    totals = [(kind.name, sum(gauges.groups[kind.name, state] for state in kind.states)) for kind in KINDS]
    yield labelled(f"{prefix}_groups", "gauge", "Groups, by protocol.", "protocol", totals)
    for kind in KINDS:
        title = kind.name.capitalize()
        by_state = [(state, gauges.groups[kind.name, state]) for state in kind.states]
        yield labelled(f"{prefix}_{kind.name}_groups", "gauge", f"{title} groups, by state.", "state", by_state)
        yield gauge(f"{prefix}_{kind.name}_members", f"Members of {kind.name} groups.", gauges.members[kind.name])
    yield gauge(f"{prefix}_offsets", "Committed offsets.", gauges.offsets)
    yield counter(f"{prefix}_offset_commits_total", "Offsets that were accepted.", counters.offset_commits)
    yield counter(f"{prefix}_offset_expirations_total", "Offsets that have lapsed.", counters.offset_expirations)
    yield counter(f"{prefix}_offset_deletions_total", "Offsets that clients deleted.", counters.offset_deletions)
    about = "How often a classic group became Stable."
    yield counter(f"{prefix}_completed_rebalances_total", about, counters.completed_rebalances)


def log_families(metrics: StoreMetrics) -> Iterator[Family]:
    """Kafka's gauges of `Log` and `LogManager`, and its `LogFlushStats`."""
    logs = metrics.logs
    gauges: tuple[tuple[str, str, list[float]], ...] = (
        ("size_bytes", "Bytes of batches.", [log.size_bytes for log in logs]),
        ("segments", "Segments.", [log.segments for log in logs]),
        ("start_offset", "The first offset that is there.", [log.log_start_offset for log in logs]),
        ("end_offset", "The offset that the next record gets.", [log.end_offset for log in logs]),
    )
    labels = [{"topic": log.topic_partition.topic, "partition": str(log.topic_partition.partition)} for log in logs]
    for name, about, values in gauges:
        samples = [Sample(value, label) for value, label in zip(values, labels, strict=True)]
        yield Family(f"kohort_log_{name}", "gauge", about, samples)
    about = "Partitions whose disk failed; they answer KAFKA_STORAGE_ERROR until the next start."
    yield gauge("kohort_log_offline_partitions", about, sum(log.is_offline for log in logs))
    yield counter("kohort_log_flushes_total", "Flushes that acknowledgements waited for.", metrics.flushes)
    yield counter("kohort_log_flush_seconds_total", "How long those took in all.", metrics.flush_time_s)


def cleaner_families(metrics: CleanerMetrics) -> Iterator[Family]:
    """Kafka's gauges of `LogCleaner` and `LogCleanerManager`."""
    prefix = "kohort_log_cleaner"
    yield counter(f"{prefix}_passes_total", "Logs that were compacted.", metrics.passes)
    yield counter(
        f"{prefix}_read_bytes_total", "Bytes that were read, twice where they were dirty.", metrics.bytes_read
    )
    yield counter(f"{prefix}_written_bytes_total", "Bytes of what was kept.", metrics.bytes_written)
    yield counter(f"{prefix}_invalid_records_total", "Records without a key, dropped.", metrics.invalid_records)
    yield gauge(f"{prefix}_recopy_percent", "Of the last pass: bytes written of those read.", metrics.recopy_percent)
    yield gauge(f"{prefix}_max_clean_time_seconds", "How long the last pass took.", metrics.max_clean_time_s)
    about = "How full the map of keys was in the last pass."
    yield gauge(f"{prefix}_max_buffer_utilization_percent", about, metrics.max_buffer_utilization_percent)
    yield gauge(f"{prefix}_max_dirty_percent", "How dirty the dirtiest log is.", metrics.max_dirty_percent)
    about = "By how much a log exceeds max.compaction.lag.ms."
    yield gauge(f"{prefix}_max_compaction_delay_seconds", about, metrics.max_compaction_delay_s)
    about = "Partitions whose cleaning failed, left alone until the next start."
    yield gauge(f"{prefix}_uncleanable_partitions", about, metrics.uncleanable_partitions)
    yield gauge(f"{prefix}_uncleanable_bytes", "Bytes in those.", metrics.uncleanable_bytes)
    about = "When the cleaner last looked for a log to clean."
    yield gauge(f"{prefix}_since_last_run_seconds", about, metrics.since_last_run_s)


def runtime_families(coordinator: str, metrics: RuntimeMetrics) -> Iterator[Family]:
    """
    What the runtime of one coordinator measures.

    Args:
        coordinator: the word in the names, "group" or "transaction".
    """
    prefix = f"kohort_{coordinator}_coordinator"
    partitions = [(state.value, count) for state, count in metrics.partitions.items()]
    yield labelled(f"{prefix}_partitions", "gauge", "Partitions, by state.", "state", partitions)
    yield gauge(f"{prefix}_event_queue_size", "Operations that wait for their turn.", metrics.event_queue_size)
    yield gauge(f"{prefix}_load_time_max_ms", "The longest load of the last half minute.", metrics.load_time_max_ms)
    yield gauge(f"{prefix}_load_time_avg_ms", "The mean load of the last half minute.", metrics.load_time_avg_ms)
    for name in metrics:
        about = f"{name.replace('_', ' ').capitalize()}, in milliseconds."
        yield Family(f"{prefix}_{name}_ms", "histogram", about, list(_histogram(metrics[name])))


def _histogram(histogram: Histogram) -> Iterable[Sample]:
    for bound, count in zip(_BOUNDS_MS, histogram.count_up_to(_BOUNDS_MS), strict=True):
        yield Sample(count, {"le": str(bound)}, "_bucket")
    yield Sample(histogram.count, {"le": "+Inf"}, "_bucket")
    yield Sample(histogram.sum_ms, suffix="_sum")
    yield Sample(histogram.count, suffix="_count")
