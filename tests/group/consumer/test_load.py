"""
The load of consumer groups: logs of Apache Kafka, logs that compaction went over, records in any order.

Source: Kafka GroupMetadataManager.replay, ConsumerGroup.removePartitionEpochs, addPartitionEpochs; logs of 4.2.1 and 4.4.0.
"""

import base64
from collections.abc import Iterable, Sequence
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.configs import GroupConfig
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.kinds import record_serde
from kohort.group.metadata_hash import TopicHashes
from kohort.group.records import GroupRecord
from kohort.group.shard import GroupShard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import InvariantError, UnknownRecordTypeError
from kohort.records import values as v
from kohort.testing.image import FixedImage, FixedTopic
from kohort.testing.watched import NoDeadlines
from tests.group.consumer.picture import compacted, loaded, picture
from tests.group.consumer.states import GROUP, ORDERS, Known
from tests.group.golden import GoldenRecord, golden_groups, golden_records
from tests.records import kafka_logs

TOPICS = {
    "clicks.eu": ("zvNGUh0qQdmN5_1o_qA2Tg", 1),
    "clicks.us": ("xhdFJirtSImT9ow1pV0BaA", 2),
    "orders": ("7H-SLoYzTTm0vjLA-u3HvA", 4),
    "payments": ("d-fKfnOiQZK4tMpOVHhogA", 2),
    "words": ("Im8dOFZWTw2CPoverLjIbA", 2),
}
"""Name, id and number of partitions of the topics that the broker of the run `main` had."""
CHANGED_TOPICS = {"reborn", "views.us"}
"""Topics of the run `main-4.4.0` that were deleted, or created again, before the broker told its topics."""


@cache
def image(run: str = "main") -> FixedImage:
    topics = TOPICS
    if run in kafka_logs.RUNS:
        told = kafka_logs.broker(run)["topics"]
        topics = {name: (topic["topic_id"], len(topic["partitions"])) for name, topic in told.items()}
    return FixedImage(
        FixedTopic(name, UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")), count)
        for name, (topic_id, count) in topics.items()
    )


@cache
def recorded(run: str) -> dict[int, list[tuple[GoldenRecord, GroupRecord]]]:
    """The records of groups and offsets in the log of a run, by partition; those of other kinds of groups are left out."""
    serde = record_serde()
    found: dict[int, list[tuple[GoldenRecord, GroupRecord]]] = {}
    for record in golden_records():
        if record.run == run and not record.control:
            try:
                decoded = serde.decode(record.key_bytes, record.value_bytes)
            except UnknownRecordTypeError:
                continue
            found.setdefault(record.partition, []).append((record, decoded))
    return found


def replayed(records: Iterable[tuple[GoldenRecord, GroupRecord]], run: str = "main") -> GroupShard:
    shard = GroupShard(SnapshotRegistry(), NoDeadlines(), GroupConfig(), lambda: "uuid")
    for golden, record in records:
        shard.replay(golden.offset, golden.producer_id, golden.producer_epoch, record)
    shard.on_loaded(image(run), 0)
    return shard


# Logs of Apache Kafka


def names_of(assignment: Any, run: str) -> list[str]:
    known = {topic.topic_id: topic.name for topic in image(run).topics()}
    return sorted(f"{known[topic]}-{partition}" for topic, numbers in assignment.items() for partition in numbers)


@pytest.mark.parametrize(
    ("run", "members"), [("main", 5), ("main-4.4.0", 10), ("expiry-4.4.0", 1), ("unclean-4.4.0", 1)]
)
def test_consumer_groups_are_the_brokers(run: str, members: int) -> None:
    """Groups that all members have left, converted ones, and members that were alive, one of them between two assignments."""
    groups = {
        group_id: group
        for records in recorded(run).values()
        for group_id, group in replayed(records, run).groups.items()
        if isinstance(group, ConsumerGroup)
    }
    theirs = {group_id: group for group_id, group in golden_groups()[run].items() if group["type"] == "Consumer"}
    assert set(groups) == set(theirs)
    assert sum(len(group["members"]) for group in theirs.values()) == members
    for group_id, expected in theirs.items():
        group = groups[group_id]
        assert (group.state_name, group.epoch.get(), group.assignment_epoch.get()) == (
            expected["state"],
            expected["group_epoch"],
            expected["target_assignment_epoch"],
        )
        assert sorted(group.members) == sorted(member["member_id"] for member in expected["members"])
        for known in expected["members"]:
            member = group.members[known["member_id"]]
            assert (member.client_id, member.client_host, member.instance_id, member.rack_id, member.epoch) == (
                known["client_id"],
                known["host"],
                known["instance_id"],
                known["rack_id"],
                known["member_epoch"],
            )
            assert (member.classic is None) is known["upgraded"]
            # Kafka counts the partitions that a member has not released yet.
            owned = [*names_of(member.assigned, run), *names_of(member.pending_revocation, run)]
            assert sorted(owned) == sorted(known["assignment"])
            assert names_of(group.targets[member.member_id], run) == sorted(known["target_assignment"])


@pytest.mark.parametrize(("run", "epochs"), [("main", 25), ("main-4.4.0", 60)])
def test_the_metadata_hashes_are_the_brokers(run: str, epochs: int) -> None:
    """Each recorded group epoch has the hash of the topics that the group is subscribed to then."""
    checked = 0
    for records in recorded(run).values():
        shard = GroupShard(SnapshotRegistry(), NoDeadlines(), GroupConfig(), lambda: "uuid")
        for golden, record in records:
            shard.replay(golden.offset, golden.producer_id, golden.producer_epoch, record)
            if isinstance(record, v.ConsumerGroupMetadata):
                group = shard.groups[record.group_id]
                assert isinstance(group, ConsumerGroup)
                topics = {*group.subscriptions.names, *group.subscriptions.matches}
                if topics & CHANGED_TOPICS:
                    continue
                assert record.metadata_hash == TopicHashes().group_hash(topics, image(run)), (record, topics)
                checked += 1
    assert checked > epochs


@pytest.mark.parametrize("run", ["main", "legacy", "main-4.4.0"])
def test_a_compacted_log_makes_the_same_group(run: str, rng: Random) -> None:
    for records in recorded(run).values():
        whole = picture(replayed(records))
        pairs = [(golden.key_bytes, golden.value_bytes) for golden, _ in records]
        for _ in range(25):
            left = compacted(pairs, rng)
            assert picture(replayed(records[position] for position in left)) == whole, left


# Records in any order


MEMBERS = (
    Known("a", 5, 4, 1, (0,), (1,), target=(0,), instance="i"),
    Known("b", 5, 3, 2, (2,), target=(1, 2), topics=("orders", "payments")),
    Known("c", -2, 4, 0, (3,), target=(3,), instance="j", topics=()),
)


def whole_group() -> list[GroupRecord]:
    return [
        v.ConsumerGroupMetadata(GROUP, 6, 12345),
        v.ConsumerGroupTargetAssignmentMetadata(GROUP, 5),
        v.ConsumerGroupRegularExpression(GROUP, "or.*", topics=("orders", "origin"), version=3, timestamp_ms=4),
        v.ConsumerGroupPartitionMetadata(GROUP, ()),
        *(record for member in MEMBERS for record in member.records()),
    ]


@given(order=st.permutations(range(len(whole_group()))))
def test_records_in_any_order_make_the_same_group(order: Sequence[int]) -> None:
    records = whole_group()
    assert picture(loaded(records[position] for position in order)) == picture(loaded(records))


@pytest.mark.parametrize("position", range(len(whole_group())))
def test_any_record_alone_makes_a_group(position: int) -> None:
    record = whole_group()[position]
    group = loaded([record]).groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    assert list(group.members) == ([] if group.is_empty else [getattr(record, "member_id", None)])


TOMBSTONES: list[GroupRecord] = [
    v.ConsumerGroupMetadataTombstone(GROUP),
    v.ConsumerGroupPartitionMetadataTombstone(GROUP),
    v.ConsumerGroupMemberMetadataTombstone(GROUP, "z"),
    v.ConsumerGroupTargetAssignmentMetadataTombstone(GROUP),
    v.ConsumerGroupTargetAssignmentMemberTombstone(GROUP, "z"),
    v.ConsumerGroupCurrentMemberAssignmentTombstone(GROUP, "z"),
    v.ConsumerGroupRegularExpressionTombstone(GROUP, "none"),
]


@pytest.mark.parametrize("tombstone", TOMBSTONES, ids=lambda record: type(record).__name__)
def test_tombstones_of_nothing_have_no_effect(tombstone: GroupRecord) -> None:
    assert dict(loaded([tombstone]).groups) == {}
    commit = v.OffsetCommit(GROUP, "orders", 0, 1, -1, "", 0)
    shard = loaded([commit, tombstone])
    assert (list(shard.groups), shard.groups[GROUP].is_simple) == ([GROUP], True)


@pytest.mark.parametrize(
    "tombstone",
    [
        tombstone
        for tombstone in TOMBSTONES
        if hasattr(tombstone, "member_id") or hasattr(tombstone, "regular_expression")
    ],
    ids=lambda record: type(record).__name__,
)
def test_tombstones_of_another_member_have_no_effect(tombstone: GroupRecord) -> None:
    assert picture(loaded([*whole_group(), tombstone])) == picture(loaded(whole_group()))


def test_the_tombstones_of_parts() -> None:
    """8 leaves a member without epoch and partitions, 6 a group without target epoch."""
    shard = loaded(
        [
            *whole_group(),
            v.ConsumerGroupCurrentMemberAssignmentTombstone(GROUP, "a"),
            v.ConsumerGroupTargetAssignmentMetadataTombstone(GROUP),
        ]
    )
    group = shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    member = group.members["a"]
    assert (member.epoch, member.previous_epoch, member.assigned, member.pending_revocation) == (-1, -1, {}, {})
    assert group.assignment_epoch.get() == -1
    assert group.owners.free(ORDERS, range(4)) == [0, 1]


def test_every_tombstone_removes_the_group() -> None:
    group = loaded(whole_group()).groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    shard = loaded([*whole_group(), *group.tombstones()])
    assert dict(shard.groups) == {}
    assert picture(shard)["index"] == {}


# Owners of partitions, when the release of one is missing


def current(member_id: str, epoch: int, *partitions: int) -> GroupRecord:
    return Known(member_id, epoch, assigned=partitions).records()[-1]


def owner(shard: GroupShard, partition: int) -> int | None:
    group = shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    epochs = group.owners._by_topic.get(ORDERS)
    return None if epochs is None else epochs.get(partition)


def test_the_owner_of_the_higher_epoch_wins() -> None:
    """A compaction went over the log while it was read: the record in which `a` released the partition is gone."""
    records = [current("a", 3, 0, 1), current("b", 5, 1), current("a", 6, 0)]
    shard = loaded(records)
    assert (owner(shard, 0), owner(shard, 1)) == (6, 5)
    assert picture(loaded([current("a", 3, 0, 1), *records[1:]])) == picture(shard)


def test_the_release_of_a_partition_of_another_epoch_is_passed_over() -> None:
    shard = loaded(
        [current("a", 3, 0), current("b", 5, 0), v.ConsumerGroupCurrentMemberAssignmentTombstone(GROUP, "a")]
    )
    assert owner(shard, 0) == 5


@pytest.mark.parametrize("epoch", [5, 4])
def test_an_owner_of_an_equal_or_higher_epoch_fails_the_load(epoch: int) -> None:
    with pytest.raises(InvariantError):
        loaded([current("a", 5, 0), current("b", epoch, 0)])


def test_a_classic_group_with_members_and_records_of_a_consumer_group_fail_the_load() -> None:
    with pytest.raises(InvariantError):
        loaded([v.GroupMetadata(GROUP, "consumer", 1, "range", None, 0, ()), v.ConsumerGroupMetadata(GROUP, 1, 0)])


def test_the_tombstone_of_an_old_member_leaves_its_instance_id_to_the_new_one() -> None:
    member, replaced = Known("a", 5, instance="i"), Known("b", 5, instance="i")
    shard = loaded([*member.records(), *replaced.records(), v.ConsumerGroupMemberMetadataTombstone(GROUP, "a")])
    group = shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    assert dict(group.static_members) == {"i": "b"}
