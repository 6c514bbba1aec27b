"""Groups and topics for tests of assignors."""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from kohort.group.assignors.interface import SteppedAssignor, TopicDescriber
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec, MemberSpec
from kohort.wire.generated.gradual import drain


class Topics:
    """Topics with as many partitions."""

    def __init__(self, counts: Mapping[UUID, int]) -> None:
        self.counts = counts

    def partition_count(self, topic_id: UUID, /) -> int:
        return self.counts.get(topic_id, -1)

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        return frozenset()


def group(
    subscriptions: Mapping[str, Iterable[UUID]],
    assigned: Mapping[str, Assignment] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    """A group of these members."""
    shared: dict[frozenset[UUID], frozenset[UUID]] = {}
    members = {}
    for member_id, topic_ids in subscriptions.items():
        subscribed = frozenset(topic_ids)
        members[member_id] = MemberSpec(
            shared.setdefault(subscribed, subscribed),
            (assigned or {}).get(member_id, NO_ASSIGNMENT),
            (instances or {}).get(member_id),
        )
    return GroupSpec(members, len(shared) <= 1)


def assign(assignor: SteppedAssignor, spec: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
    """The target of a group, at once."""
    assignment: GroupAssignment = drain(assignor.assign_in_steps(spec, topics))
    return assignment


def successive(
    assignor: SteppedAssignor,
    steps: Iterable[tuple[Mapping[UUID, int], Mapping[str, Iterable[UUID]], Mapping[str, str]]],
) -> Iterator[tuple[GroupSpec, GroupAssignment]]:
    """Targets of a group that changes: a step has the topics, the subscriptions and the instances of static members."""
    target: GroupAssignment = {}
    for counts, subscriptions, instances in steps:
        spec = group(subscriptions, target, instances)
        target = assign(assignor, spec, Topics(counts))
        yield spec, target


def sizes(target: GroupAssignment) -> dict[str, int]:
    """The number of partitions of each member."""
    return {member_id: sum(map(len, assignment.values())) for member_id, assignment in target.items()}


def owners(target: GroupAssignment) -> dict[tuple[UUID, int], str]:
    """The member of each partition."""
    return {
        (topic_id, partition): member_id
        for member_id, assignment in target.items()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    }


def assert_valid(spec: GroupSpec, target: GroupAssignment, counts: Mapping[UUID, int]) -> None:
    """Each partition of a subscribed topic has exactly one owner, which is a subscriber; the result has its canonical form."""
    assert target.keys() == spec.members.keys()
    found = [
        (topic_id, partition)
        for assignment in target.values()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    ]
    assert sorted(found) == sorted(
        (topic_id, partition) for topic_id in spec.topic_ids for partition in range(counts[topic_id])
    )
    for member_id, member in spec.members.items():
        assert target[member_id].keys() <= member.topic_ids
        for partitions in target[member_id].values():
            assert partitions, "no tuple is empty"
            assert list(partitions) == sorted(partitions)
        assert target[member_id] is member.assigned or target[member_id] != member.assigned
