"""
A consumer group: members, target assignment, owners of partitions, subscriptions.

Everything here is hard state in timelines, changed by replay alone, except for the fields that say so.

Source: Kafka ConsumerGroup, ModernGroup.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from kohort.group.assignors.specs import Assignment
from kohort.group.consumer.member import ConsumerGroupState, ConsumerMember
from kohort.group.groups import CONSUMER, BaseTimestamp, PartitionCheck
from kohort.group.modern import NO_EPOCH, ModernGroup
from kohort.group.offsets.offsets import committed_at
from kohort.group.records import GroupRecord
from kohort.group.subscriptions import SubscriptionView, TopicIndex
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineValue
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.records.values import (
    ConsumerGroupCurrentMemberAssignmentTombstone,
    ConsumerGroupMemberMetadataTombstone,
    ConsumerGroupMetadataTombstone,
    ConsumerGroupPartitionMetadataTombstone,
    ConsumerGroupRegularExpressionTombstone,
    ConsumerGroupTargetAssignmentMemberTombstone,
    ConsumerGroupTargetAssignmentMetadataTombstone,
)


def _check_held(
    member: ConsumerMember, epoch: int, refused: CoordinatorError, topic_id: UUID | None, partition: int, /
) -> None:
    """Refuse a partition that the member does not have, or has got after this epoch."""
    since = None if topic_id is None else member.holds_since(topic_id, partition)
    if since is None or since > epoch:
        raise refused


class PartitionOwners:
    """Epochs by topic and partition."""

    __slots__ = ("_by_topic", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._by_topic: TimelineDict[UUID, TimelineDict[int, int]] = TimelineDict(registry)

    def free(self, topic_id: UUID, partitions: Sequence[int], own: Collection[int] = ()) -> list[int]:
        """
        The partitions, of these, that no other member has.

        Args:
            own: the partitions of the member that asks.
        """
        epochs = self._by_topic.get(topic_id)
        if epochs is None:
            return list(partitions)
        return [partition for partition in partitions if partition not in epochs or partition in own]

    def add(self, assignment: Assignment, epoch: int) -> None:
        """
        Note a member's partitions.

        During the load of a log that was compacted meanwhile, the release of a partition may be missing. Its present owner then
        has the higher epoch.

        Raises:
            InvariantError: a partition has an owner of this epoch or a higher one.
        """
        for topic_id, partitions in assignment.items():
            epochs = self._by_topic.get(topic_id)
            if epochs is None:
                epochs = TimelineDict(self._registry)
                self._by_topic.put(topic_id, epochs)
            for partition in partitions:
                owner = epochs.get(partition)
                if owner is not None and owner >= epoch:
                    raise InvariantError(
                        f"partition {partition} of topic {topic_id} cannot pass to a member of epoch {epoch}: "
                        f"a member of epoch {owner} owns it"
                    )
            epochs.put_each(partitions, [epoch] * len(partitions))

    def remove(self, assignment: Assignment, epoch: int) -> None:
        """Release a member's partitions; a partition that another epoch owns stays with it."""
        for topic_id, partitions in assignment.items():
            epochs = self._by_topic.get(topic_id)
            if epochs is None:
                continue
            epochs.remove_each([partition for partition in partitions if epochs.get(partition) == epoch])
            if not epochs:
                self._by_topic.remove(topic_id)


MEMBER_EPOCHS_SINCE: Final = 9
"""The version of OffsetCommit from which on its generation may be a member epoch."""


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """
    Attributes:
        static_members: member ids by instance id.
        owners: the partitions that are not free.
        has_partition_metadata: whether the log has a record of type 4, which Kafka 4.0 wrote.
        resolve_after_ms: soft state. After a resolution that failed, patterns are not resolved again before this time.
    """

    __slots__ = ("has_partition_metadata", "owners", "resolve_after_ms", "static_members")

    def __init__(self, group_id: str, registry: SnapshotRegistry, index: TopicIndex) -> None:
        super().__init__(group_id, registry, index)
        self.static_members: TimelineDict[str, str] = TimelineDict(registry)
        self.has_partition_metadata: TimelineValue[bool] = TimelineValue(registry, False)
        self.owners = PartitionOwners(registry)
        self.resolve_after_ms = 0

    # Properties, as `kohort.group.groups.Group` describes them

    @property
    def kind(self) -> str:
        return CONSUMER

    @property
    def state_name(self) -> str:
        return self._state(self.members.values(), self.epoch.get(), self.assignment_epoch.get()).value

    def state_at(self, committed_offset: int) -> ConsumerGroupState:
        """The state as of an offset of the log."""
        members = [member for _, member in self.members.items_at(committed_offset)]
        return self._state(members, self.epoch.get_at(committed_offset), self.assignment_epoch.get_at(committed_offset))

    def state_name_at(self, committed_offset: int) -> str:
        return self.state_at(committed_offset).value

    @staticmethod
    def _state(members: Iterable[ConsumerMember], epoch: int, assignment_epoch: int) -> ConsumerGroupState:
        is_empty = True
        is_reconciled = True
        for member in members:
            is_empty = False
            if not member.is_reconciled_to(assignment_epoch):
                is_reconciled = False
                break
        if is_empty:
            return ConsumerGroupState.EMPTY
        if epoch > assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.STABLE if is_reconciled else ConsumerGroupState.RECONCILING

    @property
    def listed_protocol_type(self) -> str:
        return CONSUMER

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with this instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerMember) -> Assignment | None:
        """The target of a member; a static member that takes over an instance id takes over its target."""
        holder = None if member.instance_id is None else self.static_members.get(member.instance_id)
        return self.targets.get(member.member_id if holder is None else holder)

    def view_after(self, updated: ConsumerMember) -> SubscriptionView:
        """The subscriptions with `updated` in place of itself, or of the static member whose instance id it takes over."""
        old = self.members.get(updated.member_id) or self.static_member(updated.instance_id)
        return SubscriptionView(self.subscriptions, () if old is None else (old,), updated)

    def partition_metadata_tombstones(self) -> Sequence[GroupRecord]:
        """The removal of the record in which Kafka 4.0 kept the topics of a group, in place of a hash, if there is one."""
        has_record = self.has_partition_metadata.get()
        return (ConsumerGroupPartitionMetadataTombstone(self.group_id),) if has_record else ()

    # Validation, as `kohort.group.groups.Group` describes it

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        api_version: int,
        /,
        *,
        is_transactional: bool,
    ) -> PartitionCheck | None:
        """
        Check in Kafka's order. The instance id is not compared.

        At its epoch a member may commit any partition. With an older one it may commit what it has held since then (KIP-1251).

        Raises:
            CoordinatorError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        if generation_or_epoch < 0 and not self.members:
            return None
        if is_transactional and generation_or_epoch == NO_EPOCH and not member_id and group_instance_id is None:
            return None  # producers before KIP-447 name no member
        member = self.known(member_id)
        if not is_transactional and member.classic is None and api_version < MEMBER_EPOCHS_SINCE:
            raise CoordinatorError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {MEMBER_EPOCHS_SINCE} or above must be used by members using the modern group protocol",
            )
        if generation_or_epoch == member.epoch:
            return None
        refused = CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION if member.classic is not None else ErrorCode.STALE_MEMBER_EPOCH
        )
        if generation_or_epoch > member.epoch:
            raise refused
        return partial(_check_held, member, generation_or_epoch, refused)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, committed_offset: int | None, /) -> None:
        """
        Check the member, unless the request names none and has a negative epoch.

        Raises:
            CoordinatorError: UNKNOWN_SERVER_ERROR (an epoch without a member), UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH,
                ILLEGAL_GENERATION (a member of the classic protocol).
        """
        if member_id is None:
            if member_epoch < 0:
                return
            raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
        member = self.known(member_id, committed_offset)
        if member_epoch != member.epoch:
            is_classic = member.classic is not None
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)

    def validate_offset_delete(self) -> None:
        """Every topic without subscription may lose its offsets."""

    def offset_expiration_base(self) -> BaseTimestamp | None:
        """The commit, also while the group is empty."""
        return committed_at

    def tombstones(self, renamed: tuple[str, str] | None = None) -> Sequence[GroupRecord]:
        """
        Args:
            renamed: the id of a member, and the new id under which records of the same batch have it.
        """
        group_id = self.group_id
        member_ids = list(self.members)
        if renamed is not None:
            member_ids[member_ids.index(renamed[0])] = renamed[1]
        return (
            *(ConsumerGroupCurrentMemberAssignmentTombstone(group_id, member_id) for member_id in member_ids),
            *(ConsumerGroupTargetAssignmentMemberTombstone(group_id, member_id) for member_id in member_ids),
            ConsumerGroupTargetAssignmentMetadataTombstone(group_id),
            *(ConsumerGroupMemberMetadataTombstone(group_id, member_id) for member_id in member_ids),
            *(ConsumerGroupRegularExpressionTombstone(group_id, pattern) for pattern in self.subscriptions.resolved),
            ConsumerGroupPartitionMetadataTombstone(group_id),
            ConsumerGroupMetadataTombstone(group_id),
        )

    # Replay

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace the one of this id."""
        old = self.members.get(member.member_id)
        self._own(old, member)
        self.subscriptions.replace(old, member)
        self.members.put(member.member_id, member)
        if old is not None and old.instance_id is not None and old.instance_id != member.instance_id:
            self._release_instance(old)
        if member.instance_id is not None:
            self.static_members.put(member.instance_id, member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.remove(member_id)
        if member is not None:
            self._own(member, None)
            self.subscriptions.replace(member, None)
            self._release_instance(member)

    def _release_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            self.static_members.remove(instance_id)

    def _own(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None and new is not None:
            is_same = old.epoch == new.epoch and old.assigned is new.assigned
            if is_same and old.pending_revocation is new.pending_revocation:
                return
        if old is not None:
            self.owners.remove(old.assigned, old.epoch)
            self.owners.remove(old.pending_revocation, old.epoch)
        if new is not None:
            self.owners.add(new.assigned, new.epoch)
            self.owners.add(new.pending_revocation, new.epoch)
