"""
The uniform assignor for groups whose members subscribe to different topics.

1. Each member keeps the partitions of topics that it is still subscribed to.
2. The other partitions go to the subscriber with the fewest partitions, topic by topic; topics with many partitions for each
   subscriber are first.
3. Partitions move from the subscriber of a topic with the most partitions to the one with the fewest, while both differ by more
   than one. A move may make another topic unbalanced, so all topics are visited again, at most 16 times.

If all subscribers of a topic have equal subscriptions, they differ by at most one partition in the end. Otherwise the
assignment is near to balance.

Source: Kafka 4.2 UniformHeterogeneousAssignmentBuilder; KIP-848.
"""

from collections.abc import Generator
from typing import Final
from uuid import UUID

from kohort.group.assignors.interface import AssignmentSteps, AssignorError, TopicDescriber
from kohort.group.assignors.java_order import member_order
from kohort.group.assignors.levels import NOBODY, Levels
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec, MemberSpec

WORK_PER_STEP: Final = 4_000
"""Partitions of a step, and ten for each of its members: at most about a millisecond on plain Python."""

_MEMBER_WORK: Final = 10
_COPIES_PER_WORK: Final = 16
_PASSES_MAX: Final = 16
_LOW_64_BITS: Final = (1 << 64) - 1


class _Topic:
    """
    A subscribed topic.

    Attributes:
        subscribers: indexes of members.
        owners: the index of the member of each partition, or `NOBODY`.
    """

    def __init__(self, topic_id: UUID, count: int) -> None:
        self.topic_id: Final = topic_id
        self.subscribers: Final[list[int]] = []
        self.owners: Final[list[int]] = [NOBODY] * count

    def unassigned(self) -> list[int]:
        """Return the partitions without an owner, ascending."""
        return [partition for partition, owner in enumerate(self.owners) if owner == NOBODY]

    def partitions_by_owner(self) -> dict[int, list[int]]:
        """Return the partitions of each owner, ascending."""
        partitions: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners):
            held = partitions.get(owner)
            if held is None:
                partitions[owner] = [partition]
            else:
                held.append(partition)
        return partitions


class _Subscription:
    """A set of topics, and the indexes of the members that are subscribed to it."""

    def __init__(self, topics: list[_Topic]) -> None:
        self.topics: Final = topics
        self.members: Final[list[int]] = []


class HeterogeneousAssignment:
    """
    The computation of one target assignment.

    Members are numbered in the order of a HashMap of their ids, as in Kafka. The lower number wins a tie.
    """

    def __init__(self, group: GroupSpec, topics: TopicDescriber) -> None:
        self._group: Final = group
        self._describer: Final = topics
        self._members: list[MemberSpec] = []
        self._sizes: Final = [0] * len(group.members)
        """The number of partitions of each member."""
        self._is_changed: Final = [False] * len(group.members)
        self._topics: Final[dict[UUID, _Topic]] = {}
        self._subscriptions: Final[dict[int, _Subscription]] = {}
        """By the identity of the set of topic ids."""
        self._has_moved = False
        self._work = 0

    def run(self) -> AssignmentSteps:
        """
        Compute the target assignment in slices.

        Raises:
            AssignorError: a topic does not exist.
        """
        member_ids = yield from member_order(list(self._group.members))
        self._members = [self._group.members[member_id] for member_id in member_ids]
        count = len(member_ids)
        index = 0
        yield
        while index < count:
            index = self._subscribe_some(index)
            yield
        for subscription in self._subscriptions.values():
            for topic in subscription.topics:
                topic.subscribers.extend(subscription.members)
            if self._is_step_full(len(subscription.topics) * len(subscription.members) // _COPIES_PER_WORK):
                yield
        index = 0
        while index < count:
            index = self._keep_some(index)
            yield
        topics = list(self._topics.values())
        topics.sort(key=_topic_order)
        for topic in topics:
            unassigned = topic.unassigned()
            if unassigned:
                levels = Levels(topic.subscribers, self._sizes)
                position = 0
                while position < len(unassigned):
                    position = self._assign_some(topic, unassigned, position, levels)
                    yield
            elif self._is_step_full(len(topic.owners)):
                yield
        yield from self._balance([topic for topic in topics if len(topic.subscribers) > 1])
        targets: dict[int, dict[UUID, tuple[int, ...]]] = {}
        for topic in topics:
            self._collect(topic, targets)
            if self._is_step_full(2 * len(topic.owners)):
                yield
        return self._result(member_ids, targets)

    def _is_step_full(self, work: int) -> bool:
        """Add work to the present step, and tell whether it is time to yield."""
        self._work += work
        if self._work < WORK_PER_STEP:
            return False
        self._work = 0
        return True

    def _subscribe_some(self, index: int) -> int:
        """Note the subscriptions of members from `index` on, and return the index of the first that is not visited."""
        work = WORK_PER_STEP
        while index < len(self._members) and work > 0:
            topic_ids = self._members[index].topic_ids
            subscription = self._subscriptions.get(id(topic_ids))
            if subscription is None:
                subscription = _Subscription([self._topic(topic_id) for topic_id in topic_ids])
                self._subscriptions[id(topic_ids)] = subscription
                work -= len(subscription.topics)
            subscription.members.append(index)
            work -= 1
            index += 1
        return index

    def _topic(self, topic_id: UUID) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            count = self._describer.partition_count(topic_id)
            if count < 0:
                raise AssignorError(f"members are subscribed to topic {topic_id}, which does not exist")
            topic = self._topics[topic_id] = _Topic(topic_id, count)
        return topic

    def _keep_some(self, index: int) -> int:
        """Visit members from `index` on, and return the index of the first that is not visited."""
        work = WORK_PER_STEP
        while index < len(self._members) and work > 0:
            work -= _MEMBER_WORK + self._keep(index)
            index += 1
        return index

    def _keep(self, index: int) -> int:
        """Make a member the owner of its partitions of topics that it is subscribed to, and return their number."""
        member = self._members[index]
        held = 0
        for topic_id, partitions in member.assigned.items():
            if topic_id not in member.topic_ids:
                self._is_changed[index] = True
                continue
            owners = self._topics[topic_id].owners
            for partition in partitions:
                if partition < len(owners):
                    owners[partition] = index
                    held += 1
                else:
                    self._is_changed[index] = True
        self._sizes[index] = held
        return held

    def _assign_some(self, topic: _Topic, unassigned: list[int], position: int, levels: Levels) -> int:
        """Assign partitions from `position` on, and return the position of the first that is not assigned."""
        end = min(position + WORK_PER_STEP, len(unassigned))
        for partition in unassigned[position:end]:
            member = levels.next_lowest()
            topic.owners[partition] = member
            self._sizes[member] += 1
            self._is_changed[member] = True
        return end

    def _balance(self, topics: list[_Topic]) -> Generator[None, None, None]:
        """Visit topics in turn, until each was visited without a move since the last move."""
        last_moved = NOBODY
        for _ in range(_PASSES_MAX):
            for index, topic in enumerate(topics):
                if index == last_moved:
                    return
                self._has_moved = False
                if self._is_unbalanced(topic):
                    levels = Levels(topic.subscribers, self._sizes)
                    held = topic.partitions_by_owner()
                    while not self._move_some(topic, levels, held):
                        yield
                    yield
                elif self._is_step_full(len(topic.subscribers)):
                    yield
                if self._has_moved or last_moved == NOBODY:
                    last_moved = index

    def _is_unbalanced(self, topic: _Topic) -> bool:
        sizes = [self._sizes[member] for member in topic.subscribers]
        return max(sizes) - min(sizes) > 1

    def _move_some(self, topic: _Topic, levels: Levels, held: dict[int, list[int]]) -> bool:
        """
        Move partitions of a topic.

        Args:
            held: the partitions by member that were not moved, without those of members that gave all.

        Returns:
            Whether the subscribers are balanced, or no move can make them so.
        """
        for _ in range(WORK_PER_STEP):
            if levels.is_balanced():
                return True
            giver = levels.next_highest()
            while giver != NOBODY and not held.get(giver):
                levels.exclude_highest()
                giver = levels.next_highest()
            if giver == NOBODY:
                return True
            partition = held[giver].pop()
            taker = levels.next_lowest()
            if levels.is_balanced():
                return True
            topic.owners[partition] = taker
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            self._is_changed[giver] = self._is_changed[taker] = True
            self._has_moved = True
        return False

    def _collect(self, topic: _Topic, targets: dict[int, dict[UUID, tuple[int, ...]]]) -> None:
        """Add the partitions of a topic to the targets of changed members."""
        for owner, partitions in topic.partitions_by_owner().items():
            if self._is_changed[owner]:
                targets.setdefault(owner, {})[topic.topic_id] = tuple(partitions)

    def _result(self, member_ids: list[str], targets: dict[int, dict[UUID, tuple[int, ...]]]) -> GroupAssignment:
        """Return the target of each member: its assignment so far, unless that has changed."""
        result: dict[str, Assignment] = {}
        for index, member_id in enumerate(member_ids):
            assigned = self._members[index].assigned
            if self._is_changed[index]:
                target = targets.get(index, NO_ASSIGNMENT)
                result[member_id] = assigned if assigned == target else target
            else:
                result[member_id] = assigned
        return result


def _topic_order(topic: _Topic) -> tuple[float, int, int, int]:
    """Sort by partitions for each subscriber, descending; then fewer subscribers; then as Kafka compares topic ids."""
    number: int = topic.topic_id.int
    subscribers = len(topic.subscribers)
    return -len(topic.owners) / subscribers, subscribers, _signed(number >> 64), _signed(number & _LOW_64_BITS)


def _signed(bits: int) -> int:
    """Kafka compares the halves of an id as signed integers."""
    return bits - (1 << 64) if bits >> 63 else bits
