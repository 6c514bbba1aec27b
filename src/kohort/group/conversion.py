"""
The ports through which classic groups and groups of another kind know each other.

Members of the classic protocol may be in a group of another kind: `ClassicMembers` answers their requests. A group with members
may become a group of another kind: `ClassicState` is the form in which it passes, and `ClassicGroups` are the classic groups as
the other kind sees them.

Source: KIP-848, "Migration"; Kafka ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kohort.machine.shard import Result
from kohort.machine.steps import Wake
from kohort.model.context import RequestContext
from kohort.wire import messages as m


class ClassicMembers(Protocol):
    """
    The handlers of members of the classic protocol in groups of another kind.

    Args of each:
        group: of that kind; it may be empty.
    """

    def join_group(
        self, group: Any, request: m.JoinGroupRequest, context: RequestContext, now_ms: int, /
    ) -> Result[Any, m.JoinGroupResponse]: ...

    def sync_group(self, group: Any, request: m.SyncGroupRequest, /) -> Result[Any, m.SyncGroupResponse]: ...

    def heartbeat(self, group: Any, request: m.HeartbeatRequest, /) -> Result[Any, m.HeartbeatResponse]: ...

    def leave_group(
        self, group: Any, request: m.LeaveGroupRequest, now_ms: int, /
    ) -> Result[Any, m.LeaveGroupResponse]: ...


class ClassicMemberState(NamedTuple):
    """
    A member of the classic protocol.

    Attributes:
        protocols: names with metadata, in the member's order of preference.
        assignment: the bytes that the group's leader wrote; b"" for none.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    assignment: bytes


class ClassicState(NamedTuple):
    """
    A classic group that becomes a group of another kind, or the reverse.

    Attributes:
        protocol_name: the protocol that the members of this generation voted for; None if there was no vote yet, or is none.
    """

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    members: Sequence[ClassicMemberState]


class ClassicGroups(Protocol):
    """The classic groups of a shard."""

    def export(self, group: Any, /) -> ClassicState:
        """The group as it is; nothing changes."""

    def dismiss_waiting(self, group: Any, /) -> Sequence[Wake]:
        """Answer all requests that wait, because the group becomes one of another kind: REBALANCE_IN_PROGRESS."""

    def adopt(
        self,
        state: ClassicState,
        assign: Callable[[str, bytes], bytes],
        now_ms: int,
        /,
        *,
        rebalance_reason: str | None,
    ) -> Result[Any, None]:
        """
        Prepare a Stable classic group; the replay of its record puts it in the place of the group of this id.

        The members vote for the protocol: `state.protocol_name` is not used.

        Args:
            assign: `assign(member id, metadata)` gives the assignment of a member; its metadata are those of the protocol that
                won the vote.
            rebalance_reason: starts a rebalance after the record; None leaves the group Stable.

        Returns:
            The record of the group, the sessions of its members and what else belongs to the result.
        """
