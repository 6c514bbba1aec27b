"""
SyncGroup (14), versions 0 to 5.

The leader's request has the assignments of all members, which are logged; the requests of followers are parked until then. 3
adds static members; from 5 on request and response name protocol type and protocol.

Source: Kafka GroupMetadataManager.classicGroupSync.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.rebalance import GroupSteps, find_group, sync_wait
from kohort.group.classic.responses import refused_sync, synced
from kohort.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.context import HasContext
from kohort.group.errors import append_error
from kohort.group.events import AssignmentStored
from kohort.group.groups import Group
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Operation, Wait
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

SyncResult: TypeAlias = Result[GroupRecord, m.SyncGroupResponse]


def sync_group(shard: HasContext, now_ms: int, request: m.SyncGroupRequest) -> SyncResult:
    """Answer with the member's assignment when it is committed; until the leader sends it, the request waits."""
    context = shard.context
    found = context.groups.get(request.group_id)
    host = None if isinstance(found, ClassicGroup) else context.host_of(found)
    if host is not None:
        return host.sync_group(found, request)
    try:
        group, member = _check(found, request)
    except CoordinatorError as exc:
        return Result(response=refused_sync(exc.code))
    if group.state is PREPARING_REBALANCE:
        return Result(response=refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    steps = GroupSteps(context, group, now_ms)
    group.pending_sync.discard(member.member_id)
    if group.state is STABLE:
        return steps.result(synced(group, member.assignment))
    group.waiting.put(member.member_id, False)
    key = sync_wait(group.group_id, member.member_id)
    # Kafka never answers a request that another one replaces.
    replaced = refused_sync(ErrorCode.REBALANCE_IN_PROGRESS)
    if not group.is_leader(member.member_id):
        # The sync deadline of the group ends the wait.
        return steps.result(Wait(key, None, None, replaced))
    # The replay of the record makes the group Stable. A member without an entry gets an empty assignment. Entries for unknown
    # member ids are ignored.
    assignments = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
    steps.records.append(group.to_record(assignments))
    steps.answer_syncs(assignments)
    steps.emit(AssignmentStored(group.group_id, group.generation, member.member_id, len(group.members)))
    otherwise = Operation(assignment_failed, group.group_id, group.generation)
    return steps.result(steps.take_answer(key, replaced), otherwise=otherwise)


def assignment_failed(
    shard: HasContext, now_ms: int, group_id: str, generation: int, error: Exception
) -> Result[GroupRecord, None]:
    """The assignments could not be written: the members that wait are refused, and the group rebalances."""
    group = find_group(shard.context, group_id)
    if group is None or group.state is not COMPLETING_REBALANCE or group.generation != generation:
        return Result()
    code = append_error(error, from_sync=True)
    steps = GroupSteps(shard.context, group, now_ms)
    steps.drop_assignments(code)
    steps.prepare_rebalance(f"the assignment could not be stored: {code.name}")
    return steps.result()


def _check(group: Group | None, request: m.SyncGroupRequest) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            INCONSISTENT_GROUP_PROTOCOL; checked in this order.
    """
    if not isinstance(group, ClassicGroup) or group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return group, member


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current
