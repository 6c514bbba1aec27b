"""
A member of a classic group has not been heard of for its session timeout.

Source: Kafka GroupMetadataManager.expireClassicGroupMemberHeartbeat.
"""

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.rebalance import complete_join, prepare_rebalance, remove_member
from kohort.group.classic.registry import GroupRegistry, Records, Releases, group_result
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result


def expire_member(
    registry: GroupRegistry, group: ClassicGroup, member_id: str, now_ms: int
) -> Result[GroupRecord, None]:
    """
    Take out the member, or the id that was given out and not used.

    Who waits for the coordinator's answer cannot heartbeat and is spared, unless it is new: then its client may have gone
    before it ever had an answer.
    """
    if not registry.is_current(group) or group.state is DEAD:
        return Result()
    releases: Releases = []
    records: Records = ()
    member = group.members.get(member_id)
    if member_id in group.pending_members:
        group.remove(member_id)
        if group.state is PREPARING_REBALANCE and group.has_all_joined:
            records = complete_join(registry, group, releases, now_ms)
    elif member is not None and (member.is_new or (member.join_reply is None and member.sync_reply is None)):
        remove_member(registry, group, member, releases)
        if group.state in (STABLE, COMPLETING_REBALANCE):
            records = prepare_rebalance(registry, group, releases, now_ms)
        elif group.state is PREPARING_REBALANCE and group.has_all_joined:
            records = complete_join(registry, group, releases, now_ms)
    return group_result(records, releases)
