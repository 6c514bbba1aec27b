"""Consumer groups in one shard: replay, load, changes of topics."""

from collections.abc import Callable, Mapping
from typing import Any

from kohort.group.consumer.assignments import assignment_of
from kohort.group.consumer.classic_members import ClassicMemberHandlers
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import NO_EPOCH, ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.consumer.removal import loaded_deadlines
from kohort.group.consumer.subscriptions import ResolvedPattern
from kohort.group.context import GroupContext
from kohort.group.groups import ClassicMembers
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.image import ImageDelta
from kohort.records import values as v


class ConsumerGroupManager(ConsumerRegistry):
    """
    Implements `kohort.group.groups.GroupManager` for consumer groups.

    Compaction may leave any of a group's records, in another order than they were written: each creates the group, and the
    member that it belongs to. A tombstone of something that is not there has no effect.
    """

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
            v.ConsumerGroupMetadata: self._replay_epoch,
            v.ConsumerGroupMetadataTombstone: self._replay_epoch_tombstone,
            v.ConsumerGroupPartitionMetadata: self._replay_partition_metadata,
            v.ConsumerGroupPartitionMetadataTombstone: self._replay_partition_metadata_tombstone,
            v.ConsumerGroupMemberMetadata: self._replay_member,
            v.ConsumerGroupMemberMetadataTombstone: self._replay_member_tombstone,
            v.ConsumerGroupTargetAssignmentMetadata: self._replay_assignment_epoch,
            v.ConsumerGroupTargetAssignmentMetadataTombstone: self._replay_assignment_epoch_tombstone,
            v.ConsumerGroupTargetAssignmentMember: self._replay_target,
            v.ConsumerGroupTargetAssignmentMemberTombstone: self._replay_target_tombstone,
            v.ConsumerGroupCurrentMemberAssignment: self._replay_current,
            v.ConsumerGroupCurrentMemberAssignmentTombstone: self._replay_current_tombstone,
            v.ConsumerGroupRegularExpression: self._replay_pattern,
            v.ConsumerGroupRegularExpressionTombstone: self._replay_pattern_tombstone,
        }

    def _ensure(self, group_id: str) -> ConsumerGroup:
        """
        The group; a new one if there is none, or one that only keeps offsets.

        Raises:
            InvariantError: a group of another kind with members has this id.
        """
        found = self.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        if found is not None:
            self.context.check_replaceable(found)
        group = self.new_group(group_id)
        self.groups.put(group_id, group)
        return group

    def _replay_epoch(self, record: v.ConsumerGroupMetadata) -> None:
        group = self._ensure(record.group_id)
        group.epoch.set(record.epoch)
        group.metadata_hash.set(record.metadata_hash)

    def _replay_epoch_tombstone(self, record: v.ConsumerGroupMetadataTombstone) -> None:
        group = self.find(record.group_id)
        if group is not None:
            group.subscriptions.clear()
            self.groups.remove(record.group_id)

    def _replay_partition_metadata(self, record: v.ConsumerGroupPartitionMetadata) -> None:
        self._ensure(record.group_id).has_partition_metadata.set(True)

    def _replay_partition_metadata_tombstone(self, record: v.ConsumerGroupPartitionMetadataTombstone) -> None:
        group = self.find(record.group_id)
        if group is not None:
            group.has_partition_metadata.set(False)

    def _replay_member(self, record: v.ConsumerGroupMemberMetadata) -> None:
        group = self._ensure(record.group_id)
        member = group.members.get(record.member_id) or ConsumerMember(record.member_id)
        group.put(member.with_metadata(record))

    def _replay_member_tombstone(self, record: v.ConsumerGroupMemberMetadataTombstone) -> None:
        group = self.find(record.group_id)
        if group is not None:
            group.remove(record.member_id)

    def _replay_assignment_epoch(self, record: v.ConsumerGroupTargetAssignmentMetadata) -> None:
        self._ensure(record.group_id).assignment_epoch.set(record.assignment_epoch)

    def _replay_assignment_epoch_tombstone(self, record: v.ConsumerGroupTargetAssignmentMetadataTombstone) -> None:
        group = self.find(record.group_id)
        if group is not None:
            group.assignment_epoch.set(NO_EPOCH)

    def _replay_target(self, record: v.ConsumerGroupTargetAssignmentMember) -> None:
        group = self._ensure(record.group_id)
        group.targets.put(record.member_id, assignment_of(record.topic_partitions))

    def _replay_target_tombstone(self, record: v.ConsumerGroupTargetAssignmentMemberTombstone) -> None:
        group = self.find(record.group_id)
        if group is not None:
            group.targets.remove(record.member_id)

    def _replay_current(self, record: v.ConsumerGroupCurrentMemberAssignment) -> None:
        group = self._ensure(record.group_id)
        member = group.members.get(record.member_id) or ConsumerMember(record.member_id)
        group.put(member.with_current_assignment(record))

    def _replay_current_tombstone(self, record: v.ConsumerGroupCurrentMemberAssignmentTombstone) -> None:
        group = self.find(record.group_id)
        member = None if group is None else group.members.get(record.member_id)
        if group is not None and member is not None:
            group.put(member.without_assignment())

    def _replay_pattern(self, record: v.ConsumerGroupRegularExpression) -> None:
        resolved = ResolvedPattern(frozenset(record.topics), record.version, record.timestamp_ms)
        self._ensure(record.group_id).resolve(record.regular_expression, resolved)

    def _replay_pattern_tombstone(self, record: v.ConsumerGroupRegularExpressionTombstone) -> None:
        group = self.find(record.group_id)
        if group is not None:
            group.resolve(record.regular_expression, None)

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

    def on_image(self, delta: ImageDelta, /) -> None:
        """Have the groups of topics that changed look at their metadata, and groups with patterns at new topics."""
        if delta.created:
            self.topic_names.created_version = self.context.image.version
        self.topic_hashes.forget(delta.deleted)
        for topic in (*delta.created, *delta.changed, *delta.deleted):
            for group_id in self.index.groups(topic.name):
                group = self.find(group_id)
                if group is not None:
                    group.request_refresh()
