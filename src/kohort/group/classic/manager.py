"""Classic groups in one shard: replay and load."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.rebalance import GroupSteps
from kohort.group.classic.states import PREPARING_REBALANCE, STABLE
from kohort.group.context import GroupContext
from kohort.group.groups import ClassicMembers
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
from kohort.model.image import ImageDelta
from kohort.records.values import GroupMetadata, GroupMetadataTombstone

_NOTHING: Final[Result[GroupRecord, None]] = Result()
"""The result for a group without members: a shard may have many thousands, of consumers that only commit."""


class ClassicGroupManager:
    """Implements `kohort.group.groups.GroupManager`."""

    __slots__ = ("_context",)

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    @property
    def replayers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupMetadata: self._replay_group, GroupMetadataTombstone: self._replay_tombstone}

    @property
    def classic_members(self) -> ClassicMembers | None:
        """None: the handlers of this room serve the members of classic groups themselves."""
        return None

    def _replay_group(self, record: GroupMetadata) -> None:
        context, group_id = self._context, record.group_id
        group = context.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            prepared = context.prepared.remove(group_id)
            group = prepared if isinstance(prepared, ClassicGroup) else ClassicGroup(group_id, context.snapshots)
            context.groups.put(group_id, group)
        group.replay(record)

    def _replay_tombstone(self, record: GroupMetadataTombstone) -> None:
        self._context.groups.remove(record.group_id)

    def on_loaded(self, group: ClassicGroup, now_ms: int, /) -> Result[GroupRecord, None]:
        """Give every member a whole session timeout. A group larger than `group.max.size` rebalances to shrink."""
        if not group.members:
            return _NOTHING
        steps = GroupSteps(self._context, group, now_ms)
        for member in group.members.values():
            steps.begin_session(member.session, member.session_timeout_ms)
        if len(group.members) > self._context.config.group_max_size:
            steps.prepare_rebalance("loaded with more members than group.max.size")
        return steps.result()

    def on_image(self, _delta: ImageDelta, /) -> Sequence[Deadline]:
        """Do nothing: members of classic groups watch the topics themselves."""
        return ()

    def on_offset_commit(self, group: ClassicGroup, member_id: str, /) -> None:
        if group.state is STABLE or group.state is PREPARING_REBALANCE:
            member = group.members[member_id]
            self._context.deadlines.extend(member.session, member.session_timeout_ms)
