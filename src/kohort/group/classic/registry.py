"""The groups of one shard, and what the handlers of classic groups need beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kohort.group.classic.group import ClassicGroup, ClassicMember
from kohort.group.configs import GroupConfig
from kohort.group.metrics import GroupCounters
from kohort.group.records import GroupMetadata, GroupRecord
from kohort.machine.shard import Release, Result, Timers
from kohort.machine.timeline import TimelineDict
from kohort.model.errors import CoordinatorError, ErrorCode

T = TypeVar("T")

Releases: TypeAlias = list[Release]
"""Where a handler collects the parked requests that it answers."""
Records: TypeAlias = tuple[GroupMetadata, ...]
"""What a step of a rebalance has to log: the group that became empty, or nothing."""

ExpireMember: TypeAlias = Callable[["GroupRegistry", ClassicGroup, str, int], Result[GroupRecord, None]]


@dataclass(slots=True, eq=False)
class GroupRegistry:
    """
    Attributes:
        groups: by group id, with a past.
        new_uuid: text of a fresh random UUID, for member ids.
        expire_member: what a session timer does; handed in, because that leads back to arming session timers.
        counters: the partition's.
    """

    groups: TimelineDict[str, ClassicGroup]
    timers: Timers
    config: GroupConfig
    new_uuid: Callable[[], str]
    expire_member: ExpireMember
    counters: GroupCounters

    def get(self, group_id: str) -> ClassicGroup:
        """
        Raises:
            CoordinatorError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def is_current(self, group: ClassicGroup) -> bool:
        """Whether the group is still there; a timer or a write may come back to one that is gone."""
        return self.groups.get(group.group_id) is group

    # Timers. A key starts with what it is, and lengths keep ids apart that contain each other.

    def arm_session(self, group: ClassicGroup, member: ClassicMember, delay_ms: int | None = None) -> None:
        """Expire the member in `delay_ms`, by default its session timeout, unless it is heard of before."""
        operation = member.on_expiry
        if operation is None:
            member.timer_key = session_key(group.group_id, member.member_id)
            operation = member.on_expiry = self.on_expiry(group, member.member_id)
        self.timers.schedule(member.timer_key, member.session_timeout_ms if delay_ms is None else delay_ms, operation)

    def on_expiry(self, group: ClassicGroup, member_id: str) -> Callable[[int], Result[Any, None]]:
        return _Expiry(self, group, member_id)

    def cancel_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(session_key(group.group_id, member_id))


class _Expiry:
    """A member's expiry as an operation. There is one for every member: it takes half of what a partial does."""

    __slots__ = ("_group", "_member_id", "_registry")

    def __init__(self, registry: GroupRegistry, group: ClassicGroup, member_id: str) -> None:
        self._registry = registry
        self._group = group
        self._member_id = member_id

    def __call__(self, now_ms: int) -> Result[GroupRecord, None]:
        return self._registry.expire_member(self._registry, self._group, self._member_id, now_ms)


def session_key(group_id: str, member_id: str) -> str:
    return f"session {len(group_id)} {group_id} {member_id}"


def join_key(group_id: str) -> str:
    return f"join {group_id}"


def sync_key(group_id: str) -> str:
    return f"sync {group_id}"


def group_result(
    records: Sequence[GroupRecord], releases: Releases, response: T | None = None
) -> Result[GroupRecord, T]:
    """
    A result that logs a classic group as it already is in memory.

    Parked requests are answered whether writing succeeds or not: what they are told has happened.
    """
    after = (lambda _: releases) if releases else None
    return Result(records, response, after=after, replayed=False)
