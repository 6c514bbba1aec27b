"""
The uniform assignor for groups whose members all subscribe to the same topics.

With N partitions, m members, q = N div m and r = N mod m, r members get q + 1 partitions and the others q. A member keeps the
partitions that it has up to this quota, so no more partitions move than the balance requires.

Source: Kafka 4.2 UniformHomogeneousAssignmentBuilder; KIP-848.
"""

from typing import Final
from uuid import UUID

from kohort.group.assignors.interface import AssignmentSteps, AssignorError, TopicDescriber
from kohort.group.assignors.java_order import (
    copied_capacity,
    grown_capacity,
    member_order,
    partition_order,
    topic_order,
)
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec

WORK_PER_STEP: Final = 4_000
"""Partitions of a step, and ten for each of its members: at most about a millisecond on plain Python."""

_MEMBER_WORK: Final = 10


class _Topic:
    """A subscribed topic. `is_assigned` has a byte for each partition: 1 if a member has it in its target so far."""

    def __init__(self, topic_id: UUID, count: int) -> None:
        self.topic_id: Final = topic_id
        self.count: Final = count
        self.is_assigned: Final = bytearray(count)

    def mark(self, partitions: tuple[int, ...]) -> None:
        """Mark partitions, which are ascending, as assigned."""
        first = partitions[0]
        length = len(partitions)
        is_assigned = self.is_assigned
        if length > 8 and partitions[-1] - first + 1 == length:
            is_assigned[first : first + length] = b"\x01" * length
            return
        for partition in partitions:
            is_assigned[partition] = 1

    def existing(self, partitions: tuple[int, ...]) -> tuple[int, ...]:
        """Return the partitions that exist: all of them, because no topic loses partitions."""
        if partitions[-1] < self.count:
            return partitions
        return tuple([partition for partition in partitions if partition < self.count])

    def unassigned(self) -> list[int]:
        """Return the partitions that no member has, ascending."""
        is_assigned = self.is_assigned
        missing = is_assigned.count(0)
        if missing == self.count:
            return list(range(missing))
        found = []
        partition = -1
        for _ in range(missing):
            partition = is_assigned.find(0, partition + 1)
            found.append(partition)
        return found


class HomogeneousAssignment:
    """The computation of one target assignment."""

    def __init__(self, group: GroupSpec, topics: TopicDescriber) -> None:
        """
        Raises:
            AssignorError: a topic does not exist.
        """
        self._members: Final = group.members
        topic_ids = sorted(group.topic_ids)
        self._topics: Final[dict[UUID, _Topic]] = {}
        self._topics_by_identity: Final[dict[int, _Topic]] = {}
        self._recognised: Final[list[UUID]] = []
        """The objects in `_topics_by_identity`, so that no other object gets the identity of one."""
        partition_count = 0
        for topic_id in topic_order(topic_ids, copied_capacity(len(topic_ids))):
            count = topics.partition_count(topic_id)
            if count < 0:
                raise AssignorError(f"members are subscribed to topic {topic_id}, which does not exist")
            self._topics[topic_id] = _Topic(topic_id, count)
            partition_count += count
        self._target: Final[dict[str, Assignment]] = {}
        self._quota: Final = partition_count // max(1, len(group.members))
        self._larger_quotas = partition_count % max(1, len(group.members))
        """The number of members that may still get one partition more than the quota."""
        self._unfilled: Final[list[tuple[str, int]]] = []
        """The members with fewer partitions than their quota, and the number of partitions that they lack."""
        self._surplus: Final[list[tuple[UUID, list[int]]]] = []
        """The partitions that members give up because they exceed the quota."""
        self._pool: list[tuple[UUID, list[int]]] = []
        self._pool_index = 0
        self._pool_position = 0

    def run(self) -> AssignmentSteps:
        """
        Compute the target assignment in slices.

        Raises:
            AssignorError: a partition is left. It cannot happen if no partition was assigned twice before.
        """
        order = yield from member_order(list(self._members))
        visited = 0
        while visited < len(order):
            visited = self._keep_some(order, visited)
            yield
        for topic in self._topics.values():
            unassigned = topic.unassigned()
            if unassigned:
                self._pool.append((topic.topic_id, unassigned))
        self._pool += self._surplus
        yield
        filled = 0
        while filled < len(self._unfilled):
            filled = self._fill_some(filled)
            yield
        if self._pool_index < len(self._pool):
            raise AssignorError("partitions are left without a member, because others were assigned to several members")
        target: GroupAssignment = self._target
        return target

    def _keep_some(self, order: list[str], index: int) -> int:
        """Visit members from `index` on, and return the index of the first that is not visited."""
        work = WORK_PER_STEP
        count = len(order)
        while index < count and work > 0:
            work -= _MEMBER_WORK + self._keep(order[index], count - index)
            index += 1
        return index

    def _keep(self, member_id: str, members_left: int) -> int:
        """
        Decide what a member keeps, and how many partitions it lacks.

        Args:
            members_left: the number of members that are not visited yet, with this one.

        Returns:
            The number of its partitions so far.
        """
        assigned = self._members[member_id].assigned
        partitions_before = assigned if isinstance(assigned, dict) else dict(assigned)
        held = 0
        has_others = False
        for topic_id, partitions in partitions_before.items():
            topic = self._topics_by_identity.get(id(topic_id))
            if topic is None:
                topic = self._find(topic_id)
                if topic is None:
                    has_others = True
                    continue
            if partitions[-1] >= topic.count:
                has_others = True
                partitions = topic.existing(partitions)
                if not partitions:
                    continue
            topic.mark(partitions)
            held += len(partitions)
        takes_larger = self._larger_quotas > 0
        quota = self._quota + 1 if takes_larger else self._quota
        if has_others or held > quota:
            assigned = self._keep_up_to(quota, partitions_before)
        self._target[member_id] = assigned
        lacks = max(0, quota - held)
        if lacks and takes_larger and members_left > self._larger_quotas:
            # Kafka 4.1: another member may have the additional partition already. Before, the first members that were
            # visited reserved it, and partitions moved without need.
            lacks -= 1
            takes_larger = False
        if takes_larger:
            self._larger_quotas -= 1
        if lacks:
            self._unfilled.append((member_id, lacks))
        return held

    def _find(self, topic_id: UUID) -> _Topic | None:
        """
        Return a topic, and recognise the object of its id from now on.

        The hash of a UUID is computed in Python each time. The assignments of many members share one object.
        """
        topic = self._topics.get(topic_id)
        if topic is not None:
            self._topics_by_identity[id(topic_id)] = topic
            self._recognised.append(topic_id)
        return topic

    def _keep_up_to(self, quota: int, assigned: dict[UUID, tuple[int, ...]]) -> Assignment:
        """Return the first partitions of subscribed topics; the others are surplus."""
        kept: dict[UUID, tuple[int, ...]] = {}
        for topic_id in topic_order(list(assigned), grown_capacity(len(assigned))):
            topic = self._topics.get(topic_id)
            if topic is None:
                continue
            partitions = topic.existing(assigned[topic_id])
            if len(partitions) > quota:
                ordered = partition_order(partitions)
                self._surplus.append((topic_id, list(ordered[quota:])))
                partitions = tuple(sorted(ordered[:quota]))
            quota -= len(partitions)
            if partitions:
                kept[topic_id] = partitions
        return kept or NO_ASSIGNMENT

    def _fill_some(self, index: int) -> int:
        """Fill members from `index` on, and return the index of the first that is not filled."""
        work = WORK_PER_STEP
        count = len(self._unfilled)
        while index < count and work > 0:
            member_id, lacks = self._unfilled[index]
            self._target[member_id] = self._fill(self._target[member_id], lacks)
            work -= _MEMBER_WORK + lacks
            index += 1
        return index

    def _fill(self, assignment: Assignment, lacks: int) -> Assignment:
        """Return the assignment with as many partitions of the pool, or fewer if the pool is empty."""
        filled = dict(assignment)
        while lacks and self._pool_index < len(self._pool):
            topic_id, partitions = self._pool[self._pool_index]
            start = self._pool_position
            taken = partitions[start : start + lacks]
            lacks -= len(taken)
            if start + len(taken) == len(partitions):
                self._pool_index += 1
                self._pool_position = 0
            else:
                self._pool_position = start + len(taken)
            taken += filled.get(topic_id, ())
            taken.sort()
            filled[topic_id] = tuple(taken)
        return filled
