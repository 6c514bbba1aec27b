"""Settings of a node: options of the command line and Kafka's broker configurations."""

from pathlib import Path
from typing import Literal

import msgspec

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ConfigError

SUPPORTED_CONFIGS = frozenset(
    {
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "auto.create.topics.enable",
        "broker.rack",
        "compression.type",
        "connections.max.idle.ms",
        "default.replication.factor",
        "delete.topic.enable",
        "fetch.max.bytes",
        "fetch.purgatory.purge.interval.requests",
        "group.consumer.assignors",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.max.size",
        "group.consumer.migration.policy",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.consumer.session.timeout.ms",
        "group.coordinator.append.linger.ms",
        "group.coordinator.rebalance.protocols",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.enable",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.threads",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.offset.checkpoint.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.initial.task.delay.ms",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.check.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.incremental.fetch.session.cache.slots",
        "max.request.partition.size.limit",
        "message.max.bytes",
        "node.id",
        "num.partitions",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",
        "offsets.topic.compression.codec",
        "offsets.topic.num.partitions",
        "offsets.topic.segment.bytes",
        "producer.id.expiration.ms",
        "socket.request.max.bytes",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.max.timeout.ms",
        "transaction.partition.verification.enable",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transaction.state.log.load.buffer.size",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "transaction.state.log.segment.bytes",
        "transactional.id.expiration.ms",
    }
)
"""
The broker configurations that have an effect. All others are validated and shown to clients only; the start logs each of them
that is set. docs/configuration.md documents this list.
"""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        port: 0 takes a free port.
        advertised: host and port that clients are told; None for the address of the listener.
        metrics_port: port of the metrics listener on the same host; 0 takes a free port, None serves no metrics.
        data_dir: None keeps everything in memory.
        flush: "commit": records are flushed before they are acknowledged; "os": the operating system writes them back when
            it decides to, which is Kafka's default.
        features: finalised levels of features by name; the newest level of every other feature.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised: tuple[str, int] | None = None
    metrics_port: int | None = None
    data_dir: Path | None = None
    flush: Literal["commit", "os"] = "commit"
    config: BrokerConfig
    features: dict[str, int] = {}


def parse_host_port(text: str, what: str) -> tuple[str, int]:
    """
    Parse `HOST:PORT` or `[IPV6]:PORT`.

    Args:
        what: the option, for the error message.

    Raises:
        ConfigError: the text has another form.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(
            f"{what} must be HOST:PORT with a port from 1 to 65535, for example localhost:9092; it is {text!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
