"""
The removal of members: they leave, or are fenced because a timeout passed.

Source: Kafka GroupMetadataManager.consumerGroupLeave, consumerGroupFenceMembers, consumerGroupStaticMemberGroupLeave.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from kohort.group.assignors.specs import NO_ASSIGNMENT
from kohort.group.consumer.epochs import epoch_without
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.members.membership import known_member
from kohort.group.consumer.migration.downgrade import can_downgrade_without, downgrade_without
from kohort.group.consumer.patterns.patterns import drop_unused_patterns
from kohort.group.consumer.records import current_record, member_tombstones
from kohort.group.consumer.registry import ConsumerRegistry, member_keys
from kohort.group.consumer.states import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from kohort.group.events import EpochRaised, GroupEvent, MemberLeft
from kohort.group.groups import CONSUMER, group_of_kind
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
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
    away = msgspec.structs.replace(member, epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_ASSIGNMENT)
    return Result((current_record(group.group_id, away),), _left(request))


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
    if can_downgrade_without(registry, group, members):
        return downgrade_without(registry, group, members, events, response, now_ms)
    records: list[GroupRecord] = []
    deadlines: list[Deadline] = []
    for member in members:
        deadlines += [Deadline(key) for key in member_keys(group.group_id, member.member_id)]
        records += member_tombstones(group.group_id, member.member_id)
    drop_unused_patterns(group, members, records)
    epoch = epoch_without(registry, group, members, records)
    raised = EpochRaised(group.group_id, epoch, None)
    return Result(records, response, deadlines=deadlines, effects=[*events, raised])


def _find(registry: ConsumerRegistry, group_id: str) -> ConsumerGroup:
    return group_of_kind(registry.groups.get(group_id), group_id, CONSUMER, ConsumerGroup)


def _left(request: m.ConsumerGroupHeartbeatRequest) -> m.ConsumerGroupHeartbeatResponse:
    epoch = LEAVE_EPOCH if request.member_epoch == LEAVE_EPOCH else LEAVE_STATIC_EPOCH
    return m.ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=epoch)
