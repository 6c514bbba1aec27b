"""The uniform assignor, case by case."""

from uuid import UUID

import pytest

from kohort.group.assignors.builtin import UniformAssignor
from kohort.group.assignors.interface import AssignorError
from kohort.group.assignors.specs import Assignment
from tests.group.assignors.groups import Topics, assign, group, sizes

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
UNIFORM = UniformAssignor()


def test_partitions_are_shared_out_evenly() -> None:
    """The last member gets the additional partition: the others could leave it to a later one."""
    target = assign(UNIFORM, group({"m1": [A], "m2": [A], "m3": [A]}), Topics({A: 7}))
    assert target == {"m1": {A: (0, 1)}, "m2": {A: (2, 3)}, "m3": {A: (4, 5, 6)}}


def test_members_beyond_the_partitions_get_an_empty_assignment() -> None:
    assert assign(UNIFORM, group({"m1": [A], "m2": [A]}), Topics({A: 1})) == {"m1": {}, "m2": {A: (0,)}}


def test_a_new_member_gets_what_exceeds_the_quota_of_the_others() -> None:
    before: dict[str, Assignment] = {"m1": {A: (0, 1, 2, 3)}, "m2": {A: (4, 5, 6)}}
    target = assign(UNIFORM, group({"m1": [A], "m2": [A], "m3": [A]}, before), Topics({A: 7}))
    assert target == {"m1": {A: (0, 1, 2)}, "m2": {A: (4, 5)}, "m3": {A: (3, 6)}}
    assert all(set(target[member_id][A]) <= set(before[member_id][A]) for member_id in before)


def test_a_member_that_does_not_need_the_additional_partition_gives_it_to_one_that_has_it() -> None:
    """
    Past bug 46: before 4.1, the first members that were visited reserved the larger quotas, and partitions moved without need.

    Here m1 would have reserved the one quota of 3, and m2 would have lost a partition to it.
    """
    before: dict[str, Assignment] = {"m1": {A: (0, 1)}, "m2": {A: (2, 3, 4)}}
    spec = group({"m1": [A], "m2": [A]}, before)
    target = assign(UNIFORM, spec, Topics({A: 5}))
    assert all(target[member_id] is member.assigned for member_id, member in spec.members.items())


def test_the_additional_partition_is_taken_if_all_members_left_must_take_one() -> None:
    """With 8 partitions, two of three members hold 3. The first gives its larger quota up, and the others take both."""
    target = assign(UNIFORM, group({"m1": [A], "m2": [A], "m3": [A]}, {"m1": {A: (0, 1)}}), Topics({A: 8}))
    assert target == {"m1": {A: (0, 1)}, "m2": {A: (2, 3, 4)}, "m3": {A: (5, 6, 7)}}


def test_partitions_of_a_member_that_left_go_to_the_others() -> None:
    before: dict[str, Assignment] = {"m1": {A: (0, 1)}, "m3": {A: (4, 5)}}
    target = assign(UNIFORM, group({"m1": [A], "m3": [A]}, before), Topics({A: 6}))
    assert target == {"m1": {A: (0, 1, 2)}, "m3": {A: (3, 4, 5)}}


def test_a_gap_in_a_long_assignment_is_filled() -> None:
    before: dict[str, Assignment] = {"m1": {A: (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11)}}
    assert assign(UNIFORM, group({"m1": [A]}, before), Topics({A: 13})) == {"m1": {A: tuple(range(13))}}


def test_new_partitions_go_to_members_with_fewer() -> None:
    before: dict[str, Assignment] = {"m1": {A: (0, 1)}, "m2": {A: (2,)}}
    spec = group({"m1": [A], "m2": [A]}, before)
    target = assign(UNIFORM, spec, Topics({A: 4}))
    assert target == {"m1": {A: (0, 1)}, "m2": {A: (2, 3)}}
    assert target["m1"] is before["m1"]


def test_a_topic_that_is_no_longer_subscribed_is_taken_from_all() -> None:
    before: dict[str, Assignment] = {"m1": {A: (0, 1)}, "m2": {B: (0, 1)}}
    assert assign(UNIFORM, group({"m1": [A], "m2": [A]}, before), Topics({A: 2, B: 2})) == {
        "m1": {A: (0,)},
        "m2": {A: (1,)},
    }


def test_members_without_subscription_have_nothing() -> None:
    assert assign(UNIFORM, group({"m1": [], "m2": []}, {"m1": {A: (0,)}}), Topics({A: 1})) == {"m1": {}, "m2": {}}


def test_a_group_without_members_has_an_empty_assignment() -> None:
    assert assign(UNIFORM, group({}), Topics({A: 1})) == {}


@pytest.mark.parametrize("second", [[A], [A, B]], ids=["homogeneous", "heterogeneous"])
def test_a_topic_that_does_not_exist_is_an_error(second: list[UUID]) -> None:
    with pytest.raises(AssignorError, match="does not exist"):
        assign(UNIFORM, group({"m1": [A], "m2": second}), Topics({B: 1}))


@pytest.mark.parametrize("second", [[A], [A, B]], ids=["homogeneous", "heterogeneous"])
def test_partitions_that_do_not_exist_are_dropped(second: list[UUID]) -> None:
    """No topic loses partitions, so only a damaged log can name them."""
    before: dict[str, Assignment] = {"m1": {A: (0, 5)}, "m2": {A: (6,)}}
    target = assign(UNIFORM, group({"m1": [A], "m2": second}, before), Topics({A: 2, B: 0}))
    assert target == {"m1": {A: (0,)}, "m2": {A: (1,)}}


def test_a_partition_of_two_members_is_an_error_instead_of_a_loss() -> None:
    """Only a damaged log can name one twice. Two members of quota 2 hold partition 0, so one partition has no place."""
    before: dict[str, Assignment] = {"m1": {A: (0, 1)}, "m2": {A: (0, 2)}}
    with pytest.raises(AssignorError, match="several members"):
        assign(UNIFORM, group({"m1": [A], "m2": [A]}, before), Topics({A: 4}))


def test_different_subscriptions_are_balanced_by_the_total_of_each_member() -> None:
    target = assign(UNIFORM, group({"m1": [A], "m2": [A, B]}), Topics({A: 4, B: 4}))
    assert target == {"m1": {A: (0, 1, 2, 3)}, "m2": {B: (0, 1, 2, 3)}}


def test_a_chain_of_subscriptions_is_near_to_balance() -> None:
    """Members of the same topic differ by one, and those at the ends of the chain by two."""
    before: dict[str, Assignment] = {"m1": {A: tuple(range(6))}, "m2": {B: tuple(range(6))}}
    target = assign(UNIFORM, group({"m1": [A], "m2": [A, B], "m3": [B]}, before), Topics({A: 6, B: 6}))
    assert sizes(target) == {"m1": 5, "m2": 4, "m3": 3}


def test_a_move_of_one_topic_is_followed_by_moves_of_another() -> None:
    """m1 gives partitions of A to m2, which then has more than m3 and gives partitions of B."""
    before: dict[str, Assignment] = {"m1": {A: tuple(range(20))}}
    target = assign(UNIFORM, group({"m1": [A], "m2": [A, B], "m3": [B]}, before), Topics({A: 20, B: 10}))
    assert sizes(target) == {"m1": 11, "m2": 10, "m3": 9}


def test_a_member_that_cannot_give_partitions_is_passed_over() -> None:
    """m1 has the most partitions, of a topic of its own; of the shared topic, only m2 can give."""
    before: dict[str, Assignment] = {"m1": {C: tuple(range(9))}, "m2": {A: (0, 1, 2, 3)}}
    target = assign(UNIFORM, group({"m1": [A, C], "m2": [A], "m3": [A]}, before), Topics({A: 4, C: 9}))
    assert sizes(target) == {"m1": 9, "m2": 2, "m3": 2}
    assert target["m1"] is before["m1"]


@pytest.mark.parametrize("subscriptions", [1, 2])
def test_the_work_can_be_done_in_steps(subscriptions: int) -> None:
    spec = group({f"m{number}": [A, B][: 1 + number % subscriptions] for number in range(2_000)})
    topics = Topics({A: 20_000, B: 20_000})
    assert len(list(UNIFORM.assign_in_steps(spec, topics))) > 10


def test_nothing_is_computed_before_the_first_step() -> None:
    steps = UNIFORM.assign_in_steps(group({"m1": [A]}), Topics({}))
    with pytest.raises(AssignorError):
        next(steps)
