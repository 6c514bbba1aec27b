"""
The APIs of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups.

What does not depend on the group is checked here; then the request goes to the shard of the group. Methods are as
`kohort.group.service` describes.

DescribeGroups (15), versions 0 to 6, describes classic groups; a group of another kind counts as missing. 3 can ask for the
operations that the caller may do, 4 shows instance ids. From 6 on (KIP-1043) a missing group is an error with a message, before
that a group in state Dead.

Source: Kafka GroupCoordinatorService, GroupMetadataManager.describeGroups, ClassicGroup.describe, and the group handlers of
KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.heartbeat import RepeatedHeartbeats, heartbeat
from kohort.group.classic.join import join_group
from kohort.group.classic.leave import leave_group
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.responses import refused_join, refused_sync
from kohort.group.classic.states import DEAD_NAME, STABLE
from kohort.group.classic.sync import sync_group
from kohort.group.context import GroupContext
from kohort.group.errors import append_error
from kohort.group.front import GroupFront, with_operations
from kohort.group.groups import CLASSIC, group_of_kind
from kohort.machine.shard import Reply
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

JOIN_PROTOCOL_NULLABLE_SINCE: Final = 7
SYNC_PROTOCOL_SINCE: Final = 5
LEAVE_BATCH_SINCE: Final = 3
DESCRIBE_NOT_FOUND_SINCE: Final = 6


class ClassicApis:
    def __init__(self, front: GroupFront) -> None:
        self._front = front
        self._runner = front.runner
        self._config = front.config

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        return {
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: RepeatedHeartbeats(self._front, self.heartbeat, _heartbeat_failed),
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
            return downgrade_join(refused_join(request.member_id, code), context)
        response: m.JoinGroupResponse | None = self._runner.write(
            self._front.partition_for(request.group_id),
            Operation(join_group, request, context),
            lambda response: reply(downgrade_join(response, context)),
            _join_failed,
        )
        return None if response is None else downgrade_join(response, context)

    def _is_session_timeout(self, session_timeout_ms: int) -> bool:
        config = self._config
        return config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms

    def sync_group(
        self, request: m.SyncGroupRequest, context: RequestContext, reply: Reply[m.SyncGroupResponse]
    ) -> m.SyncGroupResponse | None:
        if lacks_protocol(request, context):
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
        batch = upgrade_leave(request, context)
        response: m.LeaveGroupResponse | None = self._runner.write(
            self._front.partition_for(request.group_id),
            Operation(leave_group, batch),
            lambda response: reply(downgrade_leave(response, context)),
            lambda error: m.LeaveGroupResponse(error_code=int(append_error(error))),
        )
        return None if response is None else downgrade_leave(response, context)

    def describe_groups(
        self, request: m.DescribeGroupsRequest, context: RequestContext, _reply: Reply[m.DescribeGroupsResponse]
    ) -> m.DescribeGroupsResponse:
        groups = [self._describe(group_id, context) for group_id in request.groups]
        if request.include_authorized_operations:
            groups = [with_operations(group) for group in groups]
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


# DescribeGroups


def describe_group(
    context: GroupContext, group_id: str, *, api_version: int, committed_offset: int
) -> m.DescribeGroupsResponseDescribedGroup:
    """Describe a group; protocol and metadata only while it is Stable, because before that they may not belong together."""
    found = context.groups.get_at(group_id, committed_offset)
    try:
        group = group_of_kind(found, group_id, CLASSIC, ClassicGroup)
    except CoordinatorError as exc:
        if api_version < DESCRIBE_NOT_FOUND_SINCE:
            return m.DescribeGroupsResponseDescribedGroup(group_id=group_id, group_state=DEAD_NAME)
        return m.DescribeGroupsResponseDescribedGroup(
            error_code=int(exc.code), error_message=exc.message, group_id=group_id, group_state=DEAD_NAME
        )
    state = group.state_at(committed_offset)
    is_stable = state is STABLE
    protocol_name = group.value_at("protocol_name", committed_offset)
    return m.DescribeGroupsResponseDescribedGroup(
        group_id=group_id,
        group_state=state.value,
        protocol_type=group.value_at("protocol_type", committed_offset) or "",
        protocol_data=(protocol_name or "") if is_stable else "",
        members=tuple(
            _describe_member(member, member.metadata(protocol_name) if is_stable else b"")
            for _, member in group.members.items_at(committed_offset)
        ),
    )


def _describe_member(member: ClassicMember, metadata: bytes) -> m.DescribeGroupsResponseDescribedGroupMember:
    return m.DescribeGroupsResponseDescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=member.assignment,
    )


# Versions: handlers know the newest version only. Requests are upgraded to it, and responses downgraded.


def downgrade_join(response: m.JoinGroupResponse, context: RequestContext) -> m.JoinGroupResponse:
    """No protocol is "" in responses up to version 6, and null from 7 on."""
    if context.api_version >= JOIN_PROTOCOL_NULLABLE_SINCE:
        return response if response.protocol_name else msgspec.structs.replace(response, protocol_name=None)
    return msgspec.structs.replace(response, protocol_name="") if response.protocol_name is None else response


def lacks_protocol(request: m.SyncGroupRequest, context: RequestContext) -> bool:
    """Whether the fields are missing that a member must send from version 5 on."""
    is_required = context.api_version >= SYNC_PROTOCOL_SINCE
    return is_required and (request.protocol_type is None or request.protocol_name is None)


def upgrade_leave(request: m.LeaveGroupRequest, context: RequestContext) -> m.LeaveGroupRequest:
    """Up to version 2 one member leaves: make it a batch of one."""
    if context.api_version >= LEAVE_BATCH_SINCE:
        return request
    identity = m.LeaveGroupRequestMemberIdentity(member_id=request.member_id)
    return m.LeaveGroupRequest(group_id=request.group_id, members=(identity,))


def downgrade_leave(response: m.LeaveGroupResponse, context: RequestContext) -> m.LeaveGroupResponse:
    """Up to version 2 the error of the one member is the response."""
    if context.api_version >= LEAVE_BATCH_SINCE or response.error_code != ErrorCode.NONE:
        return response
    return m.LeaveGroupResponse(error_code=response.members[0].error_code)
