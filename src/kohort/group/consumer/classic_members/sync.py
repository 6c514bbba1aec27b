"""
SyncGroup (14) of a member of the classic protocol in a consumer group: its partitions, as the coordinator assigned them.

Assignments in the request are ignored.

Source: Kafka GroupMetadataManager.classicGroupSyncToConsumerGroup, throwIfClassicProtocolUnmatched, throwIfRebalanceInProgress.
"""

from kohort.group.consumer.classic_members.checks import classic_member
from kohort.group.consumer.classic_members.embedded import assignment_bytes
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.expiry import join_deadline
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry, sync_key
from kohort.group.consumer.states import UNREVOKED_PARTITIONS
from kohort.group.groups import CONSUMER
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def sync_group(
    registry: ConsumerRegistry, group: ConsumerGroup, request: m.SyncGroupRequest
) -> Result[GroupRecord, m.SyncGroupResponse]:
    """Answer with the member's partitions when all that they depend on is committed."""
    try:
        member = _check(group, request)
    except CoordinatorError as error:
        return Result(response=_refused(error.code))
    assert member.classic is not None
    group_id, member_id = group.group_id, member.member_id
    # A member that has to revoke partitions has joined already: it first finishes that.
    if group.epoch.get() > member.epoch and member.state != UNREVOKED_PARTITIONS:
        return Result(
            response=_refused(ErrorCode.REBALANCE_IN_PROGRESS),
            deadlines=[join_deadline(group_id, member_id, member.rebalance_timeout_ms)],
        )
    metadata = member.classic.supported_protocols[0].metadata
    response = m.SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, metadata, registry.context.image),
    )
    registry.renew_session(group_id, member_id, member.classic.session_timeout_ms)
    return Result(response=response, deadlines=[Deadline(sync_key(group_id, member_id))])


def _refused(code: ErrorCode) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(error_code=int(code), protocol_type=None, protocol_name=None, assignment=b"")


def _check(group: ConsumerGroup, request: m.SyncGroupRequest) -> ConsumerMember:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL; checked in
            this order.
    """
    member = classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return member
