"""
Heartbeat (12), versions 0 to 4. 3 adds static members.

Source: Kafka GroupMetadataManager.classicGroupHeartbeat.
"""

from typing import Final

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.registry import ClassicRegistry
from kohort.group.classic.states import DEAD, EMPTY, PREPARING_REBALANCE
from kohort.group.events import HeartbeatRefused
from kohort.group.groups import Group
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

# Shared by all heartbeats.
_ALIVE: Final = Result[GroupRecord, m.HeartbeatResponse](response=m.HeartbeatResponse())
_REBALANCING: Final = Result[GroupRecord, m.HeartbeatResponse](
    response=m.HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))
)


def heartbeat(registry: ClassicRegistry, request: m.HeartbeatRequest) -> Result[GroupRecord, m.HeartbeatResponse]:
    """Arm the member's session again."""
    found = registry.groups.get(request.group_id)
    if not isinstance(found, ClassicGroup):
        host = registry.host_of(found)
        if host is not None:
            return host.heartbeat(found, request)
    try:
        group, member = _check(found, request)
    except CoordinatorError as exc:
        registry.emit(HeartbeatRefused.of_classic(request, exc))
        return Result(response=m.HeartbeatResponse(error_code=int(exc.code)))
    registry.arm_session(group, member)
    # During PREPARING_REBALANCE this answer tells a member of the last generation to join again.
    return _REBALANCING if group.state is PREPARING_REBALANCE else _ALIVE


def _check(group: Group | None, request: m.HeartbeatRequest) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if not isinstance(group, ClassicGroup):
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is DEAD:
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group, member
