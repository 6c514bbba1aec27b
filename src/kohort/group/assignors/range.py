"""
The range assignor.

Per topic, each subscriber gets a contiguous range of partitions. Topics with equal subscribers and partition counts are
co-partitioned: partition N of each is assigned to the same member. The assignment so far makes no difference.

Racks make no difference, as in Kafka since 4.0.

Source: Kafka RangeAssignor; KIP-848.
"""

from typing import Final
from uuid import UUID

from kohort.group.assignors.interface import AssignmentSteps, AssignorError, TopicDescriber
from kohort.group.assignors.specs import Assignment, GroupSpec

MEMBERS_PER_STEP: Final = 500
RANGES_PER_STEP: Final = 2_000
"""About a millisecond on plain Python."""


class RangeAssignor:
    """Assigns ranges of each topic."""

    @property
    def name(self) -> str:
        return "range"

    def assign_in_steps(self, group: GroupSpec, topics: TopicDescriber, /) -> AssignmentSteps:
        """Compute the target assignment in slices; `SteppedAssignor.assign_in_steps`."""
        return _RangeAssignment(topics).run(group)


class _RangeAssignment:
    """The computation of one target assignment."""

    def __init__(self, topics: TopicDescriber) -> None:
        self._describer: Final = topics
        self._topics: Final[dict[UUID, _Ranges]] = {}
        self._subscriptions: Final[dict[int, list[_Ranges]]] = {}
        """The topics of each subscription in the order of their ids, by the identity of the subscription's set."""

    def run(self, group: GroupSpec) -> AssignmentSteps:
        """
        Compute the target assignment in slices.

        Raises:
            AssignorError: a topic does not exist.
        """
        members = group.members
        order = in_range_order(group)
        yield
        for start in range(0, len(order), MEMBERS_PER_STEP):
            for member_id in order[start : start + MEMBERS_PER_STEP]:
                self._subscribe(members[member_id].topic_ids)
            yield
        for topic in self._topics.values():
            topic.divide()
        target: dict[str, Assignment] = {}
        index = 0
        while index < len(order):
            work = RANGES_PER_STEP
            while index < len(order) and work > 0:
                member_id = order[index]
                member = members[member_id]
                subscription = self._subscriptions[id(member.topic_ids)]
                target[member_id] = _take_ranges(member.assigned, subscription)
                work -= 1 + len(subscription)
                index += 1
            yield
        return target

    def _subscribe(self, topic_ids: frozenset[UUID]) -> None:
        """Add a subscriber to some topics."""
        subscription = self._subscriptions.get(id(topic_ids))
        if subscription is None:
            subscription = self._subscriptions[id(topic_ids)] = [
                self._topic(topic_id) for topic_id in sorted(topic_ids)
            ]
        for topic in subscription:
            topic.subscribers += 1

    def _topic(self, topic_id: UUID) -> "_Ranges":
        topic = self._topics.get(topic_id)
        if topic is None:
            count = self._describer.partition_count(topic_id)
            if count < 0:
                raise AssignorError(f"members are subscribed to topic {topic_id}, which does not exist")
            topic = self._topics[topic_id] = _Ranges(topic_id, count)
        return topic


class _Ranges:
    """The ranges of one topic, handed out in the order of the subscribers."""

    def __init__(self, topic_id: UUID, count: int) -> None:
        self.topic_id: Final = topic_id
        self.subscribers = 0
        self._partitions: Final = tuple(range(count))
        self._next = 0
        self._quota = 0
        self._longer_ranges = 0
        """The number of ranges that are longer than the quota by one and are not handed out yet."""

    def divide(self) -> None:
        """Set the lengths of the ranges, when all subscribers are known."""
        self._quota = len(self._partitions) // self.subscribers
        self._longer_ranges = len(self._partitions) % self.subscribers

    def take(self) -> tuple[int, ...]:
        """Return the next range. It is empty if there are fewer partitions than subscribers before."""
        first = self._next
        end = first + self._quota
        if self._longer_ranges:
            self._longer_ranges -= 1
            end += 1
        self._next = end
        return self._partitions[first:end]


def in_range_order(group: GroupSpec) -> list[str]:
    """
    Return the member ids in the order of the ranges: static members by instance id, then dynamic ones by member id.

    A static member that returns under another member id keeps its place and so its partitions.
    """
    dynamic: list[str] = []
    static: dict[str, str] = {}
    for member_id, member in group.members.items():
        instance_id = member.instance_id
        if instance_id is None:
            dynamic.append(member_id)
        else:
            static[instance_id] = member_id
    return [static[instance_id] for instance_id in _java_sorted(list(static))] + _java_sorted(dynamic)


def _java_sorted(texts: list[str]) -> list[str]:
    """Java compares UTF-16 code units, and Python code points. The order of ASCII is the same, and many times faster."""
    if "".join(texts).isascii():
        texts.sort()
    else:
        texts.sort(key=_utf_16)
    return texts


def _utf_16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _take_ranges(assigned: Assignment, subscription: list[_Ranges]) -> Assignment:
    """Take the ranges of one member. Return its assignment so far if that is equal."""
    assignment: dict[UUID, tuple[int, ...]] = {}
    for topic in subscription:
        partitions = topic.take()
        if partitions:
            assignment[topic.topic_id] = partitions
    return assigned if assigned == assignment else assignment
