"""The assignor of share groups: the rules that every assignment keeps. Source: Kafka SimpleAssignor; KIP-932."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.assignors.simple import assign_shared
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec, MemberSpec
from kohort.wire.generated.gradual import drain

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def assigned(
    members: dict[str, tuple[set[UUID], Assignment]], partitions: Assignment, *, is_homogeneous: bool = True
) -> GroupAssignment:
    specs = {name: MemberSpec(frozenset(topics), old) for name, (topics, old) in members.items()}
    assignment: GroupAssignment = drain(assign_shared(GroupSpec(specs, is_homogeneous), partitions))
    return assignment


def sharers(assignment: GroupAssignment) -> Counter[tuple[UUID, int]]:
    return Counter(
        (topic_id, partition)
        for target in assignment.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    )


def loads(assignment: GroupAssignment) -> dict[str, int]:
    return {name: sum(map(len, target.values())) for name, target in assignment.items()}


def whole(counts: dict[UUID, int]) -> Assignment:
    return {topic_id: tuple(range(count)) for topic_id, count in counts.items() if count}


counts_of_topics = st.fixed_dictionaries({A: st.integers(0, 7), B: st.integers(0, 7), C: st.integers(0, 3)})


@st.composite
def old_assignments(draw: Any) -> Assignment:
    """Any partitions, also such as do not exist any more."""
    found = {topic_id: tuple(sorted(draw(st.sets(st.integers(0, 8))))) for topic_id in (A, B, C)}
    return {topic_id: partitions for topic_id, partitions in found.items() if partitions}


@given(counts=counts_of_topics, olds=st.lists(old_assignments(), min_size=1, max_size=12))
def test_members_of_equal_subscriptions(counts: dict[UUID, int], olds: list[Assignment]) -> None:
    members: dict[str, tuple[set[UUID], Assignment]] = {f"m{n}": ({A, B}, old) for n, old in enumerate(olds)}
    partitions = whole(counts)
    assignment = assigned(members, partitions)
    assert assignment.keys() == members.keys()
    readable = {(topic_id, each) for topic_id in (A, B) for each in partitions.get(topic_id, ())}
    found, of_members = sharers(assignment), loads(assignment)
    assert set(found) == readable
    if readable:
        sharing = -(-len(members) // len(readable))
        assert set(found.values()) == {sharing}
        assert max(of_members.values()) - min(of_members.values()) <= 1
    for target in assignment.values():
        assert all(each and list(each) == sorted(set(each)) for each in target.values())
    # The same members get the same partitions again, and the objects that they had.
    again = assigned({name: ({A, B}, assignment[name]) for name in members}, partitions)
    assert all(again[name] is assignment[name] for name in members)


@given(
    counts=counts_of_topics,
    members=st.lists(st.tuples(st.sets(st.sampled_from([A, B, C])), old_assignments()), min_size=1, max_size=10),
)
def test_members_of_different_subscriptions(
    counts: dict[UUID, int], members: list[tuple[set[UUID], Assignment]]
) -> None:
    named = {f"m{number}": member for number, member in enumerate(members)}
    partitions = whole(counts)
    assignment = assigned(named, partitions, is_homogeneous=False)
    found = sharers(assignment)
    for topic_id, numbers in partitions.items():
        readers = [name for name, (topics, _) in named.items() if topic_id in topics]
        sharing = -(-len(readers) // len(numbers))
        assert {found[topic_id, each] for each in numbers} == ({sharing} if readers else {0})
    for name, (topics, _) in named.items():
        assert set(assignment[name]) <= topics


def test_a_member_keeps_what_it_has_when_another_joins() -> None:
    before = {A: (0, 1, 2, 3, 4)}
    assignment = assigned({"old": ({A}, before), "new": ({A}, NO_ASSIGNMENT)}, whole({A: 5}))
    assert set(assignment["old"][A]) < set(before[A])
    assert loads(assignment) == {"old": 3, "new": 2}


def test_who_has_more_keeps_more() -> None:
    before: dict[str, Assignment] = {"few": {A: (0, 1)}, "many": {A: (2, 3, 4)}}
    assignment = assigned({name: ({A}, old) for name, old in before.items()}, whole({A: 5}))
    assert all(assignment[name] is before[name] for name in before)


def test_a_member_that_has_all_free_partitions_already_changes_one_with_another() -> None:
    """`a` should have two of two partitions, but the one that it lacks has two members already: one of them gives way."""
    before: dict[str, Assignment] = {"a": {A: (1,)}, "b": {A: (0,)}, "c": {A: (0,)}}
    assignment = assigned({name: ({A}, old) for name, old in before.items()}, whole({A: 2}))
    assert sorted(loads(assignment).values()) == [1, 1, 2]
    assert set(sharers(assignment).values()) == {2}


@pytest.mark.parametrize(
    ("members", "partitions", "expected"), [(1, 5, [5]), (2, 5, [2, 3]), (5, 5, [1] * 5), (7, 5, [1, 1, 1, 1, 2, 2, 2])]
)
def test_recorded_loads(members: int, partitions: int, expected: list[int]) -> None:
    """What Apache Kafka 4.4.0 assigned to members that joined one after the other."""
    targets: dict[str, Assignment] = {}
    for number in range(members):
        targets = dict(
            assigned(
                {name: ({A}, targets.get(name, NO_ASSIGNMENT)) for name in [*targets, f"m{number}"]},
                whole({A: partitions}),
            )
        )
    assert sorted(loads(targets).values()) == expected
