"""The range assignor."""

from uuid import UUID

import pytest

from kohort.group.assignors.interface import AssignorError
from kohort.group.assignors.range import RangeAssignor
from tests.group.assignors.groups import Topics, assign, group

A, B = UUID(int=1), UUID(int=2)
RANGE = RangeAssignor()


def test_the_first_members_get_the_longer_ranges() -> None:
    target = assign(RANGE, group({"m2": [A], "m1": [A], "m3": [A]}), Topics({A: 7}))
    assert target == {"m1": {A: (0, 1, 2)}, "m2": {A: (3, 4)}, "m3": {A: (5, 6)}}


def test_members_beyond_the_partitions_get_an_empty_assignment() -> None:
    assert assign(RANGE, group({"m1": [A], "m2": [A]}), Topics({A: 1})) == {"m1": {A: (0,)}, "m2": {}}


def test_static_members_are_before_dynamic_ones_in_the_order_of_their_instances() -> None:
    spec = group({"a": [A], "y": [A], "z": [A]}, instances={"y": "i2", "z": "i1"})
    assert assign(RANGE, spec, Topics({A: 3})) == {"z": {A: (0,)}, "y": {A: (1,)}, "a": {A: (2,)}}


def test_topics_with_equal_subscribers_and_counts_are_co_partitioned() -> None:
    target = assign(RANGE, group({"m1": [A, B], "m2": [A, B]}), Topics({A: 5, B: 5}))
    assert all(assignment[A] == assignment[B] for assignment in target.values())


def test_the_order_of_member_ids_is_javas() -> None:
    """U+FFFD is above U+1F600 in Java, because the latter is a pair of surrogates."""
    target = assign(RANGE, group({"\ufffd": [A], "\U0001f600": [A]}), Topics({A: 2}))
    assert target == {"\U0001f600": {A: (0,)}, "\ufffd": {A: (1,)}}


def test_a_topic_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AssignorError, match="does not exist"):
        assign(RANGE, group({"m1": [A]}), Topics({}))


def test_an_assignment_that_stays_the_same_is_the_same_object() -> None:
    spec = group({"m1": [A], "m2": [A]}, {"m1": {A: (0, 1)}, "m2": {A: (2, 3)}})
    target = assign(RANGE, spec, Topics({A: 4}))
    assert all(target[member_id] is member.assigned for member_id, member in spec.members.items())


def test_the_work_can_be_done_in_steps() -> None:
    spec = group({f"m{number}": [A] for number in range(2_000)})
    topics = Topics({A: 3_000})
    assert len(list(RANGE.assign_in_steps(spec, topics))) > 4


def test_a_group_without_members_has_an_empty_assignment() -> None:
    assert assign(RANGE, group({}), Topics({})) == {}
