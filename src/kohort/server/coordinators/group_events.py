"""The log of group life: one line an event, at level INFO of the logger `kohort.group`; and the counts of some events."""

import logging
from collections import Counter

from kohort.group.events import GroupEvent, HeartbeatRefused, MemberExpired
from kohort.model.errors import ErrorCode
from kohort.server.coordinators.event_lines import event_line

_log = logging.getLogger("kohort.group")


class GroupEventLog:
    """
    A `kohort.group.events.GroupEvents` sink.

    A client can send as many heartbeats that are refused as it likes, so their lines are limited for each error code
    (`kohort.server.logs.RepeatLimit`).

    Attributes:
        refused_heartbeats: by API and error.
        rebalance_timeouts: members that were removed because they did not take part in a rebalance in time.
    """

    def __init__(self) -> None:
        self.refused_heartbeats: Counter[tuple[str, ErrorCode]] = Counter(
            # So that a rate is known from the first one on.
            {(api, ErrorCode.UNKNOWN_MEMBER_ID): 0 for api in ("ConsumerGroupHeartbeat", "Heartbeat")}
        )
        self.rebalance_timeouts = 0

    def __call__(self, event: GroupEvent) -> None:
        limit = None
        if type(event) is HeartbeatRefused:
            self.refused_heartbeats[event.api, event.error] += 1
            limit = {"client": event.error.name}
        elif type(event) is MemberExpired and event.timeout in ("join", "sync", "rebalance"):
            self.rebalance_timeouts += 1
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", event_line(event), extra=limit)
