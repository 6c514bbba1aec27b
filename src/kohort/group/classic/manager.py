"""Classic groups in one shard: replay, load and unload."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kohort.group.classic.conversion import adopt_group, dismiss_parked, export_group
from kohort.group.classic.expiry import expire_member
from kohort.group.classic.group import ClassicGroup, group_from_record
from kohort.group.classic.rebalance import prepare_rebalance, refuse_parked_join, refuse_parked_sync
from kohort.group.classic.registry import ClassicRegistry
from kohort.group.classic.states import DEAD, PREPARING_REBALANCE, STABLE
from kohort.group.context import GroupContext
from kohort.group.conversion import ClassicMembers, ClassicState
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release
from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta
from kohort.records.values import GroupMetadata, GroupMetadataTombstone


class ClassicGroupManager(ClassicRegistry):
    """Implements `kohort.group.groups.GroupManager` and `kohort.group.conversion.ClassicGroups`."""

    __slots__ = ()

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context, expire_member)

    @property
    def replayers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupMetadata: self._replay_group, GroupMetadataTombstone: self._replay_tombstone}

    @property
    def classic_members(self) -> ClassicMembers | None:
        """None: the handlers of this room serve the members of classic groups themselves."""
        return None

    def _replay_group(self, record: GroupMetadata) -> None:
        self.groups.put(record.group_id, group_from_record(record))

    def _replay_tombstone(self, record: GroupMetadataTombstone) -> None:
        self.groups.remove(record.group_id)

    def on_loaded(self, group: ClassicGroup, now_ms: int, /) -> None:
        """Give every member a whole session timeout. A group larger than `group.max.size` rebalances to shrink."""
        for member in group.members.values():
            self.arm_session(group, member)
        if len(group.members) > self.config.group_max_size:
            releases: list[Release] = []
            prepare_rebalance(self, group, releases, now_ms, "loaded with more members than group.max.size")
            assert not releases, "no request is parked right after a load"

    def on_unloaded(self, group: ClassicGroup, /) -> Iterable[Release]:
        """Send the clients of parked requests to the new coordinator."""
        releases: list[Release] = []
        group.move_to(DEAD, group.state_timestamp_ms or 0)
        for member in group.members.values():
            refuse_parked_join(group, member, releases, ErrorCode.NOT_COORDINATOR, member.member_id)
            refuse_parked_sync(member, releases, ErrorCode.NOT_COORDINATOR)
        return releases

    def export(self, group: ClassicGroup, /) -> ClassicState:
        return export_group(group)

    def dismiss_parked(self, group: ClassicGroup, /) -> Iterable[Release]:
        return dismiss_parked(group)

    def adopt(
        self,
        state: ClassicState,
        assign: Callable[[str, bytes], bytes],
        now_ms: int,
        /,
        *,
        rebalance_reason: str | None,
    ) -> GroupRecord:
        return adopt_group(self, state, assign, now_ms, rebalance_reason)

    def on_image(self, _delta: ImageDelta, /) -> None:
        """Do nothing: members of classic groups watch the topics themselves."""

    def on_offset_commit(self, group: ClassicGroup, member_id: str, /) -> None:
        if group.state is STABLE or group.state is PREPARING_REBALANCE:
            self.arm_session(group, group.members[member_id])
