"""
The configurations of releases after Apache Kafka 4.2.1: rows that a release adds to `config_table`, changes or removes.

Rows are those of `config_table`. A row whose name an earlier release has replaces it. A broker of an earlier release does not
show them.

Source: Apache Kafka 4.4.0, the ConfigDef of KafkaConfig, LogConfig and GroupConfig; update modes and defaults of a running node.
"""

# ruff: noqa: E501

from typing import Final, NamedTuple

from kohort.broker.configs import config_table
from kohort.broker.configs.config_table import Row


class Changes(NamedTuple):
    """The changes of a release. `removed` are names of broker configurations."""

    broker: tuple[Row, ...]
    topic: tuple[Row, ...]
    group: tuple[Row, ...]
    removed: frozenset[str]


# fmt: off
_4_4_0: Final = Changes(
    broker=(
        ("controller.quorum.fetch.max.bytes", "INT", "1048576", "[1,...]", "LOW", "shown", "read-only", "Maximum size of one fetch from the metadata log."),
        ("controller.quorum.fetch.snapshot.max.bytes", "INT", "1048576", "[1,...]", "LOW", "shown", "read-only", "Maximum size of one fetch of a snapshot of the metadata log."),
        ("cordoned.log.dirs", "LIST", "", None, "MEDIUM", "effect", "per-broker", "Log directories that get no new partitions; * stands for all."),
        ("errors.deadletterqueue.auto.create.topics.enable", "BOOLEAN", "false", None, "MEDIUM", "effect", "cluster-wide", "Whether the broker creates a missing topic for dead letters of share groups."),
        ("errors.deadletterqueue.topic.name.prefix", "STRING", "dlq.", None, "MEDIUM", "effect", "cluster-wide", "Prefix that the name of a topic for dead letters must have; empty allows any name."),
        ("follower.fetch.last.tiered.offset.enable", "BOOLEAN", "false", None, "MEDIUM", "shown", "cluster-wide", "Whether a new follower of a tiered partition begins behind the last offset in tiered storage."),
        ("group.consumer.assignment.interval.ms", "INT", "1000", "[0,...]", "MEDIUM", "effect", "cluster-wide", "Shortest time between two assignments of a consumer group; 0 computes one at every change."),
        ("group.consumer.assignor.offload.enable", "BOOLEAN", "true", None, "MEDIUM", "shown internal", "cluster-wide", "Whether assignors of consumer groups run on background threads."),
        ("group.consumer.max.assignment.interval.ms", "INT", "15000", "[0,...]", "MEDIUM", "effect", "read-only", "Largest assignment interval that a consumer group may be configured with."),
        ("group.consumer.min.assignment.interval.ms", "INT", "0", "[0,...]", "MEDIUM", "effect", "read-only", "Smallest assignment interval that a consumer group may be configured with."),
        ("group.coordinator.background.threads", "INT", "2", "[1,...]", "HIGH", "shown", "read-only", "Number of threads for background work of the group coordinator."),
        ("group.coordinator.cached.buffer.max.bytes", "INT", "1048588", "[524288,...]", "MEDIUM", "shown", "cluster-wide", "Largest write buffer that the group coordinator keeps for later batches."),
        ("group.share.assignment.interval.ms", "INT", "1000", "[0,...]", "MEDIUM", "effect", "cluster-wide", "Shortest time between two assignments of a share group; 0 computes one at every change."),
        ("group.share.assignor.offload.enable", "BOOLEAN", "true", None, "MEDIUM", "shown internal", "cluster-wide", "Whether assignors of share groups run on background threads."),
        ("group.share.dlq.manager.class.name", "STRING", "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager", None, "MEDIUM", "shown internal", "read-only", "Java class that writes dead letters of share groups."),
        ("group.share.max.assignment.interval.ms", "INT", "15000", "[0,...]", "MEDIUM", "effect", "read-only", "Largest assignment interval that a share group may be configured with."),
        ("group.share.max.delivery.count.limit", "INT", "10", "[5,...,25]", "MEDIUM", "effect", "read-only", "Largest limit of deliveries that a share group may be configured with."),
        ("group.share.max.partition.max.record.locks", "INT", "4000", "[2000,...,10000]", "MEDIUM", "effect", "read-only", "Largest number of locked records of a partition that a share group may be configured with."),
        ("group.share.min.assignment.interval.ms", "INT", "0", "[0,...]", "MEDIUM", "effect", "read-only", "Smallest assignment interval that a share group may be configured with."),
        ("group.share.min.delivery.count.limit", "INT", "2", "[2,...,5]", "MEDIUM", "effect", "read-only", "Smallest limit of deliveries that a share group may be configured with."),
        ("group.share.min.partition.max.record.locks", "INT", "100", "[100,...,2000]", "MEDIUM", "effect", "read-only", "Smallest number of locked records of a partition that a share group may be configured with."),
        ("group.streams.acceptable.recovery.lag", "LONG", "10000", "[0,...]", "MEDIUM", "shown internal", "read-only", "Lag up to which a copy of a task's state counts as caught up."),
        ("group.streams.assignment.interval.ms", "INT", "1000", "[0,...]", "MEDIUM", "shown", "cluster-wide", "Shortest time between two assignments of a streams group; 0 computes one at every change."),
        ("group.streams.assignor.offload.enable", "BOOLEAN", "true", None, "MEDIUM", "shown internal", "cluster-wide", "Whether assignors of streams groups run on background threads."),
        ("group.streams.assignors", "LIST", "sticky", None, "MEDIUM", "shown", "read-only", "Assignors of streams groups; the first one is the default."),
        ("group.streams.max.assignment.interval.ms", "INT", "15000", "[0,...]", "MEDIUM", "shown", "read-only", "Largest assignment interval that a streams group may be configured with."),
        ("group.streams.max.warmup.replicas", "INT", "20", "[0,...]", "MEDIUM", "shown internal", "read-only", "Largest number of warm-up replicas that a streams group may be configured with."),
        ("group.streams.min.assignment.interval.ms", "INT", "0", "[0,...]", "MEDIUM", "shown", "read-only", "Smallest assignment interval that a streams group may be configured with."),
        ("group.streams.min.task.offset.interval.ms", "INT", "15000", "[1,...]", "MEDIUM", "shown internal", "read-only", "Smallest interval of task offsets that a streams group may be configured with."),
        ("group.streams.num.warmup.replicas", "INT", "2", "[0,...]", "MEDIUM", "shown internal", "read-only", "Number of replicas of a streams group that are warmed up at a time."),
        ("group.streams.rack.aware.assignment.tags", "LIST", "", None, "LOW", "shown", "read-only", "Tags of clients that standby replicas of streams groups are spread over."),
        ("group.streams.task.offset.interval.ms", "INT", "60000", "[1,...]", "MEDIUM", "shown internal", "read-only", "Interval at which members of streams groups report the offsets of their tasks."),
        ("group.streams.topology.description.plugin.class", "CLASS", None, None, "MEDIUM", "shown", "read-only", "Java class that keeps descriptions of the topologies of streams groups."),
        ("log.remote.copy.lag.bytes", "LONG", "-1", "[-1,...]", "MEDIUM", "shown", "cluster-wide", "Size of newer segments behind which a segment is copied to tiered storage; -1 takes log.local.retention.bytes."),
        ("log.remote.copy.lag.ms", "LONG", "0", "[-1,...]", "MEDIUM", "shown", "cluster-wide", "Age at which a segment is copied to tiered storage; -1 takes log.local.retention.ms."),
        ("max.decompressed.message.bytes", "INT", "2147483639", "[1,...,2147483639]", "MEDIUM", "effect", "cluster-wide", "Maximum size of a record of a compressed batch, decompressed."),
        ("remote.log.index.file.cache.ttl.ms", "LONG", "900000", "[-1,...]", "LOW", "shown internal", "read-only", "Time without a use after which the indexes of a segment in tiered storage leave the disk; -1 keeps them."),
        ("sasl.oauthbearer.allow.unverified.audience", "BOOLEAN", "false", None, "MEDIUM", "shown", "read-only", "Whether OAuth tokens are accepted although no audience is expected."),
        ("sasl.oauthbearer.allow.unverified.issuer", "BOOLEAN", "false", None, "MEDIUM", "shown", "read-only", "Whether OAuth tokens are accepted although no issuer is expected."),
        ("sasl.oauthbearer.expected.audience", "LIST", "", None, "HIGH", "shown", "read-only", "Audiences of which an OAuth token has to have one."),
        ("sasl.oauthbearer.expected.issuer", "STRING", None, None, "HIGH", "shown", "read-only", "Issuer that an OAuth token has to have."),
        ("share.coordinator.cached.buffer.max.bytes", "INT", "1048588", "[524288,...]", "MEDIUM", "shown", "cluster-wide", "Largest write buffer that the share coordinator keeps for later batches."),
        ("share.coordinator.snapshot.update.records.per.snapshot", "INT", "500", "[0,...,500]", "MEDIUM", "effect", "read-only", "Number of updates of the state of a share group after which a snapshot is written."),
    ),
    topic=(
        ("errors.deadletterqueue.group.enable", "BOOLEAN", "false", None, "MEDIUM", "effect", "dynamic", "Whether share groups may write dead letters to the topic."),
        ("max.decompressed.message.bytes", "INT", "2147483639", "[1,...,2147483639]", "MEDIUM", "effect", "dynamic", "Maximum size of a record of a compressed batch, decompressed."),
        ("remote.copy.lag.bytes", "LONG", "-1", "[-1,...]", "MEDIUM", "shown", "dynamic", "Size of newer segments behind which a segment is copied to tiered storage; -1 takes local.retention.bytes."),
        ("remote.copy.lag.ms", "LONG", "0", "[-1,...]", "MEDIUM", "shown", "dynamic", "Age at which a segment is copied to tiered storage; -1 takes local.retention.ms."),
    ),
    group=(
        ("consumer.assignment.interval.ms", "INT", "1000", "[0,...]", "MEDIUM", "effect", "dynamic", "Shortest time between two assignments of the consumer group; 0 computes one at every change."),
        ("consumer.assignor.offload.enable", "BOOLEAN", "true", None, "MEDIUM", "shown internal", "dynamic", "Whether the assignor of the consumer group runs on a background thread."),
        ("errors.deadletterqueue.copy.record.enable", "BOOLEAN", "false", None, "MEDIUM", "effect", "dynamic", "Whether a dead letter of the share group has key, value and headers of its record."),
        ("errors.deadletterqueue.topic.name", "STRING", "", None, "MEDIUM", "effect", "dynamic", "Topic for dead letters of the share group; empty for none."),
        ("share.assignment.interval.ms", "INT", "1000", "[0,...]", "MEDIUM", "effect", "dynamic", "Shortest time between two assignments of the share group; 0 computes one at every change."),
        ("share.assignor.offload.enable", "BOOLEAN", "true", None, "MEDIUM", "shown internal", "dynamic", "Whether the assignor of the share group runs on a background thread."),
        ("share.delivery.count.limit", "INT", "5", "[2,...]", "MEDIUM", "effect", "dynamic", "How often a record is delivered to the share group at most."),
        ("share.partition.max.record.locks", "INT", "2000", "[100,...]", "MEDIUM", "effect", "dynamic", "Maximum number of records of a partition that the share group has locked at a time."),
        ("share.renew.acknowledge.enable", "BOOLEAN", "true", None, "MEDIUM", "effect", "dynamic", "Whether members of the share group may renew the lock of a record."),
        ("streams.acceptable.recovery.lag", "LONG", "10000", "[0,...]", "MEDIUM", "shown internal", "dynamic", "Lag up to which a copy of a task's state counts as caught up."),
        ("streams.assignment.interval.ms", "INT", "1000", "[0,...]", "MEDIUM", "shown", "dynamic", "Shortest time between two assignments of the streams group; 0 computes one at every change."),
        ("streams.assignor.name", "STRING", None, None, "MEDIUM", "shown", "dynamic", "Assignor of the streams group; the first one of group.streams.assignors without it."),
        ("streams.assignor.offload.enable", "BOOLEAN", "true", None, "MEDIUM", "shown internal", "dynamic", "Whether the assignor of the streams group runs on a background thread."),
        ("streams.num.warmup.replicas", "INT", "2", "[0,...]", "MEDIUM", "shown internal", "dynamic", "Number of replicas of the streams group that are warmed up at a time."),
        ("streams.rack.aware.assignment.tags", "LIST", "", None, "LOW", "shown", "dynamic", "Tags of clients that standby replicas of the streams group are spread over."),
        ("streams.task.offset.interval.ms", "INT", "60000", "[1,...]", "MEDIUM", "shown internal", "dynamic", "Interval at which members of the streams group report the offsets of their tasks."),
    ),
    removed=frozenset(("group.share.enable", "internal.metadata.max.fetch.size.in.bytes")),
)
# fmt: on

_LATER: Final = {"4.4.0": _4_4_0}
"""By release, oldest first."""


def rows_of(release: str) -> tuple[list[Row], list[Row], list[Row]]:
    """The rows of brokers, topics and groups in a release, by name."""
    kinds = [{row[0]: row for row in rows} for rows in (config_table.BROKER, config_table.TOPIC, config_table.GROUP)]
    for later, changes in _LATER.items():
        if _number(later) > _number(release):
            break
        for rows, changed in zip(kinds, (changes.broker, changes.topic, changes.group), strict=True):
            rows.update((row[0], row) for row in changed)
        for name in changes.removed:
            del kinds[0][name]
    broker, topic, group = ([rows[name] for name in sorted(rows)] for rows in kinds)
    return broker, topic, group


def _number(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]
