"""
Commits with an epoch below that of the member: each partition is judged by its assignment epoch (KIP-1251).

The answers of the story are those of Apache Kafka 4.4.0.
"""

from collections.abc import Sequence
from random import Random

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.consumer.assignment_epochs import read_held
from kohort.model.errors import ErrorCode
from kohort.records import values as v
from kohort.wire import messages as m
from tests.group.consumer.classic_member import classic_group
from tests.group.consumer.classic_member import settle as settle_mixed
from tests.group.consumer.members import Member, consumer_group, settle
from tests.group.consumer.states import GROUP, ORDERS, PAYMENTS, Known, group_of
from tests.group.harness import Coordinator

NONE, STALE, ILLEGAL = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


def codes(coordinator: Coordinator, member: Member, epoch: int, partitions: Sequence[int]) -> list[ErrorCode]:
    """The answers to commits of these partitions, by OffsetCommit by name and by id and in both kinds of transactions."""
    positions = {("orders", partition): 1 for partition in partitions}
    by_name = coordinator.commit(positions, member_id=member.member_id, generation=epoch)
    entry = m.OffsetCommitRequestPartition
    topic = m.OffsetCommitRequestTopic(
        topic_id=ORDERS, partitions=[entry(partition_index=number, committed_offset=1) for number in partitions]
    )
    request = m.OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member.member_id, topics=[topic]
    )
    (answered,) = coordinator.ask("offset_commit", request, version=10).topics
    by_id = [ErrorCode(each.error_code) for each in answered.partitions]
    found = [by_name["orders", partition] for partition in partitions]
    assert by_id == found
    older = coordinator.commit_in_transaction(positions, member_id=member.member_id, generation=epoch, version=5)
    newer = coordinator.commit_in_transaction(positions, member_id=member.member_id, generation=epoch, version=6)
    assert list(newer.values()) == found
    assert list(older.values()) == [ILLEGAL if code is STALE else code for code in found]
    return found


def test_the_story_of_two_members() -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    assert codes(coordinator, a, 2, (0, 1, 2, 3)) == [NONE] * 4
    b.join()
    settle(a, b)
    assert (a.epoch, a.owned, b.epoch, b.owned) == (3, {"orders": (0, 1)}, 3, {"orders": (2, 3)})
    assert codes(coordinator, a, 2, (0, 1)) == [NONE, NONE]
    # One partition that fails refuses them all.
    assert codes(coordinator, a, 2, (0, 1, 2, 3)) == [STALE] * 4
    assert codes(coordinator, a, 2, (2, 3)) == [STALE] * 2
    assert codes(coordinator, b, 3, (2, 3)) == [NONE] * 2
    assert codes(coordinator, b, 2, (2, 3)) == [STALE] * 2
    assert codes(coordinator, a, 4, (0,)) == [STALE]
    # At its own epoch a member may commit any partition.
    assert codes(coordinator, a, 3, (2, 3)) == [NONE] * 2
    b.leave()
    settle(a)
    assert (a.epoch, a.owned) == (4, {"orders": (0, 1, 2, 3)})
    assert codes(coordinator, a, 2, (0, 1)) == [NONE] * 2
    assert codes(coordinator, a, 1, (0, 1)) == [STALE] * 2
    # They were away for one epoch.
    assert codes(coordinator, a, 3, (2, 3)) == [STALE] * 2
    assert codes(coordinator, a, 4, (0, 1, 2, 3)) == [NONE] * 4


def test_nothing_of_a_refused_commit_is_written() -> None:
    coordinator = group_of([Known("a", 5, 4, 0, (0, 1), target=(0, 1))])
    end = coordinator.end
    assert set(coordinator.commit({("orders", 0): 1, ("orders", 2): 1}, member_id="a", generation=4).values()) == {
        STALE
    }
    assert coordinator.end == end


def test_too_long_metadata_are_judged_before_the_epoch() -> None:
    """Such a partition is not asked for; if another one fails, it has that code like all others."""
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=4))
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    settle(a, b)

    def commit(kept: int, foreign: int) -> list[ErrorCode]:
        entry = m.OffsetCommitRequestPartition
        partitions = [
            entry(partition_index=kept, committed_offset=1, committed_metadata=""),
            entry(partition_index=foreign, committed_offset=1, committed_metadata="too long"),
        ]
        topics = [m.OffsetCommitRequestTopic(name="orders", partitions=partitions)]
        request = m.OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=2, member_id="a", topics=topics)
        (answered,) = coordinator.ask("offset_commit", request).topics
        return [ErrorCode(each.error_code) for each in answered.partitions]

    assert commit(0, 2) == [NONE, TOO_LARGE]
    assert commit(3, 2) == [STALE, STALE]


def test_a_partition_that_waits_for_its_revocation_keeps_its_epoch() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    Member(coordinator, "b").join()
    # A has to revoke 2 and 3 now, at its old epoch; then it gives up the topic.
    a.beat(topic_partitions=None)
    a.beat(topic_partitions=None, subscribed_topic_names=["payments"])
    member = consumer_group(coordinator).members["a"]
    assert (member.assigned, member.pending_revocation) == ({}, {ORDERS: (0, 1, 2, 3)})
    assert [member.holds_since(ORDERS, partition) for partition in range(5)] == [2, 2, 2, 2, None]
    assert codes(coordinator, a, 1, (3,)) == [STALE]


def test_a_member_that_leaves_for_a_while_hands_over_its_partitions_with_epoch_0() -> None:
    coordinator = Coordinator()
    first = Member(coordinator, "first", instance="i")
    first.join()
    first.leave(-2)
    record = coordinator.records()[-1]
    assert isinstance(record, v.ConsumerGroupCurrentMemberAssignment)
    assert [entry.assignment_epochs for entry in record.assigned_partitions] == [(0, 0, 0, 0)]
    # -2 is its epoch now, and all others are above.
    assert [codes(coordinator, first, epoch, (0,)) for epoch in (-2, -1, 0, 2)] == [[NONE], [STALE], [STALE], [STALE]]
    second = Member(coordinator, "second", instance="i")
    second.join()
    assert [codes(coordinator, second, epoch, (0, 3)) for epoch in (0, 1, 2)] == [[NONE] * 2] * 3
    assert codes(coordinator, second, 3, (0,)) == [STALE]
    assert codes(coordinator, first, 2, (0,)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_members_of_an_upgraded_group_have_their_partitions_since_its_generation() -> None:
    coordinator = Coordinator()
    a, b = classic_group(coordinator)
    c = Member(coordinator, "c")
    c.join()
    settle_mixed([c], [a, b])
    assert a.generation == c.epoch == 2
    positions = {("orders", partition): 1 for partition in a.owned["orders"]}
    for generation, code in ((1, NONE), (0, ILLEGAL), (3, ILLEGAL)):
        answers = coordinator.commit(positions, member_id=a.member_id, generation=generation)
        assert set(answers.values()) == {code}
    # What the new member has it got with the first target of its own.
    assert codes(coordinator, c, 1, c.owned["orders"]) == [STALE] * len(c.owned["orders"])


# Records

Entry = v.ConsumerGroupCurrentMemberAssignmentTopicPartitions


@pytest.mark.parametrize(
    ("entries", "member_epoch", "epochs"),
    [
        ([], 5, 0),
        # Kafka before 4.4 wrote no epochs.
        ([Entry(ORDERS, (0, 1))], 5, 5),
        ([Entry(ORDERS, (0, 1), None), Entry(PAYMENTS, (0,), (5,))], 5, 5),
        ([Entry(ORDERS, (0, 1))], -2, 0),
        ([Entry(ORDERS, (0, 1), (3,))], 5, 5),
        ([Entry(ORDERS, (0, 1), ())], 5, 5),
        ([Entry(ORDERS, (0, 1), (3, 3))], 5, 3),
        ([Entry(ORDERS, (1, 0), (3, 4))], 5, {ORDERS: (4, 3)}),
        ([Entry(ORDERS, (0,), (3,)), Entry(ORDERS, (2, 1), (4, 5))], 5, {ORDERS: (3, 5, 4)}),
        ([Entry(ORDERS, (2,), (3,)), Entry(ORDERS, (0, 1), (4, 5))], 5, {ORDERS: (4, 5, 3)}),
        ([Entry(ORDERS, (0,), (3,)), Entry(PAYMENTS, (0,), (4,))], 5, {ORDERS: (3,), PAYMENTS: (4,)}),
    ],
)
def test_the_epochs_of_a_record(entries: list[Entry], member_epoch: int, epochs: object) -> None:
    assignment, found = read_held(entries, member_epoch)
    assert found == epochs
    assert sum(map(len, assignment.values())) == sum(len(entry.partitions) for entry in entries)


def test_a_group_of_an_older_release_has_held_its_partitions_since_the_epoch_of_the_member() -> None:
    coordinator = group_of([Known("a", 5, 4, 0, (0, 1), target=(0, 1)), Known("b", 5, 4, 0, (2, 3), target=(2, 3))])
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.epoch, a.owned = 5, {"orders": (0, 1)}
    b.epoch, b.owned = 5, {"orders": (2, 3)}
    c = Member(coordinator, "c")
    c.join()
    settle(a, b, c)
    assert a.epoch == 6
    assert codes(coordinator, a, 5, a.owned["orders"]) == [NONE] * len(a.owned["orders"])
    assert codes(coordinator, a, 4, a.owned["orders"]) == [STALE] * len(a.owned["orders"])


# A model


class Model:
    """
    By member id the epochs of the partitions that it owns and of those that it has to revoke, as its records tell: the epoch of
    the first record that has the partition among its own.
    """

    def __init__(self) -> None:
        self.own: dict[str, dict[int, int]] = {}
        self.pending: dict[str, dict[int, int]] = {}
        self.epochs: dict[str, int] = {}
        self.left: dict[int, int] = {}

    def apply(self, record: object) -> None:
        if isinstance(record, v.ConsumerGroupCurrentMemberAssignmentTombstone):
            self.left = self.own.pop(record.member_id, {})
            self.pending.pop(record.member_id, None)
            self.epochs.pop(record.member_id, None)
        elif isinstance(record, v.ConsumerGroupCurrentMemberAssignment):
            # A static member under a new id goes on with the partitions of the old one.
            epoch = record.member_epoch
            own = self.own.get(record.member_id, self.left if epoch == 0 else {})
            held = self.pending.get(record.member_id, {}) | own
            self.own[record.member_id] = {
                partition: 0 if epoch == -2 else own.get(partition, epoch)
                for entry in record.assigned_partitions
                for partition in entry.partitions
            }
            self.pending[record.member_id] = {
                partition: held[partition]
                for entry in record.partitions_pending_revocation
                for partition in entry.partitions
            }
            self.epochs[record.member_id] = epoch

    def allows(self, member_id: str, epoch: int, partitions: Sequence[int]) -> bool:
        if epoch == self.epochs[member_id]:
            return True
        since = self.pending[member_id] | self.own[member_id]
        return epoch < self.epochs[member_id] and all(since.get(each, epoch + 1) <= epoch for each in partitions)


def test_commits_follow_a_model(seed: int) -> None:
    for number in range(seed, seed + 30):
        chance = Random(number)
        coordinator = Coordinator(assignment_interval_ms=chance.choice((0, 1_000)))
        model, seen = Model(), 0
        members: list[Member] = []
        for step in range(40):
            kind = chance.random()
            if len(members) < 2 or (kind < 0.15 and len(members) < 4):
                instance = chance.choice((None, None, "i"))
                if instance is None or all(each.instance is None for each in members):
                    members.append(Member(coordinator, f"m{step}", instance=instance))
                    members[-1].join()
            elif kind < 0.25:
                leaving = members.pop(chance.randrange(len(members)))
                leaving.leave(-1 if leaving.instance is None else chance.choice((-1, -2)))
            elif kind < 0.3:
                coordinator.restart()
            else:
                coordinator.advance(chance.choice((0, 400)))
                chance.choice(members).beat()
            records = coordinator.records()
            for record in records[seen:]:
                model.apply(record)
            seen = len(records)
            for member_id, epoch in model.epochs.items():
                sent = chance.randint(max(-2, epoch - 4), epoch + 1)
                partitions = chance.sample(range(4), chance.randint(1, 3))
                positions = {("orders", partition): 1 for partition in partitions}
                code = NONE if model.allows(member_id, sent, partitions) else STALE
                answer = coordinator.commit(positions, member_id=member_id, generation=sent)
                assert set(answer.values()) == {code}, (number, step, member_id, sent, partitions)
            seen = len(coordinator.records())
