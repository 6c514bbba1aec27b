"""
The APIs of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups.

What does not depend on the group is checked here; then the request goes to the shard of the group. Methods are as
`kohort.group.service` describes.

Source: Kafka GroupCoordinatorService, and the group handlers of KafkaApis.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kohort.group.classic import versions
from kohort.group.classic.describe import describe_group
from kohort.group.classic.heartbeat import heartbeat
from kohort.group.classic.join import join_group
from kohort.group.classic.leave import leave_group
from kohort.group.classic.responses import refused_join, refused_sync
from kohort.group.classic.sync import sync_group
from kohort.group.errors import append_error
from kohort.group.front import GROUP_OPERATIONS, NO_OPERATIONS, GroupFront
from kohort.machine.shard import Reply
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey


class ClassicApis:
    def __init__(self, front: GroupFront) -> None:
        self._front = front
        self._runner = front.runner
        self._config = front.config

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        return {
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.DESCRIBE_GROUPS: self.describe_groups,
        }

    def join_group(
        self, request: m.JoinGroupRequest, context: RequestContext, reply: Reply[m.JoinGroupResponse]
    ) -> m.JoinGroupResponse | None:
        code = self._front.refusal(request.group_id)
        if code is ErrorCode.NONE and not self._is_session_timeout(request.session_timeout_ms):
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        if code is not ErrorCode.NONE:
            return versions.downgrade_join(refused_join(request.member_id, code), context)
        response: m.JoinGroupResponse | None = self._runner.write(
            self._front.partition_for(request.group_id),
            Operation(join_group, request, context),
            versions.downgrading_join(reply, context),
            _join_failed,
        )
        return None if response is None else versions.downgrade_join(response, context)

    def _is_session_timeout(self, session_timeout_ms: int) -> bool:
        config = self._config
        return config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms

    def sync_group(
        self, request: m.SyncGroupRequest, context: RequestContext, reply: Reply[m.SyncGroupResponse]
    ) -> m.SyncGroupResponse | None:
        if versions.lacks_protocol(request, context):
            return refused_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        code = self._front.refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return refused_sync(code)
        response: m.SyncGroupResponse | None = self._runner.write(
            self._front.partition_for(request.group_id), Operation(sync_group, request), reply, _sync_failed
        )
        return response

    def heartbeat(
        self, request: m.HeartbeatRequest, _context: RequestContext, reply: Reply[m.HeartbeatResponse]
    ) -> m.HeartbeatResponse | None:
        group_id = request.group_id
        if not self._front.is_active or not group_id:
            return m.HeartbeatResponse(error_code=int(self._front.refusal(group_id)))
        partition = coordinator_partition(group_id, self._runner.partition_count)
        response: m.HeartbeatResponse | None = self._runner.write(
            partition, Operation(heartbeat, request), reply, _heartbeat_failed
        )
        return response

    def leave_group(
        self, request: m.LeaveGroupRequest, context: RequestContext, reply: Reply[m.LeaveGroupResponse]
    ) -> m.LeaveGroupResponse | None:
        code = self._front.refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return m.LeaveGroupResponse(error_code=int(code))
        batch = versions.upgrade_leave(request, context)
        downgraded = versions.downgrading_leave(reply, context)
        response: m.LeaveGroupResponse | None = self._runner.write(
            self._front.partition_for(request.group_id),
            Operation(leave_group, batch),
            downgraded,
            lambda error: m.LeaveGroupResponse(error_code=int(append_error(error))),
        )
        return None if response is None else versions.downgrade_leave(response, context)

    def describe_groups(
        self, request: m.DescribeGroupsRequest, context: RequestContext, _reply: Reply[m.DescribeGroupsResponse]
    ) -> m.DescribeGroupsResponse:
        groups = [self._describe(group_id, context) for group_id in request.groups]
        if request.include_authorized_operations:
            groups = [_with_operations(group) for group in groups]
        return m.DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, context: RequestContext) -> m.DescribeGroupsResponseDescribedGroup:
        if not self._front.is_active:
            return _describe_failed(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        version = context.api_version
        return self._runner.read(
            self._front.partition_for(group_id),
            lambda shard, at: describe_group(shard.context, group_id, api_version=version, committed_offset=at),
            lambda error: _describe_failed(group_id, append_error(error)),
        )


def _join_failed(error: Exception) -> m.JoinGroupResponse:
    return refused_join("", append_error(error))


def _sync_failed(error: Exception) -> m.SyncGroupResponse:
    return refused_sync(append_error(error, from_sync=True))


def _heartbeat_failed(error: Exception) -> m.HeartbeatResponse:
    code = append_error(error)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # The load arms the session of every member anew.
        return m.HeartbeatResponse()
    return m.HeartbeatResponse(error_code=int(code))


def _describe_failed(group_id: str, code: ErrorCode) -> m.DescribeGroupsResponseDescribedGroup:
    return m.DescribeGroupsResponseDescribedGroup(group_id=group_id, error_code=int(code))


def _with_operations(group: m.DescribeGroupsResponseDescribedGroup) -> m.DescribeGroupsResponseDescribedGroup:
    operations = GROUP_OPERATIONS if group.error_code == ErrorCode.NONE else NO_OPERATIONS
    return msgspec.structs.replace(group, authorized_operations=operations)
