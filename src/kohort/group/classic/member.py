"""
A member of a classic group.

Source: Kafka ClassicGroupMember.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.machine.steps import Key
from kohort.model.errors import InvariantError


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for it (for consumers: the subscription)."""

    name: str
    metadata: bytes


class ClassicMember:
    """
    A value: a change of a member makes another one.

    Attributes:
        session: the key of the deadline of its session; kept because every heartbeat extends it.
        protocols: in the member's order of preference. A load knows the protocol of the generation only.
        assignment: from the leader, in the last completed rebalance; b"" for none.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        session: Key,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id: Final = member_id
        self.session: Final = session
        self.group_instance_id: Final = group_instance_id
        self.client_id: Final = client_id
        self.client_host: Final = client_host
        self.rebalance_timeout_ms: Final = rebalance_timeout_ms
        self.session_timeout_ms: Final = session_timeout_ms
        self.protocols: Final = protocols
        self.assignment: Final = assignment

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata for one protocol; b"" if the member does not support that protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of the member's protocols that is a candidate."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InvariantError(f"member {self.member_id} supports none of the common protocols")

    # Changes

    def with_assignment(self, assignment: bytes) -> "ClassicMember":
        return ClassicMember(
            self.member_id,
            self.session,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            assignment,
        )

    def with_request(
        self, protocols: tuple[Protocol, ...], *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> "ClassicMember":
        """The member as its next JoinGroup describes it."""
        return ClassicMember(
            self.member_id,
            self.session,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            protocols,
            self.assignment,
        )

    def under_new_id(self, member_id: str, session: Key) -> "ClassicMember":
        """A static member whose client has joined without its member id."""
        return ClassicMember(
            member_id,
            session,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )
