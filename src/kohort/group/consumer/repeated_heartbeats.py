"""
Fast path for repeated heartbeats: a member that is at its target sends the same bytes each time.

The decoded request and the encoded answer are kept with the template of the request (`kohort.wire.templates`). A heartbeat that
may change something takes the plain way.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

from kohort.group.consumer.heartbeat import (
    consumer_group_heartbeat,
    settled_timeouts,
    steady_response,
    tells_nothing,
)
from kohort.group.consumer.registry import registry_of
from kohort.group.context import HasContext
from kohort.group.errors import append_error
from kohort.group.front import GroupFront
from kohort.group.groups import session_key
from kohort.group.records import GroupRecord
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.templates import PreparedResponse, TemplateMatch

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

    __slots__ = ("_interval_ms", "_result", "_session", "partition", "request")

    def __init__(self, request: m.ConsumerGroupHeartbeatRequest, partition: int) -> None:
        self.request = request
        self.partition = partition
        self._session = session_key(request.group_id, request.member_id)
        self._interval_ms = -1
        self._result: SteadyResult = Result()

    def run(self, shard: HasContext, now_ms: int, context: RequestContext) -> SteadyResult:
        """The result of this heartbeat, by the short way if it changes nothing."""
        request = self.request
        timeouts = settled_timeouts(registry_of(shard), request, context, now_ms)
        if timeouts is None:
            return cast("SteadyResult", consumer_group_heartbeat(shard, now_ms, request, context))
        shard.context.deadlines.extend(self._session, timeouts.session_timeout_ms)
        interval_ms = timeouts.heartbeat_interval_ms
        if interval_ms != self._interval_ms:
            response = steady_response(request, timeouts)
            encode = response_encoder(ApiKey.CONSUMER_GROUP_HEARTBEAT, context.api_version)
            self._result = Result(response=PreparedResponse(encode(0, response)))
            self._interval_ms = interval_ms
        return self._result


class RepeatedHeartbeats:
    """
    The handler of ConsumerGroupHeartbeat requests, repeated ones and others; a `kohort.wire.templates.RepeatHandler`.

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
            steady.partition, Operation(steady.run, context), reply, heartbeat_failed
        )
        return response

    def with_numbers(
        self, request: m.ConsumerGroupHeartbeatRequest, _numbers: Iterator[int], /
    ) -> m.ConsumerGroupHeartbeatRequest:
        """The request itself: a heartbeat has no field of the kind that templates vary."""
        return request


def heartbeat_failed(error: Exception) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=int(append_error(error)))
