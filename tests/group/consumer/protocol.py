"""
A client of the consumer protocol, apart from its transport: it makes heartbeats and hears their answers.

It follows KIP-848 as the Java consumer does. It uses a partition from the answer that assigns it until the heartbeat that no
longer names it, tells everything after an error, and gives up everything when it is fenced.
"""

from collections.abc import Iterable
from uuid import UUID

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

REBALANCE_MS = 60_000

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""The member gives up its partitions, and joins again."""
REFUSED = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
)
"""The member gives up its partitions, and ends: these errors are fatal for the Java consumer."""

NO_TOPIC = UUID(int=0)

Partition = tuple[UUID, int]


class ProtocolMember:
    """
    Args:
        pattern: a regular expression that it subscribes to besides the names; "" for none.

    Attributes:
        epoch: that the coordinator told it; 0 if it joins with its next heartbeat.
        used: the partitions that the client may read now.
        assigned: the partitions that it was told.
        is_ended: it sends nothing any more.
    """

    def __init__(
        self,
        group_id: str,
        member_id: str,
        topics: Iterable[str],
        *,
        instance_id: str | None = None,
        pattern: str = "",
        assignor: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.topics = tuple(topics)
        self.pattern = pattern
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        self.used: frozenset[Partition] = frozenset()
        self.assigned: frozenset[Partition] = frozenset()
        self.is_ended = False
        self._tells_all = True
        self._told: frozenset[Partition] | None = None
        """What the coordinator was told last; None if that is unknown."""

    def subscribe(self, topics: Iterable[str], pattern: str = "") -> None:
        self.topics = tuple(topics)
        self.pattern = pattern
        self._tells_all = True

    def heartbeat(self, *, still_revoking: bool = False) -> m.ConsumerGroupHeartbeatRequest:
        """The next heartbeat. Before it is sent the client gives up what it must revoke, unless it is slow."""
        if self.epoch == 0:
            self.used = self.assigned = frozenset()
        elif not still_revoking:
            self.used &= self.assigned
        is_new = self.used != self._told or self._tells_all or self.epoch == 0
        everything = self._tells_all or self.epoch == 0
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_ms if everything else -1,
            subscribed_topic_names=list(self.topics) if everything else None,
            subscribed_topic_regex=self.pattern if everything else None,
            server_assignor=self.assignor if everything else None,
            topic_partitions=entries(self.used) if is_new else None,
        )
        self._told = self.used
        self._tells_all = False
        return request

    def leaving(self) -> m.ConsumerGroupHeartbeatRequest:
        """The last heartbeat: it leaves for good, or for a while if it is static."""
        self.used = frozenset()
        self.is_ended = True
        return m.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=-1 if self.instance_id is None else -2,
            instance_id=self.instance_id,
        )

    def rejoin(self) -> None:
        """Join again with the next heartbeat; give up everything at once."""
        self.epoch = 0
        self.used = self.assigned = frozenset()

    def end(self) -> None:
        """The client dies."""
        self.used = self.assigned = frozenset()
        self.is_ended = True

    def not_heard(self) -> None:
        """The answer was lost: tell everything again."""
        self._tells_all = True

    def heard(self, response: m.ConsumerGroupHeartbeatResponse) -> None:
        """Take over an answer."""
        code = ErrorCode(response.error_code)
        if self.is_ended:
            return
        if code is ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = partitions(response.assignment.topic_partitions)
                self.used |= self.assigned
        elif code in FENCED:
            self.rejoin()
        elif code in REFUSED:
            self.end()
        else:
            self._tells_all = True


def entries(owned: Iterable[Partition]) -> list[m.ConsumerGroupHeartbeatRequestTopicPartitions]:
    """Partitions as a request names them."""
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    return [
        m.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic.items()
    ]


def partitions(named: Iterable[m.ConsumerGroupHeartbeatResponseTopicPartitions]) -> frozenset[Partition]:
    """The partitions that an answer names."""
    return frozenset((entry.topic_id or NO_TOPIC, partition) for entry in named for partition in entry.partitions)
