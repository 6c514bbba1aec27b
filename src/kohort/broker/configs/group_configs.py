"""
Group configurations: a group's own values over the broker's, which apply to every group.

A group need not exist to be configured. No key concerns classic groups.

Source: Kafka GroupConfig, GroupConfigManager.
"""

import logging
import re
from collections.abc import Mapping

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import ConfiguredGroup
from kohort.broker.configs.definitions import BROKER_KEYS, GROUP_KEYS, BrokerConfig, ConfigKey, bound_keys
from kohort.broker.configs.topic_configs import ConfigSource, Synonym, TopicConfigs
from kohort.broker.configs.values import Value, check_filled, invalid, parse_list, text_of
from kohort.model.errors import ConfigError
from kohort.model.limits import CONFIG_SHOWN_LENGTH_MAX
from kohort.model.numbers import parse_integer, trim

_OFFSET_RESET = "share.auto.offset.reset"
_DURATION = re.compile(
    r"by_duration:([+-]?+)P(?=[\d+-]|T)(?:([+-]?+\d++)D)?(?:T(?=[\d+-])(?:([+-]?+\d++)H)?(?:([+-]?+\d++)M)?"
    r"(?:([+-]?+\d++)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_DURATION_UNITS_S = (86_400, 3_600, 60, 1)

_KINDS = ("consumer", "share", "streams")

_BOUNDED = (
    # Values that have a minimum, a maximum or both among the broker's configurations, in Kafka's order of checks.
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
    "streams.task.offset.interval.ms",
    "streams.num.warmup.replicas",
)
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
_TAGS = "streams.rack.aware.assignment.tags"
_STREAMS_ASSIGNOR = "streams.assignor.name"
_BROKER_NAMES = {_STREAMS_ASSIGNOR: "group.streams.assignors"}
"""Keys of groups whose value comes from a broker's key of another name than `group.KEY`."""
_PROTOCOLS = "group.coordinator.rebalance.protocols"

_log = logging.getLogger("kohort.broker")


def check_broker(broker: BrokerConfig) -> None:
    """
    Check the broker's configurations of groups against each other, as a start of Kafka does.

    Raises:
        ConfigError: the classic protocol is disabled, a value is outside of its minimum and maximum, or a heartbeat interval is
            not below the session timeout; with Kafka's message.

    Source: Kafka GroupCoordinatorConfig, ShareGroupConfig, AbstractKafkaConfig.groupCoordinatorRebalanceProtocols.
    """
    if not broker.get_list(_PROTOCOLS):
        raise ConfigError(
            f"Configuration '{_PROTOCOLS}' must not be empty. Valid values include: [consumer, classic, share, streams]"
        )
    if "classic" not in broker.get_list(_PROTOCOLS):
        raise ConfigError(f"Disabling the 'classic' protocol is not supported. Add classic to {_PROTOCOLS}.")
    for name in _BOUNDED:
        value = f"group.{name}"
        least, most = bound_keys(value)
        if least and most and broker.get_int(most) < broker.get_int(least):
            raise ConfigError(f"{most} must be greater than or equal to {least}")
        check_bounds(broker, value, broker.get_int(value))
    for kind in _KINDS:
        interval, timeout = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if broker.get_int(interval) >= broker.get_int(timeout):
            raise ConfigError(f"{interval} must be less than {timeout}")


def check_bounds(broker: BrokerConfig, name: str, value: int) -> None:
    """
    Check a broker's value for groups, such as `group.consumer.session.timeout.ms`, against its minimum and maximum.

    Raises:
        ConfigError: it is outside of them; with Kafka's message.
    """
    least, most = bound_keys(name)
    if least and value < broker.get_int(least):
        raise ConfigError(f"{name} must be greater than or equal to {least}")
    if most and value > broker.get_int(most):
        raise ConfigError(f"{name} must be less than or equal to {most}")


def check_intervals(broker: BrokerConfig) -> None:
    """
    Check the intervals between assignments as they were set at run time: no other bounded value can be.

    Raises:
        ConfigError: one is outside of its minimum and maximum; with Kafka's message.
    """
    for kind in _KINDS:
        name = f"group.{kind}.assignment.interval.ms"
        text = broker.dynamic.get(name, broker.dynamic_defaults.get(name))
        value = None if text is None else BROKER_KEYS[name].parse(text)
        if isinstance(value, int):
            check_bounds(broker, name, value)


class GroupConfigs:
    """
    Effective values and validation of group configurations.

    A value is checked against the broker's bounds when it is set. If the broker was started with other bounds since, the value
    in force is the bound.
    """

    def __init__(self, broker: BrokerConfig, catalog: Catalog) -> None:
        self._broker = broker
        self._catalog = catalog
        self._synonyms = TopicConfigs(broker).synonyms_of_broker
        self._limits = {
            name: [None if key is None else broker.get_int(key) for key in bound_keys(f"group.{name}")]
            for name in _BOUNDED
        }
        cut = {group.group_id: self._cut_values(group) for group in catalog.configured_groups()}
        self._cut = {group_id: values for group_id, values in cut.items() if values}
        """Values in force for groups that have stored others. They hold until the group's configurations change."""

    def in_force(self, group_id: str) -> Mapping[str, str]:
        """The group's own values, cut to the broker's bounds."""
        configs = self._catalog.group_configs(group_id)
        cut = self._cut.get(group_id)
        return cut[1] if cut and cut[0] is configs else configs

    def _cut_values(self, group: ConfiguredGroup) -> tuple[Mapping[str, str], Mapping[str, str]] | None:
        """The stored values, and those in force; None if they are the same. A warning names each that is cut."""
        cut = {}
        for name, (least, most) in self._limits.items():
            if name in group.configs:
                value = self._number(name, group.configs)
                used = value if least is None else max(value, least)
                used = used if most is None else min(used, most)
                if used != value:
                    _log.warning("config.cut group=%r key=%s value=%d used=%d", group.group_id, name, value, used)
                    cut[name] = str(used)
        return (group.configs, group.configs | cut) if cut else None

    def value(self, name: str, overrides: Mapping[str, str]) -> str | None:
        """
        The effective value, as DescribeConfigs shows it.

        Raises:
            ConfigError: the group's own value is invalid.
        """
        broker_name = f"group.{name}"
        is_of_broker = name not in overrides and broker_name in BROKER_KEYS
        return self._broker.text(broker_name) if is_of_broker else self.synonyms(name, overrides)[0].value

    def synonyms(self, name: str, overrides: Mapping[str, str]) -> list[Synonym]:
        """
        The sources of a value: the group's own, then the broker's under the broker's key, or the default.

        Raises:
            ConfigError: the group's own value is invalid.
        """
        found = []
        if name in overrides:
            found = [Synonym(name, text_of(parse_group_value(name, overrides[name])), ConfigSource.GROUP)]
        broker_name = _BROKER_NAMES.get(name, f"group.{name}")
        if broker_name not in BROKER_KEYS:
            return [*found, Synonym(name, GROUP_KEYS[name].default, ConfigSource.DEFAULT)]
        of_broker = self._synonyms([broker_name])
        if name == _STREAMS_ASSIGNOR:
            of_broker = [
                msgspec.structs.replace(each, value=(each.value or "").partition(",")[0]) for each in of_broker
            ]
        return found + of_broker

    def validate(self, overrides: Mapping[str, str]) -> None:
        """
        Raises:
            ConfigError: a key is unknown, a value is invalid or outside of the broker's limits, or a session timeout is not
                above the effective heartbeat interval; with Kafka's message.

        Source: Kafka GroupConfig.validate; the order of a 4.4.0.
        """
        for name in overrides:
            _check_known(name, self._broker.keys.group)
        for name, text in overrides.items():
            parse_group_value(name, text)
        for name, limits in self._limits.items():
            if name in overrides:
                _check_limits(name, self._number(name, overrides), *limits)
        self._check_streams_assignor(overrides)
        for kind in _KINDS:
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if self._number(session, overrides) <= self._number(heartbeat, overrides):
                raise ConfigError(f"{session} must be greater than {heartbeat}")
        if trim(overrides.get(_DEAD_LETTERS, "")).startswith("__"):
            raise ConfigError(f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")

    def _check_streams_assignor(self, overrides: Mapping[str, str]) -> None:
        if _STREAMS_ASSIGNOR in overrides:
            name, known = trim(overrides[_STREAMS_ASSIGNOR]), self._broker.get_list(_BROKER_NAMES[_STREAMS_ASSIGNOR])
            if name not in known:
                raise ConfigError(
                    f"{_STREAMS_ASSIGNOR} '{name[:CONFIG_SHOWN_LENGTH_MAX]}' is not a registered task assignor. "
                    f"Registered assignors are: [{', '.join(known)}]."
                )

    def _number(self, name: str, overrides: Mapping[str, str]) -> int:
        return int(self.value(name, overrides) or 0)


def _check_limits(name: str, value: int, least: int | None, most: int | None) -> None:
    """
    Raises:
        ConfigError: the value is outside of the limits.
    """
    if least is not None and most is not None:
        if not least <= value <= most:
            raise ConfigError(f"{name} must be in the range {least} to {most} inclusive.")
    elif most is not None and value > most:
        raise ConfigError(f"{name} must be less than or equal to {most}")
    elif least is not None and value < least:
        raise ConfigError(f"{name} must be greater than or equal to {least}")


def _check_known(name: str, keys: Mapping[str, ConfigKey]) -> None:
    if name not in keys:
        raise ConfigError(f"Unknown group config name: {name}")


def parse_group_value(name: str, text: str) -> Value:
    """
    Parse a group's own value.

    Raises:
        ConfigError: the key is unknown, or the value is invalid.
    """
    _check_known(name, GROUP_KEYS)
    if name == _TAGS:
        return _parse_tags(text)
    if name != _OFFSET_RESET:
        return GROUP_KEYS[name].parse(text)
    trimmed = trim(text)
    if trimmed not in ("earliest", "latest") and duration_ms(trimmed) is None:
        shown = trimmed[:CONFIG_SHOWN_LENGTH_MAX]
        raise invalid(
            name,
            trimmed,
            f"Invalid value `{shown}` for configuration {name}. The value must be either 'earliest', 'latest' or of the "
            "format 'by_duration:<PnDTnHnMn.nS>'.",
        )
    return trimmed


def _parse_tags(text: str) -> Value:
    tags = parse_list(trim(text))
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    for tag in tags:
        check_filled(_TAGS, tag)
    return tags


def duration_ms(text: str) -> int | None:
    """
    A duration in milliseconds; None if a text is none that is not negative and whose seconds have 64 bits.

    Source: java.time.Duration.parse.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    sign, *numbers, fraction = match.groups()
    try:
        parts = [
            parse_integer(number or "0", 64) * unit for number, unit in zip(numbers, _DURATION_UNITS_S, strict=True)
        ]
    except ValueError:
        return None
    seconds = sum(parts)
    # The fraction has the sign of its seconds.
    nanoseconds = seconds * 1_000_000_000 + int(f"{fraction or 0:0<9}") * (-1 if (numbers[-1] or "")[:1] == "-" else 1)
    limit = 1 << 63
    is_long = all(-limit <= each < limit for each in (*parts, seconds))
    signed = -nanoseconds if sign == "-" else nanoseconds
    return signed // 1_000_000 if is_long and signed >= 0 else None
