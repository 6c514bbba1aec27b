"""
A member of a classic group.

Source: Kafka ClassicGroupMember.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kohort.machine.shard import Reply, Result
from kohort.model.errors import InvariantError
from kohort.wire import messages as m


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for it (for consumers: the subscription)."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False, kw_only=True)
class ClassicMember:
    """
    Attributes:
        protocols: in the member's order of preference.
        assignment: from the leader, in the last completed rebalance; b"" for none.
        is_new: added, and its first JoinGroup is not answered yet.
        join_reply: answers its parked JoinGroup; None if none is parked. Likewise `sync_reply`.
        timer_key, on_expiry: its session timer; kept because every heartbeat schedules it again.
        reverted_to: the static member that this one had replaced, once the replacement could not be written.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Sequence[Protocol]
    assignment: bytes = b""
    is_new: bool = False
    join_reply: Reply[m.JoinGroupResponse] | None = None
    sync_reply: Reply[m.SyncGroupResponse] | None = None
    timer_key: str = ""
    on_expiry: Callable[[int], Result[Any, None]] | None = None
    reverted_to: "ClassicMember | None" = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata for one protocol; b"" if the member does not support that protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of the member's protocols that is a candidate."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InvariantError(f"member {self.member_id} supports none of the common protocols")
