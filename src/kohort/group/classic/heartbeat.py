"""
Heartbeat (12), versions 0 to 4. 3 brings static members.

Source: Kafka GroupMetadataManager.classicGroupHeartbeat.
"""

from typing import Final

from kohort.group.classic.group import ClassicGroup, ClassicMember
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import DEAD, EMPTY, PREPARING_REBALANCE
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

# Every healthy heartbeat is answered alike.
_ALIVE: Final = Result[GroupRecord, m.HeartbeatResponse](response=m.HeartbeatResponse())
_REBALANCING: Final = Result[GroupRecord, m.HeartbeatResponse](
    response=m.HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))
)


def heartbeat(registry: GroupRegistry, request: m.HeartbeatRequest) -> Result[GroupRecord, m.HeartbeatResponse]:
    """The member lives: its session starts anew."""
    try:
        group, member = _check(registry, request)
    except CoordinatorError as exc:
        return Result(response=m.HeartbeatResponse(error_code=int(exc.code)))
    registry.arm_session(group, member)
    # While the group prepares, a member of the last generation learns here that it has to join again.
    return _REBALANCING if group.state is PREPARING_REBALANCE else _ALIVE


def _check(registry: GroupRegistry, request: m.HeartbeatRequest) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    group = registry.groups.get(request.group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is DEAD:
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group, member
