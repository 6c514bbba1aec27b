"""
Log lines of the events that a coordinator emits.

A line has the name of the event and `key=value` pairs. Text is quoted and escaped, because clients choose ids and reasons: it
cannot begin a new line or look like another pair.
"""

import re
from enum import IntEnum

import msgspec

_BEFORE_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


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
