"""
The steps that ConsumerGroupHeartbeat and JoinGroup of a member have in common: each adds its records and events.

Source: Kafka GroupMetadataManager.consumerGroupHeartbeat, classicGroupJoinToConsumerGroup.
"""

from collections.abc import Sequence

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.assignment.assignments import TopicPartitions
from kohort.group.consumer.assignment.reconciliation import reconcile
from kohort.group.consumer.assignment.target_assignment import assign
from kohort.group.consumer.epochs import next_epoch
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.patterns.patterns import update_patterns
from kohort.group.consumer.records import current_record, member_record
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.events import GroupEvent, MemberJoined
from kohort.group.records import GroupRecord
from kohort.machine.steps import Deadline


class MemberSteps:
    """
    The steps of one member in one request, in the order of the methods.

    Attributes:
        records: of the request so far, like the events and deadlines.
    """

    def __init__(
        self, registry: ConsumerRegistry, group: ConsumerGroup, records: list[GroupRecord], now_ms: int
    ) -> None:
        self._registry = registry
        self._group = group
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
        return update_patterns(self._registry, group, member, updated, self.records, self._now_ms)

    def next_epoch(self, updated: ConsumerMember, *, is_due: bool) -> int:
        """The group epoch after the update; `is_due` raises it, and so do changes of the topics."""
        return next_epoch(
            self._registry,
            self._group,
            updated,
            is_due=is_due,
            now_ms=self._now_ms,
            records=self.records,
            events=self.events,
        )

    def target(self, updated: ConsumerMember, epoch: int) -> tuple[Assignment, int]:
        """The target of the member and its epoch; computed if the group epoch is above the one of the assignment."""
        group = self._group
        if epoch <= group.assignment_epoch.get():
            return group.target_of(updated) or NO_ASSIGNMENT, group.assignment_epoch.get()
        return assign(self._registry, group, updated, epoch, self.records)

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
