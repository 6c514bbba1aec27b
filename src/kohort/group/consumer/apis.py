"""
The APIs of consumer groups: ConsumerGroupHeartbeat, with the checks that need no group, and ConsumerGroupDescribe.

ConsumerGroupDescribe (69), versions 0 and 1, answers with the members of a group, their assignments and their targets; 1 adds
the protocol of each member. Methods are as `kohort.group.service` describes.

Source: Kafka GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid, GroupMetadataManager.consumerGroupDescribe,
ConsumerGroup.asDescribedGroup, and the group handlers of KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kohort.group.assignments import union
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.heartbeat import (
    RepeatedHeartbeats,
    consumer_group_heartbeat,
    heartbeat_failed,
    heartbeat_refused,
)
from kohort.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, preferred_assignor
from kohort.group.context import GroupContext
from kohort.group.errors import append_error
from kohort.group.events import HeartbeatRefused
from kohort.group.front import GroupFront, with_operations
from kohort.group.groups import CONSUMER, group_of_kind
from kohort.machine.gradual import CHUNK, HANDLER_STEP
from kohort.machine.shard import Reply
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.model.image import ClusterImage
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

MEMBER_ID_REQUIRED_SINCE: Final = 1
"""The version from which on a client makes its own member id."""


def check_heartbeat(request: m.ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """
    Check in Kafka's order. A text of blanks counts as empty.

    Args:
        assignors: the names of the assignors that members may choose.

    Raises:
        CoordinatorError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR; UNKNOWN_MEMBER_ID, see `_tells_a_change_only`.
    """
    epoch = request.member_epoch
    if api_version >= MEMBER_ID_REQUIRED_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_not_empty(request.member_id, "MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId can't be empty.")
    _check_not_empty(request.instance_id, "InstanceId can't be empty.")
    _check_not_empty(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request, api_version)
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: m.ConsumerGroupHeartbeatRequest, api_version: int) -> None:
    if request.rebalance_timeout_ms == -1:
        message = "RebalanceTimeoutMs must be provided in first request."
        if api_version >= MEMBER_ID_REQUIRED_SINCE and _tells_a_change_only(request):
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        raise _invalid(message)
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _tells_a_change_only(request: m.ConsumerGroupHeartbeatRequest) -> bool:
    """
    Whether a heartbeat at epoch 0 is that of a member which changes its subscription.

    librdkafka (seen with 2.16) sends it if the subscription changes again while the member leaves or joins. INVALID_REQUEST,
    Kafka's answer, is fatal for the client; after UNKNOWN_MEMBER_ID it joins.
    """
    return bool(request.subscribed_topic_names) and request.topic_partitions is None


def _check_not_empty(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


class GroupPicture(NamedTuple):
    """
    A group as of an offset of the log. Its values are immutable, so that the members can be described in steps.

    Attributes:
        group: described without its members.
        members: each with its target.
    """

    group: m.ConsumerGroupDescribeResponseDescribedGroup
    members: Sequence[tuple[ConsumerMember, Assignment]]
    image: ClusterImage


def picture_of(
    context: GroupContext, group_id: str, *, committed_offset: int
) -> GroupPicture | m.ConsumerGroupDescribeResponseDescribedGroup:
    """The picture of a group as of an offset of the log; the answer with the error, if there is no such consumer group."""
    found = context.groups.get_at(group_id, committed_offset)
    try:
        group = group_of_kind(found, group_id, CONSUMER, ConsumerGroup)
    except CoordinatorError as error:
        return m.ConsumerGroupDescribeResponseDescribedGroup(
            error_code=int(error.code), error_message=error.message, group_id=group_id, group_state=""
        )
    members = [member for _, member in group.members.items_at(committed_offset)]
    described = m.ConsumerGroupDescribeResponseDescribedGroup(
        group_id=group_id,
        group_state=group.state_at(committed_offset).value,
        group_epoch=group.epoch.get_at(committed_offset),
        assignment_epoch=group.assignment_epoch.get_at(committed_offset),
        assignor_name=preferred_assignor(members) or context.assignors[0].name,
    )
    targets = (group.targets.get_at(member.member_id, committed_offset) or NO_ASSIGNMENT for member in members)
    return GroupPicture(described, list(zip(members, targets, strict=True)), context.image)


def describe_in_steps(
    picture: GroupPicture,
) -> Generator[None, None, m.ConsumerGroupDescribeResponseDescribedGroup]:
    """Describe a group with its members."""
    described = []
    topics = 0
    for member, target in picture.members:
        described.append(_describe_member(member, target, picture.image))
        topics += 1 + len(member.assigned) + len(member.pending_revocation) + len(target)
        if topics >= HANDLER_STEP:
            topics = 0
            yield
    return msgspec.structs.replace(picture.group, members=tuple(described))


def _describe_member(
    member: ConsumerMember, target: Assignment, image: ClusterImage
) -> m.ConsumerGroupDescribeResponseMember:
    return m.ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_pattern,
        assignment=_assignment(union(member.assigned, member.pending_revocation), image),
        target_assignment=_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assignment: Assignment, image: ClusterImage) -> m.ConsumerGroupDescribeResponseAssignment:
    return m.ConsumerGroupDescribeResponseAssignment(topic_partitions=tuple(_topics(assignment, image)))


def _topics(assignment: Assignment, image: ClusterImage) -> Iterable[m.ConsumerGroupDescribeResponseTopicPartitions]:
    """The topics of an assignment; deleted ones are left out."""
    for topic_id, partitions in assignment.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            yield m.ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=partitions
            )


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
            groups.append(with_operations(group) if request.include_authorized_operations else group)
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
