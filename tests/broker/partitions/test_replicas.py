"""Transitions of a partition's leader and replicas, against Kafka's rules (PartitionChangeBuilder)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.partitions.replicas import (
    NO_LEADER,
    Election,
    Ids,
    PartitionState,
    cancelled,
    caught_up,
    change,
    first_state,
    may_cancel,
    original_replicas,
    placed,
    reassigned,
)

ALL = frozenset({1, 2, 3})


def state(
    replicas: str, isr: str, leader: int, leader_epoch: int = 0, elr: str = "", last: int = NO_LEADER
) -> PartitionState:
    return PartitionState(ids(replicas), ids(isr), leader, leader_epoch, ids(elr), last)


def ids(text: str) -> Ids:
    return tuple(int(digit) for digit in text)


# fmt: off
STOPPED = [  # state, brokers that still run, min.insync.replicas, state afterwards
    (state("123", "123", 1), "23", 1, state("123", "23", 2, 1)),
    (state("123", "123", 1), "13", 1, state("123", "13", 1, 0)),           # an ISR that shrinks begins no leader epoch
    (state("123", "123", 1), "3", 1, state("123", "3", 3, 1)),
    (state("312", "123", 1), "23", 1, state("312", "23", 3, 1)),           # the order of the replicas decides
    (state("123", "12", 1), "12", 1, state("123", "12", 1)),
    (state("123", "12", 1), "1", 2, state("123", "1", 1, 0, "2")),         # below the minimum, who left stays eligible
    (state("123", "12", 1, 0, "3"), "3", 3, state("123", "3", 3, 1, "12")),
    (state("123", "1", 1, 4, "2"), "2", 2, state("123", "2", 2, 5, "1")),  # an eligible replica leads without data loss
    (state("1", "1", 1), "", 1, state("1", "", NO_LEADER, 1, "1", 1)),
    (state("1", "1", 1), "", 3, state("1", "", NO_LEADER, 1, "1", 1)),     # the minimum is at most the number of replicas
]
# fmt: on


@pytest.mark.parametrize(("before", "running", "min_isr", "after"), STOPPED)
def test_brokers_stop(before: PartitionState, running: str, min_isr: int, after: PartitionState) -> None:
    assert caught_up(before, set(ids(running)).__contains__, min_isr=min_isr) == after


def test_an_eligible_replica_leads_only_if_no_replica_is_in_sync() -> None:
    left = change(state("123", "12", 1, 0, "3"), {3}.__contains__, min_isr=3, isr=(2,))
    assert left == state("123", "2", NO_LEADER, 1, "31")


def test_a_leader_is_never_a_stopped_broker() -> None:
    left = change(state("123", "123", 1), {3}.__contains__, min_isr=1, isr=(2, 3))
    assert (left.leader, left.isr) == (3, (2, 3))


# fmt: off
CAUGHT_UP = [  # state, running brokers, state afterwards
    (state("123", "23", 2, 1), "123", state("123", "231", 2, 1)),                # the leadership stays
    (state("123", "23", 2, 1), "23", state("123", "23", 2, 1)),
    (state("1", "", NO_LEADER, 1, "1", 1), "1", state("1", "1", 1, 2)),
    (state("12", "", NO_LEADER, 3, "2", 2), "1", state("12", "", NO_LEADER, 3, "2", 2)),  # 1 was not in the last ISR
    (state("12", "", NO_LEADER, 3, "2", 2), "12", state("12", "21", 2, 4)),
]
# fmt: on


@pytest.mark.parametrize(("before", "running", "after"), CAUGHT_UP)
def test_brokers_start(before: PartitionState, running: str, after: PartitionState) -> None:
    assert caught_up(before, ids(running).__contains__, min_isr=1) == after


def test_new_partitions_are_led_by_their_first_running_broker() -> None:
    assert first_state((2, 3, 1), {1, 3}.__contains__) == state("231", "31", 3)
    assert first_state((2,), {1, 3}.__contains__) == state("2", "", NO_LEADER)


def test_a_preferred_election_begins_an_epoch() -> None:
    led = change(state("123", "231", 2, 7), ALL.__contains__, min_isr=1, election=Election.PREFERRED)
    assert led == state("123", "231", 1, 8)
    assert change(led, ALL.__contains__, min_isr=1, election=Election.PREFERRED) is led
    behind = state("123", "23", 2, 7)
    assert change(behind, ALL.__contains__, min_isr=1, election=Election.PREFERRED) is behind


def test_an_unclean_election_takes_a_running_replica_alone() -> None:
    before = state("12", "", NO_LEADER, 3, "2", 2)
    assert change(before, {1}.__contains__, min_isr=1, election=Election.UNCLEAN) == state("12", "1", 1, 4)


# fmt: off
REASSIGNED = [  # state, target, running brokers, state afterwards
    (state("12", "12", 1), "21", "123", state("21", "12", 1)),               # another order only: no election
    (state("12", "12", 1), "3", "123", state("3", "3", 3, 1)),
    (state("12", "12", 1), "13", "123", state("13", "13", 1, 1)),            # a replica less: a new epoch under the same leader
    (state("12", "12", 1), "123", "123", state("123", "123", 1)),
]
# fmt: on


@pytest.mark.parametrize(("before", "target", "running", "after"), REASSIGNED)
def test_a_reassignment_to_running_brokers_is_complete_at_once(
    before: PartitionState, target: str, running: str, after: PartitionState
) -> None:
    assert reassigned(before, ids(target), ids(running).__contains__, min_isr=1) == after


def test_a_reassignment_waits_for_a_stopped_broker_and_can_be_cancelled() -> None:
    running = {1, 2}.__contains__
    before = state("12", "12", 1)
    begun = reassigned(before, (2, 3), running, min_isr=1)
    assert begun == msgspec.structs.replace(state("231", "12", 1), adding=(3,), removing=(1,))
    assert original_replicas(begun) == (2, 1)
    assert caught_up(begun, ALL.__contains__, min_isr=1) == state("23", "23", 2, 1)
    # Taken back, the added replica is gone, which begins an epoch.
    assert cancelled(begun, running, min_isr=1) == state("21", "12", 1, 1)


def test_a_reassignment_whose_added_replica_alone_is_in_sync_is_not_cancelled() -> None:
    """Without this replica, acknowledged records would be lost."""
    before = msgspec.structs.replace(state("312", "3", 3), adding=(1, 3), removing=(2,))
    assert not may_cancel(before)
    assert may_cancel(msgspec.structs.replace(before, isr=(2, 3)))
    again = reassigned(before, (2,), {2, 3}.__contains__, min_isr=1)
    assert (again.replicas, again.isr, again.leader) == ((2,), (2,), 2), "after it has caught up"


@given(st.data())
def test_invariants_of_any_sequence(data: st.DataObject) -> None:
    """At most one leader, which runs and is in sync; epochs never fall, and rise with each other leader."""
    running = set(ALL)
    current = first_state(data.draw(st.permutations([1, 2, 3])), running.__contains__)
    min_isr = data.draw(st.integers(1, 3))
    for _ in range(data.draw(st.integers(1, 20))):
        broker = data.draw(st.sampled_from([1, 2, 3]))
        before = current
        match data.draw(st.sampled_from(["stop", "start", "elect", "reassign", "cancel"])):
            case "stop":
                running.discard(broker)
                current = caught_up(current, running.__contains__, min_isr=min_isr)
            case "start":
                running.add(broker)
                current = caught_up(current, running.__contains__, min_isr=min_isr)
            case "elect":
                current = change(current, running.__contains__, min_isr=min_isr, election=Election.PREFERRED)
            case "cancel":
                if may_cancel(current):
                    current = cancelled(current, running.__contains__, min_isr=min_isr)
            case _:
                target = data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, unique=True))
                current = reassigned(current, target, running.__contains__, min_isr=min_isr)
        assert current.leader_epoch >= before.leader_epoch
        assert current.leader == before.leader or current.leader_epoch > before.leader_epoch
        assert set(current.isr) <= set(current.replicas) & running
        assert current.leader in current.isr if current.leader != NO_LEADER else not current.isr
        assert len(set(current.replicas)) == len(current.replicas) > 0
        assert not set(current.isr) & set(current.elr)
    running.update(ALL)
    healed = caught_up(current, running.__contains__, min_isr=min_isr)
    assert healed.leader != NO_LEADER, "no record is lost: all replicas run again"
    assert set(healed.isr) == set(healed.replicas)
    assert not healed.is_reassigned


def test_placement_spreads_leaders_and_alternates_racks() -> None:
    racks = [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    replicas = placed(racks, 8, 2, 5, ALL.union({4}).__contains__)
    assert sorted(leader for leader, _ in replicas) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert all({first in (1, 2), second in (1, 2)} == {True, False} for first, second in replicas)


def test_stopped_brokers_are_placed_behind_running_ones() -> None:
    replicas = placed([(1, None), (2, None), (3, None)], 2, 2, 0, {2}.__contains__)
    assert [each[0] for each in replicas] == [2, 2]
