"""
The removal of members: they leave, or their session expires.

Source: Kafka GroupMetadataManager.shareGroupLeave, shareGroupFenceMember, scheduleShareGroupSessionTimeout.
"""

from typing import TypeVar

from kohort.group.context import HasContext
from kohort.group.events import EpochRaised, GroupEvent, MemberExpired, MemberLeft
from kohort.group.groups import SHARE, session_key
from kohort.group.records import GroupRecord
from kohort.group.share.group import ShareGroup
from kohort.group.share.member import ShareMember
from kohort.group.share.records import member_tombstones
from kohort.group.share.registry import ShareRegistry, registry_of
from kohort.group.subscriptions import SubscriptionView
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation
from kohort.records.values import ShareGroupMetadata, ShareGroupTargetAssignmentMetadata

T = TypeVar("T")


def leave(registry: ShareRegistry, group_id: str, member_id: str, response: T) -> Result[GroupRecord, T]:
    """
    Remove a member. Its epoch is not compared.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID.
    """
    group = registry.get(group_id)
    member = group.known(member_id)
    return _remove(registry, group, member, MemberLeft(group_id, member_id, None, None), response)


def session_deadline(group_id: str, member_id: str, timeout_ms: int) -> Deadline:
    """Expire the member in `timeout_ms`; replaces an earlier deadline."""
    return Deadline(session_key(group_id, member_id), timeout_ms, Operation(expire_member, group_id, member_id))


def loaded_deadlines(registry: ShareRegistry, group: ShareGroup) -> list[Deadline]:
    """Give each member a whole session timeout."""
    timeout_ms = registry.timeouts(group.group_id).session_timeout_ms
    return [session_deadline(group.group_id, member_id, timeout_ms) for member_id in group.members]


def expire_member(shard: HasContext, _now_ms: int, group_id: str, member_id: str) -> Result[GroupRecord, None]:
    """Fence a member whose session has ended."""
    registry = registry_of(shard)
    group = registry.find(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None:
        return Result()
    return _remove(registry, group, member, MemberExpired(group_id, member_id, None, "session"), None)


def _remove(
    registry: ShareRegistry, group: ShareGroup, member: ShareMember, event: GroupEvent, response: T | None
) -> Result[GroupRecord, T]:
    group_id, epoch = group.group_id, group.epoch.get() + 1
    topics = SubscriptionView(group.subscriptions, [member]).topics
    records: list[GroupRecord] = [
        *member_tombstones(group_id, member.member_id),
        ShareGroupMetadata(group_id, epoch, registry.metadata_hash(topics)),
    ]
    if len(group.members) == 1:
        # An empty group has nothing to assign. Otherwise the next heartbeat computes the target assignment.
        records.append(ShareGroupTargetAssignmentMetadata(group_id, epoch, 0))
    return Result(
        records,
        response,
        deadlines=[Deadline(session_key(group_id, member.member_id))],
        effects=[event, EpochRaised(group_id, epoch, None, SHARE)],
    )
