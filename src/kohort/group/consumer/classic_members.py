"""
Members of the classic protocol in consumer groups: JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13).

The coordinator assigns, so there is no leader: a member that joins is answered at once, with the epoch that it has reached as
its generation. SyncGroup then brings its partitions; assignments in the request are ignored. A member that had to give up
partitions joins again without them. LeaveGroup removes members of either protocol, so that an administrator can remove any
member.

Source: Kafka GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup, throwIfMemberDoesNotUseClassicProtocol,
throwIfGenerationIdUnmatched, throwIfClassicProtocolUnmatched, throwIfRebalanceInProgress,
ConsumerGroup.waitingOnUnreleasedPartition; KIP-848.
"""

from __future__ import annotations

import msgspec

from kohort.group.classic.join import MEMBER_ID_REQUIRED_SINCE
from kohort.group.classic.responses import refused_join, refused_sync
from kohort.group.consumer.assignments import assignment_bytes, with_topic_ids
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import (
    NO_TIMEOUT_MS,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerMember,
    classic_metadata,
)
from kohort.group.consumer.membership import check_size, known_member, replace_member, unknown_instance
from kohort.group.consumer.migration import can_downgrade_by, downgrade_by, is_classic
from kohort.group.consumer.registry import ConsumerRegistry, join_key, sync_key
from kohort.group.consumer.removal import join_deadline, remove, session_deadline, sync_deadline
from kohort.group.consumer.steps import MemberSteps
from kohort.group.events import GroupEvent, HeartbeatRefused, MemberLeft
from kohort.group.groups import CONSUMER
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode, WireError
from kohort.records.consumer_protocol import read_subscription
from kohort.records.values import ConsumerProtocolSubscription
from kohort.wire import messages as m


class ClassicMemberHandlers:
    """Implements `kohort.group.groups.ClassicMembers` for consumer groups."""

    def __init__(self, registry: ConsumerRegistry) -> None:
        self._registry = registry

    def join_group(
        self, group: ConsumerGroup, request: m.JoinGroupRequest, context: RequestContext, now_ms: int, /
    ) -> Result[GroupRecord, m.JoinGroupResponse]:
        """Add a member, or take it one step further. Nothing is written if the request is refused."""
        try:
            return _Join(self._registry, group, request, context, now_ms).run()
        except CoordinatorError as error:
            return Result(response=refused_join("", error.code))

    def sync_group(
        self, group: ConsumerGroup, request: m.SyncGroupRequest, /
    ) -> Result[GroupRecord, m.SyncGroupResponse]:
        """Answer with the member's partitions when all that they depend on is committed."""
        try:
            member = _check(group, request)
        except CoordinatorError as error:
            return Result(response=refused_sync(error.code))
        assert member.classic is not None
        group_id, member_id = group.group_id, member.member_id
        # A member that has to revoke partitions has joined already: it first finishes that.
        if group.assignment_epoch.get() > member.epoch and member.state != UNREVOKED_PARTITIONS:
            return Result(
                response=refused_sync(ErrorCode.REBALANCE_IN_PROGRESS),
                deadlines=[join_deadline(group_id, member_id, member.rebalance_timeout_ms)],
            )
        metadata = member.classic.supported_protocols[0].metadata
        response = m.SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.assigned, metadata, self._registry.context.image),
        )
        self._registry.renew_session(group_id, member_id, member.classic.session_timeout_ms)
        return Result(response=response, deadlines=[Deadline(sync_key(group_id, member_id))])

    def heartbeat(
        self, group: ConsumerGroup, request: m.HeartbeatRequest, now_ms: int, /
    ) -> Result[GroupRecord, m.HeartbeatResponse]:
        """Extend the member's session, and have the member join again if it is due to change its partitions."""
        try:
            member = classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        except CoordinatorError as error:
            refused = m.HeartbeatResponse(error_code=int(error.code))
            return Result(response=refused, effects=[HeartbeatRefused.of_classic(request, error)])
        assert member.classic is not None
        self._registry.renew_session(group.group_id, member.member_id, member.classic.session_timeout_ms)
        if not _must_join(group, member) and not self._must_assign(group, now_ms):
            return Result(response=m.HeartbeatResponse())
        return Result(
            response=m.HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS)),
            deadlines=[join_deadline(group.group_id, member.member_id, member.rebalance_timeout_ms)],
        )

    def _must_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """
        Whether a target is due that no heartbeat will compute, because all members are of the classic protocol.

        Apache Kafka 4.4.0 leaves such a group as it is until a member joins for another reason.
        """
        return (
            group.epoch.get() > group.assignment_epoch.get()
            and is_classic(group.members.values())
            and now_ms >= self._registry.next_assignment_ms(CONSUMER, group)
        )

    def leave_group(
        self, group: ConsumerGroup, request: m.LeaveGroupRequest, now_ms: int, /
    ) -> Result[GroupRecord, m.LeaveGroupResponse]:
        """Remove all members that are named correctly in one step; ids are echoed as they were sent."""
        removed: dict[str, ConsumerMember] = {}
        events: list[GroupEvent] = []
        answers: list[m.LeaveGroupResponseMemberResponse] = []
        for identity in request.members:
            code = 0
            try:
                member = _find(group, identity)
            except CoordinatorError as error:
                code = int(error.code)
            else:
                if member.member_id not in removed:
                    removed[member.member_id] = member
                    events.append(MemberLeft(group.group_id, member.member_id, member.instance_id, identity.reason))
            answers.append(
                m.LeaveGroupResponseMemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        response = m.LeaveGroupResponse(members=tuple(answers))
        if not removed:
            return Result(response=response)
        return remove(self._registry, group, list(removed.values()), events, response, now_ms)


# JoinGroup


class _Join:
    """The handling of one JoinGroup."""

    def __init__(
        self,
        registry: ConsumerRegistry,
        group: ConsumerGroup,
        request: m.JoinGroupRequest,
        context: RequestContext,
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._group = group
        self._request = request
        self._context = context
        self._now_ms = now_ms
        self._steps = MemberSteps(registry, group, [], context, now_ms)
        self._member_id = request.member_id or registry.context.new_member_id()

    def run(self) -> Result[GroupRecord, m.JoinGroupResponse]:
        registry, group, request, steps = self._registry, self._group, self._request, self._steps
        if registry.config.group_consumer_migration_policy == "disabled":
            raise CoordinatorError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
                "disabled.",
            )
        check_size(group, self._member_id, request.group_instance_id, registry.config.group_consumer_max_size)
        if not _supports(group, request):
            raise CoordinatorError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {self._member_id}'s protocols are not supported."
            )
        is_dynamic = request.group_instance_id is None
        if is_dynamic and not request.member_id and self._context.api_version >= MEMBER_ID_REQUIRED_SINCE:
            # The id is not noted: a member may join with any id.
            return Result(response=refused_join(self._member_id, ErrorCode.MEMBER_ID_REQUIRED))
        member = self._find_member()
        replaced = group.static_member(request.group_instance_id)
        subscription = _read(request)
        updated = self._update(member, subscription)
        steps.update(member, updated)
        is_changed = updated.topic_names != member.topic_names or updated.topic_pattern != member.topic_pattern
        epoch = steps.next_epoch(updated, is_due=is_changed)
        if replaced is not None and can_downgrade_by(registry, group, replaced):
            is_stale = group.assignment_epoch.get() < epoch
            if not is_stale:
                updated = self._reconcile(updated, group.assignment_epoch.get(), subscription, is_changed=False)
            return downgrade_by(
                registry,
                group,
                replaced,
                updated,
                steps.records,
                steps.events,
                _joined(updated),
                self._now_ms,
                is_stale=is_stale,
            )
        updated = self._reconcile(updated, epoch, subscription, is_changed=is_changed)
        # The member has to ask for its assignment within its rebalance timeout.
        group_id, member_id = group.group_id, updated.member_id
        deadlines = [
            Deadline(join_key(group_id, member_id)),
            session_deadline(group_id, member_id, request.session_timeout_ms),
            sync_deadline(group_id, member_id, self._rebalance_timeout_ms()),
        ]
        return Result(steps.records, _joined(updated), deadlines=deadlines, effects=steps.events)

    def _find_member(self) -> ConsumerMember:
        """
        The member; a new one if it is not known. A static member without member id takes over its instance id.

        Raises:
            CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        group, instance_id = self._group, self._request.group_instance_id
        if instance_id is None:
            return group.members.get(self._member_id) or ConsumerMember(self._member_id)
        if self._request.member_id:
            return known_member(group, self._member_id, instance_id)
        holder = group.static_member(instance_id)
        if holder is None:
            return ConsumerMember(self._member_id)
        replacement = holder.under_new_id(self._member_id)
        replace_member(group, holder, replacement, self._steps.records)
        return replacement

    def _rebalance_timeout_ms(self) -> int:
        has_own = self._context.api_version >= 1
        return self._request.rebalance_timeout_ms if has_own else self._request.session_timeout_ms

    def _update(self, member: ConsumerMember, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
        request, context = self._request, self._context
        timeout_ms = self._rebalance_timeout_ms()
        return msgspec.structs.replace(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT_MS else timeout_ms,
            client_id=context.client_id,
            client_host=context.client_host,
            topic_names=frozenset(subscription.topics),
            # Consumers of the classic protocol resolve their patterns by themselves.
            topic_pattern="",
            classic=classic_metadata(
                request.session_timeout_ms, [(protocol.name, protocol.metadata) for protocol in request.protocols]
            ),
        )

    def _reconcile(
        self, updated: ConsumerMember, epoch: int, subscription: ConsumerProtocolSubscription, *, is_changed: bool
    ) -> ConsumerMember:
        """
        Take the member one step towards the target of this group epoch.

        There is no rebalance timer: the timers of JoinGroup and SyncGroup are enough.
        """
        target, target_epoch = self._steps.target(updated, epoch)
        owned = with_topic_ids(subscription.owned_partitions, self._registry.context.image)
        return self._steps.reconcile(updated, target, target_epoch, owned, subscription_changed=is_changed)


def _supports(group: ConsumerGroup, request: m.JoinGroupRequest) -> bool:
    """Whether all members of the classic protocol support one of the offered protocols."""
    if request.protocol_type != CONSUMER:
        return False
    common: set[str] = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        if member.classic is not None:
            common.intersection_update(protocol.name for protocol in member.classic.supported_protocols)
    return bool(common)


def _read(request: m.JoinGroupRequest) -> ConsumerProtocolSubscription:
    """
    The subscription of the member's first protocol: all of them say the same.

    Raises:
        CoordinatorError: INCONSISTENT_GROUP_PROTOCOL, it is malformed.
    """
    try:
        return read_subscription(request.protocols[0].metadata)
    except WireError as error:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Malformed embedded consumer protocol in subscription deserialization: {error}",
        ) from error


def _joined(member: ConsumerMember) -> m.JoinGroupResponse:
    assert member.classic is not None
    return m.JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=member.classic.supported_protocols[0].name,
        leader="",
        member_id=member.member_id,
    )


# The other APIs


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """
    The member of the classic protocol that a request names.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID (also for a member of the consumer protocol), FENCED_INSTANCE_ID,
            ILLEGAL_GENERATION.
    """
    member = known_member(group, member_id, instance_id)
    if member.classic is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    if member.epoch != generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
    return member


def _must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a newer target, the member has to revoke partitions, or all that it waits for are free."""
    if member.epoch < group.assignment_epoch.get() or member.state == UNREVOKED_PARTITIONS:
        return True
    return member.state == UNRELEASED_PARTITIONS and not _waits(group, member)


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another member has a partition of this member's target."""
    for topic_id, partitions in (group.targets.get(member.member_id) or {}).items():
        if len(group.owners.free(topic_id, partitions, member.assigned.get(topic_id, ()))) < len(partitions):
            return True
    return False


def _find(group: ConsumerGroup, identity: m.LeaveGroupRequestMemberIdentity) -> ConsumerMember:
    """
    The member that is named; an administrator may name a static member by its instance id alone.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    instance_id = identity.group_instance_id
    if instance_id is None or identity.member_id:
        return known_member(group, identity.member_id, instance_id)
    member = group.static_member(instance_id)
    if member is None:
        raise unknown_instance(instance_id)
    return member


def _check(group: ConsumerGroup, request: m.SyncGroupRequest) -> ConsumerMember:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL; checked in
            this order.
    """
    member = classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return member
