"""
The records of share groups, made from values of the group.

Source: Kafka GroupCoordinatorRecordHelpers.
"""

from kohort.group.assignments import entries_of
from kohort.group.assignors.specs import Assignment
from kohort.group.records import GroupRecord
from kohort.group.share.member import STABLE, ShareMember
from kohort.records.values import (
    ShareGroupCurrentMemberAssignment,
    ShareGroupCurrentMemberAssignmentTombstone,
    ShareGroupCurrentMemberAssignmentTopicPartitions,
    ShareGroupMemberMetadata,
    ShareGroupMemberMetadataTombstone,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMemberTombstone,
    ShareGroupTargetAssignmentMemberTopicPartition,
)


def member_record(group_id: str, member: ShareMember) -> ShareGroupMemberMetadata:
    return ShareGroupMemberMetadata(
        group_id,
        member.member_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topic_names)),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> ShareGroupTargetAssignmentMember:
    entries = entries_of(target, ShareGroupTargetAssignmentMemberTopicPartition)
    return ShareGroupTargetAssignmentMember(group_id, member_id, entries)


def current_record(group_id: str, member: ShareMember) -> ShareGroupCurrentMemberAssignment:
    return ShareGroupCurrentMemberAssignment(
        group_id,
        member.member_id,
        member.epoch,
        member.previous_epoch,
        STABLE,
        entries_of(member.assigned, ShareGroupCurrentMemberAssignmentTopicPartitions),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """The records that remove a member. Replay expects its assignments to go before the member itself."""
    return (
        ShareGroupCurrentMemberAssignmentTombstone(group_id, member_id),
        ShareGroupTargetAssignmentMemberTombstone(group_id, member_id),
        ShareGroupMemberMetadataTombstone(group_id, member_id),
    )
