"""
Levels of the broker's loggers, as clients see and change them. A change ends with the process, as in Kafka.

`root` is the logger whose level all others inherit. Deleting a level makes a logger inherit again.

Source: KIP-412; Kafka LoggingController, ConfigAdminManager.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from kohort.model.errors import CoordinatorError, ErrorCode

ROOT: Final = "root"
AUDIT_LOG: Final = "kafka.authorizer.logger"
"""The logger of the authorizer's decisions, by Kafka's name."""
TRACE: Final = 5
"""A level below Python's DEBUG."""
_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}
"""In the order in which Kafka lists them."""
_NAMES: Final = {level: name for name, level in _LEVELS.items()}

_SET: Final = 0
_LIST_OPERATIONS: Final = {2: "APPEND", 3: "SUBTRACT"}


class LevelChange(Protocol):
    """A change of one logger's level."""

    @property
    def name(self) -> str: ...

    @property
    def config_operation(self) -> int: ...

    @property
    def value(self) -> str | None: ...


def logger_names() -> list[str]:
    """The names of the loggers that exist."""
    names = logging.Logger.manager.loggerDict
    return [ROOT, *sorted(name for name in names if name.partition(".")[0] == "kohort" or name == AUDIT_LOG)]


def levels() -> Iterator[tuple[str, str]]:
    """The loggers with the levels that are in force."""
    for name in logger_names():
        level = _logger(name).getEffectiveLevel()
        yield name, _NAMES.get(level, logging.getLevelName(level))


def check_changes(changes: Sequence[LevelChange]) -> None:
    """
    Raises:
        CoordinatorError: a logger does not exist, or a level or an operation is not allowed.
    """
    names = set(logger_names())
    for change in changes:
        match change.config_operation:
            case 0:
                _check_exists(change.name, names)
                if change.value not in _LEVELS:
                    raise CoordinatorError(
                        ErrorCode.INVALID_CONFIG,
                        f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                        f"Valid log levels are {', '.join(_LEVELS)}",
                    )
            case 1:
                _check_exists(change.name, names)
                if change.name == ROOT:
                    raise CoordinatorError(
                        ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
                    )
            case 2 | 3:
                what = _LIST_OPERATIONS[change.config_operation]
                raise CoordinatorError(
                    ErrorCode.INVALID_REQUEST, f"{what} operation is not allowed for the BROKER_LOGGER resource"
                )
            case operation:
                raise CoordinatorError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource",
                )


def _check_exists(name: str, names: set[str]) -> None:
    if name not in names:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def apply_changes(changes: Sequence[LevelChange]) -> None:
    """Apply checked changes."""
    logging.addLevelName(TRACE, "TRACE")
    for change in changes:
        is_set = change.config_operation == _SET
        _logger(change.name).setLevel(_LEVELS[change.value or ""] if is_set else logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
