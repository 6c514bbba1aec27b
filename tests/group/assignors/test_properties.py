"""
What holds for every group: random members join, leave and subscribe to other topics, and topics grow and are created anew.

Inequalities state balance, stickiness and minimal movement, so that they hold for every order of visits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.group.assignors.builtin import BUILT_IN
from kohort.group.assignors.specs import GroupAssignment, GroupSpec
from tests.conftest import LONG
from tests.group.assignors.groups import Topics, assert_valid, assign, group, owners, sizes, successive

TOPICS = [UUID(int=(number * 0x9E3779B97F4A7C15) << 32) for number in range(1, 7)]
MEMBERS = [f"member-{number}" for number in range(9)]
UNIFORM, RANGE = BUILT_IN["uniform"], BUILT_IN["range"]

SHORT = settings(max_examples=1_000 if LONG else 40)

Step = tuple[dict[UUID, int], dict[str, frozenset[UUID]], dict[str, str]]


@st.composite
def histories(draw: st.DrawFn, *, homogeneous: bool = False, partitions_max: int = 20) -> list[Step]:
    """Successive states of a group and its topics, never without members."""
    counts = {topic_id: draw(st.integers(1, partitions_max)) for topic_id in TOPICS[: draw(st.integers(1, 6))]}
    subscribed = st.just(frozenset(counts)) if homogeneous else st.frozensets(st.sampled_from(list(counts)))
    subscriptions = draw(st.dictionaries(st.sampled_from(MEMBERS), subscribed, min_size=1))
    instances = {
        member_id: f"instance-{member_id[::-1]}" for member_id in draw(st.frozensets(st.sampled_from(MEMBERS)))
    }
    steps: list[Step] = [(dict(counts), dict(subscriptions), instances)]
    for _ in range(draw(st.integers(1, 4))):
        for change in draw(st.lists(st.sampled_from(["join", "leave", "grow"]), min_size=1, max_size=3)):
            if change == "join":
                subscriptions[draw(st.sampled_from(MEMBERS))] = draw(subscribed)
            elif change == "grow":
                counts[draw(st.sampled_from(list(counts)))] += draw(st.integers(1, partitions_max))
            elif len(subscriptions) > 1:
                del subscriptions[draw(st.sampled_from(list(subscriptions)))]
        steps.append((dict(counts), dict(subscriptions), instances))
    return steps


def kept_sizes(spec: GroupSpec) -> dict[str, int]:
    """The number of partitions of each member so far, of topics that it is subscribed to."""
    return {
        member_id: sum(
            len(partitions) for topic_id, partitions in member.assigned.items() if topic_id in member.topic_ids
        )
        for member_id, member in spec.members.items()
    }


def moves(spec: GroupSpec, target: GroupAssignment) -> int:
    """The number of partitions that a subscriber has to give to another member."""
    new = owners(target)
    return sum(
        new[topic_id, partition] != member_id
        for member_id, member in spec.members.items()
        for topic_id, partitions in member.assigned.items()
        if topic_id in member.topic_ids
        for partition in partitions
    )


def possible_moves(target: GroupAssignment, spec: GroupSpec) -> Iterator[tuple[str, str]]:
    """Pairs of members where the first has a partition of a topic that the second is subscribed to."""
    for giver, assignment in target.items():
        for taker, member in spec.members.items():
            if giver != taker and assignment.keys() & member.topic_ids:
                yield giver, taker


@pytest.mark.parametrize("name", BUILT_IN)
@SHORT
@given(steps=histories())
def test_each_partition_has_exactly_one_owner_which_is_a_subscriber(name: str, steps: list[Step]) -> None:
    for (counts, _, _), (spec, target) in zip(steps, successive(BUILT_IN[name], steps), strict=True):
        assert_valid(spec, target, counts)


@pytest.mark.parametrize("name", BUILT_IN)
@SHORT
@given(steps=histories())
def test_without_a_change_every_assignment_stays_the_same_object(name: str, steps: list[Step]) -> None:
    *_, (_, target) = successive(BUILT_IN[name], steps)
    counts, subscriptions, instances = steps[-1]
    again = assign(BUILT_IN[name], group(subscriptions, target, instances), Topics(counts))
    assert all(again[member_id] is target[member_id] for member_id in subscriptions)


@SHORT
@given(steps=histories(homogeneous=True))
def test_uniform_equal_subscriptions_are_balanced(steps: list[Step]) -> None:
    for _, target in successive(UNIFORM, steps):
        found = sizes(target).values()
        assert max(found) - min(found) <= 1


@SHORT
@given(steps=histories(homogeneous=True))
def test_uniform_equal_subscriptions_move_no_more_than_the_balance_requires(steps: list[Step]) -> None:
    """Members give what exceeds q, and as many members as there are quotas of q + 1 give one less."""
    for spec, target in successive(UNIFORM, steps):
        held = kept_sizes(spec).values()
        quota, larger = divmod(sum(sizes(target).values()), len(held))
        exceeding = [size - quota for size in held if size > quota]
        assert moves(spec, target) <= sum(exceeding) - min(larger, len(exceeding))


@SHORT
@given(steps=histories())
def test_uniform_no_partition_could_move_to_a_member_with_two_fewer(steps: list[Step]) -> None:
    for spec, target in successive(UNIFORM, steps):
        found = sizes(target)
        assert all(found[giver] - found[taker] <= 1 for giver, taker in possible_moves(target, spec))


@SHORT
@given(steps=histories())
def test_uniform_partitions_move_only_if_members_differ_by_two_before(steps: list[Step]) -> None:
    """If all partitions have owners and no move would help, a change of subscriptions moves nothing."""
    for spec, target in successive(UNIFORM, steps):
        kept = {
            member_id: {topic: partitions for topic, partitions in member.assigned.items() if topic in member.topic_ids}
            for member_id, member in spec.members.items()
        }
        held = sizes(kept)
        has_all = len(owners(kept)) == len(owners(target))
        if has_all and all(held[giver] - held[taker] <= 1 for giver, taker in possible_moves(kept, spec)):
            assert target == kept


@SHORT
@given(steps=histories())
def test_uniform_each_move_goes_from_a_larger_member_to_a_smaller_one(steps: list[Step]) -> None:
    """A move from a member with two partitions more makes the sum of the squares of all sizes smaller by at least two."""
    for spec, target in successive(UNIFORM, steps):
        held = kept_sizes(spec)
        found = sizes(target)
        if sum(held.values()) == sum(found.values()):
            squares = sum(size * size for size in held.values()) - sum(size * size for size in found.values())
            assert 2 * moves(spec, target) <= squares


@SHORT
@given(steps=histories(homogeneous=True, partitions_max=2), data=st.data())
def test_uniform_moves_as_few_partitions_as_the_best_balanced_assignment(
    steps: list[Step], data: st.DataObject
) -> None:
    """The comparison is brute force: every assignment of up to 5 partitions to up to 4 members."""
    for spec, target in successive(UNIFORM, [small(step) for step in steps]):
        partitions = sorted(owners(target))
        members = list(spec.members)
        before = owners({member_id: member.assigned for member_id, member in spec.members.items()})
        fewest = min(
            sum(before.get(partition, owner) != owner for partition, owner in zip(partitions, chosen, strict=True))
            for chosen in product(members, repeat=len(partitions))
            if is_balanced(Counter(chosen), len(members))
        )
        assert moves(spec, target) == fewest


def small(step: Step) -> Step:
    """At most 4 members and 5 partitions."""
    counts, subscriptions, instances = step
    topic_ids = frozenset(list(counts)[:2])
    limited = {
        topic_id: min(count, 3 - index)
        for index, (topic_id, count) in enumerate(counts.items())
        if topic_id in topic_ids
    }
    return limited, dict.fromkeys(sorted(subscriptions)[:4], topic_ids), instances


def is_balanced(held: Mapping[str, int], members: int) -> bool:
    fewest = min(held.values()) if len(held) == members else 0
    return max(held.values()) - fewest <= 1


@SHORT
@given(steps=histories())
def test_range_lengths_differ_by_one_and_the_first_members_have_the_longer_ones(steps: list[Step]) -> None:
    for (counts, subscriptions, instances), (_, target) in zip(steps, successive(RANGE, steps), strict=True):
        order = sorted(subscriptions, key=lambda one: (one not in instances, instances.get(one, one)))
        for topic_id in {topic_id for topic_ids in subscriptions.values() for topic_id in topic_ids}:
            in_order = [target[one].get(topic_id, ()) for one in order if topic_id in subscriptions[one]]
            lengths = [len(partitions) for partitions in in_order]
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1
            assert [partition for partitions in in_order for partition in partitions] == list(range(counts[topic_id]))


@SHORT
@given(steps=histories())
def test_range_topics_with_equal_counts_and_subscribers_are_co_partitioned(steps: list[Step]) -> None:
    for (counts, subscriptions, _), (_, target) in zip(steps, successive(RANGE, steps), strict=True):
        for one, other in product(counts, repeat=2):
            subscribers = [
                {member_id for member_id in subscriptions if topic in subscriptions[member_id]}
                for topic in (one, other)
            ]
            if counts[one] == counts[other] and subscribers[0] == subscribers[1]:
                assert all(target[member_id].get(one) == target[member_id].get(other) for member_id in subscribers[0])


@SHORT
@given(steps=histories())
def test_range_the_assignment_so_far_makes_no_difference(steps: list[Step]) -> None:
    *_, (_, target) = successive(RANGE, steps)
    assert target == assign(RANGE, group(steps[-1][1], None, steps[-1][2]), Topics(steps[-1][0]))


@pytest.mark.parametrize("name", BUILT_IN)
@SHORT
@given(steps=histories())
def test_the_order_in_which_members_joined_makes_no_difference(name: str, steps: list[Step]) -> None:
    """The members here are in different buckets of a hash table, as the order of Kafka's members is that of Java's HashMap."""
    backwards = [(counts, dict(reversed(subscribed.items())), instances) for counts, subscribed, instances in steps]
    there = [target for _, target in successive(BUILT_IN[name], steps)]
    assert there == [target for _, target in successive(BUILT_IN[name], backwards)]


@pytest.mark.parametrize("name", BUILT_IN)
@SHORT
@given(steps=histories())
def test_steps_of_two_groups_may_alternate(name: str, steps: list[Step]) -> None:
    counts, subscriptions, instances = steps[-1]
    expected = assign(BUILT_IN[name], group(subscriptions, None, instances), Topics(counts))
    both = [BUILT_IN[name].assign_in_steps(group(subscriptions, None, instances), Topics(counts)) for _ in range(2)]
    found: list[GroupAssignment] = []
    while len(found) < 2:
        for steps_of_one in both:
            try:
                next(steps_of_one)
            except StopIteration as stop:
                if stop.value is not None:
                    found.append(stop.value)
    assert found == [expected, expected]
