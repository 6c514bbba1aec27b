"""
The group coordinator's front: what is true for any shard is checked here, then the request goes to its group's partition.

Every API is a method `api(request, context, reply)`: it gives back the response, or None and calls `reply` later, exactly once.
No method raises: errors become the response's codes.

Source: Kafka GroupCoordinatorService, and the group handlers of KafkaApis.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from kohort.group import versions
from kohort.group.classic.responses import refused_join, refused_sync
from kohort.group.configs import GroupConfig
from kohort.group.deletion import DeleteGroupResults
from kohort.group.errors import append_error, stable_fetch_error
from kohort.group.metrics import GroupGauges
from kohort.group.offsets import validation
from kohort.group.offsets.commit import commit_refused
from kohort.group.offsets.prepared_commits import PreparedCommit
from kohort.group.response_aggregation import ResponseAggregator
from kohort.group.shard import GroupShard
from kohort.machine.shard import Reply, Runner
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.model.image import ClusterImage
from kohort.wire import messages as m
from kohort.wire.encoders import PreparedResponse
from kohort.wire.templates import TemplateMatch

R = TypeVar("R")
CommitResponse: TypeAlias = m.OffsetCommitResponse | PreparedResponse
Listed: TypeAlias = tuple[ErrorCode, Sequence[m.ListGroupsResponseListedGroup]]

NO_OPERATIONS: Final = -2_147_483_648
GROUP_OPERATIONS: Final = 3_400
"""All that can be done to a group (read, delete, describe, describe and alter configs), as a bit field by AclOperation code."""


class GroupService:
    """
    Args:
        image: the topics of the cluster, as they are at each moment.

    Attributes:
        is_active: whether this node coordinates groups at all; before its start and after its end everything is refused.
    """

    def __init__(self, runner: Runner[GroupShard], config: GroupConfig, image: ClusterImage) -> None:
        self._runner = runner
        self._config = config
        self.image = image
        self.is_active = True

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        return coordinator_partition(group_id, self._runner.partition_count)

    # Classic groups

    def join_group(
        self, request: m.JoinGroupRequest, context: RequestContext, reply: Reply[m.JoinGroupResponse]
    ) -> m.JoinGroupResponse | None:
        code = self._refusal(request.group_id)
        if code is ErrorCode.NONE and not self._is_session_timeout(request.session_timeout_ms):
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        if code is not ErrorCode.NONE:
            return versions.lower_join(refused_join(request.member_id, code), context)
        lowered = versions.lowering_join(reply, context)
        response = self._runner.write(
            self.partition_for(request.group_id),
            lambda shard, now_ms: shard.join_group(request, context, lowered, now_ms),
            lowered,
            lambda error: refused_join("", append_error(error)),
        )
        return None if response is None else versions.lower_join(response, context)

    def sync_group(
        self, request: m.SyncGroupRequest, context: RequestContext, reply: Reply[m.SyncGroupResponse]
    ) -> m.SyncGroupResponse | None:
        if versions.lacks_protocol(request, context):
            return refused_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        code = self._refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return refused_sync(code)
        return self._runner.write(
            self.partition_for(request.group_id),
            lambda shard, now_ms: shard.sync_group(request, reply, now_ms),
            reply,
            lambda error: refused_sync(append_error(error, from_sync=True)),
        )

    def heartbeat(
        self, request: m.HeartbeatRequest, _context: RequestContext, reply: Reply[m.HeartbeatResponse]
    ) -> m.HeartbeatResponse | None:
        group_id = request.group_id
        if not self.is_active or not group_id:
            return m.HeartbeatResponse(error_code=int(self._refusal(group_id)))
        return self._runner.write(
            coordinator_partition(group_id, self._runner.partition_count),
            lambda shard, _: shard.heartbeat(request),
            reply,
            _heartbeat_failed,
        )

    def leave_group(
        self, request: m.LeaveGroupRequest, context: RequestContext, reply: Reply[m.LeaveGroupResponse]
    ) -> m.LeaveGroupResponse | None:
        code = self._refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return m.LeaveGroupResponse(error_code=int(code))
        batch = versions.lift_leave(request, context)
        lowered = versions.lowering_leave(reply, context)
        response = self._runner.write(
            self.partition_for(request.group_id),
            lambda shard, now_ms: shard.leave_group(batch, now_ms),
            lowered,
            lambda error: m.LeaveGroupResponse(error_code=int(append_error(error))),
        )
        return None if response is None else versions.lower_leave(response, context)

    # Groups of any type

    def list_groups(
        self, request: m.ListGroupsRequest, _context: RequestContext, _reply: Reply[m.ListGroupsResponse]
    ) -> m.ListGroupsResponse:
        """A shard that is elsewhere has nothing to say; one that is loading spoils the whole answer."""
        if not self.is_active:
            return m.ListGroupsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        answers = self._runner.read_all(
            lambda shard, at: (ErrorCode.NONE, shard.list_groups(request, committed_offset=at)), _listing_failed
        )
        groups: list[m.ListGroupsResponseListedGroup] = []
        for code, listed in answers:
            if code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                return m.ListGroupsResponse(error_code=int(code))
            groups += listed
        return m.ListGroupsResponse(groups=groups)

    def describe_groups(
        self, request: m.DescribeGroupsRequest, context: RequestContext, _reply: Reply[m.DescribeGroupsResponse]
    ) -> m.DescribeGroupsResponse:
        groups = [self._describe(group_id, context) for group_id in request.groups]
        if request.include_authorized_operations:
            groups = [_with_operations(group) for group in groups]
        return m.DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, context: RequestContext) -> m.DescribeGroupsResponseDescribedGroup:
        if not self.is_active:
            return _undescribed(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        version = context.api_version
        return self._runner.read(
            self.partition_for(group_id),
            lambda shard, at: shard.describe_group(group_id, api_version=version, committed_offset=at),
            lambda error: _undescribed(group_id, append_error(error)),
        )

    def delete_groups(
        self, request: m.DeleteGroupsRequest, _context: RequestContext, reply: Reply[m.DeleteGroupsResponse]
    ) -> m.DeleteGroupsResponse | None:
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        if not self.is_active:
            group_ids = [group_id for group_ids in by_partition.values() for group_id in group_ids]
            return _merge_deleted([_undeleted(group_ids, ErrorCode.COORDINATOR_NOT_AVAILABLE)])
        gathering = ResponseAggregator(len(by_partition), _merge_deleted, reply)
        for index, (partition, group_ids) in enumerate(by_partition.items()):
            gathering.put(index, self._delete(partition, group_ids, gathering.reply_to(index)))
        return gathering.finish()

    def _delete(
        self, partition: int, group_ids: list[str], reply: Reply[DeleteGroupResults]
    ) -> DeleteGroupResults | None:
        return self._runner.write(
            partition,
            lambda shard, _: shard.delete_groups(group_ids),
            reply,
            lambda error: _undeleted(group_ids, append_error(error)),
        )

    # Offsets

    def offset_commit(
        self, request: m.OffsetCommitRequest | TemplateMatch, context: RequestContext, reply: Reply[CommitResponse]
    ) -> CommitResponse | None:
        if isinstance(request, TemplateMatch):
            plan = self._plan_of(request, context)
            if plan is not None:
                return self._commit_prepared(plan, request.numbers, context, reply)
            whole: m.OffsetCommitRequest = request.unfold()
            return self._commit_checked(whole, context, reply)
        return self._commit_checked(request, context, reply)

    def _commit_checked(
        self, request: m.OffsetCommitRequest, context: RequestContext, reply: Reply[m.OffsetCommitResponse]
    ) -> m.OffsetCommitResponse | None:
        if self.is_active and validation.is_plain_commit(request, context, self.image):
            return self._commit(request, context, reply)
        checked = validation.check_commit(request, context, self.image)
        if not checked.request.topics:
            # Nothing is left to commit: then nobody asks about the group.
            return checked.merge(m.OffsetCommitResponse())
        if not self.is_active:
            return checked.merge(commit_refused(checked.request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        response = self._commit(checked.request, context, checked.merging(reply))
        return None if response is None else checked.merge(response)

    def _plan_of(self, request: TemplateMatch, context: RequestContext) -> PreparedCommit | None:
        """What is known of a commit that comes again; None if it has to be looked at like any other."""
        if not self.is_active:
            return None
        pattern = request.pattern
        known = pattern.memo
        if known is None or not known.is_current(self.image):
            known = pattern.memo = validation.prepare_commit(pattern, context, self.image)
        plan: PreparedCommit | None = known.plan
        if plan is None or plan.metadata_length > self._config.offset_metadata_max_bytes:
            return None
        return plan

    def _commit_prepared(
        self, plan: PreparedCommit, offsets: tuple[int, ...], context: RequestContext, reply: Reply[CommitResponse]
    ) -> CommitResponse | None:
        return self._runner.write(
            coordinator_partition(plan.request.group_id, self._runner.partition_count),
            lambda shard, now_ms: shard.commit_prepared(plan, offsets, context, now_ms),
            reply,
            lambda error: commit_refused(plan.answer, append_error(error)),
        )

    def _commit(
        self, request: m.OffsetCommitRequest, context: RequestContext, reply: Reply[m.OffsetCommitResponse]
    ) -> m.OffsetCommitResponse | None:
        return self._runner.write(
            coordinator_partition(request.group_id, self._runner.partition_count),
            lambda shard, now_ms: shard.offset_commit(request, context, now_ms),
            reply,
            lambda error: commit_refused(request, append_error(error)),
        )

    def offset_fetch(
        self, request: m.OffsetFetchRequest, context: RequestContext, reply: Reply[m.OffsetFetchResponse]
    ) -> m.OffsetFetchResponse | None:
        groups = versions.lift_fetch(request, context)
        gathering: ResponseAggregator[m.OffsetFetchResponseGroup, m.OffsetFetchResponse] = ResponseAggregator(
            len(groups), lambda parts: versions.lower_fetch(parts, context), reply
        )
        for index, group in enumerate(groups):
            answer = self._fetch(group, context, gathering.reply_to(index), is_stable=request.require_stable)
            gathering.put(index, answer)
        return gathering.finish()

    def _fetch(
        self,
        group: m.OffsetFetchRequestGroup,
        context: RequestContext,
        reply: Reply[m.OffsetFetchResponseGroup],
        *,
        is_stable: bool,
    ) -> m.OffsetFetchResponseGroup | None:
        if not self.is_active:
            return validation.fetch_refused(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        checked = validation.check_fetch(group, context, self.image)
        partition = self.partition_for(group.group_id)
        if is_stable:
            later = self._runner.write(
                partition,
                lambda shard, _: shard.offset_fetch_stable(checked.request),
                lambda response: reply(checked.merge(response)),
                lambda error: validation.fetch_refused(group, stable_fetch_error(error)),
            )
            return None if later is None else checked.merge(later)
        response = self._runner.read(
            partition,
            lambda shard, at: shard.offset_fetch(checked.request, committed_offset=at),
            lambda error: validation.fetch_refused(group, append_error(error)),
        )
        return checked.merge(response)

    def offset_delete(
        self, request: m.OffsetDeleteRequest, _context: RequestContext, reply: Reply[m.OffsetDeleteResponse]
    ) -> m.OffsetDeleteResponse | None:
        code = self._refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return m.OffsetDeleteResponse(error_code=int(code))
        checked = validation.check_delete(request, self.image)
        response = self._runner.write(
            self.partition_for(request.group_id),
            lambda shard, _: shard.offset_delete(checked.request),
            lambda response: reply(checked.merge(response)),
            lambda error: m.OffsetDeleteResponse(error_code=int(append_error(error))),
        )
        return None if response is None else checked.merge(response)

    # For whoever watches

    def gauges(self) -> GroupGauges:
        """What there is in all shards that are active here."""
        gauges = GroupGauges()
        self._runner.read_all(lambda shard, _: shard.count(gauges), lambda _: gauges)
        return gauges

    # What is true for any shard

    def _refusal(self, group_id: str) -> ErrorCode:
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def _is_session_timeout(self, session_timeout_ms: int) -> bool:
        config = self._config
        return config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms


def _heartbeat_failed(error: Exception) -> m.HeartbeatResponse:
    code = append_error(error)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # It may well be a member; the load will tell, and arm its session anew.
        return m.HeartbeatResponse()
    return m.HeartbeatResponse(error_code=int(code))


def _listing_failed(error: Exception) -> Listed:
    return append_error(error), ()


def _undescribed(group_id: str, code: ErrorCode) -> m.DescribeGroupsResponseDescribedGroup:
    return m.DescribeGroupsResponseDescribedGroup(group_id=group_id, error_code=int(code))


def _with_operations(group: m.DescribeGroupsResponseDescribedGroup) -> m.DescribeGroupsResponseDescribedGroup:
    operations = GROUP_OPERATIONS if group.error_code == ErrorCode.NONE else NO_OPERATIONS
    return msgspec.structs.replace(group, authorized_operations=operations)


def _undeleted(group_ids: Sequence[str], code: ErrorCode) -> DeleteGroupResults:
    return tuple(
        m.DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=int(code)) for group_id in group_ids
    )


def _merge_deleted(parts: Sequence[DeleteGroupResults]) -> m.DeleteGroupsResponse:
    return m.DeleteGroupsResponse(results=[result for part in parts for result in part])
