"""
Heartbeat (12) of a member of the classic protocol in a consumer group.

Source: Kafka GroupMetadataManager.classicGroupHeartbeatToConsumerGroup, ConsumerGroup.waitingOnUnreleasedPartition.
"""

from kohort.group.consumer.classic_members.checks import classic_member
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.expiry import join_deadline
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.consumer.states import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from kohort.group.events import HeartbeatRefused
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def heartbeat(
    registry: ConsumerRegistry, group: ConsumerGroup, request: m.HeartbeatRequest
) -> Result[GroupRecord, m.HeartbeatResponse]:
    """Extend the member's session, and have the member join again if it is due to change its partitions."""
    try:
        member = classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    except CoordinatorError as error:
        refused = m.HeartbeatResponse(error_code=int(error.code))
        return Result(response=refused, effects=[HeartbeatRefused.of_classic(request, error)])
    assert member.classic is not None
    registry.renew_session(group.group_id, member.member_id, member.classic.session_timeout_ms)
    if not _must_join(group, member):
        return Result(response=m.HeartbeatResponse())
    return Result(
        response=m.HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS)),
        deadlines=[join_deadline(group.group_id, member.member_id, member.rebalance_timeout_ms)],
    )


def _must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the group epoch is above the member's, it has to revoke partitions, or all that it waits for are free."""
    if member.epoch < group.epoch.get() or member.state == UNREVOKED_PARTITIONS:
        return True
    return member.state == UNRELEASED_PARTITIONS and not _waits(group, member)


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another member has a partition of this member's target."""
    for topic_id, partitions in (group.targets.get(member.member_id) or {}).items():
        assigned = member.assigned.get(topic_id, ())
        if any(partition not in assigned and not group.owners.is_free(topic_id, partition) for partition in partitions):
            return True
    return False
