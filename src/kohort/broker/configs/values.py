"""
Values of configurations: one parser for each type, and the checks against Kafka's description of the valid values.

Topics, brokers, groups, client metrics and the command line read their values here.

Source: org.apache.kafka.common.config.ConfigDef.parseType and its validators of Apache Kafka 4.2.1.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.limits import CONFIG_LENGTH_MAX, CONFIG_SHOWN_LENGTH_MAX
from kohort.model.numbers import double_text, parse_double, parse_integer, trim


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


Value = bool | int | float | str | tuple[str, ...] | None

_INTEGER_BITS: Final = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}
_LIST_BLANKS: Final = " \t\n\v\f\r"
"""The characters that may stand beside a comma of a list. Source: the class \\s of Java's regular expressions."""


def invalid(name: str, value: object, why: str) -> ConfigError:
    """The refusal of a value, with Kafka's words. A long value is cut: a message has at most 32 767 bytes."""
    text = text_of(value) if isinstance(value, float) else str(value)
    if text is not None and len(text) > CONFIG_SHOWN_LENGTH_MAX:
        text = f"{text[:CONFIG_SHOWN_LENGTH_MAX]}..."
    return ConfigError(f"Invalid value {text} for configuration {name}: {why}")


def check_lengths(configs: Mapping[str, str]) -> None:
    """
    Bound what is stored.

    Raises:
        ConfigError: a name or a value is too long; with Kafka's message.

    Source: Kafka ConfigurationControlManager, which counts characters; more bytes cannot be written or read there.
    """
    for name, text in configs.items():
        if len(name.encode()) > CONFIG_LENGTH_MAX or len(text.encode()) > CONFIG_LENGTH_MAX:
            raise ConfigError(
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{CONFIG_LENGTH_MAX} bytes."
            )


def parse_value(name: str, kind: ConfigType, text: str) -> Value:
    """
    Parse a text by its type.

    Raises:
        ConfigError: the text is not of the type.
    """
    trimmed = trim(text)
    match kind:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise invalid(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG | ConfigType.DOUBLE:
            try:
                return (
                    parse_double(trimmed) if kind is ConfigType.DOUBLE else parse_integer(trimmed, _INTEGER_BITS[kind])
                )
            except ValueError:
                raise invalid(name, text, f"Not a number of type {kind.name}") from None
        case ConfigType.LIST:
            return parse_list(trimmed)
        case ConfigType.PASSWORD:
            return text
        case _:
            return trimmed


def parse_list(text: str) -> tuple[str, ...]:
    """The elements of a list, separated by commas with blanks."""
    return tuple([one.strip(_LIST_BLANKS) for one in text.split(",")]) if text else ()


def check_filled(name: str, element: str) -> None:
    """
    Check an element of a list.

    Raises:
        ConfigError: it is empty; with Kafka's message.

    Source: Kafka ConfigDef.ValidList.
    """
    if not element:
        raise ConfigError(f"Configuration '{name}' values must not be empty.")


def parse_host_limits(name: str, text: str) -> list[tuple[str, int]]:
    """
    Parse `HOST:NUMBER,[IPV6]:NUMBER`, as `max.connections.per.ip.overrides` has it.

    Raises:
        ConfigError: the text has another form; with Kafka's message.

    Source: Kafka Csv.parseCsvMap.
    """
    found: list[tuple[str, int]] = []
    for pair in filter(None, map(trim, text.split(","))):
        host, separator, number = pair.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not separator or not host:
            raise ConfigError(f"Error parsing configuration property '{name}': begin 0, end -1, length {len(pair)}")
        try:
            found.append((host, parse_integer(trim(number), 32)))
        except ValueError:
            raise ConfigError(f'For input string: "{trim(number)[:CONFIG_SHOWN_LENGTH_MAX]}"') from None
    return found


def text_of(value: Value) -> str | None:
    """A value as Kafka prints it. Source: ConfigDef.convertToString."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


_RANGE: Final = re.compile(r"\[(-?[\d.]+?),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?")
_CHOICE: Final = re.compile(r"(\(case insensitive\) )?\[(.*)\]")
_THROTTLED_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def validate(name: str, valid: str, value: Value) -> None:
    """
    Check a value against Kafka's description of the valid values. NaN is within every range, as in Kafka.

    Raises:
        ConfigError: the value is not valid.
    """
    if isinstance(value, int | float) and (limits := _RANGE.fullmatch(valid)):
        _validate_range(name, value, *limits.groups())
    elif valid in ("non-empty string", "non-empty list"):
        # Kafka's validator of the list looks at the elements: none at all is fine.
        if value == "":
            raise invalid(name, value, "String must be non-empty")
    elif "partitionId" in valid:
        _validate_throttled_replicas(name, value)
    elif choice := _CHOICE.fullmatch(valid):
        _validate_choice(name, value, choice[2].split(", "), is_exact=choice[1] is None)


def _validate_range(name: str, value: float, least: str, most: str | None, other: str | None) -> None:
    if other is not None:
        if value != int(other) and not float(least) <= value <= float(most or "inf"):
            raise invalid(name, value, f"Value must be between {least} and {most} or equal to {other}")
        return
    if value < float(least):
        raise invalid(name, value, f"Value must be at least {least}")
    if most is not None and value > float(most):
        raise invalid(name, value, f"Value must be no more than {most}")


def _validate_choice(name: str, value: Value, choices: list[str], *, is_exact: bool) -> None:
    given = value if isinstance(value, tuple) else (str(value),)
    allowed = set(choices) if is_exact else {choice.lower() for choice in choices}
    for one in given:
        if isinstance(value, tuple):
            check_filled(name, one)
        if (one if is_exact else one.lower()) not in allowed:
            raise invalid(name, one, f"String must be one of: {', '.join(choices)}")


def _validate_throttled_replicas(name: str, value: Value) -> None:
    assert isinstance(value, tuple)
    if value != ("*",) and not all(map(_THROTTLED_REPLICA.fullmatch, value)):
        raise invalid(name, ",".join(value), f"{name} must be the literal '*' or a list of replicas")
