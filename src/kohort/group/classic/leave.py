"""
LeaveGroup (13), versions 0 to 5.

0 to 2 take one member at the top of the request and answer its error there (the service turns that into a batch of one);
3 takes a batch (KIP-345). `reason` (5, KIP-800) is for logs only and not kept.

Source: Kafka GroupMetadataManager.classicGroupLeave.
"""

from kohort.group.classic.group import NO_MEMBER_ID, ClassicGroup, ClassicMember
from kohort.group.classic.rebalance import maybe_complete_join, prepare_rebalance, remove_member
from kohort.group.classic.registry import GroupRegistry, Records, Releases, group_result
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def leave_group(
    registry: GroupRegistry, request: m.LeaveGroupRequest, now_ms: int
) -> Result[GroupRecord, m.LeaveGroupResponse]:
    """Take out each member that is who it says it is; the rest of the group rebalances."""
    group = registry.groups.get(request.group_id)
    if group is not None and group.state is DEAD:
        return Result(response=m.LeaveGroupResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    releases: Releases = []
    codes = [_leave(registry, group, identity, releases) for identity in request.members]
    records: Records = ()
    if group is not None and ErrorCode.NONE in codes:
        records = _carry_on(registry, group, releases, now_ms)
    members = tuple(
        m.LeaveGroupResponseMemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=int(code)
        )
        for identity, code in zip(request.members, codes, strict=True)
    )
    return group_result(records, releases, m.LeaveGroupResponse(members=members))


def _leave(
    registry: GroupRegistry,
    group: ClassicGroup | None,
    identity: m.LeaveGroupRequestMemberIdentity,
    releases: Releases,
) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.member_id in group.pending_members:
        # Whatever instance id is sent along is not looked at.
        group.remove(identity.member_id)
        registry.cancel_session(group, identity.member_id)
        return ErrorCode.NONE
    try:
        member = _find(group, identity)
    except CoordinatorError as exc:
        return exc.code
    remove_member(registry, group, member, releases)
    return ErrorCode.NONE


def _find(group: ClassicGroup, identity: m.LeaveGroupRequestMemberIdentity) -> ClassicMember:
    """
    An administrator may name a static member by its instance id alone.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if identity.member_id != NO_MEMBER_ID:
        return group.check_member(identity.member_id, identity.group_instance_id)
    instance_id = identity.group_instance_id
    if instance_id is None or instance_id not in group.static_members:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group.members[group.static_members[instance_id]]


def _carry_on(registry: GroupRegistry, group: ClassicGroup, releases: Releases, now_ms: int) -> Records:
    if group.state in (STABLE, COMPLETING_REBALANCE):
        return prepare_rebalance(registry, group, releases, now_ms)
    if group.state is PREPARING_REBALANCE:
        return maybe_complete_join(registry, group, releases, now_ms)
    return ()
