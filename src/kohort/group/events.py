"""
Events in the life of groups, for a log. The core emits them; a sink outside of the core writes them down.

Events are effects of operations (`kohort.machine.results.Result`): an event is emitted when the records of its operation are
committed, and one of an operation that is undone is never seen. An operation without records waits for the records that it has
read.

Heartbeats emit nothing unless they are refused, commits and fetches emit nothing.

Source: the log lines of Kafka's GroupMetadataManager and OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


class GroupEvent(msgspec.Struct, frozen=True):
    """Something that happened to one group."""

    group_id: str


class MemberJoined(GroupEvent, frozen=True):
    """A member was added; it waits for the rebalance to complete."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class MemberLeft(GroupEvent, frozen=True):
    """
    A member was removed by LeaveGroup, sent by its own client or by an administrator.

    Attributes:
        reason: the client's (LeaveGroup 5 and later); None if it gave none.
    """

    member_id: str
    group_instance_id: str | None
    reason: str | None


class MemberExpired(GroupEvent, frozen=True):
    """
    A member was removed because a timeout passed.

    Attributes:
        timeout: "session", "member id" (assigned and not used), "rebalance", "join" or "sync" (all three the rebalance
            timeout).
    """

    member_id: str
    group_instance_id: str | None
    timeout: str


class HeartbeatRefused(GroupEvent, frozen=True):
    """
    A heartbeat was answered with an error of its group, or of its form. REBALANCE_IN_PROGRESS is no refusal.

    Attributes:
        api: "Heartbeat", "ConsumerGroupHeartbeat" or "ShareGroupHeartbeat".
        epoch: the member epoch of the request, or its generation.
        reason: the message of the answer.
    """

    api: str
    member_id: str
    group_instance_id: str | None
    epoch: int
    error: ErrorCode
    reason: str | None

    @classmethod
    def of_consumer(cls, request: m.ConsumerGroupHeartbeatRequest, error: CoordinatorError) -> HeartbeatRefused:
        return cls(
            request.group_id,
            "ConsumerGroupHeartbeat",
            request.member_id,
            request.instance_id,
            request.member_epoch,
            error.code,
            error.message,
        )

    @classmethod
    def of_share(cls, request: m.ShareGroupHeartbeatRequest, error: CoordinatorError) -> HeartbeatRefused:
        return cls(
            request.group_id,
            "ShareGroupHeartbeat",
            request.member_id,
            None,
            request.member_epoch,
            error.code,
            error.message,
        )

    @classmethod
    def of_classic(cls, request: m.HeartbeatRequest, error: CoordinatorError) -> HeartbeatRefused:
        return cls(
            request.group_id,
            "Heartbeat",
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            error.code,
            error.message,
        )


class StaticMemberReplaced(GroupEvent, frozen=True):
    """A new member id took over an instance id; `old_member_id` is fenced from now on."""

    member_id: str
    old_member_id: str
    group_instance_id: str | None


class RebalanceStarted(GroupEvent, frozen=True):
    """
    Every member has to join again.

    Attributes:
        state: of the group until now.
        generation: the one that ends.
    """

    state: str
    generation: int
    reason: str


class GenerationStarted(GroupEvent, frozen=True):
    """All members have joined; the leader is to assign."""

    generation: int
    members: int
    protocol: str | None
    leader: str | None


class AssignmentStored(GroupEvent, frozen=True):
    """The leader's assignment is committed and the group is Stable."""

    generation: int
    leader: str
    members: int


class GroupEmptied(GroupEvent, frozen=True):
    """The last member has left or expired."""

    generation: int


class EpochRaised(GroupEvent, frozen=True):
    """
    The target assignment of a group has to be computed anew.

    Attributes:
        member_id: the member whose heartbeat raised the epoch; None if members left.
        kind: of the group.
    """

    epoch: int
    member_id: str | None
    kind: str = "consumer"


class AssignmentFailed(GroupEvent, frozen=True):
    """The assignor of a large consumer group failed. The members keep their targets, and the next heartbeat tries again."""

    epoch: int
    error: str


class GroupConverted(GroupEvent, frozen=True):
    """
    A group with members became a group of another kind.

    Attributes:
        kind: of the group from now on.
    """

    kind: str


class OffsetsExpired(GroupEvent, frozen=True):
    """Committed offsets were deleted because their retention passed."""

    offsets: int


class GroupDeleted(GroupEvent, frozen=True):
    """
    Attributes:
        reason: "DeleteGroups", or "expired": an empty group without offsets.
    """

    offsets: int
    reason: str


GroupEvents: TypeAlias = Callable[[GroupEvent], None]
"""A sink. It must neither raise nor wait."""


def no_events(_: GroupEvent) -> None:
    """The sink that drops every event."""
