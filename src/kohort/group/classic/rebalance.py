"""
The rebalance of a classic group: wait for all members to join, start a generation, wait for the leader's assignment.

    prepare_rebalance ─▶ (all joined, or the join timer) complete_join ─▶ (the leader's SyncGroup, see sync.py) Stable
          ▲                        │ no member left              │
          │                        ▼                             ▼
          │                      Empty                      sync timer: members without SyncGroup are removed
          └─────────────────────────────────────────────────────┘

Each step appends the answers of parked requests to `releases` and returns the records to log.

Source: Kafka GroupMetadataManager, "classic group" methods; KIP-134 (initial delay), KIP-345 (static members).
"""

from functools import partial

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.registry import ClassicRegistry, Records, group_result, join_key, sync_key
from kohort.group.classic.responses import joined, refused_join, refused_sync, synced
from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    can_rebalance,
)
from kohort.group.events import GenerationStarted, GroupEmptied, MemberExpired, RebalanceStarted
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result
from kohort.model.errors import ErrorCode


def rebalance_or_complete(
    registry: ClassicRegistry, group: ClassicGroup, releases: list[Release], now_ms: int, reason: str
) -> Records:
    """Start a rebalance because a member joined, or continue the present one."""
    if can_rebalance(group.state):
        return prepare_rebalance(registry, group, releases, now_ms, reason)
    return maybe_complete_join(registry, group, releases, now_ms)


def prepare_rebalance(
    registry: ClassicRegistry, group: ClassicGroup, releases: list[Release], now_ms: int, reason: str
) -> Records:
    """
    Start a rebalance: every member has to join again. The rebalance of an empty group waits for the initial delay.

    Args:
        reason: for the log.
    """
    registry.emit(RebalanceStarted(group.group_id, group.state.value, group.generation, reason))
    if group.state is COMPLETING_REBALANCE:
        drop_assignments(registry, group, releases, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    registry.timers.cancel(sync_key(group.group_id))
    is_initial = group.state is EMPTY
    group.move_to(PREPARING_REBALANCE, now_ms)
    if is_initial:
        delay_ms = registry.config.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        _schedule_initial(registry, group, delay_ms=delay_ms, remaining_ms=remaining_ms)
        return ()
    if group.has_all_joined:
        return complete_join(registry, group, releases, now_ms)
    _schedule_join(registry, group)
    return ()


def maybe_complete_join(
    registry: ClassicRegistry, group: ClassicGroup, releases: list[Release], now_ms: int
) -> Records:
    """Complete the join phase if all members have joined. A join or leave never shortens the initial delay."""
    if group.state is PREPARING_REBALANCE and group.has_all_joined and group.previous_state is not EMPTY:
        return complete_join(registry, group, releases, now_ms)
    return ()


def complete_join(registry: ClassicRegistry, group: ClassicGroup, releases: list[Release], now_ms: int) -> Records:
    """
    Start the next generation with the members that have joined, and answer their JoinGroups.

    Dynamic members that did not join again are removed. Static members stay until the sync timer.
    """
    registry.timers.cancel(join_key(group.group_id))
    absent = [member for member in group.members.values() if member.join_reply is None and not member.is_static]
    for member in absent:
        group.remove(member.member_id)
        registry.cancel_session(group, member.member_id)
        registry.emit(MemberExpired(group.group_id, member.member_id, None, "join"))
    if group.members and not group.elect_joined_leader():
        _schedule_join(registry, group)
        return ()
    group.start_next_generation(now_ms)
    if group.state is EMPTY:
        registry.emit(GroupEmptied(group.group_id, group.generation))
        return (group.to_record(),)
    registry.emit(
        GenerationStarted(group.group_id, group.generation, len(group.members), group.protocol_name, group.leader)
    )
    for member in group.members.values():
        answer_join(group, member, releases)
        registry.arm_session(group, member)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    _schedule_sync(registry, group)
    return ()


def answer_join(group: ClassicGroup, member: ClassicMember, releases: list[Release]) -> None:
    """Answer a parked JoinGroup with the new generation."""
    reply = group.unpark_join(member)
    if reply is not None:
        releases.append(Release(reply, joined(group, member)))


def refuse_parked_join(
    group: ClassicGroup, member: ClassicMember, releases: list[Release], code: ErrorCode, member_id: str = ""
) -> None:
    reply = group.unpark_join(member)
    if reply is not None:
        releases.append(Release(reply, refused_join(member_id, code)))


def refuse_parked_sync(member: ClassicMember, releases: list[Release], code: ErrorCode) -> bool:
    """Refuse the member's parked SyncGroup; False if none is parked."""
    reply, member.sync_reply = member.sync_reply, None
    if reply is None:
        return False
    releases.append(Release(reply, refused_sync(code)))
    return True


def drop_assignments(registry: ClassicRegistry, group: ClassicGroup, releases: list[Release], code: ErrorCode) -> None:
    """Give up the assignments of this generation; parked SyncGroups are refused with `code`."""
    for member in group.members.values():
        member.assignment = b""
        if refuse_parked_sync(member, releases, code):
            registry.arm_session(group, member)


def answer_parked_syncs(registry: ClassicRegistry, group: ClassicGroup, releases: list[Release]) -> None:
    """Answer every parked SyncGroup with the member's assignment."""
    for member in group.members.values():
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            releases.append(Release(reply, synced(group, member)))
            registry.arm_session(group, member)


def remove_member(
    registry: ClassicRegistry, group: ClassicGroup, member: ClassicMember, releases: list[Release]
) -> None:
    """Remove a member; its parked requests are answered UNKNOWN_MEMBER_ID."""
    registry.cancel_session(group, member.member_id)
    refuse_parked_join(group, member, releases, ErrorCode.UNKNOWN_MEMBER_ID)
    # Kafka never answers the parked SyncGroup of a member that leaves.
    refuse_parked_sync(member, releases, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member.member_id)


# The timers of a rebalance


def _schedule_initial(registry: ClassicRegistry, group: ClassicGroup, *, delay_ms: int, remaining_ms: int) -> None:
    operation = partial(_end_initial_delay, registry, group, delay_ms, remaining_ms)
    registry.timers.schedule(join_key(group.group_id), delay_ms, operation)


def _end_initial_delay(
    registry: ClassicRegistry, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int
) -> Result[GroupRecord, None]:
    """End the initial delay, or extend it because a member joined; at most up to the rebalance timeout."""
    if not registry.is_current(group) or group.state is not PREPARING_REBALANCE:
        return Result()
    if group.new_member_added and remaining_ms:
        group.new_member_added = False
        next_ms = min(registry.config.group_initial_rebalance_delay_ms, remaining_ms)
        _schedule_initial(registry, group, delay_ms=next_ms, remaining_ms=max(remaining_ms - delay_ms, 0))
        return Result()
    return _join_expired(registry, group, now_ms)


def _schedule_join(registry: ClassicRegistry, group: ClassicGroup) -> None:
    operation = partial(_join_expired, registry, group)
    registry.timers.schedule(join_key(group.group_id), group.rebalance_timeout_ms, operation)


def _join_expired(registry: ClassicRegistry, group: ClassicGroup, now_ms: int) -> Result[GroupRecord, None]:
    if not registry.is_current(group) or group.state is not PREPARING_REBALANCE:
        return Result()
    releases: list[Release] = []
    return group_result(complete_join(registry, group, releases, now_ms), releases)


def _schedule_sync(registry: ClassicRegistry, group: ClassicGroup) -> None:
    operation = partial(_sync_expired, registry, group, group.generation)
    registry.timers.schedule(sync_key(group.group_id), group.rebalance_timeout_ms, operation)


def _sync_expired(
    registry: ClassicRegistry, group: ClassicGroup, generation: int, now_ms: int
) -> Result[GroupRecord, None]:
    """Remove the members of this generation whose SyncGroup has not arrived, static members too."""
    is_stale = not registry.is_current(group) or group.generation != generation
    if is_stale or group.state not in (COMPLETING_REBALANCE, STABLE) or not group.pending_sync:
        return Result()
    releases: list[Release] = []
    for member_id in sorted(group.pending_sync):
        member = group.members.get(member_id)
        if member is not None:  # a static member may have been replaced meanwhile
            remove_member(registry, group, member, releases)
            registry.emit(MemberExpired(group.group_id, member_id, member.group_instance_id, "sync"))
    records = prepare_rebalance(registry, group, releases, now_ms, "members sent no SyncGroup in time")
    return group_result(records, releases)
