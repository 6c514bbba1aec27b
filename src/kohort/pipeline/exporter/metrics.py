"""The state of a cluster at the end of a poll, as families of prometheus-client."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from kohort.model.limits import EXPORTED_OPEN_TRANSACTIONS_MAX
from kohort.pipeline.checkpoints.checkpoint import START, Checkpoint
from kohort.pipeline.checkpoints.state import GROUP_TYPE, STATE_NUMBERS
from kohort.pipeline.exporter.commits import GroupPartition
from kohort.pipeline.exporter.definitions import COUNTER, DEFINITIONS, KOHORT
from kohort.pipeline.exporter.memberships import GroupState
from kohort.pipeline.exporter.transactions import OpenProducer, Transaction
from kohort.pipeline.sources.live import LiveLog
from kohort.pipeline.tables.burrow.evaluator import Status, group_status
from kohort.pipeline.tables.burrow.verdicts import NUMBERS, OK, worst


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """
    One partition of a group.

    Attributes:
        offset: the committed offset; None if a member owns the partition, and its group has not committed it.
        lag: records behind; None if there is no offset, or no log of the partition.
        time_lag_ms: None if it is unknown.
        verdict: of `tables.burrow.verdicts`.
        status: of Burrow; NOTFOUND if it knows none.
        owner: host, member id and client id of the member that owns the partition; empty if there is none.
    """

    key: GroupPartition
    offset: int | None
    lag: int | None
    time_lag_ms: int | None
    verdict: str
    status: Status
    owner: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    Everything that is exported, as of the end of a poll. `problems` are the sentences of what could not be read.

    Attributes:
        at_ms: the instant of the values, see `sources.instants`; of logs that grow, `polled_ms`.
        polled_ms: the end of the poll, by the clock of this machine.
        hanging: None if it is unknown.
        missing: how many logs of coordinators are not there, as far as their numbers tell.
        queries, states: Spark queries and their states, by group.
    """

    cluster: str
    at_ms: int
    polled_ms: int
    took_s: float = 0.0
    logs: Sequence[LiveLog] = ()
    partitions: Sequence[PartitionLag] = ()
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    commits: Mapping[str, int] = field(default_factory=dict)
    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    hanging: Sequence[OpenProducer] | None = ()
    missing: int = 0
    blocked: Mapping[tuple[str, int], int] = field(default_factory=dict)
    queries: Mapping[str, Checkpoint] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    records: int = 0
    dropped: int = 0
    problems: Sequence[str] = ()


class Families:
    """Families of the chosen sets of names; values of other sets are ignored."""

    def __init__(self, schemes: Collection[str]) -> None:
        self._schemes = {*schemes, KOHORT}
        self._found: dict[str, Metric] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a value, with the labels in the order of the definition."""
        definition = DEFINITIONS[name]
        if definition.scheme not in self._schemes:
            return
        family = self._found.get(name)
        if family is None:
            of_kind = CounterMetricFamily if definition.kind == COUNTER else GaugeMetricFamily
            family = self._found[name] = of_kind(name, definition.about, labels=definition.labels)
        family.add_metric(labels, value)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._found.values())


def families(now: Snapshot, schemes: Collection[str]) -> Families:
    """Return the metrics of a snapshot, under the names of some sets of `definitions.SCHEMES`."""
    found = Families(schemes)
    _add_logs(found, now)
    of_group: dict[str, list[PartitionLag]] = defaultdict(list)
    for one in now.partitions:
        of_group[one.key.group].append(one)
    for group in sorted({*of_group, *now.groups}):
        _add_group(found, now, group, of_group[group])
    for group, query in sorted(now.queries.items()):
        _add_query(found, now, group, query)
    _add_transactions(found, now)
    found.add("kohort_exporter_up", not now.problems)
    found.add("kohort_exporter_problems", len(now.problems))
    found.add("kohort_exporter_missing_logs", now.missing)
    found.add("kohort_exporter_last_poll_seconds", now.polled_ms / 1000)
    found.add("kohort_exporter_poll_duration_seconds", now.took_s)
    found.add("kohort_exporter_records_total", now.records)
    found.add("kohort_exporter_dropped_total", now.dropped)
    return found


def _add_logs(found: Families, now: Snapshot) -> None:
    of_topic: dict[str, list[LiveLog]] = defaultdict(list)
    for log in now.logs:
        of_topic[log.topic].append(log)
        place = (log.topic, str(log.partition))
        found.add("kafka_topic_partition_current_offset", log.end, *place)
        found.add("kafka_topic_partition_oldest_offset", log.start, *place)
        found.add("kafka_partition_latest_offset", log.end, now.cluster, *place)
        found.add("kafka_partition_earliest_offset", log.start, now.cluster, *place)
        found.add("kminion_kafka_topic_partition_high_water_mark", log.end, *place)
        found.add("kminion_kafka_topic_partition_low_water_mark", log.start, *place)
        found.add("burrow_kafka_topic_partition_offset", log.end, now.cluster, *place)
    for topic, logs in of_topic.items():
        found.add("kafka_topic_partitions", len(logs), topic)
        found.add("kminion_kafka_topic_high_water_mark_sum", sum(log.end for log in logs), topic)
        found.add("kminion_kafka_topic_low_water_mark_sum", sum(log.start for log in logs), topic)


def _add_group(found: Families, now: Snapshot, group: str, partitions: Sequence[PartitionLag]) -> None:
    known = now.groups.get(group)
    state = "" if known is None else known.state
    of_group = (now.cluster, group, state, str(known is None).lower())
    members = 0 if known is None else len(known.members)
    simple = GROUP_TYPE if group in now.queries else "simple"
    found.add("kohort_group_members", members, group, simple if known is None else known.group_type)
    found.add("kafka_consumergroup_members", members, group)
    found.add("kminion_kafka_consumer_group_members", members, group)
    protocol = ("", "") if known is None else (known.protocol, known.protocol_type)
    found.add("kminion_kafka_consumer_group_info", 1, group, *protocol, state, "")
    found.add("kohort_group_commits_total", now.commits.get(group, 0), group)
    found.add("kminion_kafka_consumer_group_offset_commits_total", now.commits.get(group, 0), group)
    if known is not None:
        _add_rebalances(found, group, known)
    if not partitions:
        return
    found.add("kohort_group_verdict", NUMBERS[worst(one.verdict for one in partitions)], group)
    found.add("kohort_group_unknown_partitions", sum(one.lag is None for one in partitions), group)
    status = group_status(one.status for one in partitions)
    if status is not Status.NOTFOUND:
        found.add("burrow_kafka_consumer_status", status, now.cluster, group)
    known_lags = [one.lag for one in partitions if one.lag is not None]
    if known_lags:
        _add_lag(found, now, group, of_group, partitions, known_lags)
    of_topic: dict[str, list[PartitionLag]] = defaultdict(list)
    for one in partitions:
        of_topic[one.key.topic].append(one)
        _add_partition(found, now.cluster, one, of_group[2:])
    for topic, listed in of_topic.items():
        _add_topic(found, now, topic, of_group, listed)


def _add_lag(
    found: Families,
    now: Snapshot,
    group: str,
    of_group: tuple[str, ...],
    partitions: Sequence[PartitionLag],
    known_lags: Sequence[int],
) -> None:
    total = sum(known_lags)
    waits = [one.time_lag_ms / 1000 for one in partitions if one.time_lag_ms is not None]
    found.add("kohort_group_lag", total, group)
    found.add("kafka_consumergroup_group_sum_lag", total, *of_group)
    found.add("kafka_consumergroup_group_max_lag", max(known_lags), *of_group)
    found.add("burrow_kafka_consumer_lag_total", total, now.cluster, group)
    if waits:
        found.add("kohort_group_lag_seconds", max(waits), group)
        found.add("kafka_consumergroup_group_max_lag_seconds", max(waits), *of_group)


def _add_topic(
    found: Families, now: Snapshot, topic: str, of_group: tuple[str, ...], listed: Sequence[PartitionLag]
) -> None:
    group = of_group[1]
    lags = [one.lag for one in listed if one.lag is not None]
    offsets = [one.offset for one in listed if one.offset is not None]
    if lags:
        found.add("kafka_consumergroup_lag_sum", sum(lags), group, topic)
        found.add("kafka_consumergroup_group_topic_sum_lag", sum(lags), now.cluster, group, topic, *of_group[2:])
        found.add("kminion_kafka_consumer_group_topic_lag", sum(lags), group, topic)
    if offsets:
        found.add("kafka_consumergroup_current_offset_sum", sum(offsets), group, topic)
        found.add("kminion_kafka_consumer_group_topic_offset_sum", sum(offsets), group, topic)


def _add_partition(found: Families, cluster: str, one: PartitionLag, state: tuple[str, ...]) -> None:
    place = (one.key.group, one.key.topic, str(one.key.partition))
    if one.verdict != OK:
        found.add("kohort_group_partition_verdict", NUMBERS[one.verdict], *place)
    if one.offset is not None:
        found.add("kafka_consumergroup_current_offset", one.offset, *place)
        found.add("kafka_consumergroup_group_offset", one.offset, cluster, *place, *state, *one.owner)
        found.add("burrow_kafka_consumer_current_offset", one.offset, cluster, *place)
    if one.status is not Status.NOTFOUND:
        found.add("burrow_kafka_topic_partition_status", one.status, cluster, *place)
    if one.lag is None:
        return
    found.add("kafka_consumergroup_lag", one.lag, *place)
    found.add("kafka_consumergroup_group_lag", one.lag, cluster, *place, *state, *one.owner)
    if one.time_lag_ms is not None:
        seconds = one.time_lag_ms / 1000
        found.add("kafka_consumergroup_group_lag_seconds", seconds, cluster, *place, *state, *one.owner)
    found.add("kminion_kafka_consumer_group_topic_partition_lag", one.lag, *place)
    found.add("burrow_kafka_consumer_partition_lag", one.lag, cluster, *place)


def _add_rebalances(found: Families, group: str, known: GroupState) -> None:
    totals = known.rebalances
    found.add("kohort_group_rebalances_total", totals.count, group)
    found.add("kohort_group_rebalance_seconds_total", totals.durations_ms / 1000, group)
    found.add("kohort_group_rebalance_moved_partitions_total", totals.moved, group)
    found.add("kohort_group_rebalance_lag_total", totals.lag_cost, group)
    if totals.last_ms is not None:
        found.add("kohort_group_last_rebalance_seconds", totals.last_ms / 1000, group)
    for cause, count in sorted(totals.causes.items()):
        found.add("kohort_group_rebalance_causes_total", count, group, cause)


def _add_query(found: Families, now: Snapshot, group: str, query: Checkpoint) -> None:
    found.add("kohort_query_info", 1, group, query.query_id or "", query.path)
    found.add("kohort_query_state", STATE_NUMBERS[now.states[group]], group)
    found.add("kohort_query_batch", START if query.batch is None else query.batch, group)
    if query.finished_ms is not None:
        found.add("kohort_query_last_batch_seconds", query.finished_ms / 1000, group)
    if query.open_since_ms is not None:
        found.add("kohort_query_open_batch_seconds", _seconds(now.at_ms - query.open_since_ms), group)
    found.add("kohort_query_replayed_records", query.replayed, group)


def _add_transactions(found: Families, now: Snapshot) -> None:
    opened = sorted((one.start_ms, name, one) for name, one in now.transactions.items() if one.is_open)
    overdue = sum(now.at_ms - start_ms > one.timeout_ms for start_ms, _, one in opened)
    found.add("kohort_transactions_open", len(opened))
    found.add("kohort_transactions_overdue", overdue)
    for outcome, count in sorted(now.ended.items()):
        found.add("kohort_transactions_ended_total", count, outcome)
    for start_ms, name, one in opened[:EXPORTED_OPEN_TRANSACTIONS_MAX]:
        found.add("kohort_transaction_open_seconds", _seconds(now.at_ms - start_ms), name, one.state)
    if now.hanging is not None:
        found.add("kohort_hanging_transactions", len(now.hanging))
    for hanging in sorted(now.hanging or (), key=lambda one: one.last_ms)[:EXPORTED_OPEN_TRANSACTIONS_MAX]:
        place = (hanging.partition.topic, str(hanging.partition.partition), str(hanging.producer_id))
        found.add("kohort_hanging_transaction_seconds", _seconds(now.at_ms - hanging.last_ms), *place)
    for (topic, partition), records in sorted(now.blocked.items()):
        found.add("kohort_partition_blocked_records", records, topic, str(partition))


def _seconds(milliseconds: int) -> float:
    return max(milliseconds, 0) / 1000
