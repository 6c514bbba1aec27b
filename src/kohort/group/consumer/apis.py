"""
The APIs of consumer groups: ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Methods are as `kohort.group.service` describes.

Source: Kafka GroupCoordinatorService, and the group handlers of KafkaApis.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from kohort.group.consumer.describe import GroupPicture, describe_in_steps, picture_of
from kohort.group.consumer.heartbeat import consumer_group_heartbeat, heartbeat_refused
from kohort.group.consumer.repeated_heartbeats import RepeatedHeartbeats, heartbeat_failed
from kohort.group.consumer.validation import check_heartbeat
from kohort.group.errors import append_error
from kohort.group.events import HeartbeatRefused
from kohort.group.front import GROUP_OPERATIONS, GroupFront
from kohort.group.groups import CONSUMER
from kohort.machine.gradual import CHUNK
from kohort.machine.shard import Reply
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey


class ConsumerApis:
    def __init__(self, front: GroupFront) -> None:
        self._front = front
        self._runner = front.runner
        self._assignors = front.config.group_consumer_assignors

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        """The handlers. They are there even if the protocol is disabled: Kafka advertises its APIs then, too."""
        if CONSUMER not in self._front.config.group_coordinator_rebalance_protocols:
            return {
                ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeat_unsupported,
                ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_unsupported,
            }
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: RepeatedHeartbeats(self._front, self.consumer_group_heartbeat),
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.consumer_group_describe,
        }

    def consumer_group_heartbeat(
        self,
        request: m.ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        reply: Reply[m.ConsumerGroupHeartbeatResponse],
    ) -> m.ConsumerGroupHeartbeatResponse | None:
        if not self._front.is_active:
            return m.ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            check_heartbeat(request, context.api_version, self._assignors)
        except CoordinatorError as error:
            self._front.emit(HeartbeatRefused.of_consumer(request, error))
            return heartbeat_refused(error)
        response: m.ConsumerGroupHeartbeatResponse | None = self._runner.write(
            coordinator_partition(request.group_id, self._runner.partition_count),
            Operation(consumer_group_heartbeat, request, context),
            reply,
            heartbeat_failed,
        )
        return response

    def consumer_group_describe(
        self,
        request: m.ConsumerGroupDescribeRequest,
        _context: RequestContext,
        _reply: Reply[m.ConsumerGroupDescribeResponse],
    ) -> Generator[None, None, m.ConsumerGroupDescribeResponse]:
        """Describe each group as of its own time; a group with many members takes several steps."""
        groups = []
        for number, group_id in enumerate(request.group_ids, 1):
            found = self._picture(group_id)
            group = (yield from describe_in_steps(found)) if isinstance(found, GroupPicture) else found
            groups.append(_with_operations(group) if request.include_authorized_operations else group)
            if number % CHUNK == 0:
                yield
        return m.ConsumerGroupDescribeResponse(groups=groups)

    def _picture(self, group_id: str) -> GroupPicture | m.ConsumerGroupDescribeResponseDescribedGroup:
        code = self._front.refusal(group_id)
        if code is not ErrorCode.NONE:
            return _describe_failed(group_id, code)
        return self._runner.read(
            self._front.partition_for(group_id),
            lambda shard, at: picture_of(shard.context, group_id, committed_offset=at),
            lambda error: _describe_failed(group_id, append_error(error)),
        )


def _heartbeat_unsupported(
    _request: m.ConsumerGroupHeartbeatRequest,
    _context: RequestContext,
    _reply: Reply[m.ConsumerGroupHeartbeatResponse],
) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))


def _describe_unsupported(
    request: m.ConsumerGroupDescribeRequest,
    _context: RequestContext,
    _reply: Reply[m.ConsumerGroupDescribeResponse],
) -> m.ConsumerGroupDescribeResponse:
    groups = [_describe_failed(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in request.group_ids]
    return m.ConsumerGroupDescribeResponse(groups=groups)


def _describe_failed(group_id: str, code: ErrorCode) -> m.ConsumerGroupDescribeResponseDescribedGroup:
    return m.ConsumerGroupDescribeResponseDescribedGroup(group_id=group_id, error_code=int(code))


def _with_operations(
    group: m.ConsumerGroupDescribeResponseDescribedGroup,
) -> m.ConsumerGroupDescribeResponseDescribedGroup:
    if group.error_code != ErrorCode.NONE:
        return group
    return msgspec.structs.replace(group, authorized_operations=GROUP_OPERATIONS)
