"""The log of group life: one line an event, at level INFO of the logger `kohort.group`."""

import logging

from kohort.group.events import GroupEvent
from kohort.server.coordinators.event_lines import event_line

_log = logging.getLogger("kohort.group")


def log_group_event(event: GroupEvent) -> None:
    """A `kohort.group.events.GroupEvents` sink."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", event_line(event))
