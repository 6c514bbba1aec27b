"""
Heartbeat (12), versions 0 to 4. 3 adds static members.

Source: Kafka GroupMetadataManager.classicGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.states import EMPTY, PREPARING_REBALANCE
from kohort.group.context import HasContext
from kohort.group.events import HeartbeatRefused
from kohort.group.front import GroupFront
from kohort.group.groups import Group
from kohort.group.records import GroupRecord
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.templates import PreparedResponse, TemplateMatch

# Shared by all heartbeats.
_ALIVE: Final = Result[GroupRecord, m.HeartbeatResponse](response=m.HeartbeatResponse())
_REBALANCING: Final = Result[GroupRecord, m.HeartbeatResponse](
    response=m.HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))
)


def heartbeat(shard: HasContext, now_ms: int, request: m.HeartbeatRequest) -> Result[GroupRecord, m.HeartbeatResponse]:
    """Extend the member's session."""
    context = shard.context
    found = context.groups.get(request.group_id)
    if not isinstance(found, ClassicGroup):
        host = context.host_of(found)
        if host is not None:
            return host.heartbeat(found, request, now_ms)
    try:
        group, member = _check(found, request.member_id, request.group_instance_id, request.generation_id)
    except CoordinatorError as exc:
        refused = m.HeartbeatResponse(error_code=int(exc.code))
        return Result(response=refused, effects=[HeartbeatRefused.of_classic(request, exc)])
    context.deadlines.extend(member.session, member.session_timeout_ms)
    # During PREPARING_REBALANCE this answer tells a member of the last generation to join again.
    return _REBALANCING if group.state is PREPARING_REBALANCE else _ALIVE


def _check(
    group: Group | None, member_id: str, group_instance_id: str | None, generation: int
) -> tuple[ClassicGroup, ClassicMember]:
    """
    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if not isinstance(group, ClassicGroup):
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(member_id, group_instance_id)
    if generation != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is EMPTY:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group, member


# Repeated heartbeats, a fast path: a member sends the same bytes each time. What follows from them is kept with the template of
# the request (`kohort.wire.templates`). A heartbeat that is not simply answered takes the plain way.

HeartbeatResponse: TypeAlias = m.HeartbeatResponse | PreparedResponse
PlainHeartbeat: TypeAlias = Callable[
    [m.HeartbeatRequest, RequestContext, Reply[m.HeartbeatResponse]], m.HeartbeatResponse | None
]


class SteadyHeartbeat(Operation):
    """
    A heartbeat whose bytes are known, as an operation.

    Attributes:
        partition: of `__consumer_offsets`.
    """

    __slots__ = ("_alive", "_generation", "_group_id", "_instance_id", "_member_id", "_request", "partition")

    def __init__(self, request: m.HeartbeatRequest, partition: int, api_version: int) -> None:
        super().__init__(heartbeat, request)
        self._request = request
        self._group_id: Final[str] = request.group_id
        self._member_id: Final[str] = request.member_id
        self._instance_id: Final[str | None] = request.group_instance_id
        self._generation: Final[int] = request.generation_id
        self.partition: Final = partition
        encoded = response_encoder(ApiKey.HEARTBEAT, api_version)(0, _ALIVE.response)
        self._alive: Final = Result[GroupRecord, HeartbeatResponse](response=PreparedResponse(encoded))

    def run(self, shard: HasContext, now_ms: int) -> Result[GroupRecord, Any]:
        """As `heartbeat`, with the encoded answer to a member that is alive."""
        context = shard.context
        group = context.groups.get(self._group_id)
        if isinstance(group, ClassicGroup) and group.state is not PREPARING_REBALANCE:
            try:
                member = _check(group, self._member_id, self._instance_id, self._generation)[1]
            except CoordinatorError:
                return heartbeat(shard, now_ms, self._request)
            context.deadlines.extend(member.session, member.session_timeout_ms)
            return self._alive
        return heartbeat(shard, now_ms, self._request)


class RepeatedHeartbeats:
    """
    The handler of Heartbeat requests, repeated ones and others; see `kohort.wire.templates`.

    Args:
        plain: the handler of a plain request.
        failed: turns an error into a response.
    """

    def __init__(
        self, front: GroupFront, plain: PlainHeartbeat, failed: Callable[[Exception], m.HeartbeatResponse]
    ) -> None:
        self._front = front
        self._plain = plain
        self._failed = failed

    def __call__(
        self, request: m.HeartbeatRequest | TemplateMatch, context: RequestContext, reply: Reply[HeartbeatResponse]
    ) -> HeartbeatResponse | None:
        if not isinstance(request, TemplateMatch):
            return self._plain(request, context, reply)
        template = request.template
        steady: SteadyHeartbeat | None = template.memo
        if steady is None:
            first: m.HeartbeatRequest = template.request
            if not first.group_id:
                return self._plain(first, context, reply)
            partition = coordinator_partition(first.group_id, self._front.runner.partition_count)
            steady = template.memo = SteadyHeartbeat(first, partition, context.api_version)
        if not self._front.is_active:
            return self._plain(template.request, context, reply)
        response: HeartbeatResponse | None = self._front.runner.write(steady.partition, steady, reply, self._failed)
        return response

    def with_numbers(self, request: m.HeartbeatRequest, _numbers: Iterator[int], /) -> m.HeartbeatRequest:
        """The request itself: the generation is no field of the kind that templates vary."""
        return request
