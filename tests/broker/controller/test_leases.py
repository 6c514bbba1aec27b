"""Leases without wall clocks: the holder counts from before a renewal, others from when they saw it."""

from uuid import UUID

import msgspec
import pytest

from kohort.broker.controller.leases import MARGIN, Lease, LeaseWatch
from kohort.storage.shared import NodeRow, NodeState, Registration

LEASE_S = 6.0
ROW = NodeRow(2, UUID(int=2), 7, NodeState.LIVE, 0, Registration())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_counts_from_before_the_renewal_was_sent(clock: Clock) -> None:
    lease = Lease(clock, LEASE_S)
    assert not lease.is_held
    clock.now = 103.0
    lease.renewed(100.0)
    assert (lease.is_held, lease.left_s) == (True, 3.0)
    clock.now = 106.0
    assert (lease.is_held, lease.left_s) == (False, 0.0)


def test_a_late_answer_does_not_shorten_a_lease(clock: Clock) -> None:
    lease = Lease(clock, LEASE_S)
    lease.renewed(100.0)
    lease.renewed(98.0)
    clock.now = 105.9
    assert lease.is_held


def test_a_lease_that_was_given_back_is_not_held(clock: Clock) -> None:
    lease = Lease(clock, LEASE_S)
    lease.renewed(100.0)
    lease.end()
    assert (lease.is_held, lease.left_s) == (False, 0.0)


def look(watch: LeaseWatch, clock: Clock, *rows: NodeRow, until: float) -> None:
    """Look once a second."""
    while clock.now < until:
        watch.see(rows, clock.now)
        clock.now = min(clock.now + 1.0, until)


def test_another_node_waits_for_the_lease_and_a_margin(clock: Clock) -> None:
    watch = LeaseWatch(clock, LEASE_S)
    end = clock.now + LEASE_S * (1 + MARGIN)
    look(watch, clock, ROW, until=end)
    assert not watch.is_over(ROW)
    clock.now = end + 0.001
    assert watch.is_over(ROW)


@pytest.mark.parametrize("changed", [{"counter": 8}, {"incarnation": UUID(int=3)}])
def test_a_renewal_begins_the_wait_anew(clock: Clock, changed: dict[str, object]) -> None:
    watch = LeaseWatch(clock, LEASE_S)
    look(watch, clock, ROW, until=104.0)
    renewed = msgspec.structs.replace(ROW, **changed)
    look(watch, clock, renewed, until=108.0)
    assert not watch.is_over(renewed)
    look(watch, clock, renewed, until=111.0)
    assert watch.is_over(renewed)


def test_a_row_that_was_not_seen_last_is_not_over(clock: Clock) -> None:
    watch = LeaseWatch(clock, LEASE_S)
    look(watch, clock, ROW, until=110.0)
    assert not watch.is_over(msgspec.structs.replace(ROW, counter=8))
    watch.see((), clock.now)
    assert not watch.is_over(ROW)


def test_a_lease_that_was_ended_is_over_at_once(clock: Clock) -> None:
    assert LeaseWatch(clock, LEASE_S).is_over(msgspec.structs.replace(ROW, state=NodeState.ENDED))


def test_a_node_that_has_not_looked_for_long_begins_to_wait_anew(clock: Clock) -> None:
    """The database was away, for all nodes."""
    watch = LeaseWatch(clock, LEASE_S)
    watch.see([ROW], clock.now)
    clock.now += 60.0
    watch.see([ROW], clock.now)
    assert not watch.is_over(ROW)
