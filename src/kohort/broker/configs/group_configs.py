"""
Group configurations: a group's own values over the broker's, which apply to every group.

A group need not exist to be configured. No key concerns classic groups.

Source: Kafka GroupConfig, GroupConfigManager.
"""

import re
from collections.abc import Mapping

from kohort.broker.configs.definitions import BROKER_KEYS, GROUP_KEYS, BrokerConfig, ConfigKey
from kohort.broker.configs.values import Value, invalid, text_of
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

_RANGES = (
    # The kind and the name of a value that has a minimum and a maximum, in Kafka's order of checks.
    ("consumer", "heartbeat.interval.ms"),
    ("consumer", "session.timeout.ms"),
    ("share", "heartbeat.interval.ms"),
    ("share", "session.timeout.ms"),
    ("share", "record.lock.duration.ms"),
    ("streams", "heartbeat.interval.ms"),
    ("streams", "session.timeout.ms"),
)
_STANDBYS, _MAX_STANDBYS = "streams.num.standby.replicas", "group.streams.max.standby.replicas"
_PROTOCOLS = "group.coordinator.rebalance.protocols"


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
    for kind, name in _RANGES:
        value, least, most = f"group.{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}"
        _check_order(broker, most, least)
        _check_order(broker, value, least)
        if broker.get_int(value) > broker.get_int(most):
            raise ConfigError(f"{value} must be less than or equal to {most}")
    for kind in _KINDS:
        interval, timeout = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if broker.get_int(interval) >= broker.get_int(timeout):
            raise ConfigError(f"{interval} must be less than {timeout}")
    if broker.get_int(f"group.{_STANDBYS}") > broker.get_int(_MAX_STANDBYS):
        raise ConfigError(f"group.{_STANDBYS} must be less than or equal to {_MAX_STANDBYS}")


def _check_order(broker: BrokerConfig, larger: str, smaller: str) -> None:
    if broker.get_int(larger) < broker.get_int(smaller):
        raise ConfigError(f"{larger} must be greater than or equal to {smaller}")


class GroupConfigs:
    """Effective values and validation of group configurations."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker

    def value(self, name: str, overrides: Mapping[str, str]) -> str | None:
        """
        The effective value, as DescribeConfigs shows it.

        Raises:
            ConfigError: the group's own value is invalid.
        """
        if name in overrides:
            return text_of(parse_group_value(name, overrides[name]))
        broker_name = f"group.{name}"
        return self._broker.text(broker_name) if broker_name in BROKER_KEYS else GROUP_KEYS[name].default

    def validate(self, overrides: Mapping[str, str]) -> None:
        """
        Raises:
            ConfigError: a key is unknown, a value is invalid or outside of the broker's limits, or a session timeout is not
                above the effective heartbeat interval; with Kafka's message.
        """
        for name in overrides:
            _check_known(name, self._broker.keys.group)
        for name, text in overrides.items():
            parse_group_value(name, text)
        for kind, name in _RANGES:
            value = self._number(f"{kind}.{name}", overrides)
            if value < self._broker.get_int(least := f"group.{kind}.min.{name}"):
                raise ConfigError(f"{kind}.{name} must be greater than or equal to {least}")
            if value > self._broker.get_int(most := f"group.{kind}.max.{name}"):
                raise ConfigError(f"{kind}.{name} must be less than or equal to {most}")
        if self._number(_STANDBYS, overrides) > self._broker.get_int(_MAX_STANDBYS):
            raise ConfigError(f"{_STANDBYS} must be less than or equal to {_MAX_STANDBYS}")
        for kind in _KINDS:
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if self._number(session, overrides) <= self._number(heartbeat, overrides):
                raise ConfigError(f"{session} must be greater than {heartbeat}")

    def _number(self, name: str, overrides: Mapping[str, str]) -> int:
        return int(self.value(name, overrides) or 0)


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
    if name != _OFFSET_RESET:
        return GROUP_KEYS[name].parse(text)
    trimmed = trim(text)
    if trimmed not in ("earliest", "latest") and not _is_duration(trimmed):
        shown = trimmed[:CONFIG_SHOWN_LENGTH_MAX]
        raise invalid(
            name,
            trimmed,
            f"Invalid value `{shown}` for configuration {name}. The value must be either 'earliest', 'latest' or of the "
            "format 'by_duration:<PnDTnHnMn.nS>'.",
        )
    return trimmed


def _is_duration(text: str) -> bool:
    """Whether a text is a duration that is not negative and whose seconds have 64 bits. Source: java.time.Duration.parse."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return False
    sign, *numbers, fraction = match.groups()
    try:
        parts = [
            parse_integer(number or "0", 64) * unit for number, unit in zip(numbers, _DURATION_UNITS_S, strict=True)
        ]
    except ValueError:
        return False
    seconds = sum(parts)
    # The fraction has the sign of its seconds.
    nanoseconds = seconds * 1_000_000_000 + int(f"{fraction or 0:0<9}") * (-1 if (numbers[-1] or "")[:1] == "-" else 1)
    limit = 1 << 63
    is_long = all(-limit <= each < limit for each in (*parts, seconds))
    return is_long and (nanoseconds <= 0 if sign == "-" else nanoseconds >= 0)
