"""
The log of group life: one line an event, at level INFO of the logger `kohort.group`.

A line has the name of the event and `key=value` pairs. Text is quoted and escaped, because clients choose ids and reasons: it
cannot begin a new line or look like another pair.
"""

import logging
import re

from kohort.group.events import GroupEvent

_log = logging.getLogger("kohort.group")

_BEFORE_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def log_group_event(event: GroupEvent) -> None:
    """A `kohort.group.events.GroupEvents` sink. Fields without value are left out."""
    if not _log.isEnabledFor(logging.INFO):
        return
    pairs = ((name, getattr(event, name)) for name in event.__struct_fields__)
    fields = " ".join(f"{name}={_quoted(value)}" for name, value in pairs if value is not None)
    _log.info("%s %s", event_name(type(event)), fields)


def _quoted(value: object) -> str:
    return repr(value).replace("=", r"\x3d")


def event_name(event: type[GroupEvent]) -> str:
    """Name an event as other log lines do: the subject, a point, the rest. `MemberLeft` is member.left."""
    subject, *rest = _BEFORE_CAPITAL.sub(" ", event.__name__).lower().split()
    return f"{subject}.{'_'.join(rest)}"
