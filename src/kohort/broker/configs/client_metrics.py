"""
Subscriptions of client metrics (KIP-714): which clients push which metrics, and how often.

A subscription is a resource of IncrementalAlterConfigs and AlterConfigs, of type CLIENT_METRICS. The catalog keeps it while it
has a configuration. `subscriptions(catalog)` reads all of them; `catalog.watch_settings(CLIENT_METRICS_KIND, ...)` tells of
changes.

Source: Kafka ClientMetricsConfigs, ControllerConfigurationValidator; texts of a 4.2.1.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.configs.definitions import CLIENT_METRICS_KEYS
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import (
    CLIENT_METRICS_PATTERNS_MAX,
    CLIENT_METRICS_SUBSCRIPTIONS_MAX,
    PATTERN_CLASSES_MAX,
    PATTERN_LENGTH_MAX,
)

CLIENT_METRICS_KIND: Final = "client-metrics"
"""The kind of the catalog's setting; its name is that of the subscription, and its fields are the configurations."""

INTERVAL_DEFAULT_MS: Final = 300_000
_INTERVAL_MIN_MS: Final = 100
_INTERVAL_MAX_MS: Final = 3_600_000
_PROGRAM_BYTES_MAX: Final = 1 << 16

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
        match: by property of the client a compiled expression, which has to match the whole value (`fullmatch`).
    """

    name: str
    interval_ms: int
    metrics: tuple[str, ...]
    match: dict[str, Any]


def subscriptions(catalog: Catalog) -> list[Subscription]:
    """All subscriptions that are in force, by name."""
    return [_subscription(name, fields) for name, fields in sorted(catalog.settings(CLIENT_METRICS_KIND).items())]


def _subscription(name: str, configs: Mapping[str, Any]) -> Subscription:
    return Subscription(
        name=name,
        interval_ms=int(configs.get("interval.ms", INTERVAL_DEFAULT_MS)),
        metrics=_list("metrics", configs),
        match=_parse_match(_list("match", configs)),
    )


def _list(name: str, configs: Mapping[str, Any]) -> tuple[str, ...]:
    value = CLIENT_METRICS_KEYS[name].parse(str(configs.get(name, "")))
    assert isinstance(value, tuple)
    return value


def validate(catalog: Catalog, name: str, configs: Mapping[str, str]) -> None:
    """
    Raises:
        CoordinatorError: the name is empty, a key is unknown, a value is invalid, or there are too many subscriptions.
    """
    if not name:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in configs:
        if key not in CLIENT_METRICS_KEYS:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        for key, text in configs.items():
            value = CLIENT_METRICS_KEYS[key].parse(text)
            if isinstance(value, tuple) and "" in value:
                raise ConfigError(f"Configuration '{key}' values must not be empty.")
        interval = CLIENT_METRICS_KEYS["interval.ms"].parse(configs.get("interval.ms", str(INTERVAL_DEFAULT_MS)))
        assert isinstance(interval, int)
        if not _INTERVAL_MIN_MS <= interval <= _INTERVAL_MAX_MS:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {configs['interval.ms'].strip()} for interval.ms, interval must be between "
                f"{_INTERVAL_MIN_MS} and {_INTERVAL_MAX_MS} (1 hour)",
            )
        _parse_match(_list("match", configs))
    except ConfigError as error:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, str(error)) from error
    known = catalog.newest_settings(CLIENT_METRICS_KIND)
    if configs and name not in known and len(known) >= CLIENT_METRICS_SUBSCRIPTIONS_MAX:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION,
            f"There are {CLIENT_METRICS_SUBSCRIPTIONS_MAX} subscriptions, which is the most.",
        )


def _parse_match(patterns: tuple[str, ...]) -> dict[str, Any]:
    """
    Compile the expressions of a subscription. A property given twice has the last one.

    RE2 stands for Java's expressions: matching takes time linear in the value, whatever the expression.

    Raises:
        ConfigError: an entry is not `NAME=EXPRESSION`, or the expression is invalid.
    """
    compiled: dict[str, Any] = {}
    if len(patterns) > CLIENT_METRICS_PATTERNS_MAX:
        raise ConfigError(f"Illegal client matching pattern: more than {CLIENT_METRICS_PATTERNS_MAX} entries")
    if sum(entry.lower().count(r"\p") for entry in patterns) > PATTERN_CLASSES_MAX:
        raise ConfigError(f"Illegal client matching pattern: more than {PATTERN_CLASSES_MAX} Unicode classes")
    for entry in patterns:
        # Imported late: few clusters have subscriptions.
        import re2

        name, separator, pattern = (part.strip() for part in entry.partition("="))
        if (
            not separator
            or name not in MATCH_NAMES
            or not pattern
            or "=" in pattern
            or len(pattern) > PATTERN_LENGTH_MAX
        ):
            raise ConfigError(f"Illegal client matching pattern: {entry}")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _PROGRAM_BYTES_MAX
        try:
            compiled[name] = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError):
            raise ConfigError(f"Illegal client matching pattern: {entry}") from None
    return compiled
