"""
Topic configurations: a topic's own values over the cluster's dynamic defaults, the broker's values and Kafka's defaults.

If the broker's key has another name or unit (`log.retention.hours` for `retention.ms`), the topic's value is derived from it.

Source: Kafka ServerTopicConfigSynonyms, LogConfig, ConfigHelper; DynamicBrokerConfig.brokerConfigSynonyms.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

from kohort.broker.configs.definitions import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey
from kohort.broker.configs.values import Value, check_lengths, text_of
from kohort.model.errors import ConfigError
from kohort.storage.log import LogConfig

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS

# The broker's keys by precedence, with the factor for the topic's unit.
_RENAMED: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
}
_SAME_NAME = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "max.decompressed.message.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
BROKER_SYNONYMS = _RENAMED | {name: ((name, 1),) for name in _SAME_NAME}
"""Topic key to broker keys. The other keys (throttled replicas, tiered storage) exist for topics only."""

DEFAULTS_OF_TOPICS = frozenset(name for brokers in BROKER_SYNONYMS.values() for name, _ in brokers)
"""Broker keys whose value topics have, unless they have their own."""

_LOG_CONFIG_KEYS = {field: field.replace("_", ".") for field in LogConfig.__struct_fields__}


class ConfigSource(IntEnum):
    """The source of a value, by its number in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Effective(msgspec.Struct, frozen=True):
    """One key with its effective value for a topic."""

    key: ConfigKey
    value: str | None
    source: ConfigSource


class Synonym(msgspec.Struct, frozen=True):
    """One source of a value: a key where it was set, or its default."""

    name: str
    value: str | None
    source: ConfigSource


def layers_of(broker: BrokerConfig) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
    """The sources of a broker's values over Kafka's defaults, by precedence."""
    return (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_defaults),
        (ConfigSource.STATIC_BROKER, broker.explicit),
    )


class TopicConfigs:
    """Topic configurations of one cluster, over the configuration of the broker."""

    def __init__(self, broker: BrokerConfig) -> None:
        self.broker = broker

    def synonyms_of_broker(self, names: Iterable[str], *, first: str | None = None) -> list[Synonym]:
        """
        The sources of a broker value: dynamic values of all keys, then static values, then defaults.

        Args:
            names: keys of one value, by precedence.
            first: the requested key; by default the first.
        """
        names = tuple(names)
        requested = first or names[0]
        defaults = {name: BROKER_KEYS[name].default for name in names}
        layers = (*layers_of(self.broker), (ConfigSource.DEFAULT, defaults))
        found = [
            Synonym(name, value, source)
            for source, layer in layers
            for name in names
            if (value := layer.get(name)) is not None
        ]
        # As in Kafka, sources before the first one of the requested key are left out: `log.retention.hours` shows only
        # behind a `log.retention.ms`.
        start = next((index for index, synonym in enumerate(found) if synonym.name == requested), len(found))
        return found[start:]

    def synonyms(self, name: str, overrides: Mapping[str, str]) -> list[Synonym]:
        """The sources of a topic value: the topic's own, then the broker's. Source: ConfigHelper.createTopicConfigEntry."""
        own = [Synonym(name, overrides[name], ConfigSource.TOPIC)] if name in overrides else []
        broker = BROKER_SYNONYMS.get(name)
        return own + self.synonyms_of_broker(key for key, _ in broker) if broker else own

    def value(self, name: str, overrides: Mapping[str, str]) -> Effective:
        """
        The effective value and its source. A negative retention of the broker is none.

        Source: Kafka KafkaConfigSchema.resolveEffectiveTopicConfig, KafkaConfig.logRetentionTimeMillis.
        """
        key = TOPIC_KEYS[name]
        if name in overrides:
            return Effective(key, text_of(key.parse(overrides[name])), ConfigSource.TOPIC)
        for broker_name, factor in BROKER_SYNONYMS.get(name, ()):
            for source, settings in layers_of(self.broker):
                if broker_name in settings:
                    text = settings[broker_name]
                    value = BROKER_KEYS[broker_name].parse(text)
                    if name == "retention.ms" and isinstance(value, int):
                        value = max(value * factor, -1)
                    elif isinstance(value, int) and factor != 1:
                        value *= factor
                    elif source is ConfigSource.STATIC_BROKER:
                        return Effective(key, text, source)
                    return Effective(key, text_of(value), source)
        return Effective(key, key.default, ConfigSource.DEFAULT)

    def effective(self, overrides: Mapping[str, str]) -> list[Effective]:
        """The effective values of the keys that the broker's release shows, by name."""
        return [self.value(name, overrides) for name, key in self.broker.keys.topic.items() if not key.is_internal]

    def parsed(self, name: str, overrides: Mapping[str, str]) -> Value:
        """The effective value, parsed by its type."""
        effective = self.value(name, overrides)
        return None if effective.value is None else effective.key.parse(effective.value)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """
        The configuration of the topic's logs. `internal.segment.bytes` overrules `segment.bytes`, without its minimum; segments
        of a compacted topic roll within the maximum compaction lag.

        Source: LogConfig.segmentSize, maxSegmentMs; KIP-1030, KIP-354.
        """
        values = {field: self.parsed(name, overrides) for field, name in _LOG_CONFIG_KEYS.items()}
        config = LogConfig(**{field: ",".join(v) if isinstance(v, tuple) else v for field, v in values.items()})  # type: ignore[arg-type]
        segment_bytes = self.parsed("internal.segment.bytes", overrides)
        if isinstance(segment_bytes, int):
            config = msgspec.structs.replace(config, segment_bytes=segment_bytes)
        if "compact" not in config.cleanup_policy.split(","):
            return config
        return msgspec.structs.replace(config, segment_ms=min(config.segment_ms, config.max_compaction_lag_ms))

    def check_defaults(self) -> None:
        """
        Check what topics get from the broker's values.

        Raises:
            ConfigError: a value is not valid for a topic, or two contradict each other.
        """
        for name in BROKER_SYNONYMS:
            self.parsed(name, {})
        self._check_lags({})

    def _check_lags(self, overrides: Mapping[str, str]) -> None:
        least, most = (self.parsed(name, overrides) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
        if isinstance(least, int) and isinstance(most, int) and least > most:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
            )

    def validate(self, overrides: Mapping[str, str]) -> None:
        """
        Raises:
            ConfigError: a key is unknown, a value is invalid, or two values contradict each other.

        Source: LogConfig.validate.
        """
        check_lengths(overrides)
        for name, text in overrides.items():
            if name not in self.broker.keys.topic:
                raise unknown_topic_key(name)
            parse_topic_value(name, text)
        self._check_lags(overrides)
        if self.parsed("remote.storage.enable", overrides):
            raise ConfigError("Tiered Storage functionality is disabled in the broker.")


def parse_topic_value(name: str, text: str) -> Value:
    """
    Parse a topic's own value.

    Raises:
        ConfigError: the key is unknown, or the value is invalid.
    """
    if name not in TOPIC_KEYS:
        raise unknown_topic_key(name)
    return TOPIC_KEYS[name].parse(text)


def unknown_topic_key(name: str) -> ConfigError:
    return ConfigError(f"Unknown topic config name: {name}")
