"""
The log of the events that coordinators emit: one line an event.

A line has the name of the event and `key=value` pairs. Text is quoted and escaped, because clients choose ids and reasons: it
cannot begin a new line or look like another pair.
"""

import logging
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec

_BEFORE_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class EventLog:
    """
    A sink of the events of a coordinator.

    Args:
        name: of the logger.
        warnings: the events that need attention; their lines have level WARNING, others INFO.
        count: sees every event first. It returns the key by which the lines of an event are limited
            (`kohort.server.logs.RepeatLimit`), because a client can cause as many as it likes; None for no limit.
    """

    def __init__(
        self,
        name: str,
        warnings: tuple[type[msgspec.Struct], ...] = (),
        count: Callable[[Any], str | None] = lambda _event: None,
    ) -> None:
        self._log = logging.getLogger(name)
        self._warnings = warnings
        self._count = count

    def __call__(self, event: msgspec.Struct) -> None:
        key = self._count(event)
        level = logging.WARNING if isinstance(event, self._warnings) else logging.INFO
        if self._log.isEnabledFor(level):
            self._log.log(level, "%s", event_line(event), extra=None if key is None else {"client": key})


def event_line(event: msgspec.Struct) -> str:
    """The line of an event. Fields without value are left out."""
    pairs = ((name, getattr(event, name)) for name in event.__struct_fields__)
    fields = " ".join(f"{name}={_quoted(value)}" for name, value in pairs if value is not None)
    return f"{event_name(type(event))} {fields}"


def _quoted(value: object) -> str:
    return value.name if isinstance(value, IntEnum) else repr(value).replace("=", r"\x3d")


def event_name(event: type[msgspec.Struct]) -> str:
    """Name an event as other log lines do: the subject, a point, the rest. `MemberLeft` is member.left."""
    subject, *rest = _BEFORE_CAPITAL.sub(" ", event.__name__).lower().split()
    return f"{subject}.{'_'.join(rest)}"
