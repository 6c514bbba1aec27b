"""Leaders are spread evenly, over nodes that may have them, and few move."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.controller.placement import balanced, candidates, leader_counts, least_loaded
from kohort.broker.partitions.replicas import NO_LEADER, PartitionState

IDS = st.integers(1, 5)


@st.composite
def states(draw: st.DrawFn, *, has_one_replica: bool = False) -> PartitionState:
    replicas = tuple(draw(st.lists(IDS, min_size=1, max_size=1 if has_one_replica else 3, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    return PartitionState(replicas, isr, leader, adding=(9,) if draw(st.booleans()) and len(replicas) > 1 else ())


ACTIVE = st.sets(IDS).map(sorted)


@given(st.lists(states(), max_size=12), ACTIVE)
@settings(max_examples=60, deadline=None)
def test_moves_are_to_candidates_and_of_no_partition_twice(found: list[PartitionState], active: list[int]) -> None:
    counts = leader_counts(found, active)
    moves = balanced(found, active, counts)
    last = dict(moves)
    for index, target in moves:
        state = found[index]
        assert target in candidates(state, active)
        assert state.leader in active
        assert not state.is_reassigned
    after = Counter(dict.fromkeys(active, 0))
    after.update(leader for index, state in enumerate(found) if (leader := last.get(index, state.leader)) in active)
    assert counts == after


@given(st.lists(states(has_one_replica=True), max_size=12), ACTIVE, st.lists(IDS, max_size=30))
@settings(max_examples=60, deadline=None)
def test_partitions_of_one_replica_are_even_and_the_well_placed_stay(
    found: list[PartitionState], active: list[int], others: list[int]
) -> None:
    counts = leader_counts(found, active)
    counts.update(each for each in others if each in active)
    before = Counter(state.leader for state in found if state.leader in active)
    moves = balanced(found, active, counts)
    after = before.copy()
    for index, target in moves:
        after[found[index].leader] -= 1
        after[target] += 1
    led = [after[each] for each in active]
    assert not led or max(led) - min(led) <= 1
    assert all(source not in dict(moves).values() or before[source] <= max(led) for source in active)
    if max((before[each] for each in active), default=0) - min((before[each] for each in active), default=0) <= 1:
        assert all(counts[a] - counts[b] < 2 for a in active for b in active if after[a] > after[b])
    assert balanced([_moved(state, dict(moves).get(index)) for index, state in enumerate(found)], active, counts) == []


def _moved(state: PartitionState, leader: int | None) -> PartitionState:
    return state if leader is None else PartitionState((leader,), (leader,), leader)


def test_a_node_that_comes_gets_its_share_and_no_more() -> None:
    found = [PartitionState((node,), (node,), node) for node in (1, 2, 1, 2, 1, 2)]
    active = [1, 2, 3]
    moves = balanced(found, active, leader_counts(found, active))
    assert [target for _, target in moves] == [3, 3]
    assert sorted(found[index].leader for index, _ in moves) == [1, 2]


def test_of_two_nodes_that_differ_by_one_the_node_with_less_of_all_topics_leads() -> None:
    found = [PartitionState((1,), (1,), 1)]
    assert balanced(found, [1, 2], Counter({1: 5, 2: 3})) == [(0, 2)]
    assert balanced(found, [1, 2], Counter({1: 5, 2: 4})) == []


def test_replicas_stay_among_those_that_are_in_sync() -> None:
    found = [PartitionState((1, 2, 3), (1, 3), 1), PartitionState((1, 2, 3), (1, 3), 1)]
    assert balanced(found, [1, 2, 3], leader_counts(found, [1, 2, 3])) == [(1, 3)]


def test_the_least_loaded_node() -> None:
    assert least_loaded({3: 1, 2: 1, 1: 2}) == 2
    assert least_loaded({}) == NO_LEADER
