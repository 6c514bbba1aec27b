"""Share groups in one shard: replay, load, changes of topics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kohort.group.assignments import assignment_of
from kohort.group.context import HasContext
from kohort.group.groups import ClassicMembers
from kohort.group.modern import Change, replayers
from kohort.group.records import GroupRecord
from kohort.group.share.group import ShareGroup
from kohort.group.share.member import ShareMember
from kohort.group.share.registry import ShareRegistry, registry_of
from kohort.group.share.removal import loaded_deadlines
from kohort.group.share.states import states_of
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation
from kohort.model.image import ImageDelta
from kohort.records import values as v

_GROUPS_AT_ONCE: Final = 100
"""Groups that one operation writes after the deletion of topics: some milliseconds of work."""


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id) or ShareMember(member_id)


def _remove_current(group: ShareGroup, tombstone: v.ShareGroupCurrentMemberAssignmentTombstone) -> None:
    member = group.members.get(tombstone.member_id)
    if member is not None:
        group.put(member.without_assignment())


_CHANGES: Final[Mapping[type, Change]] = {
    v.ShareGroupMemberMetadata: lambda group, r: group.put(_member(group, r.member_id).with_metadata(r)),
    v.ShareGroupMetadata: lambda group, r: group.set_epoch(r.epoch, r.metadata_hash),
    v.ShareGroupTargetAssignmentMetadata: lambda group, r: group.set_assignment(
        r.assignment_epoch, r.assignment_timestamp_ms
    ),
    v.ShareGroupTargetAssignmentMember: lambda group, r: group.targets.put(
        r.member_id, assignment_of(r.topic_partitions)
    ),
    v.ShareGroupCurrentMemberAssignment: lambda group, r: group.put(
        _member(group, r.member_id).with_current_assignment(r)
    ),
}
_REMOVALS: Final[Mapping[type, Change]] = {
    v.ShareGroupMemberMetadataTombstone: lambda group, r: group.remove(r.member_id),
    v.ShareGroupTargetAssignmentMetadataTombstone: lambda group, _: group.clear_assignment(),
    v.ShareGroupTargetAssignmentMemberTombstone: lambda group, r: group.targets.remove(r.member_id),
    v.ShareGroupCurrentMemberAssignmentTombstone: _remove_current,
}


class ShareGroupManager(ShareRegistry):
    """Implements `kohort.group.groups.GroupManager` for share groups."""

    __slots__ = ()

    @property
    def classic_members(self) -> ClassicMembers | None:
        return None

    @property
    def replayers(self) -> Mapping[type, Callable[[Any], None]]:
        changes: Mapping[type, Change] = {
            **_CHANGES,
            v.ShareGroupStatePartitionMetadata: lambda group, r: self.note_states(group, states_of(r)),
        }
        removals: Mapping[type, Change] = {
            **_REMOVALS,
            v.ShareGroupStatePartitionMetadataTombstone: lambda group, _: self.note_states(group, None),
            v.ShareGroupMetadataTombstone: lambda group, _: self._forget(group),
        }
        return replayers(changes, removals, self._ensure, self.find)

    def _ensure(self, group_id: str) -> ShareGroup:
        return self.ensure(group_id, ShareGroup, self._prepared_or_new)

    def _prepared_or_new(self, group_id: str) -> ShareGroup:
        prepared = self.context.prepared.remove(group_id)
        return prepared if isinstance(prepared, ShareGroup) else self.new_group(group_id)

    def _forget(self, group: ShareGroup) -> None:
        group.subscriptions.clear()
        self.note_states(group, None)
        self.groups.remove(group.group_id)

    # Life cycle

    def on_loaded(self, group: ShareGroup, now_ms: int, /) -> Result[GroupRecord, None]:
        """Begin the sessions of the members. An initialization that was under way has the whole time for its answer."""
        group.initializing_since_ms = now_ms
        return Result(deadlines=loaded_deadlines(self, group))

    def on_offset_commit(self, _group: ShareGroup, _member_id: str, /) -> None:
        """Do nothing: no member commits offsets."""

    def on_image(self, delta: ImageDelta, /) -> Sequence[Deadline]:
        """Have the groups of topics that changed look at their metadata, and the states of deleted topics dropped."""
        self.request_refreshes(delta)
        return [
            Deadline(("share states of a deleted topic", topic_id.hex), 0, Operation(drop_states, topic_id))
            for topic_id in (topic.topic_id for topic in delta.deleted)
            if self.with_states.groups(topic_id.hex)
        ]


def drop_states(shard: HasContext, _now_ms: int, topic_id: UUID) -> Result[GroupRecord, None]:
    """Drop the states of a deleted topic from some groups, then from the next ones. Source: maybeCleanupShareGroupState."""
    registry = registry_of(shard)
    group_ids = list(registry.with_states.groups(topic_id.hex))
    image = registry.context.image
    records: list[GroupRecord] = []
    for group_id in group_ids[:_GROUPS_AT_ONCE]:
        group = registry.find(group_id)
        if group is not None:
            records.append(group.known_states.without_topics([topic_id], image).record(group_id))
    following = Operation(drop_more_states, topic_id) if len(group_ids) > _GROUPS_AT_ONCE else None
    return Result(records, then=following, is_atomic=False)


def drop_more_states(_shard: HasContext, _now_ms: int, topic_id: UUID) -> Result[GroupRecord, None]:
    key = ("share states of a deleted topic", topic_id.hex)
    return Result(deadlines=[Deadline(key, 0, Operation(drop_states, topic_id))])
