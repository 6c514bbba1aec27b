"""
The checks of a ConsumerGroupHeartbeat that need no group.

Source: Kafka GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
"""

from collections.abc import Sequence
from typing import Final

from kohort.group.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

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
