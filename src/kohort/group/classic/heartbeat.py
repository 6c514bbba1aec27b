"""
Heartbeat (12), versions 0 to 4. 3 adds static members.

Source: Kafka GroupMetadataManager.classicGroupHeartbeat.
"""

from __future__ import annotations

from typing import Final

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.states import EMPTY, PREPARING_REBALANCE
from kohort.group.context import HasContext
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


def heartbeat(shard: HasContext, now_ms: int, request: m.HeartbeatRequest) -> Result[GroupRecord, m.HeartbeatResponse]:
    """Extend the member's session."""
    context = shard.context
    found = context.groups.get(request.group_id)
    if not isinstance(found, ClassicGroup):
        host = context.host_of(found)
        if host is not None:
            return host.heartbeat(found, request, now_ms)
    try:
        group, member = _check(found, request)
    except CoordinatorError as exc:
        refused = m.HeartbeatResponse(error_code=int(exc.code))
        return Result(response=refused, effects=[HeartbeatRefused.of_classic(request, exc)])
    context.deadlines.extend(member.session, member.session_timeout_ms)
    # During PREPARING_REBALANCE this answer tells a member of the last generation to join again.
    return _REBALANCING if group.state is PREPARING_REBALANCE else _ALIVE


def _check(group: Group | None, request: m.HeartbeatRequest) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if not isinstance(group, ClassicGroup):
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group, member
