"""
Definitions of Kafka's configurations: keys, types, validation with Kafka's error messages; and the broker's configuration.

`BrokerConfig` has the values that the operator set at the start and at run time, over Kafka's defaults.

Source: org.apache.kafka.common.config.ConfigDef of Apache Kafka 4.2.1.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TypeAlias

import msgspec

from kohort.broker.configs import config_table
from kohort.broker.configs.config_sources import read_sources
from kohort.model.errors import ConfigError


class UpdateMode(StrEnum):
    """When a configuration can be changed. Source: KIP-226."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    DYNAMIC = "dynamic"


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
        has_effect: a value changes what Kohort does; other keys are validated, stored and shown only.
        is_internal: accepted, but not shown by DescribeConfigs.
    """

    name: str
    type: ConfigType
    default: str | None
    valid: str | None
    importance: str
    has_effect: bool
    is_internal: bool
    update_mode: UpdateMode

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


def _key(row: config_table.Row) -> ConfigKey:
    name, type_name, default, valid, importance, flags, mode = row
    return ConfigKey(
        name=name,
        type=ConfigType[type_name],
        default=None if default == config_table.REQUIRED else default,
        valid=valid,
        importance=importance,
        has_effect=flags.startswith("effect"),
        is_internal=flags.endswith("internal"),
        update_mode=UpdateMode(mode),
    )


BROKER_KEYS = {row[0]: _key(row) for row in config_table.BROKER}
TOPIC_KEYS = {row[0]: _key(row) for row in config_table.TOPIC}
GROUP_KEYS = {row[0]: _key(row) for row in config_table.GROUP}
CLIENT_METRICS_KEYS = {row[0]: _key(row) for row in config_table.CLIENT_METRICS}


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
    if other is not None:
        if value != int(other) and not float(least) <= value <= float(most or "inf"):
            raise _invalid(key, value, f"Value must be between {least} and {most} or equal to {other}")
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


Watcher: TypeAlias = Callable[[frozenset[str]], None]
"""Called with the names of the configurations whose effective value may have changed."""


class BrokerConfig:
    """
    The broker's configuration: values set at run time, over values set at the start, over Kafka's defaults.

    `config[name]` is the effective value at this moment. Code that keeps a value longer registers a watcher.

    Attributes:
        explicit: the values that were set at the start, as text.
        unknown: keys that were set but are not Kafka's, each with the most similar key that is, or "". Kafka starts with them.
        dynamic: the values that were set at run time for this broker, as text.
        dynamic_defaults: the values that were set at run time for all brokers, as text, over `initial_defaults`.
        initial_defaults: `min.insync.replicas`: since KIP-966 the controller sets it for all brokers at its start.

    Raises:
        ConfigError: a value is invalid.
    """

    def __init__(self, explicit: Mapping[str, str] | None = None) -> None:
        explicit = explicit or {}
        self.explicit = {name: text for name, text in explicit.items() if name in BROKER_KEYS}
        self.unknown = {name: similar_key(name, BROKER_KEYS) for name in explicit if name not in BROKER_KEYS}
        self._static: dict[str, Value] = {name: BROKER_KEYS[name].parse(text) for name, text in self.explicit.items()}
        self._values = dict(self._static)
        self._watchers: list[Watcher] = []
        self.initial_defaults = {_MIN_ISR: self.explicit.get(_MIN_ISR) or BROKER_KEYS[_MIN_ISR].default or "1"}
        self.dynamic: dict[str, str] = {}
        self.dynamic_defaults = dict(self.initial_defaults)

    @classmethod
    def load(
        cls, *, sets: Iterable[str] = (), file: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """
        Load from a file, the environment (`KOHORT_NUM_PARTITIONS=3`) and `KEY=VALUE` texts; later sources win.

        Raises:
            ConfigError: as for the class; or the file cannot be read.
        """
        return cls(read_sources(sets, file, environment or {}, BROKER_KEYS))

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when values have been changed at run time."""
        self._watchers.append(watcher)

    def set_dynamic(self, dynamic: Mapping[str, str], dynamic_defaults: Mapping[str, str]) -> None:
        """
        Replace the values that were set at run time, and tell the watchers.

        Raises:
            ConfigError: a value is invalid. Nothing has changed then.
        """
        defaults = self.initial_defaults | dict(dynamic_defaults)
        values = dict(self._static)
        for layer in (defaults, dynamic):
            values |= {name: BROKER_KEYS[name].parse(text) for name, text in layer.items() if name in BROKER_KEYS}
        before = (self.dynamic, self.dynamic_defaults)
        self.dynamic, self.dynamic_defaults = dict(dynamic), defaults
        self._values = values
        changed = frozenset(
            name
            for old, new in zip(before, (self.dynamic, self.dynamic_defaults), strict=True)
            for name in old.keys() | new.keys()
            if old.get(name) != new.get(name)
        )
        if changed:
            for watcher in self._watchers:
                watcher(changed)

    def with_dynamic(self, dynamic: Mapping[str, str], dynamic_defaults: Mapping[str, str]) -> "BrokerConfig":
        """
        A configuration with other values at run time, without watchers.

        Raises:
            ConfigError: a value is invalid.
        """
        config = copy(self)
        config._watchers = []
        config.set_dynamic(dynamic, dynamic_defaults)
        return config

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
        """The effective value as DescribeConfigs shows it."""
        for layer in (self.dynamic, self.dynamic_defaults):
            if name in layer:
                return text_of(BROKER_KEYS[name].parse(layer[name]))
        return self.explicit.get(name, BROKER_KEYS[name].default)


_MIN_ISR = "min.insync.replicas"
