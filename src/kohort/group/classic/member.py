"""
A member of a classic group.

Source: Kafka ClassicGroupMember.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from kohort.machine.steps import Key
from kohort.model.errors import InvariantError


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for it (for consumers: the subscription)."""

    name: str
    metadata: bytes


class ClassicMember(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        session: the key of the deadline of its session; kept because every heartbeat extends it.
        protocols: in the member's order of preference. A load knows the protocol of the generation only.
        assignment: from the leader, in the last completed rebalance; b"" for none.
    """

    member_id: str
    session: Key
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Sequence[Protocol]
    assignment: bytes = b""

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
