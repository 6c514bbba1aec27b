"""Results of assignors that Kohort does not ship are checked before they reach the group."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from kohort.group.assignors.checking import CheckedAssignor
from kohort.group.assignors.interface import AssignmentSteps, AssignorError, TopicDescriber
from kohort.group.assignors.specs import Assignment, GroupAssignment, GroupSpec
from tests.group.assignors.groups import Topics, assign, group

A, B = UUID(int=1), UUID(int=2)
TOPICS = Topics({A: 3, B: 3})


class Fixed:
    """An assignor with one answer."""

    name = "fixed"

    def __init__(self, target: Any) -> None:
        self.target = target

    def assign(self, group: GroupSpec, topics: TopicDescriber, /) -> GroupAssignment:
        if isinstance(self.target, Exception):
            raise self.target
        target: GroupAssignment = self.target
        return target


class Sliced(Fixed):
    def assign_in_steps(self, group: GroupSpec, topics: TopicDescriber, /) -> AssignmentSteps:
        yield
        yield
        return self.assign(group, topics)


def checked(target: object, before: Mapping[str, Assignment] | None = None) -> GroupAssignment:
    return assign(CheckedAssignor(Fixed(target)), group({"m1": [A], "m2": [A, B]}, before), TOPICS)


def test_the_result_gets_its_canonical_form() -> None:
    assert checked({"m1": {A: [2, 0]}, "m2": {A: set(), B: {1}}}) == {"m1": {A: (0, 2)}, "m2": {B: (1,)}}


def test_members_that_the_result_lacks_get_nothing() -> None:
    assert checked({}) == {"m1": {}, "m2": {}}


def test_an_assignment_that_stays_the_same_is_the_same_object() -> None:
    before: dict[str, Assignment] = {"m1": {A: (0, 1)}}
    assert checked({"m1": {A: [1, 0]}}, before)["m1"] is before["m1"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"m3": {A: [0]}}, "the member 'm3', which the group does not have"),
        ({"m1": {B: [0]}}, "to which it is not subscribed"),
        ({"m1": {A: [3]}}, "outside of 0 to 2"),
        ({"m1": {A: [-1]}}, "outside of 0 to 2"),
        ({"m1": {A: [0, 0]}}, "twice"),
        ({"m1": {A: [0]}, "m2": {A: [0]}}, "assigned to m1 and m2"),
        (None, "the assignor fixed failed"),
        ({"m1": {A: ["0"]}}, "the assignor fixed failed"),
        (ZeroDivisionError("no members"), r"the assignor fixed failed: ZeroDivisionError\('no members'\)"),
        (AssignorError("no capacity is left"), "^no capacity is left$"),
    ],
)
def test_a_wrong_result_is_an_error(target: object, message: str) -> None:
    with pytest.raises(AssignorError, match=message):
        checked(target)


def test_partitions_may_be_left_without_a_member() -> None:
    """An assignor may keep partitions back, for example until there is a member with room for them."""
    assert checked({"m2": {A: [1]}}) == {"m1": {}, "m2": {A: (1,)}}


def test_the_steps_of_the_assignor_are_kept() -> None:
    spec = group({"m1": [A]})
    assert len(list(CheckedAssignor(Sliced({"m1": {A: [0]}})).assign_in_steps(spec, TOPICS))) == 2
    assert len(list(CheckedAssignor(Fixed({"m1": {A: (0,)}})).assign_in_steps(spec, TOPICS))) == 1
    assert CheckedAssignor(Sliced({})).name == "fixed"
