"""
Reconciliation: the next step of one member from the partitions that it has to its target assignment.

A member first gives up what it must not keep (UNREVOKED_PARTITIONS), and only then goes on to the epoch of its target, where it
gets the partitions that are free. It waits for the others (UNRELEASED_PARTITIONS). So a partition has one owner at any time.

Source: Kafka CurrentAssignmentBuilder; KIP-848, "Reconciliation of the group".
"""

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.assignment.assignments import TopicPartitions, contains_any, of_topics, union
from kohort.group.consumer.assignment.partition_owners import PartitionOwners
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.states import (
    STABLE,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
)
from kohort.model.errors import CoordinatorError, ErrorCode


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
        """Have the member revoke the partitions of topics that it is no longer subscribed to; its epochs stay."""
        member = self._member
        kept, dropped = of_topics(member.assigned, self._topic_ids)
        if not dropped:
            return member
        pending = union(member.pending_revocation, dropped)
        if self.still_owns(pending):
            return msgspec.structs.replace(
                member, state=UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=pending
            )
        return msgspec.structs.replace(member, assigned=kept)

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
            add = [partition for partition in missing if self._is_available(topic_id, partition)]
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
        return member.at_epoch(self._target_epoch, state, assigned_now)

    def _is_available(self, topic_id: UUID, partition: int) -> bool:
        """Whether no other member has the partition. One that this member has still to revoke is its own."""
        return self._owners.is_free(topic_id, partition) or partition in self._member.pending_revocation.get(
            topic_id, ()
        )
