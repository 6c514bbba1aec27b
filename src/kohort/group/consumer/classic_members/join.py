"""
JoinGroup (11) of a member of the classic protocol that joins a consumer group with members.

The coordinator assigns, so there is no leader: the member is answered at once, with the epoch that it has reached as its
generation. SyncGroup then brings its partitions. A member that had to give up partitions joins again without them.

Source: Kafka GroupMetadataManager.classicGroupJoinToConsumerGroup.
"""

import msgspec

from kohort.group.consumer.classic_members.embedded import classic_metadata, with_topic_ids
from kohort.group.consumer.downgrade import can_downgrade_by, downgrade_by
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import NO_TIMEOUT_MS, ConsumerMember
from kohort.group.consumer.membership import check_size, known_member, replace_member
from kohort.group.consumer.registry import ConsumerRegistry, join_key
from kohort.group.consumer.removal import session_deadline, sync_deadline
from kohort.group.consumer.steps import MemberSteps
from kohort.group.groups import CONSUMER
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode, WireError
from kohort.records.consumer_protocol import read_subscription
from kohort.records.values import ConsumerProtocolSubscription
from kohort.wire import messages as m

MEMBER_ID_REQUIRED_SINCE = 4

JoinResult = Result[GroupRecord, m.JoinGroupResponse]


def join_group(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    request: m.JoinGroupRequest,
    context: RequestContext,
    now_ms: int,
) -> JoinResult:
    """Add a member, or take it one step further. Nothing is written if the request is refused."""
    try:
        return _Join(registry, group, request, context, now_ms).run()
    except CoordinatorError as error:
        return Result(response=_refused(error.code, ""))


def _refused(code: ErrorCode, member_id: str) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        error_code=int(code),
        generation_id=-1,
        protocol_type=None,
        protocol_name=None,
        leader="",
        member_id=member_id,
    )


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
        self._steps = MemberSteps(registry, group, [], now_ms)
        self._member_id = request.member_id or registry.new_member_id()

    def run(self) -> JoinResult:
        registry, group, request, steps = self._registry, self._group, self._request, self._steps
        check_size(group, self._member_id, registry.config.group_consumer_max_size)
        if not _supports(group, request):
            raise CoordinatorError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {self._member_id}'s protocols are not supported."
            )
        is_dynamic = request.group_instance_id is None
        if is_dynamic and not request.member_id and self._context.api_version >= MEMBER_ID_REQUIRED_SINCE:
            # The id is not noted: a member may join with any id.
            return Result(response=_refused(ErrorCode.MEMBER_ID_REQUIRED, self._member_id))
        member = self._find_member()
        replaced = group.static_member(request.group_instance_id)
        subscription = _read(request)
        updated = self._update(member, subscription)
        steps.update(member, updated)
        is_changed = updated.topic_names != member.topic_names or updated.topic_pattern != member.topic_pattern
        epoch = steps.next_epoch(updated, is_due=is_changed)
        if replaced is not None and can_downgrade_by(registry, group, replaced):
            if not is_changed:
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
                is_changed=is_changed,
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
        CoordinatorError: UNKNOWN_SERVER_ERROR, as in Kafka.
    """
    try:
        return read_subscription(request.protocols[0].metadata)
    except WireError as error:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
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
