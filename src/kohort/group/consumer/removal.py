"""
The removal of members: they leave, or are fenced because a timeout passed; and the deadlines for that.

The deadlines are those of sessions, and of the time that a step of a rebalance may take.

Source: Kafka GroupMetadataManager.consumerGroupLeave, consumerGroupFenceMembers, consumerGroupStaticMemberGroupLeave,
scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout, scheduleConsumerGroupJoinTimeoutIfNeeded,
scheduleConsumerGroupSyncTimeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import UNREVOKED_PARTITIONS, ConsumerMember
from kohort.group.consumer.membership import known_member
from kohort.group.consumer.migration import downgrade_without
from kohort.group.consumer.patterns import drop_unused_patterns
from kohort.group.consumer.records import current_record, member_tombstones
from kohort.group.consumer.registry import ConsumerRegistry, join_key, member_keys, rebalance_key, registry_of, sync_key
from kohort.group.context import HasContext
from kohort.group.events import EpochRaised, GroupEvent, MemberExpired, MemberLeft
from kohort.group.groups import CONSUMER, group_of_kind, session_key
from kohort.group.records import GroupRecord
from kohort.group.subscriptions import SubscriptionView
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation
from kohort.model.errors import ErrorCode
from kohort.records.values import ConsumerGroupMetadata, ConsumerGroupTargetAssignmentMetadata
from kohort.wire import messages as m

T = TypeVar("T")


def leave(
    registry: ConsumerRegistry, request: m.ConsumerGroupHeartbeatRequest, now_ms: int
) -> Result[GroupRecord, m.ConsumerGroupHeartbeatResponse]:
    """
    Remove a member for good. Its epoch is not compared.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = _find(registry, request.group_id)
    member = known_member(group, request.member_id, request.instance_id)
    event = MemberLeft(group.group_id, member.member_id, member.instance_id, None)
    return remove(registry, group, [member], [event], _left(request), now_ms)


def leave_for_a_while(
    registry: ConsumerRegistry, request: m.ConsumerGroupHeartbeatRequest
) -> Result[GroupRecord, m.ConsumerGroupHeartbeatResponse]:
    """
    Note that a static member is away. It keeps its partitions until its session ends, which counts from its last heartbeat.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = _find(registry, request.group_id)
    member = known_member(group, request.member_id, request.instance_id)
    return Result((current_record(group.group_id, member.away()),), _left(request))


def remove(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    members: Sequence[ConsumerMember],
    events: Sequence[GroupEvent],
    response: T | None,
    now_ms: int,
) -> Result[GroupRecord, T]:
    """
    Remove members in one step: the group epoch rises by one, or the group is downgraded.

    Args:
        events: of the removal.
    """
    downgraded = downgrade_without(registry, group, members, events, response, now_ms)
    if downgraded is not None:
        return downgraded
    records: list[GroupRecord] = []
    deadlines: list[Deadline] = []
    for member in members:
        deadlines += [Deadline(key) for key in member_keys(group.group_id, member.member_id)]
        records += member_tombstones(group.group_id, member.member_id)
    drop_unused_patterns(group, members, records)
    epoch = group.epoch.get() + 1
    records += group.partition_metadata_tombstones()
    topics = SubscriptionView(group.subscriptions, members).topics
    records.append(ConsumerGroupMetadata(group.group_id, epoch, registry.metadata_hash(topics)))
    if len(members) == len(group.members):
        # An empty group has nothing to assign. Otherwise the next heartbeat computes the target assignment.
        records.append(ConsumerGroupTargetAssignmentMetadata(group.group_id, epoch))
    raised = EpochRaised(group.group_id, epoch, None)
    return Result(records, response, deadlines=deadlines, effects=[*events, raised])


def _find(registry: ConsumerRegistry, group_id: str) -> ConsumerGroup:
    return group_of_kind(registry.groups.get(group_id), group_id, CONSUMER, ConsumerGroup)


def _left(request: m.ConsumerGroupHeartbeatRequest) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


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


def upgraded_sessions(group: ConsumerGroup) -> list[Deadline]:
    """The sessions of the members that come from a classic group."""
    return [
        session_deadline(group.group_id, member.member_id, member.classic.session_timeout_ms)
        for member in group.members.values()
        if member.classic is not None
    ]


def force_rebalance(shard: HasContext, _now_ms: int, group_id: str) -> Result[GroupRecord, ErrorCode]:
    """Raise the group epoch, so that the target is computed anew; GROUP_ID_NOT_FOUND without such a group or members."""
    group = registry_of(shard).find(group_id)
    if group is None or not group.members:
        return Result(response=ErrorCode.GROUP_ID_NOT_FOUND)
    epoch = group.epoch.get() + 1
    raised = ConsumerGroupMetadata(group_id, epoch, group.metadata_hash.get())
    return Result([raised], ErrorCode.NONE, effects=[EpochRaised(group_id, epoch, None)])


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
