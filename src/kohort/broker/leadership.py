"""Port: the leaders and replicas of partitions, as clients see them. `kohort.broker.partitions.Partitions` implements it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kohort.broker.catalog_view import Topic


class PartitionLeader(NamedTuple):
    """
    The leader and the replicas of a partition.

    Attributes:
        leader_id: -1 if its replicas are stopped, or its log failed or cannot be opened.
        offline: the replicas that cannot be used.
        elr: the eligible leader replicas (KIP-966).
    """

    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int] = ()
    elr: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()

    @property
    def is_offline(self) -> bool:
        return self.leader_id < 0


class Leadership(Protocol):
    """The leaders of partitions."""

    def leader(self, topic: Topic, index: int, /) -> PartitionLeader: ...
