"""
Heartbeat (12), LeaveGroup (13) and SyncGroup (14) of members of the classic protocol in consumer groups.

LeaveGroup removes members of either protocol, so that an administrator can remove any member. SyncGroup answers with the
partitions that the coordinator assigned; assignments in the request are ignored.

Source: Kafka GroupMetadataManager.throwIfMemberDoesNotUseClassicProtocol, throwIfGenerationIdUnmatched,
classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup, classicGroupSyncToConsumerGroup,
throwIfClassicProtocolUnmatched, throwIfRebalanceInProgress, ConsumerGroup.waitingOnUnreleasedPartition.
"""

from kohort.group.consumer.classic_members.embedded import assignment_bytes
from kohort.group.consumer.classic_members.join import join_group
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS, ConsumerMember
from kohort.group.consumer.membership import known_member, unknown_instance
from kohort.group.consumer.registry import ConsumerRegistry, sync_key
from kohort.group.consumer.removal import join_deadline, remove
from kohort.group.events import GroupEvent, HeartbeatRefused, MemberLeft
from kohort.group.groups import CONSUMER
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """
    The member of the classic protocol that a request names.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID (also for a member of the consumer protocol), FENCED_INSTANCE_ID,
            ILLEGAL_GENERATION.
    """
    member = known_member(group, member_id, instance_id)
    if member.classic is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    if member.epoch != generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
    return member


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


def leave_group(
    registry: ConsumerRegistry, group: ConsumerGroup, request: m.LeaveGroupRequest, now_ms: int
) -> Result[GroupRecord, m.LeaveGroupResponse]:
    """Remove all members that are named correctly in one step; ids are echoed as they were sent."""
    removed: dict[str, ConsumerMember] = {}
    events: list[GroupEvent] = []
    answers: list[m.LeaveGroupResponseMemberResponse] = []
    for identity in request.members:
        code = 0
        try:
            member = _find(group, identity)
        except CoordinatorError as error:
            code = int(error.code)
        else:
            if member.member_id not in removed:
                removed[member.member_id] = member
                events.append(MemberLeft(group.group_id, member.member_id, member.instance_id, identity.reason))
        answers.append(
            m.LeaveGroupResponseMemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    response = m.LeaveGroupResponse(members=tuple(answers))
    if not removed:
        return Result(response=response)
    return remove(registry, group, list(removed.values()), events, response, now_ms)


def _find(group: ConsumerGroup, identity: m.LeaveGroupRequestMemberIdentity) -> ConsumerMember:
    """
    The member that is named; an administrator may name a static member by its instance id alone.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    instance_id = identity.group_instance_id
    if instance_id is None or identity.member_id:
        return known_member(group, identity.member_id, instance_id)
    member = group.static_member(instance_id)
    if member is None:
        raise unknown_instance(instance_id)
    return member


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


class ClassicMemberHandlers:
    """Implements `kohort.group.conversion.ClassicMembers` for consumer groups."""

    def __init__(self, registry: ConsumerRegistry) -> None:
        self._registry = registry

    def join_group(
        self, group: ConsumerGroup, request: m.JoinGroupRequest, context: RequestContext, now_ms: int, /
    ) -> Result[GroupRecord, m.JoinGroupResponse]:
        return join_group(self._registry, group, request, context, now_ms)

    def sync_group(
        self, group: ConsumerGroup, request: m.SyncGroupRequest, /
    ) -> Result[GroupRecord, m.SyncGroupResponse]:
        return sync_group(self._registry, group, request)

    def heartbeat(
        self, group: ConsumerGroup, request: m.HeartbeatRequest, /
    ) -> Result[GroupRecord, m.HeartbeatResponse]:
        return heartbeat(self._registry, group, request)

    def leave_group(
        self, group: ConsumerGroup, request: m.LeaveGroupRequest, now_ms: int, /
    ) -> Result[GroupRecord, m.LeaveGroupResponse]:
        return leave_group(self._registry, group, request, now_ms)
