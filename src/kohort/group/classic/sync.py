"""
SyncGroup (14), versions 0 to 5.

The leader's request has the assignments of all members, which are logged; the requests of followers are parked until then. 3
adds static members; from 5 on request and response name protocol type and protocol.

Source: Kafka GroupMetadataManager.classicGroupSync.
"""

from typing import TypeAlias

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.rebalance import answer_parked_syncs, drop_assignments, prepare_rebalance
from kohort.group.classic.registry import ClassicRegistry, group_result, sync_key
from kohort.group.classic.responses import refused_sync, synced
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.errors import append_error
from kohort.group.events import AssignmentDropped, AssignmentStored
from kohort.group.groups import Group
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Reply, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

SyncResult: TypeAlias = Result[GroupRecord, m.SyncGroupResponse]


def sync_group(
    registry: ClassicRegistry, request: m.SyncGroupRequest, reply: Reply[m.SyncGroupResponse], now_ms: int
) -> SyncResult:
    """Answer with the member's assignment, or park the request until the leader's assignment is committed."""
    found = registry.groups.get(request.group_id)
    if not isinstance(found, ClassicGroup):
        host = registry.host_of(found)
        if host is not None:
            return host.sync_group(found, request)
    try:
        group, member = _check(found, request)
    except CoordinatorError as exc:
        return Result(response=refused_sync(exc.code))
    if group.state is PREPARING_REBALANCE:
        return Result(response=refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    _note_sync(registry, group, member)
    if group.state is STABLE:
        return Result(response=synced(group, member))
    replaced, member.sync_reply = member.sync_reply, reply
    releases: list[Release] = []
    if replaced is not None:
        # Kafka never answers the earlier request.
        releases.append(Release(replaced, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS)))
    # The leader may repeat its request, with another assignment, before the first one is written. Kafka writes the second one,
    # too, and gives it to the members after the next load only.
    if group.is_leader(member.member_id) and group.stored_generation != group.generation:
        return _log_assignments(registry, group, request, releases, now_ms)
    return group_result((), releases)


def _check(group: Group | None, request: m.SyncGroupRequest) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            INCONSISTENT_GROUP_PROTOCOL; checked in this order.
    """
    if not isinstance(group, ClassicGroup) or group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is DEAD:
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return group, member


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current


def _note_sync(registry: ClassicRegistry, group: ClassicGroup, member: ClassicMember) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        registry.timers.cancel(sync_key(group.group_id))


def _log_assignments(
    registry: ClassicRegistry, group: ClassicGroup, request: m.SyncGroupRequest, releases: list[Release], now_ms: int
) -> SyncResult:
    """
    Log the assignments; they take effect when the record is committed.

    A member without an entry gets an empty assignment. Entries for unknown member ids are ignored.
    """
    assignments = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
    generation, leader = group.generation, request.member_id
    group.stored_generation = generation

    def after(error: Exception | None) -> list[Release]:
        if group.stored_generation == generation:
            group.stored_generation = -1
        # Another rebalance may have started during the write.
        if group.state is not COMPLETING_REBALANCE or group.generation != generation:
            registry.emit(AssignmentDropped(group.group_id, generation, group.generation))
            return releases
        if error is not None:
            code = append_error(error, from_sync=True)
            drop_assignments(registry, group, releases, code)
            reason = f"the assignment could not be stored: {code.name}"
            records = prepare_rebalance(registry, group, releases, now_ms, reason)
            assert not records, "no member has left, so the group is not empty"
            return releases
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.move_to(STABLE, now_ms)
        registry.counters.completed_rebalances += 1
        registry.emit(AssignmentStored(group.group_id, generation, leader, len(group.members)))
        answer_parked_syncs(registry, group, releases)
        return releases

    return Result((group.to_record(assignments),), after=after, replayed=False)
