"""
Subscriptions of client metrics (KIP-714): which clients push which metrics, and how often.

A subscription is a resource of IncrementalAlterConfigs and AlterConfigs, of type CLIENT_METRICS. The catalog keeps it while it
has a configuration. `catalog.settings(CLIENT_METRICS_KIND)` has the configurations by name, which `Subscription.of` reads;
`catalog.watch_settings(CLIENT_METRICS_KIND, ...)` tells of changes.

Source: Kafka ClientMetricsConfigs, ControllerConfigurationValidator; texts of a 4.2.1.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.configs.definitions import CLIENT_METRICS_KEYS
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.expressions import Expression, ExpressionError, unicode_classes
from kohort.model.limits import (
    CLIENT_METRICS_INSTRUCTIONS_MAX,
    CLIENT_METRICS_PATTERNS_MAX,
    CLIENT_METRICS_SUBSCRIPTIONS_MAX,
    CLIENT_PROPERTY_LENGTH_MAX,
    PATTERN_CLASSES_MAX,
)
from kohort.model.numbers import trim

CLIENT_METRICS_KIND: Final = "client-metrics"
"""The kind of the catalog's setting; its name is that of the subscription, and its fields are the configurations."""

INTERVAL_DEFAULT_MS: Final = 300_000
_INTERVAL_MIN_MS: Final = 100
_INTERVAL_MAX_MS: Final = 3_600_000

MATCH_NAMES: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""Properties of a client that a subscription can ask for."""


class Subscription(msgspec.Struct, frozen=True):
    """
    One subscription.

    Attributes:
        metrics: prefixes of names of metrics; `*` alone stands for all.
        match: by property of the client an expression, which has to match the whole value.
    """

    name: str
    interval_ms: int
    metrics: tuple[str, ...]
    match: dict[str, Expression]

    @classmethod
    def of(cls, name: str, configs: Mapping[str, Any]) -> "Subscription":
        """
        Read the configurations of a subscription.

        Raises:
            ConfigError: one of them is invalid.
        """
        return cls(name, _interval_ms(configs), _list("metrics", configs), _parse_match(_list("match", configs)))

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the subscription is for a client. A very long property matches no expression."""
        for name, expression in self.match.items():
            value = properties.get(name, "")
            if len(value) > CLIENT_PROPERTY_LENGTH_MAX or not expression.matches(value):
                return False
        return True


def _interval_ms(configs: Mapping[str, Any]) -> int:
    value = CLIENT_METRICS_KEYS["interval.ms"].parse(str(configs.get("interval.ms", INTERVAL_DEFAULT_MS)))
    assert isinstance(value, int)
    return value


def _list(name: str, configs: Mapping[str, Any]) -> tuple[str, ...]:
    value = CLIENT_METRICS_KEYS[name].parse(str(configs.get(name, "")))
    assert isinstance(value, tuple)
    return value


def validate(catalog: Catalog, name: str, configs: Mapping[str, str]) -> None:
    """
    Raises:
        CoordinatorError: the name is empty, a key is unknown, a value is invalid, or there are too many subscriptions.
    """
    check(name, configs)
    known = catalog.newest_settings(CLIENT_METRICS_KIND)
    if configs and name not in known and len(known) >= CLIENT_METRICS_SUBSCRIPTIONS_MAX:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION,
            f"There are {CLIENT_METRICS_SUBSCRIPTIONS_MAX} subscriptions, which is the most.",
        )


def check(name: str, configs: Mapping[str, Any]) -> None:
    """
    Raises:
        CoordinatorError: the name is empty, a key is unknown, or a value is invalid.
    """
    if not name:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in configs:
        if key not in CLIENT_METRICS_KEYS:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        for key, text in configs.items():
            value = CLIENT_METRICS_KEYS[key].parse(str(text))
            if isinstance(value, tuple) and "" in value:
                raise ConfigError(f"Configuration '{key}' values must not be empty.")
        if not _INTERVAL_MIN_MS <= _interval_ms(configs) <= _INTERVAL_MAX_MS:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {trim(str(configs['interval.ms']))} for interval.ms, interval must be between "
                f"{_INTERVAL_MIN_MS} and {_INTERVAL_MAX_MS} (1 hour)",
            )
        _parse_match(_list("match", configs))
    except ConfigError as error:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _parse_match(patterns: tuple[str, ...]) -> dict[str, Expression]:
    """
    Compile the expressions of a subscription. A property given twice has the last one.

    RE2 stands for Java's expressions.

    Raises:
        ConfigError: an entry is not `NAME=EXPRESSION`, or the expression is invalid.
    """
    if len(patterns) > CLIENT_METRICS_PATTERNS_MAX:
        raise ConfigError(f"Illegal client matching pattern: more than {CLIENT_METRICS_PATTERNS_MAX} entries")
    if sum(map(unicode_classes, patterns)) > PATTERN_CLASSES_MAX:
        raise ConfigError(f"Illegal client matching pattern: more than {PATTERN_CLASSES_MAX} Unicode classes")
    compiled: dict[str, Expression] = {}
    instructions = 0
    for entry in patterns:
        name, separator, pattern = (part.strip() for part in entry.partition("="))
        if not separator or name not in MATCH_NAMES or not pattern or "=" in pattern:
            raise ConfigError(f"Illegal client matching pattern: {entry}")
        try:
            expression = compiled[name] = Expression(pattern)
        except ExpressionError:
            raise ConfigError(f"Illegal client matching pattern: {entry}") from None
        instructions += expression.steps
        if instructions > CLIENT_METRICS_INSTRUCTIONS_MAX:
            raise ConfigError("Illegal client matching pattern: the expressions are too large")
    return compiled
