"""
The APIs of share groups, with the checks that need no group. Methods are as `kohort.group.service` describes.

Source: Kafka GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid, shareGroupHeartbeat, shareGroupDescribe, and
KafkaApis.handleShareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final

from kohort.group.errors import append_error
from kohort.group.events import HeartbeatRefused
from kohort.group.front import GroupFront, with_operations
from kohort.group.share.alter_offsets import alter_offsets, alteration_refused
from kohort.group.share.delete_offsets import DeletedOffsets, offset_deletion_refused, prepare_deletion
from kohort.group.share.describe import GroupPicture, describe_failed, describe_in_steps, picture_of
from kohort.group.share.describe_offsets import describe_offsets
from kohort.group.share.errors import SENTENCES
from kohort.group.share.heartbeat import HeartbeatAnswer, heartbeat_refused, share_group_heartbeat
from kohort.group.share.initialization import begin_initialization
from kohort.group.share.member import JOIN_EPOCH, LEAVE_EPOCH
from kohort.machine.gradual import CHUNK, OneStep
from kohort.machine.ports import Persister
from kohort.machine.shard import Reply
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

MEMBER_ID_LENGTH_MAX: Final = 36


def check_heartbeat(request: m.ShareGroupHeartbeatRequest) -> None:
    """
    Check in Kafka's order. A text of blanks counts as empty.

    Raises:
        CoordinatorError: INVALID_REQUEST.
    """
    _check_not_empty(request.member_id, "MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId can't be empty.")
    _check_not_empty(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _check_not_empty(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def _invalid(message: str | None) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


class ShareApis:
    def __init__(self, front: GroupFront) -> None:
        self._front = front

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        """The handlers; none on a host without share coordinators."""
        if self._front.persister is None:
            return {}
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: OneStep(self.share_group_heartbeat),
            ApiKey.SHARE_GROUP_DESCRIBE: self.share_group_describe,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe_share_group_offsets,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self.alter_share_group_offsets,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: OneStep(self.delete_share_group_offsets),
        }

    @property
    def _persister(self) -> Persister:
        assert self._front.persister is not None
        return self._front.persister

    # Heartbeats

    def share_group_heartbeat(
        self,
        request: m.ShareGroupHeartbeatRequest,
        context: RequestContext,
        reply: Reply[m.ShareGroupHeartbeatResponse],
    ) -> m.ShareGroupHeartbeatResponse | None:
        if not request.member_id or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
            return m.ShareGroupHeartbeatResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        if not self._front.is_active:
            return m.ShareGroupHeartbeatResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            check_heartbeat(request)
        except CoordinatorError as error:
            self._front.emit(HeartbeatRefused.of_share(request, error))
            return heartbeat_refused(error)

        def answered(answer: HeartbeatAnswer) -> None:
            reply(answer.response)
            self._initialize(answer)

        answer: HeartbeatAnswer | None = self._front.runner.write(
            self._front.partition_for(request.group_id),
            Operation(share_group_heartbeat, request, context),
            answered,
            _heartbeat_failed,
        )
        if answer is None:
            return None
        self._initialize(answer)
        return answer.response

    def _initialize(self, answer: HeartbeatAnswer) -> None:
        if answer.initialization is not None:
            begin_initialization(self._front, self._persister, answer.initialization)

    # Descriptions

    def share_group_describe(
        self,
        request: m.ShareGroupDescribeRequest,
        _context: RequestContext,
        _reply: Reply[m.ShareGroupDescribeResponse],
    ) -> Generator[None, None, m.ShareGroupDescribeResponse]:
        """Describe each group as of its own time; a group with many members takes several steps."""
        groups = []
        for number, group_id in enumerate(request.group_ids, 1):
            found = self._picture(group_id)
            group = (yield from describe_in_steps(found)) if isinstance(found, GroupPicture) else found
            groups.append(with_operations(group) if request.include_authorized_operations else group)
            if number % CHUNK == 0:
                yield
        return m.ShareGroupDescribeResponse(groups=groups)

    def _picture(self, group_id: str) -> GroupPicture | m.ShareGroupDescribeResponseDescribedGroup:
        code = self._front.refusal(group_id)
        if code is not ErrorCode.NONE:
            return describe_failed(group_id, code)
        return self._front.runner.read(
            self._front.partition_for(group_id),
            lambda shard, at: picture_of(shard.context, group_id, committed_offset=at),
            lambda error: _failed(group_id, error),
        )

    # Offsets, and the deletion of groups

    def describe_share_group_offsets(
        self,
        request: m.DescribeShareGroupOffsetsRequest,
        _context: RequestContext,
        _reply: Reply[m.DescribeShareGroupOffsetsResponse],
    ) -> Generator[Any, None, m.DescribeShareGroupOffsetsResponse]:
        groups = []
        for asked in request.groups:
            groups.append((yield from describe_offsets(self._front, self._persister, asked)))
            yield
        return m.DescribeShareGroupOffsetsResponse(groups=groups)

    def alter_share_group_offsets(
        self,
        request: m.AlterShareGroupOffsetsRequest,
        _context: RequestContext,
        _reply: Reply[m.AlterShareGroupOffsetsResponse],
    ) -> Generator[Any, None, m.AlterShareGroupOffsetsResponse]:
        error = self._refusal(request.group_id)
        if error is not None:
            return alteration_refused(error)
        if not request.topics:
            return m.AlterShareGroupOffsetsResponse()
        return (yield from alter_offsets(self._front, self._persister, request))

    def delete_share_group_offsets(
        self,
        request: m.DeleteShareGroupOffsetsRequest,
        _context: RequestContext,
        reply: Reply[m.DeleteShareGroupOffsetsResponse],
    ) -> m.DeleteShareGroupOffsetsResponse | None:
        error = self._refusal(request.group_id)
        if error is not None:
            return offset_deletion_refused(error)
        DeletedOffsets(self._front, self._persister, request, reply).begin()
        return None

    def _refusal(self, group_id: str) -> CoordinatorError | None:
        code = self._front.refusal(group_id)
        return None if code is ErrorCode.NONE else CoordinatorError(code)

    def prepare_deletion(
        self, partition: int, group_ids: Sequence[str], ready: Callable[[Mapping[str, ErrorCode]], None], /
    ) -> bool:
        """See `kohort.group.kinds.PreparesDeletion`."""
        persister = self._front.persister
        return persister is not None and prepare_deletion(self._front, persister, partition, group_ids, ready)


def _heartbeat_failed(error: Exception) -> HeartbeatAnswer:
    return HeartbeatAnswer(m.ShareGroupHeartbeatResponse(error_code=int(append_error(error))))


def _failed(group_id: str, error: Exception) -> m.ShareGroupDescribeResponseDescribedGroup:
    code = append_error(error)
    return describe_failed(group_id, code, SENTENCES.get(code))
