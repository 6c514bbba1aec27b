"""
LeaveGroup (13), versions 0 to 5.

0 to 2 name one member at the top of the request and have its error at the top of the response (`versions` upgrades that to a
batch of one); 3 takes a batch (KIP-345). `reason` (5, KIP-800) is for the log.

Source: Kafka GroupMetadataManager.classicGroupLeave.
"""

from kohort.group.classic.group import NO_MEMBER_ID, ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.rebalance import maybe_complete_join, prepare_rebalance, remove_member
from kohort.group.classic.registry import ClassicRegistry, Records, group_result
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from kohort.group.events import MemberLeft
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def leave_group(
    registry: ClassicRegistry, request: m.LeaveGroupRequest, now_ms: int
) -> Result[GroupRecord, m.LeaveGroupResponse]:
    """Remove each member that is named correctly; the other members rebalance."""
    found = registry.groups.get(request.group_id)
    host = None if isinstance(found, ClassicGroup) else registry.host_of(found)
    if host is not None:
        return host.leave_group(found, request, now_ms)
    group = found if isinstance(found, ClassicGroup) else None
    if group is not None and group.state is DEAD:
        return Result(response=m.LeaveGroupResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    releases: list[Release] = []
    codes = [_leave(registry, group, identity, releases) for identity in request.members]
    records: Records = ()
    if group is not None and ErrorCode.NONE in codes:
        records = _continue(registry, group, releases, now_ms)
    members = tuple(
        m.LeaveGroupResponseMemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=int(code)
        )
        for identity, code in zip(request.members, codes, strict=True)
    )
    return group_result(records, releases, m.LeaveGroupResponse(members=members))


def _leave(
    registry: ClassicRegistry,
    group: ClassicGroup | None,
    identity: m.LeaveGroupRequestMemberIdentity,
    releases: list[Release],
) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.member_id in group.pending_members:
        # The instance id is ignored.
        group.remove(identity.member_id)
        registry.cancel_session(group, identity.member_id)
        registry.emit(MemberLeft(group.group_id, identity.member_id, None, identity.reason))
        return ErrorCode.NONE
    try:
        member = _find(group, identity)
    except CoordinatorError as exc:
        return exc.code
    remove_member(registry, group, member, releases)
    registry.emit(MemberLeft(group.group_id, member.member_id, member.group_instance_id, identity.reason))
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


def _continue(registry: ClassicRegistry, group: ClassicGroup, releases: list[Release], now_ms: int) -> Records:
    if group.state in (STABLE, COMPLETING_REBALANCE):
        return prepare_rebalance(registry, group, releases, now_ms, "members left")
    if group.state is PREPARING_REBALANCE:
        return maybe_complete_join(registry, group, releases, now_ms)
    return ()
