"""
The metrics of the exporter: names, labels and meaning.

Dashboards and alerts of the known exporters work, because the same values have the names and labels of each of them. Each set
of names can be left out. Kohort's own names hold what no other exporter has.

Source: danielqsj/kafka_exporter; seglo/kafka-lag-exporter (MetricsSink); redpanda-data/kminion (docs/metrics.md); LinkedIn
Burrow (httpserver/prometheus.go).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

KOHORT = "kohort"
KAFKA_EXPORTER = "kafka_exporter"
KAFKA_LAG_EXPORTER = "kafka-lag-exporter"
KMINION = "kminion"
BURROW = "burrow"

SCHEMES = (KOHORT, KAFKA_EXPORTER, KAFKA_LAG_EXPORTER, KMINION, BURROW)
"""Sets of names. Kohort's own are always exported."""

GAUGE, COUNTER = "gauge", "counter"

_GROUP_PARTITION = "cluster_name group topic partition state is_simple_consumer member_host consumer_id client_id"


class Definition(NamedTuple):
    """One metric. `scheme` is the set of names that it belongs to."""

    name: str
    scheme: str
    kind: str
    labels: tuple[str, ...]
    about: str


# Each metric with its labels and its meaning.
_LINES = {
    KOHORT: """
kohort_exporter_up [] 1 if the last poll read the whole cluster, else 0.
kohort_exporter_last_poll_seconds [] End of the last complete poll, in seconds since 1970.
kohort_exporter_poll_duration_seconds [] Duration of the last poll.
kohort_exporter_problems [] Logs and brokers that the last poll could not read.
kohort_exporter_missing_logs [] Logs of coordinators that a directory lacks, as far as their numbers tell.
kohort_exporter_records_total [] Records of coordinators' logs that were read.
kohort_exporter_dropped_total [] Records beyond the exporter's limits, which were dropped.
kohort_group_lag [group] Records behind, over all partitions of a group.
kohort_group_lag_seconds [group] How long the oldest unread record of a group has waited.
kohort_group_members [group type] Members of a group.
kohort_group_verdict [group] The worst verdict: 0 OK, 1 WARN, 2 STOP, 3 STALL, 4 REWIND, 5 LOST, 6 UNKNOWN.
kohort_group_unknown_partitions [group] Partitions of unknown lag: no committed offset, or no log in the source.
kohort_group_partition_verdict [group topic partition] The verdict of a partition, if it is not OK; numbers as for groups.
kohort_group_commits_total [group] Committed offsets that took effect, one for each partition.
kohort_group_rebalances_total [group] Rebalances in the log and since.
kohort_group_rebalance_causes_total [group cause] joined, left, fenced, subscription, metadata, rejoined, unknown.
kohort_group_rebalance_seconds_total [group] Time spent in rebalances; of classic groups at least the last phase.
kohort_group_rebalance_moved_partitions_total [group] Partitions whose owner changed.
kohort_group_rebalance_lag_total [group] Records by which the lag grew in the polls with a rebalance.
kohort_group_last_rebalance_seconds [group] When the last rebalance was complete, in seconds since 1970.
kohort_query_state [group] State of a Spark query: 0 running, 1 waiting for data, 2 stopped, 3 stuck in a batch, 4 unknown.
kohort_query_info [group query_id checkpoint] 1 for each Spark query.
kohort_query_batch [group] Number of the last finished batch of a Spark query; -1 before the first one.
kohort_query_last_batch_seconds [group] When that batch finished, in seconds since 1970.
kohort_query_open_batch_seconds [group] How long a batch has been in progress; no series without one.
kohort_query_replayed_records [group] Records that a restart of the query would read again.
kohort_transactions_open [] Open transactions of all coordinators.
kohort_transactions_overdue [] Open transactions beyond their timeout.
kohort_transactions_ended_total [outcome] Completed transactions: committed, aborted.
kohort_transaction_open_seconds [transactional_id state] Age of the oldest open transactions.
kohort_hanging_transactions [] Transactions that are open in a partition and in no coordinator; no series if that is unknown.
kohort_hanging_transaction_seconds [topic partition producer_id] Time since the last record of a hanging transaction.
kohort_partition_blocked_records [topic partition] Records that read_committed consumers wait for.
""",
    KAFKA_EXPORTER: """
kafka_topic_partitions [topic] Partitions of a topic.
kafka_topic_partition_current_offset [topic partition] Log end offset.
kafka_topic_partition_oldest_offset [topic partition] Log start offset.
kafka_consumergroup_members [consumergroup] Members of a group.
kafka_consumergroup_current_offset [consumergroup topic partition] Committed offset.
kafka_consumergroup_current_offset_sum [consumergroup topic] Committed offsets of a topic, added up.
kafka_consumergroup_lag [consumergroup topic partition] Records behind.
kafka_consumergroup_lag_sum [consumergroup topic] Records behind in a topic.
""",
    KAFKA_LAG_EXPORTER: f"""
kafka_partition_latest_offset [cluster_name topic partition] Log end offset.
kafka_partition_earliest_offset [cluster_name topic partition] Log start offset.
kafka_consumergroup_group_offset [{_GROUP_PARTITION}] Committed offset.
kafka_consumergroup_group_lag [{_GROUP_PARTITION}] Records behind.
kafka_consumergroup_group_lag_seconds [{_GROUP_PARTITION}] How long the oldest unread record has waited; exact.
kafka_consumergroup_group_max_lag [cluster_name group state is_simple_consumer] Records behind in the worst partition.
kafka_consumergroup_group_max_lag_seconds [cluster_name group state is_simple_consumer] Time lag of the worst partition.
kafka_consumergroup_group_sum_lag [cluster_name group state is_simple_consumer] Records behind in all partitions.
kafka_consumergroup_group_topic_sum_lag [cluster_name group topic state is_simple_consumer] Records behind in a topic.
""",
    KMINION: """
kminion_kafka_consumer_group_info [group_id protocol protocol_type state coordinator_id] 1 for each group.
kminion_kafka_consumer_group_members [group_id] Members of a group.
kminion_kafka_consumer_group_topic_partition_lag [group_id topic_name partition_id] Records behind.
kminion_kafka_consumer_group_topic_lag [group_id topic_name] Records behind in a topic.
kminion_kafka_consumer_group_topic_offset_sum [group_id topic_name] Committed offsets of a topic, added up.
kminion_kafka_consumer_group_offset_commits_total [group_id] Committed offsets that took effect.
kminion_kafka_topic_partition_high_water_mark [topic_name partition_id] Log end offset.
kminion_kafka_topic_partition_low_water_mark [topic_name partition_id] Log start offset.
kminion_kafka_topic_high_water_mark_sum [topic_name] Log end offsets of a topic, added up.
kminion_kafka_topic_low_water_mark_sum [topic_name] Log start offsets of a topic, added up.
""",
    BURROW: """
burrow_kafka_consumer_lag_total [cluster consumer_group] Records behind in all partitions.
burrow_kafka_consumer_status [cluster consumer_group] The status by Burrow's rules: 1 OK, 2 WARN, 3 ERR.
burrow_kafka_consumer_current_offset [cluster consumer_group topic partition] Committed offset.
burrow_kafka_consumer_partition_lag [cluster consumer_group topic partition] Records behind.
burrow_kafka_topic_partition_status [cluster consumer_group topic partition] 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.
burrow_kafka_topic_partition_offset [cluster topic partition] Log end offset.
""",
}


def _parsed() -> Iterator[Definition]:
    for scheme, lines in _LINES.items():
        for line in lines.strip().splitlines():
            name, _, rest = line.partition(" [")
            labels, _, about = rest.partition("] ")
            # Burrow's total lag is no counter.
            kind = COUNTER if name.endswith("_total") and scheme != BURROW else GAUGE
            yield Definition(name, scheme, kind, tuple(labels.split()), about)


DEFINITIONS: Mapping[str, Definition] = {one.name: one for one in _parsed()}
"""All metrics by name."""
