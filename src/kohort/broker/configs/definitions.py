"""
Definitions of Kafka's configurations: keys, types, valid values; and the broker's configuration.

`BrokerConfig` has the values that the operator set at the start and at run time, over Kafka's defaults.

Source: org.apache.kafka.common.config.ConfigDef of Apache Kafka 4.2.1 and 4.4.0.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kohort.broker.configs import config_table
from kohort.broker.configs.config_releases import rows_of
from kohort.broker.configs.config_sources import read_sources
from kohort.broker.configs.values import ConfigType, Value, parse_value, text_of, validate
from kohort.wire.apis import DEFAULT_RELEASE, RELEASES


class UpdateMode(StrEnum):
    """When a configuration can be changed. Source: KIP-226."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    DYNAMIC = "dynamic"


class ConfigKey(msgspec.Struct, frozen=True):
    """
    One configuration.

    Attributes:
        default: as text; None without a default.
        valid: Kafka's description of the valid values, from which validation derives; None if any value of the type is valid.
        has_effect: a value changes what Kohort does; other keys are validated, stored and shown only.
        is_internal: accepted, but not shown by DescribeConfigs.
        documentation: a sentence.
    """

    name: str
    type: ConfigType
    default: str | None
    valid: str | None
    importance: str
    has_effect: bool
    is_internal: bool
    update_mode: UpdateMode
    documentation: str

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """
        Parse and validate a text.

        Raises:
            ConfigError: the text is not of the key's type, or not a valid value; with Kafka's message.
        """
        value = parse_value(self.name, self.type, text)
        if self.valid is not None:
            validate(self.name, self.valid, value)
        return value


_TYPES: Final = {kind.name: kind for kind in ConfigType}
_MODES: Final = {mode.value: mode for mode in UpdateMode}


@cache
def _key(row: config_table.Row) -> ConfigKey:
    """The key of a row; releases share most rows. A start reads all of them, so a look-up in an enumeration would count."""
    name, type_name, default, valid, importance, flags, mode, documentation = row
    return ConfigKey(
        name=name,
        type=_TYPES[type_name],
        default=None if default == config_table.REQUIRED else default,
        valid=valid,
        importance=importance,
        has_effect=flags.startswith("effect"),
        is_internal=flags.endswith("internal"),
        update_mode=_MODES[mode],
        documentation=documentation,
    )


class ConfigKeys(NamedTuple):
    """Configurations by name, in the order of names."""

    broker: dict[str, ConfigKey]
    topic: dict[str, ConfigKey]
    group: dict[str, ConfigKey]


@cache
def keys_of(release: str) -> ConfigKeys:
    """The configurations of a release."""
    return ConfigKeys(*({row[0]: _key(row) for row in rows} for rows in rows_of(release)))


def _keys_of_all() -> ConfigKeys:
    """The configurations of all releases; the newest definition of each."""
    merged = ConfigKeys({}, {}, {})
    for release in RELEASES:
        for keys, later in zip(merged, keys_of(release), strict=True):
            keys.update(later)
    return ConfigKeys(*(dict(sorted(keys.items())) for keys in merged))


BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS = _keys_of_all()
"""The keys that every broker takes, of any release: a value has its effect even if the release shows no such key."""
AUTHORIZER_KEYS = ("super.users", "allow.everyone.if.no.acl.found")
"""Keys that Kafka's authorizer reads, and that brokers do not define. DescribeConfigs hides their values."""
CLIENT_METRICS_KEYS = {row[0]: _key(row) for row in config_table.CLIENT_METRICS}


LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.(.+)")
_MECHANISM_SUFFIXES: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Configurations of a listener that may also have the name of a SASL mechanism."""


def known_key(name: str) -> ConfigKey | None:
    """The definition of a key, also behind the prefix of a listener; None if the key is unknown."""
    match = LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return BROKER_KEYS.get(name)
    found = BROKER_KEYS.get(match[1])
    if found is None:
        _, _, of_mechanism = match[1].partition(".")
        is_of_mechanism = of_mechanism in _MECHANISM_SUFFIXES or of_mechanism.startswith("sasl.oauthbearer.")
        found = BROKER_KEYS.get(of_mechanism) if is_of_mechanism else None
    return found


def bound_keys(name: str) -> tuple[str | None, str | None]:
    """
    The broker's keys of the minimum and the maximum of a value of groups: those of `group.consumer.session.timeout.ms` are
    `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`. None for one that does not exist.
    """
    scope, _, of_kind = name.partition(".")
    if scope != "group":
        return None, None
    kind, _, rest = of_kind.partition(".")
    least, most = (f"group.{kind}.{bound}.{rest.removeprefix('num.')}" for bound in ("min", "max"))
    return least if least in BROKER_KEYS else None, most if most in BROKER_KEYS else None


def check_value(name: str, text: str) -> None:
    """
    Check the value of a known key, also behind the prefix of a listener.

    Raises:
        ConfigError: with Kafka's message.
    """
    key = known_key(name)
    assert key is not None, name
    key.parse(text)


def similar_key(name: str, known: Iterable[str]) -> str:
    """The most similar known key; "" if none is similar."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return near[0] if near else ""


Watcher: TypeAlias = Callable[[frozenset[str]], None]
"""Called with the names of the configurations whose effective value may have changed."""


class ConfigValues(ABC):
    """Effective values by name, and the same by the type of the key."""

    @abstractmethod
    def __getitem__(self, name: str, /) -> Value: ...

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


class BrokerConfig(ConfigValues):
    """
    The broker's configuration: values set at run time, over values set at the start, over Kafka's defaults.

    `config[name]` is the effective value at this moment. Code that keeps a value longer registers a watcher.

    Args:
        release: the release of Apache Kafka that the broker is like.

    Attributes:
        keys: the configurations of the release: those that clients see, and that topics and groups may have.
        explicit: the values that were set at the start, as text.
        others: the values of keys that were set and have no definition of their own, as text: of single listeners, of the
            authorizer, and unknown ones.
        of_listeners: those of single listeners, by their whole name.
        unknown: those that nothing reads, each with the most similar key that Kafka has, or "". Kafka starts with them.
        dynamic: the values that were set at run time for this broker, as text.
        dynamic_defaults: the values that were set at run time for all brokers, as text, over `initial_defaults`.
        log_dir: the name of the log directory, once the broker has one.
        initial_defaults: `min.insync.replicas`: since KIP-966 the controller sets it for all brokers at its start.

    Raises:
        ConfigError: a value is invalid.
    """

    def __init__(self, explicit: Mapping[str, str] | None = None, *, release: str = DEFAULT_RELEASE) -> None:
        explicit = explicit or {}
        self.release = release
        self.keys = keys_of(release)
        self.explicit = {name: text for name, text in explicit.items() if name in BROKER_KEYS}
        self.others = {name: text for name, text in explicit.items() if name not in BROKER_KEYS}
        self.of_listeners = {
            name: text for name, text in self.others.items() if LISTENER_PREFIX.match(name) and known_key(name)
        }
        for name, text in self.of_listeners.items():
            check_value(name, text)
        read = (*self.of_listeners, *(AUTHORIZER_KEYS if self.explicit.get("authorizer.class.name") else ()))
        self.unknown = {name: similar_key(name, BROKER_KEYS) for name in self.others if name not in read}
        self._static: dict[str, Value] = {name: BROKER_KEYS[name].parse(text) for name, text in self.explicit.items()}
        self._values = dict(self._static)
        self._watchers: list[Watcher] = []
        self.initial_defaults = {_MIN_ISR: self.explicit.get(_MIN_ISR) or BROKER_KEYS[_MIN_ISR].default or "1"}
        self.log_dir = ""
        self.dynamic: dict[str, str] = {}
        self.dynamic_defaults = dict(self.initial_defaults)

    @classmethod
    def load(
        cls,
        *,
        sets: Iterable[str] = (),
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] = MappingProxyType({}),
        release: str = DEFAULT_RELEASE,
    ) -> "BrokerConfig":
        """
        Load from a file, the environment (`KOHORT_NUM_PARTITIONS=3`) and `KEY=VALUE` texts; later sources win.

        Args:
            defaults: before all sources.

        Raises:
            ConfigError: as for the class; or the file cannot be read.
        """
        known = {*BROKER_KEYS, *AUTHORIZER_KEYS}
        return cls({**defaults, **read_sources(sets, file, environment or {}, known)}, release=release)

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
        for name in (defaults.keys() | dynamic.keys()) & values.keys():
            values[name] = self._cut(name, values[name])
        changed = frozenset(
            name
            for old, new in zip(before, (self.dynamic, self.dynamic_defaults), strict=True)
            for name in old.keys() | new.keys()
            if old.get(name) != new.get(name)
        )
        if changed:
            for watcher in self._watchers:
                watcher(changed)

    def _cut(self, name: str, value: Value) -> Value:
        """
        What is used of a value that was set at run time: its minimum or maximum if it is outside of them. A change to such a
        value is refused; a start finds one if the operator has moved the bound.
        """
        least, most = bound_keys(name)
        if isinstance(value, int) and least and most:
            return min(max(value, self.get_int(least)), self.get_int(most))
        return value

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

    def text(self, name: str) -> str | None:
        """The effective value as DescribeConfigs shows it."""
        for layer in (self.dynamic, self.dynamic_defaults):
            if name in layer:
                return text_of(self._cut(name, BROKER_KEYS[name].parse(layer[name])))
        return self.explicit.get(name, BROKER_KEYS[name].default)


_MIN_ISR = "min.insync.replicas"
