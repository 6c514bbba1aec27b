"""
A client of the classic protocol in virtual time, on the coordinator of `tests.group.harness`.

It is a consumer with a cooperative assignor: when it joins, it tells the partitions that its last SyncGroup brought.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kohort.model.errors import ErrorCode
from kohort.records.consumer_protocol import read_assignment, write_assignment, write_subscription
from kohort.records.values import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tests.group.consumer.members import GROUP, Member
from tests.group.harness import Answer, Coordinator

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def subscription_bytes(
    topics: Sequence[str] = ("orders",),
    owned: Mapping[str, Sequence[int]] | None = None,
    *,
    version: int = 3,
    rack: str | None = None,
    user_data: bytes | None = None,
) -> bytes:
    entries = tuple(
        ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=tuple(partitions))
        for topic, partitions in (owned or {}).items()
    )
    fields: dict[str, Any] = {"topics": tuple(topics), "user_data": user_data}
    if version >= 1:
        fields["owned_partitions"] = entries
    if version >= 2:
        fields["generation_id"] = -1
    if version >= 3:
        fields["rack_id"] = rack
    return write_subscription(ConsumerProtocolSubscription(**fields), version)


def assignment_bytes(
    partitions: Mapping[str, Sequence[int]], *, version: int = 3, user_data: bytes | None = None
) -> bytes:
    entries = tuple(
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=tuple(numbers))
        for topic, numbers in partitions.items()
    )
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=entries, user_data=user_data), version)


def assigned(data: bytes) -> dict[str, tuple[int, ...]]:
    """The partitions of an assignment, by topic."""
    return {entry.topic: tuple(sorted(entry.partitions)) for entry in read_assignment(bytes(data)).assigned_partitions}


class ClassicMember:
    """
    Attributes:
        member_id, generation: as the coordinator told them.
        owned: its partitions by topic name.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        topics: Sequence[str] = ("orders",),
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: Sequence[str] = ("range",),
        version: int = 3,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.coordinator = coordinator
        self.topics = topics
        self.group = group
        self.instance = instance
        self.protocols = protocols
        self.version = version
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, tuple[int, ...]] = {}

    def ask_join(self, *, owned: Mapping[str, Sequence[int]] | None = None, **options: Any) -> Answer:
        """One JoinGroup; the answer may come later."""
        metadata = subscription_bytes(self.topics, self.owned if owned is None else owned, version=self.version)
        defaults: dict[str, Any] = {
            "group": self.group,
            "instance": self.instance,
            "protocols": [(name, metadata) for name in self.protocols],
            "session_ms": self.session_ms,
            "rebalance_ms": self.rebalance_ms,
        }
        member_id = options.pop("member_id", self.member_id)
        return self.coordinator.join(member_id, **{**defaults, **options})

    def join(self, **options: Any) -> Answer:
        """Join; a new member first gets its id."""
        answer = self.ask_join(**options)
        if not answer.is_parked and answer.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.ask_join(**options)
        if not answer.is_parked and answer.code is ErrorCode.NONE:
            self.take(answer)
        return answer

    def take(self, answer: Answer) -> None:
        """Take over what the answer to a JoinGroup says."""
        self.member_id, self.generation = answer.member_id, answer.generation_id

    def sync(self, assignments: dict[str, bytes] | None = None, **options: Any) -> Answer:
        defaults = {"group": self.group, "instance": self.instance, "protocol_name": self.protocols[0]}
        answer = self.coordinator.sync(self.member_id, self.generation, assignments, **{**defaults, **options})
        if not answer.is_parked and answer.code is ErrorCode.NONE:
            self.owned = assigned(answer.assignment)
        return answer

    def heartbeat(self) -> ErrorCode:
        return self.coordinator.heartbeat(self.member_id, self.generation, group=self.group, instance=self.instance)

    def leave(self) -> ErrorCode:
        (code,) = self.coordinator.leave((self.member_id, self.instance), group=self.group)
        return code

    def poll(self) -> ErrorCode:
        """One heartbeat, after which the member joins and synchronises again if it has to; it gives up what it loses."""
        code = self.heartbeat()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            answer = self.join()
            if not answer.is_parked and answer.code is ErrorCode.NONE:
                self.sync()
        return code


def classic_group(coordinator: Coordinator, size: int = 2, **options: Any) -> list[ClassicMember]:
    """A Stable classic group of consumers: the first leads, and has assigned the partitions of `orders` in turn."""
    members = [ClassicMember(coordinator, **options) for _ in range(size)]
    answers = [member.join() for member in members]
    coordinator.wait_initial_delay()
    for member, answer in zip(members, answers, strict=True):
        assert answer.code is ErrorCode.NONE
        member.take(answer)
    share = {
        member.member_id: assignment_bytes({"orders": range(index, 4, size)}) for index, member in enumerate(members)
    }
    synced = [member.sync(None if index else share) for index, member in enumerate(members)]
    for member, answer in zip(members, synced, strict=True):
        assert answer.code is ErrorCode.NONE
        member.owned = assigned(answer.assignment)
    return members


def settle(modern: Sequence[Member], classic: Sequence[ClassicMember], rounds: int = 20) -> int:
    """Let all members of a mixed group go on in turn until it is Stable; the number of rounds."""
    coordinator = classic[0].coordinator if classic else modern[0].coordinator
    for number in range(1, rounds + 1):
        for member in modern:
            assert member.beat().code is ErrorCode.NONE
        for each in classic:
            assert each.poll() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        if coordinator.listed()[GROUP] == "Stable":
            return number
    raise AssertionError(f"the group is not Stable after {rounds} rounds")
