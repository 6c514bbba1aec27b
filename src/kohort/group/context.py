"""The parts of one shard that the groups of every kind share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kohort.group.configs import GroupConfig
from kohort.group.events import GroupEvents, no_events
from kohort.group.groups import Group
from kohort.group.metrics import GroupCounters
from kohort.group.offsets.offsets import Offsets
from kohort.machine.shard import Timers
from kohort.machine.timeline import TimelineDict
from kohort.model.errors import CoordinatorError, ErrorCode


@dataclass(slots=True, eq=False, kw_only=True)
class GroupContext:
    """
    Attributes:
        groups: by group id, as timeline: their past states can be read, down to the high watermark.
        new_uuid: gives the text of a fresh random UUID, for member ids.
        make_group: makes a group that only keeps offsets.
        counters: of the partition; they outlive the shard.
        managers: by kind; each a `kohort.group.groups.GroupManager`, of the class that its kind knows.
    """

    groups: TimelineDict[str, Group]
    offsets: Offsets
    timers: Timers
    config: GroupConfig
    new_uuid: Callable[[], str]
    make_group: Callable[[str], Group]
    counters: GroupCounters
    events: GroupEvents = no_events
    managers: dict[str, Any] = field(default_factory=dict)

    def get(self, group_id: str) -> Group:
        """
        Raises:
            CoordinatorError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def ensure_group(self, group_id: str) -> None:
        """Create a group that only keeps offsets, unless there is a group of that id."""
        groups = self.groups
        if group_id not in groups:
            groups.put(group_id, self.make_group(group_id))
