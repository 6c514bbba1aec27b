"""
The metrics of the exporter: names, labels and meaning.

Dashboards and alerts of the known exporters work, because the same values have the names and labels of each of them. Each set
of names can be left out. Kohort's own names hold what no other exporter has.

Source: danielqsj/kafka_exporter; seglo/kafka-lag-exporter (MetricsSink); redpanda-data/kminion (docs/metrics.md); LinkedIn
Burrow (httpserver/prometheus.go).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

KOHORT = "kohort"
KAFKA_EXPORTER = "kafka_exporter"
KAFKA_LAG_EXPORTER = "kafka-lag-exporter"
KMINION = "kminion"
BURROW = "burrow"

SCHEMES = (KOHORT, KAFKA_EXPORTER, KAFKA_LAG_EXPORTER, KMINION, BURROW)
"""Sets of names. Kohort's own are always exported."""

GAUGE, COUNTER = "gauge", "counter"

_MEMBER = ("member_host", "consumer_id", "client_id")
_GROUP_PARTITION = ("cluster_name", "group", "topic", "partition", "state", "is_simple_consumer", *_MEMBER)


class Definition(NamedTuple):
    """One metric. `scheme` is the set of names that it belongs to."""

    name: str
    scheme: str
    kind: str
    labels: tuple[str, ...]
    about: str


def _of(
    scheme: str, *rows: tuple[str, str, str, str], labels: Mapping[str, tuple[str, ...]] | None = None
) -> Iterable[Definition]:
    named = labels or {}
    return (
        Definition(name, scheme, kind, named.get(text, tuple(text.split())), about) for name, kind, text, about in rows
    )


_OWN = _of(
    KOHORT,
    ("kohort_exporter_up", GAUGE, "", "1 if the last poll read the whole cluster, else 0."),
    ("kohort_exporter_last_poll_seconds", GAUGE, "", "End of the last complete poll, in seconds since 1970."),
    ("kohort_exporter_poll_duration_seconds", GAUGE, "", "Duration of the last poll."),
    ("kohort_exporter_problems", GAUGE, "", "Logs and brokers that the last poll could not read."),
    ("kohort_exporter_records_total", COUNTER, "", "Records of coordinators' logs that were read."),
    ("kohort_exporter_dropped_total", COUNTER, "", "Records beyond the exporter's limits, which were dropped."),
    ("kohort_group_lag", GAUGE, "group", "Records behind, over all partitions of a group."),
    ("kohort_group_lag_seconds", GAUGE, "group", "How long the oldest unread record of a group has waited."),
    ("kohort_group_members", GAUGE, "group type", "Members of a group."),
    ("kohort_group_verdict", GAUGE, "group", "The worst verdict: 0 OK, 1 WARN, 2 STOP, 3 STALL, 4 REWIND, 5 LOST."),
    (
        "kohort_group_partition_verdict",
        GAUGE,
        "group topic partition",
        "The verdict of a partition, if it is not OK; numbers as for groups.",
    ),
    ("kohort_group_commits_total", COUNTER, "group", "Committed offsets that took effect, one for each partition."),
    ("kohort_group_rebalances_total", COUNTER, "group", "Rebalances in the log and since."),
    (
        "kohort_group_rebalance_causes_total",
        COUNTER,
        "group cause",
        "joined, left, fenced, subscription, metadata, rejoined, unknown.",
    ),
    (
        "kohort_group_rebalance_seconds_total",
        COUNTER,
        "group",
        "Time spent in rebalances; of classic groups at least the last phase.",
    ),
    ("kohort_group_rebalance_moved_partitions_total", COUNTER, "group", "Partitions whose owner changed."),
    (
        "kohort_group_rebalance_lag_total",
        COUNTER,
        "group",
        "Records by which the lag grew in the polls with a rebalance.",
    ),
    (
        "kohort_group_last_rebalance_seconds",
        GAUGE,
        "group",
        "When the last rebalance was complete, in seconds since 1970.",
    ),
    ("kohort_transactions_open", GAUGE, "", "Open transactions of all coordinators."),
    ("kohort_transactions_overdue", GAUGE, "", "Open transactions beyond their timeout."),
    ("kohort_transactions_ended_total", COUNTER, "outcome", "Completed transactions: committed, aborted."),
    ("kohort_transaction_open_seconds", GAUGE, "transactional_id state", "Age of the oldest open transactions."),
    ("kohort_hanging_transactions", GAUGE, "", "Transactions that are open in a partition and in no coordinator."),
    (
        "kohort_hanging_transaction_seconds",
        GAUGE,
        "topic partition producer_id",
        "Time since the last record of a hanging transaction.",
    ),
    ("kohort_partition_blocked_records", GAUGE, "topic partition", "Records that read_committed consumers wait for."),
)

_THEIRS = (
    *_of(
        KAFKA_EXPORTER,
        ("kafka_topic_partitions", GAUGE, "topic", "Partitions of a topic."),
        ("kafka_topic_partition_current_offset", GAUGE, "topic partition", "Log end offset."),
        ("kafka_topic_partition_oldest_offset", GAUGE, "topic partition", "Log start offset."),
        ("kafka_consumergroup_members", GAUGE, "consumergroup", "Members of a group."),
        ("kafka_consumergroup_current_offset", GAUGE, "consumergroup topic partition", "Committed offset."),
        (
            "kafka_consumergroup_current_offset_sum",
            GAUGE,
            "consumergroup topic",
            "Committed offsets of a topic, added up.",
        ),
        ("kafka_consumergroup_lag", GAUGE, "consumergroup topic partition", "Records behind."),
        ("kafka_consumergroup_lag_sum", GAUGE, "consumergroup topic", "Records behind in a topic."),
    ),
    *_of(
        KAFKA_LAG_EXPORTER,
        ("kafka_partition_latest_offset", GAUGE, "cluster_name topic partition", "Log end offset."),
        ("kafka_partition_earliest_offset", GAUGE, "cluster_name topic partition", "Log start offset."),
        ("kafka_consumergroup_group_offset", GAUGE, "partition", "Committed offset."),
        ("kafka_consumergroup_group_lag", GAUGE, "partition", "Records behind."),
        (
            "kafka_consumergroup_group_lag_seconds",
            GAUGE,
            "partition",
            "How long the oldest unread record has waited; exact.",
        ),
        (
            "kafka_consumergroup_group_max_lag",
            GAUGE,
            "cluster_name group state is_simple_consumer",
            "Records behind in the worst partition.",
        ),
        (
            "kafka_consumergroup_group_max_lag_seconds",
            GAUGE,
            "cluster_name group state is_simple_consumer",
            "Time lag of the worst partition.",
        ),
        (
            "kafka_consumergroup_group_sum_lag",
            GAUGE,
            "cluster_name group state is_simple_consumer",
            "Records behind in all partitions.",
        ),
        (
            "kafka_consumergroup_group_topic_sum_lag",
            GAUGE,
            "cluster_name group topic state is_simple_consumer",
            "Records behind in a topic.",
        ),
        labels={"partition": _GROUP_PARTITION},
    ),
    *_of(
        KMINION,
        (
            "kminion_kafka_consumer_group_info",
            GAUGE,
            "group_id protocol protocol_type state coordinator_id",
            "1 for each group.",
        ),
        ("kminion_kafka_consumer_group_members", GAUGE, "group_id", "Members of a group."),
        (
            "kminion_kafka_consumer_group_topic_partition_lag",
            GAUGE,
            "group_id topic_name partition_id",
            "Records behind.",
        ),
        ("kminion_kafka_consumer_group_topic_lag", GAUGE, "group_id topic_name", "Records behind in a topic."),
        (
            "kminion_kafka_consumer_group_topic_offset_sum",
            GAUGE,
            "group_id topic_name",
            "Committed offsets of a topic, added up.",
        ),
        (
            "kminion_kafka_consumer_group_offset_commits_total",
            COUNTER,
            "group_id",
            "Committed offsets that took effect.",
        ),
        ("kminion_kafka_topic_partition_high_water_mark", GAUGE, "topic_name partition_id", "Log end offset."),
        ("kminion_kafka_topic_partition_low_water_mark", GAUGE, "topic_name partition_id", "Log start offset."),
        ("kminion_kafka_topic_high_water_mark_sum", GAUGE, "topic_name", "Log end offsets of a topic, added up."),
        ("kminion_kafka_topic_low_water_mark_sum", GAUGE, "topic_name", "Log start offsets of a topic, added up."),
    ),
    *_of(
        BURROW,
        ("burrow_kafka_consumer_lag_total", GAUGE, "cluster consumer_group", "Records behind in all partitions."),
        (
            "burrow_kafka_consumer_status",
            GAUGE,
            "cluster consumer_group",
            "The status by Burrow's rules: 1 OK, 2 WARN, 3 ERR.",
        ),
        ("burrow_kafka_consumer_current_offset", GAUGE, "cluster consumer_group topic partition", "Committed offset."),
        ("burrow_kafka_consumer_partition_lag", GAUGE, "cluster consumer_group topic partition", "Records behind."),
        (
            "burrow_kafka_topic_partition_status",
            GAUGE,
            "cluster consumer_group topic partition",
            "1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.",
        ),
        ("burrow_kafka_topic_partition_offset", GAUGE, "cluster topic partition", "Log end offset."),
    ),
)

DEFINITIONS: Mapping[str, Definition] = {one.name: one for one in (*_OWN, *_THEIRS)}
"""All metrics by name."""
