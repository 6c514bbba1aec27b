"""
Members of a consumer group in virtual time, on the coordinator of `tests.group.harness`.

A `Member` is a client that follows the protocol: it keeps its epoch, takes over the assignment that it is told, and tells what
it owns. `beat` is one heartbeat; every field may be overridden to send something else.
"""

from collections.abc import Sequence
from typing import Any

from kohort.group.consumer.group import ConsumerGroup
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from tests.group.harness import Answer, Coordinator

GROUP = "group"
REBALANCE_MS = 60_000


def consumer_group(coordinator: Coordinator, group_id: str = GROUP) -> ConsumerGroup:
    group = coordinator.shard.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    return group


def state(coordinator: Coordinator, group_id: str = GROUP) -> str:
    return coordinator.listed()[group_id]


def owned_of(coordinator: Coordinator, partitions: dict[str, Sequence[int]]) -> list[Any]:
    """Partitions by topic name, as a request has them."""
    return [
        m.ConsumerGroupHeartbeatRequestTopicPartitions(
            topic_id=coordinator.image.by_name[name].topic_id, partitions=list(numbers)
        )
        for name, numbers in partitions.items()
    ]


class Member:
    """
    Args:
        topics: that it subscribes to by name.
        fields: of its first heartbeat, besides these.

    Attributes:
        epoch: that the coordinator told it.
        owned: its partitions by topic name; what it must revoke it gives up with its next heartbeat.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        topics: Sequence[str] | None = ("orders",),
        *,
        group: str = GROUP,
        instance: str | None = None,
        **fields: Any,
    ) -> None:
        self.coordinator = coordinator
        self.member_id = member_id
        self.group = group
        self.instance = instance
        self.topics = topics
        self.fields = fields
        self.epoch = 0
        self.owned: dict[str, tuple[int, ...]] = {}

    def join(self, **fields: Any) -> Answer:
        """Send the first heartbeat: epoch 0, everything told, nothing owned."""
        self.owned = {}
        first: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": None if self.topics is None else list(self.topics),
            "topic_partitions": [],
        }
        return self.beat(**{**first, **self.fields, **fields})

    def beat(self, *, version: int | None = None, client_id: str = "client", **fields: Any) -> Answer:
        """Send a heartbeat that tells what the member owns, and take over the answer if it is no error."""
        defaults: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "topic_partitions": owned_of(self.coordinator, dict(self.owned)),
        }
        request = m.ConsumerGroupHeartbeatRequest(**{**defaults, **fields})
        answer = self.coordinator.ask("consumer_group_heartbeat", request, version=version, client_id=client_id)
        if not answer.is_parked and answer.code is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            self.member_id = answer.member_id
            if answer.assignment is not None:
                self.owned = partitions_of(self.coordinator, answer.assignment)
        return answer

    def leave(self, epoch: int = -1) -> Answer:
        return self.beat(member_epoch=epoch, topic_partitions=None)


def partitions_of(coordinator: Coordinator, assignment: Any) -> dict[str, tuple[int, ...]]:
    """The partitions of an answer, by topic name."""
    found = {}
    for entry in assignment.topic_partitions:
        topic = coordinator.image.topic_by_id(entry.topic_id)
        name = str(entry.topic_id) if topic is None else topic.name
        found[name] = tuple(sorted(entry.partitions))
    return found


def settle(*members: Member, beats: int = 20) -> int:
    """Let the members send heartbeats in turn until the group is Stable; the number of rounds."""
    for number in range(1, beats + 1):
        for member in members:
            assert member.beat().code is ErrorCode.NONE
        if state(members[0].coordinator, members[0].group) == "Stable":
            return number
    raise AssertionError(f"the group is not Stable after {beats} rounds")
