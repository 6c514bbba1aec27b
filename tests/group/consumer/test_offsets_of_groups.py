"""
Committed offsets of consumer groups: validation by member epoch, retention, deletion.

Source: Kafka ConsumerGroup.validateOffsetCommit, validateOffsetFetch, OffsetMetadataManager; probes of Apache Kafka 4.2.1.
"""

from typing import Any

import pytest

from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from tests.group.consumer.members import Member, settle, state
from tests.group.consumer.states import GROUP, Known, group_of
from tests.group.harness import Coordinator

MINUTE_MS = 60_000
AT = ("orders", 0)


def group() -> Coordinator:
    """The members a, at epoch 5, and b, which is away."""
    return group_of(
        [Known("a", 5, 4, 0, (0, 1), target=(0, 1)), Known("b", -2, 5, 0, (2, 3), target=(2, 3), instance="i")]
    )


# Member id, epoch, version, and the answer to OffsetCommit.
COMMITS = [
    ("a", 5, 9, ErrorCode.NONE),
    ("a", 4, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", 6, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", 5, 8, ErrorCode.UNSUPPORTED_VERSION),
    ("a", 4, 8, ErrorCode.UNSUPPORTED_VERSION),
    ("z", 5, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ("z", 5, 8, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", 5, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ("b", -2, 9, ErrorCode.NONE),
    ("b", 5, 9, ErrorCode.STALE_MEMBER_EPOCH),
]


@pytest.mark.parametrize(("member_id", "epoch", "version", "code"), COMMITS)
def test_a_commit_is_checked_by_the_member_epoch(member_id: str, epoch: int, version: int, code: ErrorCode) -> None:
    coordinator = group()
    assert coordinator.commit(member_id=member_id, generation=epoch, version=version) == {AT: code}
    assert (AT in coordinator.fetch()) == (code is ErrorCode.NONE)


@pytest.mark.parametrize("instance", ["i", "other"])
def test_the_instance_id_of_a_commit_is_not_compared(instance: str) -> None:
    assert group().commit(member_id="a", generation=5, instance=instance) == {AT: ErrorCode.NONE}


TRANSACTIONAL = [
    ("a", 5, ErrorCode.NONE),
    ("a", 4, ErrorCode.ILLEGAL_GENERATION),
    ("a", -1, ErrorCode.ILLEGAL_GENERATION),
    ("z", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", -1, ErrorCode.NONE),
    ("", 5, ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("member_id", "epoch", "code"), TRANSACTIONAL)
def test_a_transactional_commit_is_checked_otherwise(member_id: str, epoch: int, code: ErrorCode) -> None:
    coordinator = group()
    assert coordinator.commit_in_transaction(member_id=member_id, generation=epoch) == {AT: code}


def test_a_group_without_members_takes_commits_of_nobody_only() -> None:
    coordinator = group_of([])
    assert coordinator.commit(generation=-1) == {AT: ErrorCode.NONE}
    assert coordinator.commit(member_id="a", generation=5) == {AT: ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_commit_while_the_member_revokes_or_waits_is_accepted() -> None:
    coordinator = group_of(
        [Known("a", 4, 3, 1, (0, 1), (2,), target=(0, 1)), Known("b", 5, 4, 2, (3,), target=(2, 3))], epoch=6
    )
    assert state(coordinator) == "Assigning"
    # Also of a partition that another member has.
    assert coordinator.commit({("orders", 3): 7}, member_id="a", generation=4) == {("orders", 3): ErrorCode.NONE}
    assert coordinator.commit(member_id="b", generation=5) == {AT: ErrorCode.NONE}


FETCHES = [
    (None, -1, ErrorCode.NONE),
    (None, -5, ErrorCode.NONE),
    (None, 5, ErrorCode.UNKNOWN_SERVER_ERROR),
    ("a", 5, ErrorCode.NONE),
    ("a", 4, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", 6, ErrorCode.STALE_MEMBER_EPOCH),
    ("z", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ("b", -2, ErrorCode.NONE),
]


@pytest.mark.parametrize(("member_id", "epoch", "code"), FETCHES)
@pytest.mark.parametrize("require_stable", [False, True])
def test_a_fetch_is_checked_by_the_member_epoch(
    member_id: str | None, epoch: int, code: ErrorCode, require_stable: bool
) -> None:
    coordinator = group()
    asked = m.OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
    request = m.OffsetFetchRequest(groups=[asked], require_stable=require_stable)
    (found,) = coordinator.ask("offset_fetch", request).groups
    assert found.error_code == code


# 25 to 33 where consumer groups matter


def retention(minutes: int = 1) -> GroupConfig:
    return GroupConfig(offsets_retention_minutes=minutes, offsets_retention_check_interval_ms=MINUTE_MS)


def test_offsets_of_topics_in_use_do_not_expire_and_others_count_from_their_commit() -> None:
    coordinator = Coordinator(retention())
    a = Member(coordinator, "a")
    a.join()
    positions: dict[tuple[str, int], int] = {AT: 1, ("payments", 0): 2}
    coordinator.commit(positions, member_id="a", generation=2)
    for _ in range(24):
        coordinator.advance(5_000)
        a.beat()
    assert coordinator.fetch() == {AT: 1}


def test_a_topic_that_a_live_group_gives_up_expires() -> None:
    coordinator = Coordinator(retention())
    a = Member(coordinator, "a", ("orders", "payments"))
    a.join()
    coordinator.commit({("payments", 0): 2}, member_id="a", generation=2)
    a.beat(subscribed_topic_names=["orders"])
    a.beat()
    for _ in range(24):
        coordinator.advance(5_000)
        a.beat()
    assert coordinator.fetch() == {}


def test_an_empty_group_goes_with_its_last_offset() -> None:
    """Retention counts from the commit, not from when the group became empty."""
    coordinator = Coordinator(retention(minutes=3))
    a = Member(coordinator, "a")
    a.join()
    coordinator.commit(member_id="a", generation=2)
    a.leave()
    coordinator.advance(2 * MINUTE_MS)
    assert (coordinator.listed(), coordinator.fetch()) == ({GROUP: "Empty"}, {AT: 1})
    coordinator.advance(2 * MINUTE_MS)
    assert coordinator.listed() == {}
    coordinator.restart()
    assert coordinator.listed() == {}


def test_an_empty_group_without_offsets_is_removed_by_the_cleanup() -> None:
    coordinator = Coordinator(retention())
    a = Member(coordinator, "a")
    a.join()
    a.leave()
    assert coordinator.listed() == {GROUP: "Empty"}
    coordinator.advance(MINUTE_MS)
    assert coordinator.listed() == {}


def test_an_open_transaction_keeps_the_group() -> None:
    coordinator = Coordinator(retention())
    a = Member(coordinator, "a")
    a.join()
    coordinator.commit_in_transaction(member_id="a", generation=2)
    a.leave()
    coordinator.advance(3 * MINUTE_MS)
    assert coordinator.listed() == {GROUP: "Empty"}
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch() == {AT: 1}


def test_pending_offsets_are_unstable_for_members_too() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    coordinator.commit({("orders", 1): 5}, member_id="a", generation=2)
    coordinator.commit_in_transaction({AT: 3}, member_id="a", generation=2)
    topics = [m.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    asked = m.OffsetFetchRequestGroup(group_id=GROUP, member_id="a", member_epoch=2, topics=topics)
    (found,) = coordinator.ask("offset_fetch", m.OffsetFetchRequest(groups=[asked], require_stable=True)).groups
    entries = {
        entry.partition_index: (entry.error_code, entry.committed_offset) for entry in found.topics[0].partitions
    }
    assert entries == {0: (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1), 1: (ErrorCode.NONE, 5)}
    coordinator.end_transaction(committed=False)
    assert coordinator.fetch() == {("orders", 1): 5}


def test_a_group_with_members_is_not_deleted_and_topics_in_use_keep_their_offsets() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    coordinator.commit({AT: 1, ("payments", 0): 2}, member_id="a", generation=2)
    assert coordinator.delete(GROUP) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    topics: list[Any] = [
        m.OffsetDeleteRequestTopic(name=name, partitions=[m.OffsetDeleteRequestPartition(partition_index=0)])
        for name in ("orders", "payments")
    ]
    answer = coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id=GROUP, topics=topics))
    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert codes == {"orders": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "payments": ErrorCode.NONE}
    assert coordinator.fetch() == {AT: 1}


def test_a_deleted_group_is_gone_with_its_pending_offsets() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    settle(a, b)
    coordinator.commit_in_transaction({("orders", 1): 9})
    coordinator.commit(member_id="a", generation=a.epoch)
    a.leave()
    b.leave()
    assert coordinator.delete(GROUP) == {GROUP: ErrorCode.NONE}
    coordinator.end_transaction(committed=True)
    assert (coordinator.listed(), coordinator.fetch()) == ({}, {})
    coordinator.restart()
    assert (coordinator.listed(), coordinator.fetch()) == ({}, {})
    assert a.join().member_epoch == 2


def test_a_deleted_group_may_be_used_for_offsets_alone() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    a.leave()
    coordinator.delete(GROUP)
    coordinator.commit(generation=-1)
    coordinator.restart()
    assert (coordinator.listed(), coordinator.fetch()) == ({GROUP: "Empty"}, {AT: 1})
    assert a.join().code is ErrorCode.NONE
    assert coordinator.fetch() == {AT: 1}
