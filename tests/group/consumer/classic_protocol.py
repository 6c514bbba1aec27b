"""
A client of the classic protocol, apart from its transport: it makes requests and hears their answers.

It follows the Java consumer with an eager or a cooperative assignor. It knows nothing of the kind of its group: in a classic
group it may lead, and then assigns; in a consumer group the coordinator assigns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage
from kohort.records.consumer_protocol import read_assignment, read_subscription
from kohort.wire import messages as m
from tests.group.consumer.classic_member import assignment_bytes, subscription_bytes
from tests.group.consumer.protocol import Partition

PROTOCOL = "range"
JOIN, SYNC, HEARTBEAT = "join_group", "sync_group", "heartbeat"

NamedPartition = tuple[str, int]

ENDING = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
"""The client gives up."""


class ClassicProtocolMember:
    """
    Args:
        image: the topics of the cluster, which a leader assigns.

    Attributes:
        step: the API of the next request.
        generation: -1 if the client has none.
        used: the partitions that the client may read now, by topic name.
        is_assigned: whether `used` is from the coordinator of a consumer group. The owner of the client sets it: in a classic
            group the leader assigns, and a member that has still to synchronise may use the partitions of another one.
        is_ended: it sends nothing any more.
    """

    def __init__(
        self,
        group_id: str,
        topics: Iterable[str],
        image: ClusterImage,
        *,
        member_id: str = "",
        instance_id: str | None = None,
        is_cooperative: bool = True,
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
    ) -> None:
        self.group_id = group_id
        self.topics = tuple(topics)
        self.member_id = member_id
        self.instance_id = instance_id
        self.is_cooperative = is_cooperative
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.step = JOIN
        self.generation = -1
        self.used: frozenset[NamedPartition] = frozenset()
        self.is_assigned = False
        self.is_ended = False
        self._image = image
        self._told: dict[NamedPartition, Partition] = {}
        self._followers: Sequence[m.JoinGroupResponseMember] = ()
        """The members of the generation, if this one assigns."""

    # Requests

    def request(self) -> Any:
        """The next request: that of the API `step`."""
        if self.step == JOIN:
            return self._join()
        if self.step == SYNC:
            return self._sync()
        return m.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def _join(self) -> m.JoinGroupRequest:
        """An eager client gives up everything first, and so does one without a generation."""
        if self.generation < 0 or not self.is_cooperative:
            self.used = frozenset()
        return m.JoinGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                m.JoinGroupRequestProtocol(
                    name=PROTOCOL, metadata=subscription_bytes(self.topics, by_topic(self.used), version=1)
                )
            ],
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
        )

    def _sync(self) -> m.SyncGroupRequest:
        return m.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[
                m.SyncGroupRequestAssignment(
                    member_id=id_, assignment=assignment_bytes(by_topic(partitions), version=1)
                )
                for id_, partitions in self._assign().items()
            ],
        )

    def _assign(self) -> dict[str, set[NamedPartition]]:
        """The partitions of the followers in turn. One that another follower uses is free in the next generation."""
        subscriptions = {each.member_id: read_subscription(each.metadata) for each in self._followers}
        users: dict[NamedPartition, set[str]] = {}
        for id_, subscription in subscriptions.items():
            for entry in subscription.owned_partitions:
                for partition in entry.partitions:
                    users.setdefault((entry.topic, partition), set()).add(id_)
        given: dict[str, set[NamedPartition]] = {id_: set() for id_ in subscriptions}
        for topic in self._image.topics():
            ids = [id_ for id_, subscription in subscriptions.items() if topic.name in subscription.topics]
            for partition in range(topic.partition_count if ids else 0):
                id_ = ids[partition % len(ids)]
                if users.get((topic.name, partition), set()) <= {id_}:
                    given[id_].add((topic.name, partition))
        return given

    def leaving(self) -> m.LeaveGroupRequest:
        """The last request."""
        self.end()
        identity = m.LeaveGroupRequestMemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return m.LeaveGroupRequest(group_id=self.group_id, members=[identity])

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join again with another subscription."""
        self.topics = tuple(topics)
        self.step = JOIN

    def rejoin(self) -> None:
        """Join again as a new member."""
        self._forget()
        self.member_id = ""

    def end(self) -> None:
        """The client dies."""
        self.used = frozenset()
        self.is_ended = True

    def not_heard(self) -> None:
        """The answer was lost: a client that synchronised joins again."""
        if self.step == SYNC:
            self.step = JOIN

    # Answers

    def heard(self, step: str, response: Any) -> None:
        """Take over an answer to a request of the API `step`."""
        if self.is_ended:
            return
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            if step == JOIN:
                self._joined(response)
            elif step == SYNC:
                self._synced(response)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.rejoin()
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._forget()
        elif code in ENDING:
            self.end()
        elif step == SYNC or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.step = JOIN

    def _joined(self, response: m.JoinGroupResponse) -> None:
        self.member_id, self.generation, self.step = response.member_id, response.generation_id, SYNC
        self._followers = () if response.skip_assignment else response.members
        # The member may be new in the group, though the client does not know that it was removed.
        self.is_assigned = False

    def _synced(self, response: m.SyncGroupResponse) -> None:
        assigned: frozenset[NamedPartition] = frozenset()
        if response.assignment:
            assigned = frozenset(
                (entry.topic, partition)
                for entry in read_assignment(bytes(response.assignment)).assigned_partitions
                for partition in entry.partitions
            )
        revoked = self.used - assigned
        self.used = assigned
        # A cooperative client that gave something up tells it by joining again.
        self.step = JOIN if revoked and self.is_cooperative else HEARTBEAT

    def assigned(self, topics: Mapping[str, UUID]) -> None:
        """
        Note that the coordinator of a consumer group has assigned `used`.

        Args:
            topics: the ids of all topics when it did.
        """
        self.is_assigned = True
        self._told = {(name, number): (topics[name], number) for name, number in self.used if name in topics}

    @property
    def identified(self) -> frozenset[Partition]:
        """
        The partitions in use that the coordinator of a consumer group assigned.

        The client knows the names of topics only: it does not notice that a topic is deleted and made again.
        """
        if not self.is_assigned:
            return frozenset()
        return frozenset(self._told[named] for named in self.used if named in self._told)

    def _forget(self) -> None:
        """Give up everything and join again."""
        self.used = frozenset()
        self.generation = -1
        self.step = JOIN


def by_topic(partitions: Iterable[NamedPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found
