"""Share fetches of records that are on the disk: they hold their share partitions meanwhile, and end with their client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.testing.virtual import VirtualNode
from tests.broker.harness import Harness, disk_store
from tests.broker.shares.members import Member, configure, initialize, state_of

pytestmark = pytest.mark.usefixtures("cold_page_cache")


class Threads:
    """Reads on other threads, which begin when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for work, done in waiting:
            work()
            done()


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def harness(tmp_path: Path, threads: Threads) -> Harness:
    """A broker after a restart: nothing of its logs is in memory."""
    node = VirtualNode()
    before = Harness(store=disk_store(tmp_path, node), node=node)
    before.create("t", 2)
    for number in range(3):
        before.write("t", b"a%d" % number, b"b%d" % number)
    before.write("t", b"other", partition=1)
    before.store.close()
    harness = Harness(
        store=disk_store(tmp_path, node), node=node, reads=threads, share_coordinator_state_topic_num_partitions="1"
    )
    harness.host_shares()
    configure(harness, share_auto_offset_reset="earliest")
    return harness


def member_of(harness: Harness, name: str, partition: int = 0) -> Member:
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    return Member(harness, name, topic.topic_id, partition=partition)


def test_records_are_read_from_the_disk(harness: Harness, threads: Threads) -> None:
    member = member_of(harness, "m")
    answers = member.begin(wait_ms=1000)
    harness.node.settle()
    assert not answers
    assert len(threads.waiting) == 1
    threads.run()
    harness.node.settle()
    assert member.acquired(answers) == [(0, 5, 1)]
    assert state_of(harness, member.topic_id) == (0, 6)


def test_others_leave_out_what_is_being_read_and_get_the_rest(harness: Harness, threads: Threads) -> None:
    one, two, other = member_of(harness, "m"), member_of(harness, "n"), member_of(harness, "o", 1)
    first = one.begin(wait_ms=1000, max_records=2, share_acquire_mode=1)
    harness.node.settle()
    second = two.begin(wait_ms=5000)
    third = other.begin(wait_ms=1000)
    harness.node.advance(500)
    assert (first, second, third) == ([], [], [])
    assert (harness.broker.log_reads.running, harness.broker.log_reads.waiting) == (2, 0)
    threads.run()
    harness.node.settle()
    assert one.acquired(first) == [(0, 1, 1)]
    assert other.acquired(third) == [(0, 0, 1)]
    threads.run()
    harness.node.settle()
    assert two.acquired(second) == [(2, 5, 1)]


def test_the_records_of_a_client_that_has_gone_are_not_acquired(harness: Harness, threads: Threads) -> None:
    one = member_of(harness, "m")
    first = one.begin(wait_ms=1000)
    harness.node.settle()
    for forget in harness.parked:
        forget()
    threads.run()
    harness.node.settle()
    assert not first
    two = member_of(harness, "n")
    second = two.begin(wait_ms=1000)
    harness.node.settle()
    threads.run()
    harness.node.settle()
    assert two.acquired(second) == [(0, 5, 1)]


def test_a_wait_that_ends_while_the_disk_is_read_is_answered_with_what_is_found(
    harness: Harness, threads: Threads
) -> None:
    member = member_of(harness, "m")
    answers = member.begin(wait_ms=100)
    harness.node.advance(1000)
    assert not answers
    threads.run()
    harness.node.settle()
    assert member.acquired(answers) == [(0, 5, 1)]


def test_a_duration_is_searched_on_the_disk(harness: Harness) -> None:
    configure(harness, share_auto_offset_reset="by_duration:PT1H")
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    initialize(harness, topic.topic_id)
    harness.node.advance(2 * 3_600_000)
    assert harness.write("t", b"new") == 6
    member = member_of(harness, "m")
    assert member.fetch() == [(6, 6, 1)]
    assert state_of(harness, topic.topic_id) == (6, 1)
