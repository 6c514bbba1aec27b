"""
The deadlines of members: their sessions, and the time that a step of a rebalance may take.

Source: Kafka GroupMetadataManager.scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout,
scheduleConsumerGroupJoinTimeoutIfNeeded, scheduleConsumerGroupSyncTimeout.
"""

from typing import Final

from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.members.removal import remove
from kohort.group.consumer.registry import ConsumerRegistry, join_key, rebalance_key, registry_of, sync_key
from kohort.group.consumer.states import UNREVOKED_PARTITIONS
from kohort.group.context import HasContext
from kohort.group.events import MemberExpired
from kohort.group.groups import session_key
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation

_CLASSIC_TIMEOUTS: Final = ("join", "sync")


def session_deadline(group_id: str, member_id: str, timeout_ms: int) -> Deadline:
    """Expire the member in `timeout_ms`; replaces an earlier deadline."""
    operation = Operation(expire_member, group_id, member_id, "session", None)
    return Deadline(session_key(group_id, member_id), timeout_ms, operation)


def rebalance_deadline(group_id: str, member: ConsumerMember) -> Deadline:
    """Expire a member that has to revoke partitions unless it leaves its present epoch in its rebalance timeout."""
    key = rebalance_key(group_id, member.member_id)
    if member.state != UNREVOKED_PARTITIONS:
        return Deadline(key)
    operation = Operation(expire_member, group_id, member.member_id, "rebalance", member.epoch)
    return Deadline(key, member.rebalance_timeout_ms, operation)


def join_deadline(group_id: str, member_id: str, timeout_ms: int) -> Deadline:
    """Expire a member of the classic protocol unless it joins again in `timeout_ms`; an earlier deadline stays."""
    operation = Operation(expire_member, group_id, member_id, "join", None)
    return Deadline(join_key(group_id, member_id), timeout_ms, operation, keeps_earlier=True)


def sync_deadline(group_id: str, member_id: str, timeout_ms: int) -> Deadline:
    """Expire a member of the classic protocol unless it asks for its assignment in `timeout_ms`."""
    operation = Operation(expire_member, group_id, member_id, "sync", None)
    return Deadline(sync_key(group_id, member_id), timeout_ms, operation)


def loaded_deadlines(registry: ConsumerRegistry, group: ConsumerGroup) -> list[Deadline]:
    """
    Give each member a whole session timeout, and a whole rebalance timeout if it has to revoke partitions.

    After a load, the session timeout of the group holds for members of the classic protocol as well.
    """
    group_id = group.group_id
    timeout_ms = registry.timeouts(group_id).session_timeout_ms
    deadlines = [session_deadline(group_id, member_id, timeout_ms) for member_id in group.members]
    unfinished = [member for member in group.members.values() if member.state == UNREVOKED_PARTITIONS]
    return [*deadlines, *(rebalance_deadline(group_id, member) for member in unfinished)]


def expire_member(
    shard: HasContext, now_ms: int, group_id: str, member_id: str, kind: str, epoch: int | None
) -> Result[GroupRecord, None]:
    """
    Fence a member whose deadline has come.

    Args:
        kind: of timeout. "join" and "sync" concern members of the classic protocol only.
        epoch: the member is fenced only if it still has this epoch; None fences it at any epoch.
    """
    registry = registry_of(shard)
    group = registry.find(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None or (epoch is not None and member.epoch != epoch):
        return Result()
    if kind in _CLASSIC_TIMEOUTS and member.classic is None:
        return Result()
    event = MemberExpired(group_id, member_id, member.instance_id, kind)
    return remove(registry, group, [member], [event], None, now_ms)
