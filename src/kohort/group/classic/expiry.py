"""
The expiry of a member whose session timeout has passed.

Source: Kafka GroupMetadataManager.expireClassicGroupMemberHeartbeat.
"""

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.rebalance import complete_join, prepare_rebalance, remove_member
from kohort.group.classic.registry import ClassicRegistry, Records, group_result
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from kohort.group.events import MemberExpired
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result


def expire_member(
    registry: ClassicRegistry, group: ClassicGroup, member_id: str, now_ms: int
) -> Result[GroupRecord, None]:
    """
    Remove the member, or the member id that was assigned and not used.

    A member with a parked request cannot heartbeat and stays, unless it is new: its client may have disconnected before it got
    its first answer.
    """
    if not registry.is_current(group) or group.state is DEAD:
        return Result()
    releases: list[Release] = []
    records: Records = ()
    member = group.members.get(member_id)
    if member_id in group.pending_members:
        group.remove(member_id)
        registry.emit(MemberExpired(group.group_id, member_id, None, "member id"))
        if group.state is PREPARING_REBALANCE and group.has_all_joined:
            records = complete_join(registry, group, releases, now_ms)
    elif member is not None and (member.is_new or (member.join_reply is None and member.sync_reply is None)):
        remove_member(registry, group, member, releases)
        registry.emit(MemberExpired(group.group_id, member_id, member.group_instance_id, "session"))
        if group.state in (STABLE, COMPLETING_REBALANCE):
            records = prepare_rebalance(registry, group, releases, now_ms, f"the session of member {member_id} expired")
        elif group.state is PREPARING_REBALANCE and group.has_all_joined:
            records = complete_join(registry, group, releases, now_ms)
    return group_result(records, releases)
