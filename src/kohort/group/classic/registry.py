"""State that the handlers of classic groups share in one shard: the map of groups, session timers, configuration, counters."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.context import GroupContext
from kohort.group.conversion import ClassicMembers
from kohort.group.groups import Group
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result
from kohort.records.values import GroupMetadata

T = TypeVar("T")

Records: TypeAlias = tuple[GroupMetadata, ...]
"""The records of a step of a rebalance: the group if it became empty, else none."""

ExpireMember: TypeAlias = Callable[["ClassicRegistry", ClassicGroup, str, int], Result[GroupRecord, None]]


class ClassicRegistry:
    """
    Args:
        expire_member: the operation of a session timer; handed in because it arms session timers itself.
    """

    __slots__ = ("config", "context", "counters", "emit", "expire_member", "groups", "new_uuid", "timers")

    def __init__(self, context: GroupContext, expire_member: ExpireMember) -> None:
        self.context = context
        self.groups = context.groups
        self.timers = context.timers
        self.config = context.config
        self.new_uuid = context.new_uuid
        self.counters = context.counters
        self.emit = context.events
        self.expire_member = expire_member

    def is_current(self, group: ClassicGroup) -> bool:
        """Whether the shard still has this group; a timer or a write may concern a group that was deleted since."""
        return self.groups.get(group.group_id) is group

    def host_of(self, group: Group | None) -> ClassicMembers | None:
        """The handlers of members of the classic protocol in a group of another kind; None if there are none."""
        if group is None:
            return None
        host: ClassicMembers | None = self.context.managers[group.kind].classic_members
        return host

    # Timers. A key begins with the kind of timer; the length of the group id separates it from the member id.

    def arm_session(self, group: ClassicGroup, member: ClassicMember, delay_ms: int | None = None) -> None:
        """Expire the member in `delay_ms`, by default its session timeout; replaces an earlier deadline."""
        operation = member.on_expiry
        if operation is None:
            member.timer_key = session_key(group.group_id, member.member_id)
            operation = member.on_expiry = self.on_expiry(group, member.member_id)
        self.timers.schedule(member.timer_key, member.session_timeout_ms if delay_ms is None else delay_ms, operation)

    def on_expiry(self, group: ClassicGroup, member_id: str) -> Callable[[int], Result[GroupRecord, None]]:
        return _Expiry(self, group, member_id)

    def cancel_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(session_key(group.group_id, member_id))


class _Expiry:
    """The operation of a session timer. Every member has one: it takes half the memory of a `partial`."""

    __slots__ = ("_group", "_member_id", "_registry")

    def __init__(self, registry: ClassicRegistry, group: ClassicGroup, member_id: str) -> None:
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
    records: Sequence[GroupRecord], releases: list[Release], response: T | None = None
) -> Result[GroupRecord, T]:
    """
    A result that logs a classic group as it already is in memory.

    Parked requests are answered whether the write succeeds or not: their answers describe the state in memory.
    """
    after = (lambda error: () if error is None else releases) if releases else None
    return Result(records, response, releases, after, replayed=False)
