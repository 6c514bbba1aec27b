"""
SyncGroup (14) of a member of the classic protocol in a consumer group: its partitions, as the coordinator assigned them.

Assignments in the request are ignored.

Source: Kafka GroupMetadataManager.classicGroupSyncToConsumerGroup, throwIfClassicProtocolUnmatched, throwIfRebalanceInProgress.
"""

from collections.abc import Iterable

from kohort.group.consumer.classic_members.checks import classic_member
from kohort.group.consumer.classic_members.embedded import assignment_bytes
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.consumer.states import UNREVOKED_PARTITIONS
from kohort.group.groups import CONSUMER
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def sync_group(
    registry: ConsumerRegistry, group: ConsumerGroup, request: m.SyncGroupRequest
) -> Result[GroupRecord, m.SyncGroupResponse]:
    """Answer with the member's partitions when all that they depend on is committed."""
    try:
        member = _check(registry, group, request)
    except CoordinatorError as error:
        return Result(
            response=m.SyncGroupResponse(
                error_code=int(error.code), protocol_type=None, protocol_name=None, assignment=b""
            )
        )
    assert member.classic is not None
    metadata = member.classic.supported_protocols[0].metadata
    response = m.SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, metadata, registry.context.image),
    )
    return Result(response=response, after=_Synced(registry, group, member))


def _check(registry: ConsumerRegistry, group: ConsumerGroup, request: m.SyncGroupRequest) -> ConsumerMember:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
            REBALANCE_IN_PROGRESS; checked in this order.
    """
    member = classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that has to revoke partitions has joined already: it first finishes that.
    if group.epoch.get() > member.epoch and member.state != UNREVOKED_PARTITIONS:
        registry.arm_join(group.group_id, member.member_id, member.rebalance_timeout_ms)
        raise CoordinatorError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin to catch up.",
        )
    return member


class _Synced:
    """A `kohort.machine.shard.After`: the member has its assignment, and its session begins anew."""

    __slots__ = ("_group", "_member", "_registry")

    def __init__(self, registry: ConsumerRegistry, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._registry = registry
        self._group = group
        self._member = member

    def __call__(self, error: Exception | None) -> Iterable[Release]:
        member = self._member
        if error is None and member.classic is not None:
            self._registry.cancel_sync(self._group.group_id, member.member_id)
            self._registry.arm_session(self._group, member.member_id, member.classic.session_timeout_ms)
        return ()
