"""Consumer groups in one shard: replay, load, changes of topics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kohort.group.assignments import assignment_of
from kohort.group.consumer.classic_members import ClassicMemberHandlers
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.consumer.removal import loaded_deadlines
from kohort.group.context import GroupContext
from kohort.group.groups import ClassicMembers
from kohort.group.modern import NO_EPOCH, Change, replayers
from kohort.group.records import GroupRecord
from kohort.group.subscriptions import ResolvedPattern
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
from kohort.model.image import ImageDelta
from kohort.records import values as v


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


def _replay_target(group: ConsumerGroup, record: v.ConsumerGroupTargetAssignmentMember) -> None:
    group.targets.put(record.member_id, assignment_of(record.topic_partitions))


def _replay_pattern(group: ConsumerGroup, record: v.ConsumerGroupRegularExpression) -> None:
    resolved = ResolvedPattern(frozenset(record.topics), record.version, record.timestamp_ms)
    group.subscriptions.resolve(record.regular_expression, resolved)


def _remove_current(group: ConsumerGroup, tombstone: v.ConsumerGroupCurrentMemberAssignmentTombstone) -> None:
    member = group.members.get(tombstone.member_id)
    if member is not None:
        group.put(member.without_assignment())


_CHANGES: Final[Mapping[type, Change]] = {
    v.ConsumerGroupMetadata: lambda group, r: group.set_epoch(r.epoch, r.metadata_hash),
    v.ConsumerGroupPartitionMetadata: lambda group, _: group.has_partition_metadata.set(True),
    v.ConsumerGroupMemberMetadata: lambda group, r: group.put(_member(group, r.member_id).with_metadata(r)),
    v.ConsumerGroupTargetAssignmentMetadata: lambda group, r: group.set_assignment(
        r.assignment_epoch, r.assignment_timestamp_ms
    ),
    v.ConsumerGroupTargetAssignmentMember: _replay_target,
    v.ConsumerGroupCurrentMemberAssignment: lambda group, r: group.put(
        _member(group, r.member_id).with_current_assignment(r)
    ),
    v.ConsumerGroupRegularExpression: _replay_pattern,
}
_REMOVALS: Final[Mapping[type, Change]] = {
    v.ConsumerGroupPartitionMetadataTombstone: lambda group, _: group.has_partition_metadata.set(False),
    v.ConsumerGroupMemberMetadataTombstone: lambda group, r: group.remove(r.member_id),
    v.ConsumerGroupTargetAssignmentMetadataTombstone: lambda group, _: group.set_assignment(NO_EPOCH, 0),
    v.ConsumerGroupTargetAssignmentMemberTombstone: lambda group, r: group.targets.remove(r.member_id),
    v.ConsumerGroupCurrentMemberAssignmentTombstone: _remove_current,
    v.ConsumerGroupRegularExpressionTombstone: lambda group, r: group.subscriptions.resolve(r.regular_expression, None),
}


class ConsumerGroupManager(ConsumerRegistry):
    """Implements `kohort.group.groups.GroupManager` for consumer groups."""

    __slots__ = ("_classic_members",)

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context)
        self._classic_members = ClassicMemberHandlers(self)

    @property
    def classic_members(self) -> ClassicMembers | None:
        return self._classic_members

    @property
    def replayers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            **replayers(_CHANGES, _REMOVALS, self._ensure, self.find),
            v.ConsumerGroupMetadataTombstone: self._replay_group_tombstone,
        }

    def _replay_group_tombstone(self, tombstone: v.ConsumerGroupMetadataTombstone) -> None:
        group = self.find(tombstone.group_id)
        if group is not None:
            group.subscriptions.clear()
            self.groups.remove(tombstone.group_id)

    def _ensure(self, group_id: str) -> ConsumerGroup:
        return self.ensure(group_id, ConsumerGroup, self.new_group)

    # Life cycle

    def on_loaded(self, group: ConsumerGroup, _now_ms: int, /) -> Result[GroupRecord, None]:
        """
        Begin the deadlines of the members.

        Topics may have been created since the last resolution. Patterns are resolved again if the image is newer.
        """
        if self.topic_names.created_version < 0:
            self.topic_names.created_version = self.context.image.version
        return Result(deadlines=loaded_deadlines(self, group))

    def on_offset_commit(self, _group: ConsumerGroup, _member_id: str, /) -> None:
        """A commit does not extend the session of a member."""

    def on_image(self, delta: ImageDelta, /) -> Sequence[Deadline]:
        """Have the groups of topics that changed look at their metadata, and groups with patterns at new topics."""
        if delta.created:
            self.topic_names.created_version = self.context.image.version
        self.request_refreshes(delta)
        return ()
