"""
Version differences of the APIs of classic groups, beyond missing fields.

Handlers know the newest version only: requests are upgraded to it here, and responses downgraded.
"""

import msgspec

from kohort.machine.shard import Reply
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

JOIN_PROTOCOL_NULLABLE_SINCE = 7
SYNC_PROTOCOL_SINCE = 5
LEAVE_BATCH_SINCE = 3


def downgrade_join(response: m.JoinGroupResponse, context: RequestContext) -> m.JoinGroupResponse:
    """No protocol is "" in responses up to version 6, and null from 7 on."""
    if context.api_version >= JOIN_PROTOCOL_NULLABLE_SINCE:
        return response if response.protocol_name else msgspec.structs.replace(response, protocol_name=None)
    return msgspec.structs.replace(response, protocol_name="") if response.protocol_name is None else response


def downgrading_join(reply: Reply[m.JoinGroupResponse], context: RequestContext) -> Reply[m.JoinGroupResponse]:
    return lambda response: reply(downgrade_join(response, context))


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


def downgrading_leave(reply: Reply[m.LeaveGroupResponse], context: RequestContext) -> Reply[m.LeaveGroupResponse]:
    return lambda response: reply(downgrade_leave(response, context))
