"""The metrics of the coordinators; docs/metrics.md lists them. A coordinator has its own in `Coordinator.figures`."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from kohort.group.kinds import KINDS
from kohort.group.metrics import EventCounts, GroupCounters, GroupGauges
from kohort.model.ids import SHARE_GROUP_STATE
from kohort.runtime.metrics import RuntimeMetrics
from kohort.server.metrics.figures import by, figure, times
from kohort.share.metrics import ShareMetrics
from kohort.transaction.metrics import TransactionCounters, TransactionGauges

_OWN: Final = "kohort_group_coordinator"
_KAFKA: Final = "kafka.server:type=group-coordinator-metrics"
STATES_OF_CLASSIC_GROUPS: Final = {
    "PreparingRebalance": "NumGroupsPreparingRebalance",
    "CompletingRebalance": "NumGroupsCompletingRebalance",
    "Stable": "NumGroupsStable",
    "Dead": "NumGroupsDead",
    "Empty": "NumGroupsEmpty",
}


def group_families(gauges: GroupGauges, counters: GroupCounters, events: EventCounts) -> Iterator[Metric]:
    """The group coordinator: Kafka's GroupMetadataManager and group-coordinator-metrics."""
    totals = [(kind.name, sum(gauges.groups[kind.name, state] for state in kind.states)) for kind in KINDS]
    yield from figure(
        f"{_OWN}_groups", f"{_KAFKA},protocol={{}}/group-count", "Groups, by protocol.", *by("protocol", totals)
    )
    for kind in KINDS:
        by_state = by("state", ((state, gauges.groups[kind.name, state]) for state in kind.states))
        about = f"{kind.name.capitalize()} groups, by state."
        mbean = f"{_KAFKA},state={{}}/{kind.name}-group-count"
        yield from figure(f"{_OWN}_{kind.name}_groups", mbean, about, *by_state)
        about = f"Members of {kind.name} groups."
        yield from figure(f"{_OWN}_{kind.name}_members", "", about, gauges.members[kind.name])
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name="
    yield from figure("", f"{manager}NumGroups", "Groups of the classic protocol.", dict(totals)["classic"])
    for state, name in STATES_OF_CLASSIC_GROUPS.items():
        about = f"Groups of the classic protocol in state {state}."
        yield from figure("", f"{manager}{name}", about, gauges.groups["classic", state])
    yield from figure(f"{_OWN}_offsets", f"{manager}NumOffsets", "Committed offsets.", gauges.offsets)
    yield from figure("", f"{_KAFKA}/offset-count", "Committed offsets.", gauges.offsets)
    for own, kafka, about, value in (
        ("offset_commits", "offset-commit", "Accepted offsets, one for each partition.", counters.offset_commits),
        ("offset_expirations", "offset-expiration", "Expired offsets.", counters.offset_expirations),
        ("offset_deletions", "offset-deletion", "Offsets deleted by OffsetDelete.", counters.offset_deletions),
        (
            "completed_rebalances",
            "group-completed-rebalance",
            "Completed rebalances: transitions of classic groups to Stable.",
            events.completed_rebalances,
        ),
        (
            "consumer_rebalances",
            "consumer-group-rebalance",
            "Epochs of consumer groups that a heartbeat, a join or resolved regular expressions raised.",
            events.consumer_rebalances,
        ),
        (
            "share_rebalances",
            "share-group-rebalance",
            "Epochs of share groups that a heartbeat raised.",
            events.share_rebalances,
        ),
    ):
        yield from figure(f"{_OWN}_{own}_total", f"{_KAFKA}/{kafka}-count", about, value)
    # Kafka has time-outs of rebalances in its log only.
    counts = sorted(events.refused_heartbeats.items())
    about = "Heartbeats that were refused by their group or for their form; REBALANCE_IN_PROGRESS does not count."
    refused = [({"api": api, "error": error.name}, count) for (api, error), count in counts]
    yield from figure(f"{_OWN}_refused_heartbeats_total", "", about, *refused)
    mbean = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request={},error={}"
    about = "Refused heartbeats, by API and error; Kafka counts all requests, and REBALANCE_IN_PROGRESS and NONE, too."
    yield from figure(
        "", mbean, about, *(({"request": api, "error": error.name}, count) for (api, error), count in counts)
    )
    about = (
        "Members removed because they did not join, synchronise or revoke partitions within their rebalance timeout."
    )
    yield from figure(f"{_OWN}_rebalance_timeouts_total", "", about, events.rebalance_timeouts)


def transaction_families(gauges: TransactionGauges, counters: TransactionCounters) -> Iterator[Metric]:
    """The transaction coordinator: Kafka's TransactionMarkerChannelManager; the counters are Kohort's own."""
    mbean = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=LogAppendRetryQueueSize"
    retried = "Markers that a partition could not take, and that are sent again."
    ending = "Transactions that are decided, and whose completion is not written yet."
    fenced = "Transactions aborted because another producer began to use their transactional id."
    for own, kafka, about, value in (
        ("ids", "", "Transactional ids.", gauges.ids),
        ("ongoing_transactions", "", "Transactions that are neither committed nor aborted.", gauges.ongoing),
        ("ending_transactions", "", ending, gauges.ending),
        ("markers_waiting", "", "Markers that are not durable yet.", gauges.markers_waiting),
        ("markers_retrying", mbean, retried, gauges.markers_retrying),
        ("commits_total", "", "Transactions decided to be committed.", counters.committed),
        ("aborts_total", "", "Transactions decided to be aborted.", counters.aborted),
        ("timeouts_total", "", "Transactions aborted after their timeout.", counters.timed_out),
        ("fences_total", "", fenced, counters.fenced),
        ("expired_ids_total", "", "Transactional ids that were forgotten.", counters.expired),
    ):
        yield from figure(f"kohort_transaction_coordinator_{own}", kafka, about, value)


def share_families(share_partitions: int, metrics: ShareMetrics) -> Iterator[Metric]:
    """The share coordinator: Kafka's ShareCoordinatorMetrics; the number of share partitions is Kohort's own."""
    own, kafka = "kohort_share_coordinator", "kafka.server:type=share-coordinator-metrics"
    yield from figure(f"{own}_share_partitions", "", "Share partitions whose state is stored.", share_partitions)
    for name, mbean, about, value in (
        ("writes_total", "write-total", "Writes of share partitions by their leaders.", metrics.writes),
        ("write_time_max_ms", "write-latency-max", "Longest write of a share partition.", metrics.write_max_ms),
        ("write_time_avg_ms", "write-latency-avg", "Mean write of a share partition.", metrics.write_avg_ms),
    ):
        yield from figure(f"{own}_{name}", f"{kafka}/{mbean}", about, value)
    if metrics.pruned:
        about = "Offset before which the log of the share coordinator was cut."
        mbean = f"{kafka},topic={{}},partition={{}}/last-pruned-offset"
        values = [
            ({"topic": SHARE_GROUP_STATE, "partition": str(partition)}, offset)
            for partition, offset in sorted(metrics.pruned.items())
        ]
        yield from figure(f"{own}_pruned_offset", mbean, about, *values)


def runtime_families(coordinator: str, metrics: RuntimeMetrics) -> Iterator[Metric]:
    """
    The runtime of one coordinator. Of the transaction coordinator Kafka has the times of loads only.

    Args:
        coordinator: the word in the names: "group", "transaction" or "share".

    Source: Kafka CoordinatorRuntimeMetrics.
    """
    own, kafka = f"kohort_{coordinator}_coordinator", f"kafka.server:type={coordinator}-coordinator-metrics"
    group = "" if coordinator == "transaction" else kafka
    states = by("state", ((state.value, count) for state, count in metrics.partitions.items()))
    mbean = group and f"{group},state={{}}/num-partitions"
    yield from figure(f"{own}_partitions", mbean, "Partitions of the coordinator's topic, by state.", *states)
    mbean = group and f"{group}/event-queue-size"
    yield from figure(f"{own}_event_queue_size", mbean, "Waiting operations.", metrics.event_queue_size)
    about = "Fraction of time in which the threads that run operations were idle, since the last scrape."
    mbean = group and f"{group}/thread-idle-ratio-avg"
    yield from figure(f"{own}_thread_idle_ratio", mbean, about, metrics.thread_idle_ratio)
    about = "Records that loads could not decode, and left out."
    yield from figure(f"{own}_records_set_aside_total", "", about, metrics.records_set_aside)
    about = "Longest load of the last 30 seconds, in milliseconds."
    yield from figure(f"{own}_load_time_max_ms", f"{kafka}/partition-load-time-max", about, metrics.load_time_max_ms)
    about = "Mean load of the last 30 seconds, in milliseconds."
    yield from figure(f"{own}_load_time_avg_ms", f"{kafka}/partition-load-time-avg", about, metrics.load_time_avg_ms)
    for name in metrics:
        about = f"{name.replace('_', ' ').capitalize()}, in milliseconds"
        yield times(f"{own}_{name}_ms", f"{about}.", metrics[name])
        if not group or name.startswith("background"):
            continue
        mbean = f"{group}/{name.replace('_', '-')}-ms-"
        yield from figure("", f"{mbean}max", f"{about}: the longest.", metrics[name].max_ms)
        for quantile, fraction in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            value = metrics[name].quantile_ms(fraction)
            yield from figure("", f"{mbean}{quantile}", f"{about}: {quantile}.", value)
