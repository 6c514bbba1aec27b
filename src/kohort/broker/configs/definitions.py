"""
Definitions of Kafka's configurations: keys, types, validation with Kafka's error messages; and the broker's configuration.

`BrokerConfig` has the values that the operator set, over Kafka's defaults.

Source: org.apache.kafka.common.config.ConfigDef; KafkaConfig of Apache Kafka 4.2.1.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from kohort.broker.configs import config_table
from kohort.model.errors import ConfigError
from kohort.model.properties import parse_properties

ENVIRONMENT_PREFIX = "KOHORT_SET_"


class ConfigType(IntEnum):
    """The type of a value, by its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigKey(msgspec.Struct, frozen=True):
    """
    One configuration.

    Attributes:
        default: as text; None without a default.
        valid: Kafka's description of the valid values, from which validation derives; None if any value of the type is valid.
        is_internal: accepted, but not shown by DescribeConfigs.
    """

    name: str
    type: ConfigType
    default: str | None
    valid: str | None
    importance: str
    is_internal: bool

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """
        Parse and validate a text.

        Raises:
            ConfigError: the text is not of the key's type, or not a valid value; with Kafka's message.
        """
        value = _parse_type(self, text)
        if self.valid is not None:
            _validate(self, value)
        return value


def _keys(rows: Iterable[config_table.Row]) -> dict[str, ConfigKey]:
    return {
        row[0]: ConfigKey(row[0], ConfigType[row[1]], None if row[2] == config_table.REQUIRED else row[2], *row[3:])
        for row in rows
    }


BROKER_KEYS = _keys(config_table.BROKER)
TOPIC_KEYS = _keys(config_table.TOPIC)
GROUP_KEYS = _keys(config_table.GROUP)


def _invalid(key: ConfigKey, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {key.name}: {why}")


def _parse_type(key: ConfigKey, text: str) -> Value:
    trimmed = text.strip()
    match key.type:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise _invalid(key, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _parse_integer(key, trimmed)
        case ConfigType.DOUBLE:
            try:
                return float(trimmed)
            except ValueError:
                raise _invalid(key, text, "Not a number of type DOUBLE") from None
        case ConfigType.LIST:
            return tuple(re.split(r"\s*,\s*", trimmed)) if trimmed else ()
        case ConfigType.PASSWORD:
            return text
        case _:
            return trimmed


def _parse_integer(key: ConfigKey, text: str) -> int:
    limit = 1 << (_INTEGER_BITS[key.type] - 1)
    if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) and -limit <= int(text) < limit:
        return int(text)
    raise _invalid(key, text, f"Not a number of type {key.type.name}")


_RANGE = re.compile(r"\[(-?[\d.]+?),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?")
_CHOICE = re.compile(r"(\(case insensitive\) )?\[(.*)\]")


def _validate(key: ConfigKey, value: Value) -> None:
    assert key.valid is not None
    if isinstance(value, int | float) and (limits := _RANGE.fullmatch(key.valid)):
        _validate_range(key, value, *limits.groups())
    elif key.valid in ("non-empty string", "non-empty list"):
        # Kafka's validator of the list looks at the elements: none at all is fine.
        if value == "":
            raise _invalid(key, value, "String must be non-empty")
    elif "partitionId" in key.valid:
        _validate_throttled_replicas(key, value)
    elif choice := _CHOICE.fullmatch(key.valid):
        _validate_choice(key, value, choice[2].split(", "), is_exact=choice[1] is None)


def _validate_range(key: ConfigKey, value: float, least: str, most: str | None, other: str | None) -> None:
    if other is not None and value == int(other):
        return
    if value < float(least):
        raise _invalid(key, value, f"Value must be at least {least}")
    if most is not None and value > float(most):
        raise _invalid(key, value, f"Value must be no more than {most}")


def _validate_choice(key: ConfigKey, value: Value, choices: list[str], *, is_exact: bool) -> None:
    given = value if isinstance(value, tuple) else (str(value),)
    allowed = set(choices) if is_exact else {choice.lower() for choice in choices}
    for one in given:
        if (one if is_exact else one.lower()) not in allowed:
            raise _invalid(key, one, f"String must be one of: {', '.join(choices)}")


def _validate_throttled_replicas(key: ConfigKey, value: Value) -> None:
    assert isinstance(value, tuple)
    if value != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", one) for one in value):
        raise _invalid(key, ",".join(value), f"{key.name} must be the literal '*' or a list of replicas")


def text_of(value: Value) -> str | None:
    """A value as Kafka prints it. Source: ConfigDef.convertToString."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def similar_key(name: str, known: Iterable[str]) -> str:
    """The most similar known key; "" if none is similar."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return near[0] if near else ""


class BrokerConfig:
    """
    The broker's configuration: values that were set, over Kafka's defaults.

    Attributes:
        explicit: the values that were set, as text.
        unknown: keys that were set but are not Kafka's, each with the most similar key that is, or "". Kafka starts with them.

    Raises:
        ConfigError: a value is invalid.
    """

    def __init__(self, explicit: Mapping[str, str] | None = None) -> None:
        explicit = explicit or {}
        self.explicit = {name: text for name, text in explicit.items() if name in BROKER_KEYS}
        self.unknown = {name: similar_key(name, BROKER_KEYS) for name in explicit if name not in BROKER_KEYS}
        self._values: dict[str, Value] = {name: BROKER_KEYS[name].parse(text) for name, text in self.explicit.items()}

    @classmethod
    def load(
        cls, *, sets: Iterable[str] = (), file: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """
        Load from a file, the environment (`KOHORT_SET_NUM_PARTITIONS=3`) and `KEY=VALUE` texts; later sources win.

        Raises:
            ConfigError: as for the class; or the file cannot be read.
        """
        merged = read_file(file) if file else {}
        merged |= read_environment(environment or {})
        merged |= dict(_split_assignment(text) for text in sets)
        return cls(merged)

    def __getitem__(self, name: str) -> Value:
        value = self._values.get(name)
        if value is None and name not in self._values:
            key = BROKER_KEYS[name]
            value = self._values[name] = None if key.default is None else key.parse(key.default)
        return value

    def get_int(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), name
        return value

    def get_float(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, int | float), name
        return float(value)

    def get_bool(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), name
        return value

    def get_str(self, name: str) -> str | None:
        value = self[name]
        assert value is None or isinstance(value, str), name
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        value = self[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def text(self, name: str) -> str | None:
        """The value as DescribeConfigs shows it."""
        return self.explicit.get(name, BROKER_KEYS[name].default)


def _split_assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"Expected KEY=VALUE, not {text!r}")
    return name.strip(), value.strip()


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Read `KOHORT_SET_LOG_RETENTION_MS` as `log.retention.ms`. No key of Kafka's has an underscore."""
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def read_file(path: Path) -> dict[str, str]:
    """
    Read configurations from a file: TOML if its name ends in `.toml`, else Java properties.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    read: Callable[[str], dict[str, str]] = _read_toml if path.suffix == ".toml" else parse_properties
    try:
        return read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"Cannot parse {path}: {error}") from error


def _read_toml(text: str) -> dict[str, str]:
    import tomllib

    return dict(_flatten("", tomllib.loads(text)))


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        match value:
            case dict():
                yield from _flatten(f"{prefix}{name}.", value)
            case list():
                yield prefix + name, ",".join(map(str, value))
            case _:
                yield prefix + name, text_of(value) or ""
