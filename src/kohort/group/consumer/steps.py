"""
The steps that ConsumerGroupHeartbeat and JoinGroup of a member have in common: each adds its records and events.

The last one is reconciliation: the next step of the member from the partitions that it has to its target assignment. A member
first gives up what it must not keep (UNREVOKED_PARTITIONS), and only then goes on to the epoch of its target, where it gets the
partitions that are free. It waits for the others (UNRELEASED_PARTITIONS). So a partition has one owner at any time.

Source: Kafka GroupMetadataManager.consumerGroupHeartbeat, classicGroupJoinToConsumerGroup, updateSubscriptionMetadata,
CurrentAssignmentBuilder; KIP-848, "Reconciliation of the group".
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from kohort.group.assignments import TopicPartitions, contains_any, of_topics, union
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.group import ConsumerGroup, PartitionOwners
from kohort.group.consumer.member import (
    STABLE,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerMember,
)
from kohort.group.consumer.patterns import update_patterns
from kohort.group.consumer.records import current_record, member_record
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.consumer.target_assignment import assign
from kohort.group.events import EpochRaised, GroupEvent, MemberJoined
from kohort.group.groups import CONSUMER
from kohort.group.modern import REFRESH_INTERVAL_MS
from kohort.group.records import GroupRecord
from kohort.machine.steps import Deadline
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.values import ConsumerGroupMetadata


def reconcile(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    *,
    owned: Sequence[TopicPartitions] | None,
    topic_ids: Collection[UUID],
    subscription_changed: bool,
    owners: PartitionOwners,
) -> ConsumerMember:
    """
    The member after one heartbeat; the same object if nothing changes.

    Args:
        target_epoch: the epoch of `target`.
        owned: the partitions that the client says it has; None if it does not tell.
        topic_ids: the topics that the member is subscribed to.
        subscription_changed: whether this heartbeat changed them. Partitions of other topics are then revoked at once.

    Raises:
        CoordinatorError: FENCED_MEMBER_EPOCH (the member is in a state that this version does not know, and has partitions).
    """
    step = _Step(member, target, target_epoch, owned, topic_ids, owners)
    state = member.state
    if state == STABLE:
        if member.epoch != target_epoch:
            return step.next()
        return step.shrink() if subscription_changed else member
    if state == UNREVOKED_PARTITIONS:
        if not step.still_owns(member.pending_revocation):
            return step.next()
        return step.shrink() if subscription_changed else member
    if state == UNKNOWN and (owned is None or owned):
        raise CoordinatorError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return step.next()


class _Step:
    """One step of one member."""

    __slots__ = ("_member", "_owned", "_owners", "_target", "_target_epoch", "_topic_ids")

    def __init__(
        self,
        member: ConsumerMember,
        target: Assignment,
        target_epoch: int,
        owned: Sequence[TopicPartitions] | None,
        topic_ids: Collection[UUID],
        owners: PartitionOwners,
    ) -> None:
        self._member = member
        self._target = target
        self._target_epoch = target_epoch
        self._owned = owned
        self._topic_ids = topic_ids
        self._owners = owners

    def still_owns(self, revoked: Assignment) -> bool:
        """Whether the client may still use a partition: it says so, or does not tell."""
        return self._owned is None or contains_any(revoked, self._owned)

    def shrink(self) -> ConsumerMember:
        """
        Have the member revoke the partitions of topics that it is no longer subscribed to; its epoch stays.

        Kafka writes a member that gives up its last topic anew even if it has no partition.
        """
        member = self._member
        kept, dropped = of_topics(member.assigned, self._topic_ids)
        if not dropped and (self._topic_ids or member.pending_revocation):
            return member
        pending = union(member.pending_revocation, dropped)
        if pending and self.still_owns(pending):
            return member.at_epoch(member.epoch, UNREVOKED_PARTITIONS, kept, pending)
        return member.at_epoch(member.epoch, member.state, kept, member.pending_revocation)

    def next(self) -> ConsumerMember:
        """Take the next step towards the target."""
        member = self._member
        kept: dict[UUID, tuple[int, ...]] = {}
        revoked: dict[UUID, tuple[int, ...]] = {}
        added: dict[UUID, list[int]] = {}
        is_waiting = False
        for topic_id in {**self._target, **member.assigned}:
            target = self._target.get(topic_id, ()) if topic_id in self._topic_ids else ()
            assigned = member.assigned.get(topic_id, ())
            if target == assigned:
                if assigned:
                    kept[topic_id] = assigned
                continue
            wanted, had = set(target), set(assigned)
            keep = tuple(partition for partition in assigned if partition in wanted)
            revoke = tuple(partition for partition in assigned if partition not in wanted)
            missing = [partition for partition in target if partition not in had]
            # One that this member has still to revoke is its own.
            add = self._owners.free(topic_id, missing, member.pending_revocation.get(topic_id, ()))
            is_waiting = is_waiting or len(add) < len(missing)
            if keep:
                kept[topic_id] = keep
            if revoke:
                revoked[topic_id] = revoke
            if add:
                added[topic_id] = add
        if revoked and self.still_owns(revoked):
            return member.at_epoch(member.epoch, UNREVOKED_PARTITIONS, kept or NO_ASSIGNMENT, revoked)
        for topic_id, partitions in added.items():
            kept[topic_id] = tuple(sorted([*kept.get(topic_id, ()), *partitions]))
        state = UNRELEASED_PARTITIONS if is_waiting else STABLE
        assigned_now: Assignment = member.assigned if kept == member.assigned else kept or NO_ASSIGNMENT
        return member.at_epoch(self._target_epoch, state, assigned_now, target_epoch=self._target_epoch)


class MemberSteps:
    """
    The steps of one member in one request, in the order of the methods.

    Attributes:
        records: of the request so far, like the events and deadlines.
    """

    def __init__(
        self,
        registry: ConsumerRegistry,
        group: ConsumerGroup,
        records: list[GroupRecord],
        context: RequestContext,
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._group = group
        self._context = context
        self._now_ms = now_ms
        self.records = records
        self.events: list[GroupEvent] = []
        self.deadlines: list[Deadline] = []

    def update(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """
        Write the member, if it is new or changed, and the change of its pattern.

        Returns:
            Whether the change of patterns raises the group epoch.
        """
        group = self._group
        if updated != member:
            self.records.append(member_record(group.group_id, updated))
        if member.member_id not in group.members:
            self.events.append(
                MemberJoined(
                    group.group_id, updated.member_id, updated.instance_id, updated.client_id, updated.client_host
                )
            )
        return update_patterns(self._registry, group, member, updated, self.records, self._context, self._now_ms)

    def next_epoch(self, updated: ConsumerMember, *, is_due: bool) -> int:
        """
        The group epoch after the update.

        The epoch rises if `is_due`, or if the topics of the group changed since it was written. They are only looked at when
        one of them changed, after a load, or if the last write with a new epoch failed.
        """
        registry, group = self._registry, self._group
        epoch = group.epoch.get()
        if not is_due and not group.needs_refresh(self._now_ms):
            return epoch
        metadata_hash = registry.metadata_hash(group.view_after(updated).topics)
        if is_due or metadata_hash != group.metadata_hash.get():
            epoch += 1
            self.records.append(ConsumerGroupMetadata(group.group_id, epoch, metadata_hash))
            self.events.append(EpochRaised(group.group_id, epoch, updated.member_id))
        self.records += group.partition_metadata_tombstones()
        group.refresh_at_ms = self._now_ms + REFRESH_INTERVAL_MS
        group.refresh_epoch = epoch
        return epoch

    def target(self, updated: ConsumerMember, epoch: int) -> tuple[Assignment, int]:
        """
        The target of the member and its epoch; computed if the group epoch is above the one of the assignment.

        Until the assignment interval has passed, the member goes on with the last target (KIP-1263). No timer ends the
        interval: the next heartbeat or JoinGroup does.
        """
        group = self._group
        if epoch <= group.assignment_epoch.get() or not self._registry.may_assign(CONSUMER, group, self._now_ms):
            return group.target_of(updated) or NO_ASSIGNMENT, group.assignment_epoch.get()
        return assign(self._registry, group, updated, epoch, self.records, self._now_ms)

    def reconcile(
        self,
        updated: ConsumerMember,
        target: Assignment,
        target_epoch: int,
        owned: Sequence[TopicPartitions] | None,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Take the member one step towards its target. The same object is returned if nothing changes."""
        registry, group = self._registry, self._group
        if not subscription_changed and updated.is_reconciled_to(target_epoch):
            return updated
        reconciled = reconcile(
            updated,
            target,
            target_epoch,
            owned=owned,
            topic_ids=registry.topic_ids(group.subscriptions.topics_of(updated)),
            subscription_changed=subscription_changed,
            owners=group.owners,
        )
        if reconciled == updated:
            return updated
        self.records.append(current_record(group.group_id, reconciled))
        return reconciled
