"""The handlers of members of the classic protocol, as classic groups call them."""

from kohort.group.consumer.classic_members.heartbeat import heartbeat
from kohort.group.consumer.classic_members.join import join_group
from kohort.group.consumer.classic_members.leave import leave_group
from kohort.group.consumer.classic_members.sync import sync_group
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.context import RequestContext
from kohort.wire import messages as m


class ClassicMemberHandlers:
    """Implements `kohort.group.conversion.ClassicMembers` for consumer groups."""

    def __init__(self, registry: ConsumerRegistry) -> None:
        self._registry = registry

    def join_group(
        self, group: ConsumerGroup, request: m.JoinGroupRequest, context: RequestContext, now_ms: int, /
    ) -> Result[GroupRecord, m.JoinGroupResponse]:
        return join_group(self._registry, group, request, context, now_ms)

    def sync_group(
        self, group: ConsumerGroup, request: m.SyncGroupRequest, /
    ) -> Result[GroupRecord, m.SyncGroupResponse]:
        return sync_group(self._registry, group, request)

    def heartbeat(
        self, group: ConsumerGroup, request: m.HeartbeatRequest, /
    ) -> Result[GroupRecord, m.HeartbeatResponse]:
        return heartbeat(self._registry, group, request)

    def leave_group(
        self, group: ConsumerGroup, request: m.LeaveGroupRequest, now_ms: int, /
    ) -> Result[GroupRecord, m.LeaveGroupResponse]:
        return leave_group(self._registry, group, request, now_ms)
