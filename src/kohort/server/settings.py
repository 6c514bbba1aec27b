"""What a node is started with."""

from pathlib import Path
from typing import Literal

import msgspec

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ConfigError

SUPPORTED_CONFIGS = frozenset(
    {
        "auto.create.topics.enable",
        "broker.rack",
        "compression.type",
        "connections.max.idle.ms",
        "default.replication.factor",
        "delete.topic.enable",
        "fetch.max.bytes",
        "group.coordinator.append.linger.ms",
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
        "max.incremental.fetch.session.cache.slots",
        "max.request.partition.size.limit",
        "message.max.bytes",
        "node.id",
        "num.partitions",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",
        "offsets.topic.compression.codec",
        "offsets.topic.num.partitions",
        "offsets.topic.segment.bytes",
        "producer.id.expiration.ms",
        "socket.request.max.bytes",
    }
)
"""
The broker configurations that change what Kohort does. The others are known by name, checked and described to clients, and
nothing else; the start says so for each that is set. docs/configuration.md is the same list for people.
"""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        port: 0 takes a free one.
        advertised: what clients are told to connect to; None for where the node listens.
        metrics_port: where metrics are served, on the same host; 0 takes a free one, None for nowhere.
        data_dir: None keeps everything in memory.
        flush: "commit": acknowledged means flushed; "os": the operating system writes when it likes, as Kafka has it.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised: tuple[str, int] | None = None
    metrics_port: int | None = None
    data_dir: Path | None = None
    flush: Literal["commit", "os"] = "commit"
    config: BrokerConfig


def parse_host_port(text: str, what: str) -> tuple[str, int]:
    """
    `HOST:PORT`, `[V6]:PORT` too.

    Raises:
        ConfigError: the text is neither.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(
            f"{what} must be HOST:PORT with a port from 1 to 65535, for example localhost:9092; it is {text!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
