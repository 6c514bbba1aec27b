"""
SyncGroup (14), versions 0 to 5.

The leader brings everybody's assignment, which is logged; everybody else waits for that. 3 brings static members, from 5 on
the request must name protocol type and protocol, and the answer does.

Source: Kafka GroupMetadataManager.classicGroupSync.
"""

from typing import TypeAlias

from kohort.group.classic.group import ClassicGroup, ClassicMember
from kohort.group.classic.rebalance import answer_parked_syncs, drop_assignments, prepare_rebalance
from kohort.group.classic.registry import GroupRegistry, Releases, group_result, sync_key
from kohort.group.classic.responses import refused_sync, synced
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.errors import append_error
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Reply, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

SyncResult: TypeAlias = Result[GroupRecord, m.SyncGroupResponse]


def sync_group(
    registry: GroupRegistry, request: m.SyncGroupRequest, reply: Reply[m.SyncGroupResponse], now_ms: int
) -> SyncResult:
    """Give a member its assignment, now or when the leader has brought it."""
    try:
        group, member = _check(registry, request)
    except CoordinatorError as exc:
        return Result(response=refused_sync(exc.code))
    if group.state is PREPARING_REBALANCE:
        return Result(response=refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    _note_sync(registry, group, member)
    if group.state is STABLE:
        return Result(response=synced(group, member))
    replaced, member.sync_reply = member.sync_reply, reply
    releases: Releases = []
    if replaced is not None:
        # Kafka leaves the older request of the same member without an answer for ever.
        releases.append(Release(replaced, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS)))
    if group.is_leader(member.member_id):
        return _log_assignments(registry, group, request, releases, now_ms)
    return group_result((), releases)


def _check(registry: GroupRegistry, request: m.SyncGroupRequest) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            INCONSISTENT_GROUP_PROTOCOL; checked in this order.
    """
    group = registry.groups.get(request.group_id)
    if group is None or group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is DEAD:
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return group, member


def _differ(theirs: str | None, ours: str | None) -> bool:
    return theirs is not None and ours is not None and theirs != ours


def _note_sync(registry: GroupRegistry, group: ClassicGroup, member: ClassicMember) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        registry.timers.cancel(sync_key(group.group_id))


def _log_assignments(
    registry: GroupRegistry, group: ClassicGroup, request: m.SyncGroupRequest, releases: Releases, now_ms: int
) -> SyncResult:
    """Assignments count once they are logged; members that the leader forgot get nothing, ids it invented are ignored."""
    assignments = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
    generation = group.generation

    def after(error: Exception | None) -> Releases:
        # A new rebalance may have begun while the write was under way; then it comes too late.
        if group.state is not COMPLETING_REBALANCE or group.generation != generation:
            return releases
        if error is not None:
            drop_assignments(registry, group, releases, append_error(error, from_sync=True))
            records = prepare_rebalance(registry, group, releases, now_ms)
            assert not records, "nobody has left, so the group cannot have become empty"
            return releases
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.move_to(STABLE, now_ms)
        registry.counters.completed_rebalances += 1
        answer_parked_syncs(registry, group, releases)
        return releases

    return Result((group.to_record(assignments),), after=after, replayed=False)
