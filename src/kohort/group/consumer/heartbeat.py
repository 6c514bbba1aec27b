"""
ConsumerGroupHeartbeat (68), versions 0 and 1: join, stay in and leave a consumer group.

A heartbeat updates the member, raises the group epoch if the subscriptions or their topics changed, computes the target
assignment of a new epoch, and takes the member one step towards its target. From version 1 on the client makes its own
member id, and may subscribe with a regular expression.

Source: Kafka GroupMetadataManager.consumerGroupHeartbeat; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, cast
from uuid import UUID

import msgspec

from kohort.group.assignments import entries_of
from kohort.group.assignors.specs import Assignment
from kohort.group.classic.group import ClassicGroup
from kohort.group.configs import MemberTimeouts
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_TIMEOUT_MS,
    STABLE,
    ConsumerMember,
)
from kohort.group.consumer.membership import check_size, find_member
from kohort.group.consumer.migration import dismiss_waiting, upgrade
from kohort.group.consumer.patterns import patterns_are_due
from kohort.group.consumer.registry import ConsumerRegistry, registry_of
from kohort.group.consumer.removal import (
    leave,
    leave_for_a_while,
    rebalance_deadline,
    session_deadline,
    upgraded_sessions,
)
from kohort.group.consumer.steps import MemberSteps
from kohort.group.consumer.target_assignment import assignor_changed
from kohort.group.context import HasContext
from kohort.group.errors import append_error
from kohort.group.events import GroupConverted, HeartbeatRefused
from kohort.group.front import GroupFront
from kohort.group.groups import CONSUMER, Transition, of_another_kind, session_key, transition
from kohort.group.records import GroupRecord
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation, Wake
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.templates import PreparedResponse, TemplateMatch

HeartbeatResult: TypeAlias = Result[GroupRecord, m.ConsumerGroupHeartbeatResponse]


def heartbeat_refused(error: CoordinatorError) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=int(error.code), error_message=error.message)


def consumer_group_heartbeat(
    shard: HasContext, now_ms: int, request: m.ConsumerGroupHeartbeatRequest, context: RequestContext
) -> HeartbeatResult:
    """Handle a heartbeat whose form is valid. Nothing is written if it is refused."""
    registry = registry_of(shard)
    try:
        if request.member_epoch == LEAVE_EPOCH:
            return leave(registry, request, now_ms)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            return leave_for_a_while(registry, request)
    except CoordinatorError as error:
        return _refused(request, error)
    unchanged = _unchanged(registry, request, context, now_ms)
    if unchanged is not None:
        return unchanged
    try:
        return _Heartbeat(registry, request, context, now_ms).run()
    except CoordinatorError as error:
        return _refused(request, error)


def _refused(request: m.ConsumerGroupHeartbeatRequest, error: CoordinatorError) -> HeartbeatResult:
    return Result(response=heartbeat_refused(error), effects=[HeartbeatRefused.of_consumer(request, error)])


def _unchanged(
    registry: ConsumerRegistry, request: m.ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: int
) -> HeartbeatResult | None:
    """
    The result of a heartbeat that tells nothing, of a member that is at its target; None for any other.

    This is the steady state, and a short cut for speed: `_Heartbeat` gives the same result.
    """
    if not tells_nothing(request):
        return None
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    timeouts = settled_timeouts(registry, group_id, member_id, epoch, context, now_ms)
    if timeouts is None:
        return None
    registry.renew_session(request.group_id, request.member_id, timeouts.session_timeout_ms)
    return Result(response=steady_response(request, timeouts))


def tells_nothing(request: m.ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a heartbeat only names a dynamic member and its epoch, and perhaps its partitions."""
    return (
        request.instance_id is None
        and request.member_epoch > JOIN_EPOCH
        and request.subscribed_topic_names is None
        and request.rebalance_timeout_ms == NO_TIMEOUT_MS
        and request.server_assignor is None
        and request.rack_id is None
        and request.subscribed_topic_regex is None
    )


def settled_timeouts(
    registry: ConsumerRegistry, group_id: str, member_id: str, epoch: int, context: RequestContext, now_ms: int
) -> MemberTimeouts | None:
    """
    The timeouts of the group's members, if the member is at its target and a heartbeat that tells nothing changes nothing; None
    if it may change something.
    """
    group = registry.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return None
    member = group.members.get(member_id)
    if (
        member is None
        or member.epoch != epoch
        or member.state != STABLE
        or group.assignment_epoch.get() != epoch
        or group.epoch.get() != epoch
        or member.classic is not None
        or member.client_id != context.client_id
        or member.client_host != context.client_host
        or now_ms >= group.refresh_at_ms
        or epoch < group.refresh_epoch
        or (group.subscriptions.patterns and patterns_are_due(registry, group, now_ms))
    ):
        return None
    return registry.timeouts(group_id)


def steady_response(
    request: m.ConsumerGroupHeartbeatRequest, timeouts: MemberTimeouts
) -> m.ConsumerGroupHeartbeatResponse:
    """The answer to a heartbeat that changes nothing."""
    return m.ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=timeouts.heartbeat_interval_ms,
    )


class _Heartbeat:
    """The handling of one heartbeat."""

    def __init__(
        self,
        registry: ConsumerRegistry,
        request: m.ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._request = request
        self._context = context
        self._now_ms = now_ms
        self._records: list[GroupRecord] = []
        classic = self._find_classic()
        self._group = self._find_group() if classic is None else upgrade(registry, classic, self._records)
        self._steps = MemberSteps(registry, self._group, self._records, context, now_ms)
        self._classic = classic
        if classic is not None:
            self._steps.deadlines += upgraded_sessions(self._group)
            self._steps.events.append(GroupConverted(request.group_id, CONSUMER))
        # Version 0: the coordinator makes the id of a member that has none.
        self._member_id = request.member_id or registry.context.new_member_id()

    def run(self) -> HeartbeatResult:
        registry, group, steps = self._registry, self._group, self._steps
        request = self._request
        check_size(group, self._member_id, request.instance_id, registry.config.group_consumer_max_size)
        member = find_member(
            group,
            self._member_id,
            request.instance_id,
            request.member_epoch,
            request.topic_partitions,
            self._records,
        )
        updated = self._update(member)
        names_changed = updated.topic_names != member.topic_names
        pattern_changed = updated.topic_pattern != member.topic_pattern
        bumps = steps.update(member, updated)
        is_due = names_changed or bumps or assignor_changed(registry, group, member, updated)
        epoch = steps.next_epoch(updated, is_due=is_due)
        target, target_epoch = steps.target(updated, epoch)
        reconciled = steps.reconcile(
            updated,
            target,
            target_epoch,
            request.topic_partitions,
            subscription_changed=names_changed or pattern_changed,
        )
        timeouts = registry.timeouts(group.group_id)
        steps.deadlines.append(session_deadline(group.group_id, updated.member_id, timeouts.session_timeout_ms))
        if reconciled is not updated:
            steps.deadlines.append(rebalance_deadline(group.group_id, reconciled))
        shows_assignment = self._is_full_request() or reconciled.assigned != member.assigned
        response = m.ConsumerGroupHeartbeatResponse(
            member_id=reconciled.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=timeouts.heartbeat_interval_ms,
            assignment=assignment_response(reconciled.assigned) if shows_assignment else None,
        )
        return self._result(response)

    def _result(self, response: m.ConsumerGroupHeartbeatResponse) -> HeartbeatResult:
        steps = self._steps
        wakes: Sequence[Wake] = ()
        if self._classic is not None:
            # Not before nothing can refuse the heartbeat: a refusal is a result, and undoes nothing.
            wakes = dismiss_waiting(self._registry, self._classic)
        return Result(self._records, response, wakes=wakes, deadlines=steps.deadlines, effects=steps.events)

    def _find_classic(self) -> ClassicGroup | None:
        """The classic group that this heartbeat turns into the consumer group."""
        found = self._registry.groups.get(self._request.group_id)
        if found is None or found.kind == CONSUMER or self._request.member_epoch != JOIN_EPOCH:
            return None
        is_converted = transition(found, CONSUMER) is Transition.CONVERT
        return found if is_converted and isinstance(found, ClassicGroup) else None

    def _find_group(self) -> ConsumerGroup:
        """
        The group; a new one if the member joins. An empty group of another kind is replaced.

        Raises:
            CoordinatorError: GROUP_ID_NOT_FOUND.
        """
        registry, group_id = self._registry, self._request.group_id
        found = registry.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        is_join = self._request.member_epoch == JOIN_EPOCH
        if found is None:
            if not is_join:
                raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return registry.new_group(group_id)
        if not is_join:
            raise of_another_kind(group_id, CONSUMER)
        if transition(found, CONSUMER) is not Transition.REPLACE:
            raise of_another_kind(group_id, CONSUMER)
        self._records += found.tombstones()
        return registry.new_group(group_id)

    def _update(self, member: ConsumerMember) -> ConsumerMember:
        """The member with the fields that the request has; the others stay, also when the member joins again."""
        request, context = self._request, self._context
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        return msgspec.structs.replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT_MS else timeout_ms,
            client_id=context.client_id,
            client_host=context.client_host,
            topic_names=member.topic_names if names is None else frozenset(names),
            topic_pattern=member.topic_pattern
            if request.subscribed_topic_regex is None
            else request.subscribed_topic_regex,
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
            classic=None,
        )

    def _is_full_request(self) -> bool:
        """Whether the member tells everything, as it does after an error, so that it wants to hear everything."""
        request = self._request
        if request.member_epoch == JOIN_EPOCH:
            return True
        has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        return (
            request.rebalance_timeout_ms != NO_TIMEOUT_MS and has_subscription and request.topic_partitions is not None
        )


def assignment_response(assignment: Assignment) -> m.ConsumerGroupHeartbeatResponseAssignment:
    return m.ConsumerGroupHeartbeatResponseAssignment(topic_partitions=entries_of(assignment, _entry))


def _entry(topic_id: UUID, partitions: tuple[int, ...]) -> m.ConsumerGroupHeartbeatResponseTopicPartitions:
    return m.ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=partitions)


# Repeated heartbeats, a fast path: a member that is at its target sends the same bytes each time. The decoded request and the
# encoded answer are kept with the template of the request (`kohort.wire.templates`). A heartbeat that may change something
# takes the plain way.

HeartbeatResponse: TypeAlias = m.ConsumerGroupHeartbeatResponse | PreparedResponse
PlainHeartbeat: TypeAlias = Callable[
    [m.ConsumerGroupHeartbeatRequest, RequestContext, Reply[m.ConsumerGroupHeartbeatResponse]],
    m.ConsumerGroupHeartbeatResponse | None,
]
SteadyResult: TypeAlias = Result[GroupRecord, HeartbeatResponse]


class SteadyHeartbeat:
    """
    A heartbeat that only names a member and its epoch, with the answer that it gets while nothing changes.

    Attributes:
        partition: of `__consumer_offsets`.
    """

    __slots__ = ("_epoch", "_group_id", "_interval_ms", "_member_id", "_result", "_session", "partition", "request")

    def __init__(self, request: m.ConsumerGroupHeartbeatRequest, partition: int) -> None:
        self.request = request
        self.partition = partition
        self._group_id: str = request.group_id
        self._member_id: str = request.member_id
        self._epoch: int = request.member_epoch
        self._session = session_key(request.group_id, request.member_id)
        self._interval_ms = -1
        self._result: SteadyResult = Result()

    def run(self, shard: HasContext, now_ms: int, context: RequestContext) -> SteadyResult:
        """The result of this heartbeat, by the short way if it changes nothing."""
        timeouts = settled_timeouts(registry_of(shard), self._group_id, self._member_id, self._epoch, context, now_ms)
        if timeouts is None:
            return cast("SteadyResult", consumer_group_heartbeat(shard, now_ms, self.request, context))
        shard.context.deadlines.extend(self._session, timeouts.session_timeout_ms)
        interval_ms = timeouts.heartbeat_interval_ms
        if interval_ms != self._interval_ms:
            response = steady_response(self.request, timeouts)
            encode = response_encoder(ApiKey.CONSUMER_GROUP_HEARTBEAT, context.api_version)
            self._result = Result(response=PreparedResponse(encode(0, response)))
            self._interval_ms = interval_ms
        return self._result


class SteadyOperation(Operation):
    """One of these heartbeats, as an operation."""

    __slots__ = ("_context", "_steady")

    def __init__(self, steady: SteadyHeartbeat, context: RequestContext) -> None:
        super().__init__(steady.run)
        self._steady: Final = steady
        self._context: Final = context

    def run(self, shard: HasContext, now_ms: int) -> SteadyResult:
        return self._steady.run(shard, now_ms, self._context)


class RepeatedHeartbeats:
    """
    The handler of ConsumerGroupHeartbeat requests, repeated ones and others; see `kohort.wire.templates`.

    Args:
        heartbeat: the handler of a plain request.
    """

    def __init__(self, front: GroupFront, heartbeat: PlainHeartbeat) -> None:
        self._front = front
        self._heartbeat = heartbeat

    def __call__(
        self,
        request: m.ConsumerGroupHeartbeatRequest | TemplateMatch,
        context: RequestContext,
        reply: Reply[HeartbeatResponse],
    ) -> HeartbeatResponse | None:
        if not isinstance(request, TemplateMatch):
            return self._heartbeat(request, context, reply)
        template = request.template
        steady: SteadyHeartbeat | None = template.memo
        if steady is None:
            first: m.ConsumerGroupHeartbeatRequest = template.request
            if not tells_nothing(first) or not first.group_id.strip() or not first.member_id.strip():
                return self._heartbeat(first, context, reply)
            partition = coordinator_partition(first.group_id, self._front.runner.partition_count)
            steady = template.memo = SteadyHeartbeat(first, partition)
        if not self._front.is_active:
            return self._heartbeat(steady.request, context, reply)
        response: HeartbeatResponse | None = self._front.runner.write(
            steady.partition, SteadyOperation(steady, context), reply, heartbeat_failed
        )
        return response

    def with_numbers(
        self, request: m.ConsumerGroupHeartbeatRequest, _numbers: Iterator[int], /
    ) -> m.ConsumerGroupHeartbeatRequest:
        """The request itself: a heartbeat has no field of the kind that templates vary."""
        return request


def heartbeat_failed(error: Exception) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=int(append_error(error)))
