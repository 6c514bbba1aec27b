"""
A member of a classic group.

Source: Kafka ClassicGroupMember.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from kohort.machine.steps import Key
from kohort.model.errors import InvariantError, WireError
from kohort.records.consumer_protocol import read_subscription

Protocol: TypeAlias = tuple[str, bytes]
"""The name of an assignment protocol that a member supports, and its metadata for it (for consumers: the subscription)."""


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

    def changed(
        self,
        *,
        member_id: str | None = None,
        session: Key | None = None,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int | None = None,
        protocols: tuple[Protocol, ...] | None = None,
        assignment: bytes | None = None,
    ) -> "ClassicMember":
        """The member with these values in place of its own."""
        return ClassicMember(
            self.member_id if member_id is None else member_id,
            self.session if session is None else session,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
            self.session_timeout_ms if session_timeout_ms is None else session_timeout_ms,
            self.protocols if protocols is None else protocols,
            self.assignment if assignment is None else assignment,
        )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """
    The topics that a consumer subscribes to; None if the metadata of its JoinGroup are not a subscription.

    In Kafka a malformed subscription throws in the middle of a rebalance, which wedges the group, or fails the load of a whole
    partition. Here its topics are unknown. Like Kafka, this reads version 0 whatever version the bytes state.

    Source: Kafka ClassicGroup.computeSubscribedTopics, ConsumerProtocolSubscription.json.
    """
    try:
        return frozenset(read_subscription(metadata, version=0).topics)
    except WireError:
        return None
