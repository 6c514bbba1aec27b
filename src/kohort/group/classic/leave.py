"""
LeaveGroup (13), versions 0 to 5.

0 to 2 name one member at the top of the request and have its error at the top of the response (`versions` upgrades that to a
batch of one); 3 takes a batch (KIP-345). `reason` (5, KIP-800) is for the log.

Source: Kafka GroupMetadataManager.classicGroupLeave.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.group.classic.group import NO_MEMBER_ID, ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.rebalance import GroupSteps
from kohort.group.classic.states import COMPLETING_REBALANCE, STABLE
from kohort.group.context import HasContext
from kohort.group.events import MemberLeft
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def leave_group(
    shard: HasContext, now_ms: int, request: m.LeaveGroupRequest
) -> Result[GroupRecord, m.LeaveGroupResponse]:
    """Remove each member that is named correctly; the other members rebalance."""
    context = shard.context
    found = context.groups.get(request.group_id)
    host = None if isinstance(found, ClassicGroup) else context.host_of(found)
    if host is not None:
        return host.leave_group(found, request, now_ms)
    if not isinstance(found, ClassicGroup):
        return Result(response=_response(request, [ErrorCode.UNKNOWN_MEMBER_ID] * len(request.members)))
    steps = GroupSteps(context, found, now_ms)
    codes = [_leave(steps, identity) for identity in request.members]
    if ErrorCode.NONE in codes:
        if found.state in (STABLE, COMPLETING_REBALANCE):
            steps.prepare_rebalance("members left")
        else:
            steps.maybe_complete_join()
    return steps.result(_response(request, codes))


def _response(request: m.LeaveGroupRequest, codes: Sequence[ErrorCode]) -> m.LeaveGroupResponse:
    members = [
        m.LeaveGroupResponseMemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=int(code)
        )
        for identity, code in zip(request.members, codes, strict=True)
    ]
    return m.LeaveGroupResponse(members=tuple(members))


def _leave(steps: GroupSteps, identity: m.LeaveGroupRequestMemberIdentity) -> ErrorCode:
    group = steps.group
    if identity.member_id in group.pending_members:
        # The instance id is ignored.
        group.remove(identity.member_id)
        steps.end_session(identity.member_id)
        steps.emit(MemberLeft(group.group_id, identity.member_id, None, identity.reason))
        return ErrorCode.NONE
    try:
        member = _find(group, identity)
    except CoordinatorError as exc:
        return exc.code
    steps.remove_member(member)
    steps.emit(MemberLeft(group.group_id, member.member_id, member.group_instance_id, identity.reason))
    return ErrorCode.NONE


def _find(group: ClassicGroup, identity: m.LeaveGroupRequestMemberIdentity) -> ClassicMember:
    """
    The member that is named; an administrator may name a static member by its instance id alone.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if identity.member_id != NO_MEMBER_ID:
        return group.check_member(identity.member_id, identity.group_instance_id)
    instance_id = identity.group_instance_id
    if instance_id is None or instance_id not in group.static_members:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group.members[group.static_members[instance_id]]
