"""
The assignor of share groups: partitions are shared by members if there are fewer partitions than members.

With P partitions and N members that read the same topics, each partition has S = ceil(N / P) members, and each member the same
number of partitions, or one less. Members keep what they have as far as that allows. If members read different topics, each
topic is divided among those that read it.

Source: Kafka SimpleAssignor, SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder; KIP-932.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from kohort.group.assignors.interface import AssignmentSteps
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupSpec

Partition: TypeAlias = tuple[UUID, int]


def assign_shared(group: GroupSpec, partitions: Assignment) -> AssignmentSteps:
    """
    Compute the target assignment in slices.

    Args:
        group: its members' `assigned` may name partitions that others have, too.
        partitions: all that may be assigned.
    """
    targets: dict[str, dict[UUID, list[int]]] = {member_id: {} for member_id in group.members}
    loads = dict.fromkeys(group.members, 0)
    for topic_ids, member_ids in _portions(group, partitions):
        portion = _Portion(member_ids, [(topic_id, each) for topic_id in topic_ids for each in partitions[topic_id]])
        for member_id in member_ids:
            portion.keep(member_id, group.members[member_id].assigned)
        yield
        for member_id, shares in portion.divide(loads).items():
            loads[member_id] += len(shares)
            for topic_id, partition in shares:
                targets[member_id].setdefault(topic_id, []).append(partition)
        yield
    assignment: dict[str, Assignment] = {}
    for member_id, member in group.members.items():
        target = {topic_id: tuple(sorted(each)) for topic_id, each in targets[member_id].items()} or NO_ASSIGNMENT
        assignment[member_id] = member.assigned if target == member.assigned else target
    return assignment


def _portions(group: GroupSpec, partitions: Assignment) -> Iterable[tuple[Sequence[UUID], Sequence[str]]]:
    """What is divided at a time: topics, and the members that read them."""
    topic_ids = sorted(group.topic_ids.intersection(partitions))
    if group.is_homogeneous:
        return [(topic_ids, list(group.members))] if topic_ids else []
    members = group.members.items()
    return [([each], [id_ for id_, member in members if each in member.topic_ids]) for each in topic_ids]


class _Portion:
    """Some partitions, and all members that may have them."""

    def __init__(self, member_ids: Sequence[str], partitions: Sequence[Partition]) -> None:
        self._partitions: Final = partitions
        self._sharers: Final = dict.fromkeys(partitions, 0)
        self._kept: Final[dict[str, dict[Partition, None]]] = {member_id: {} for member_id in member_ids}
        self._sharing: Final = -(-len(member_ids) // len(partitions))
        """How many members each partition should have."""

    def keep(self, member_id: str, assigned: Assignment) -> None:
        """Note what a member has so far."""
        kept = self._kept[member_id]
        for topic_id, partitions in assigned.items():
            for partition in partitions:
                each = topic_id, partition
                if each in self._sharers:
                    kept[each] = None
                    self._sharers[each] += 1

    def divide(self, loads: Mapping[str, int]) -> Mapping[str, Collection[Partition]]:
        """
        The partitions of each member.

        Args:
            loads: the number of partitions that the members have of other portions. Who has fewer may get one more here.
        """
        wishes = self._wishes(loads)
        for member_id, wish in wishes.items():
            self._shrink(member_id, wish)
        for member_id, kept in self._kept.items():
            for each in [each for each in kept if self._sharers[each] > self._sharing]:
                if self._sharers[each] > self._sharing:
                    self._drop(member_id, each)
        hungry = [member_id for member_id, wish in wishes.items() if len(self._kept[member_id]) < wish]
        for sharers in range(self._sharing):
            for each in self._partitions:
                if self._sharers[each] == sharers:
                    self._give(each, hungry, wishes)
        return self._kept

    def _wishes(self, loads: Mapping[str, int]) -> dict[str, int]:
        """How many partitions each member should have; who has more now gets more."""
        count, total = len(self._kept), self._sharing * len(self._partitions)
        wishes = sorted((-(-total * (i + 1) // count) + (-total * i // count) for i in range(count)), reverse=True)
        order = sorted(self._kept, key=lambda member_id: (-len(self._kept[member_id]), loads[member_id]))
        return dict(zip(order, wishes, strict=True))

    def _shrink(self, member_id: str, wish: int) -> None:
        """Take from a member what it has above its wish, partitions with many members first."""
        kept = self._kept[member_id]
        if len(kept) > wish:
            for each in sorted(kept, key=lambda each: -self._sharers[each])[: len(kept) - wish]:
                self._drop(member_id, each)

    def _drop(self, member_id: str, each: Partition) -> None:
        del self._kept[member_id][each]
        self._sharers[each] -= 1

    def _give(self, each: Partition, hungry: list[str], wishes: Mapping[str, int]) -> None:
        """Give a partition to one more member."""
        place = next((i for i, member_id in enumerate(hungry) if each not in self._kept[member_id]), -1)
        if place < 0:
            self._swap(each, hungry[0])
            place = 0
        else:
            self._kept[hungry[place]][each] = None
        self._sharers[each] += 1
        member_id = hungry.pop(place)
        if len(self._kept[member_id]) < wishes[member_id]:
            hungry.append(member_id)

    def _swap(self, each: Partition, hungry: str) -> None:
        """
        Give a partition to a member that has all it should have, and one of that member's to one that has too few.

        All members that have too few have this partition. Any other has as many as each of these, or more, so it has one that
        they do not have.
        """
        own = self._kept[hungry]
        for kept in self._kept.values():
            if each not in kept:
                other = next(other for other in kept if other not in own)
                del kept[other]
                kept[each] = own[other] = None
                return
