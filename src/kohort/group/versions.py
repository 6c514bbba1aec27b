"""
What older versions of the group APIs ask and answer differently, beyond fields that they lack.

Handlers know the newest shape alone: requests are lifted to it here, and responses lowered.
"""

from collections.abc import Sequence

import msgspec

from kohort.machine.shard import Reply
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

JOIN_PROTOCOL_NULLABLE_SINCE = 7
SYNC_PROTOCOL_SINCE = 5
LEAVE_BATCH_SINCE = 3
FETCH_TOP_LEVEL_ERROR_SINCE = 2
FETCH_GROUPS_SINCE = 8


def lower_join(response: m.JoinGroupResponse, context: RequestContext) -> m.JoinGroupResponse:
    """No protocol is "" in the answers up to version 6, and null from 7 on."""
    if context.api_version >= JOIN_PROTOCOL_NULLABLE_SINCE:
        return response if response.protocol_name else msgspec.structs.replace(response, protocol_name=None)
    return msgspec.structs.replace(response, protocol_name="") if response.protocol_name is None else response


def lowering_join(reply: Reply[m.JoinGroupResponse], context: RequestContext) -> Reply[m.JoinGroupResponse]:
    return lambda response: reply(lower_join(response, context))


def lacks_protocol(request: m.SyncGroupRequest, context: RequestContext) -> bool:
    """From version 5 on a member must say what it believes the group to speak."""
    is_asked = context.api_version >= SYNC_PROTOCOL_SINCE
    return is_asked and (request.protocol_type is None or request.protocol_name is None)


def lift_leave(request: m.LeaveGroupRequest, context: RequestContext) -> m.LeaveGroupRequest:
    """Up to version 2 one member leaves: a batch of one."""
    if context.api_version >= LEAVE_BATCH_SINCE:
        return request
    identity = m.LeaveGroupRequestMemberIdentity(member_id=request.member_id)
    return m.LeaveGroupRequest(group_id=request.group_id, members=(identity,))


def lower_leave(response: m.LeaveGroupResponse, context: RequestContext) -> m.LeaveGroupResponse:
    """Up to version 2 the one member's error is the answer."""
    if context.api_version >= LEAVE_BATCH_SINCE or response.error_code != ErrorCode.NONE:
        return response
    return m.LeaveGroupResponse(error_code=response.members[0].error_code)


def lowering_leave(reply: Reply[m.LeaveGroupResponse], context: RequestContext) -> Reply[m.LeaveGroupResponse]:
    return lambda response: reply(lower_leave(response, context))


def lift_fetch(request: m.OffsetFetchRequest, context: RequestContext) -> Sequence[m.OffsetFetchRequestGroup]:
    """Up to version 7 one group is asked about."""
    if context.api_version >= FETCH_GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            m.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return (m.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics),)


def lower_fetch(groups: Sequence[m.OffsetFetchResponseGroup], context: RequestContext) -> m.OffsetFetchResponse:
    """
    Up to version 7 the one group's answer is at the top.

    Version 1 has no place for a group's error there: each partition carries it, which a refused group's partitions do in any
    version before they are taken off.
    """
    version = context.api_version
    if version >= FETCH_GROUPS_SINCE:
        return m.OffsetFetchResponse(groups=[_without_refused_topics(group) for group in groups])
    (group,) = groups
    if version >= FETCH_TOP_LEVEL_ERROR_SINCE:
        group = _without_refused_topics(group)
    return m.OffsetFetchResponse(error_code=group.error_code, topics=[_lower_topic(topic) for topic in group.topics])


def _without_refused_topics(group: m.OffsetFetchResponseGroup) -> m.OffsetFetchResponseGroup:
    return msgspec.structs.replace(group, topics=()) if group.error_code and group.topics else group


def _lower_topic(topic: m.OffsetFetchResponseTopics) -> m.OffsetFetchResponseTopic:
    partitions = [
        m.OffsetFetchResponsePartition(
            partition_index=partition.partition_index,
            committed_offset=partition.committed_offset,
            committed_leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata,
            error_code=partition.error_code,
        )
        for partition in topic.partitions
    ]
    return m.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
