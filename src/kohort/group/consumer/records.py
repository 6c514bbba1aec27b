"""
The records of consumer groups, made from values of the group.

Source: Kafka GroupCoordinatorRecordHelpers.
"""

from kohort.group.assignments import entries_of
from kohort.group.assignors.specs import Assignment
from kohort.group.consumer.assignment_epochs import Epochs, epochs_of
from kohort.group.consumer.member import ConsumerMember
from kohort.group.records import GroupRecord
from kohort.records.values import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupCurrentMemberAssignmentTombstone,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataTombstone,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMemberTombstone,
    ConsumerGroupTargetAssignmentMemberTopicPartition,
)


def member_record(group_id: str, member: ConsumerMember) -> ConsumerGroupMemberMetadata:
    return ConsumerGroupMemberMetadata(
        group_id,
        member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> ConsumerGroupTargetAssignmentMember:
    return ConsumerGroupTargetAssignmentMember(
        group_id, member_id, entries_of(target, ConsumerGroupTargetAssignmentMemberTopicPartition)
    )


def current_record(group_id: str, member: ConsumerMember) -> ConsumerGroupCurrentMemberAssignment:
    return ConsumerGroupCurrentMemberAssignment(
        group_id,
        member.member_id,
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned, member.assigned_epochs),
        partitions_pending_revocation=_with_epochs(member.pending_revocation, member.pending_epochs),
    )


def _with_epochs(
    assignment: Assignment, epochs: Epochs
) -> tuple[ConsumerGroupCurrentMemberAssignmentTopicPartitions, ...]:
    return entries_of(
        assignment,
        lambda topic_id, partitions: ConsumerGroupCurrentMemberAssignmentTopicPartitions(
            topic_id, partitions, epochs_of(epochs, topic_id, partitions)
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """The records that remove a member. Replay expects its assignments to go before the member itself."""
    return (
        ConsumerGroupCurrentMemberAssignmentTombstone(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberTombstone(group_id, member_id),
        ConsumerGroupMemberMetadataTombstone(group_id, member_id),
    )
