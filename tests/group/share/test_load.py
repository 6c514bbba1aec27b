"""
The load of share groups: logs of Apache Kafka, logs that compaction went over, records in any order.

Source: Kafka GroupMetadataManager.replay; logs of 4.2.1 and 4.4.0.
"""

from collections.abc import Sequence
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.assignors.specs import Assignment
from kohort.group.records import GroupRecord
from kohort.group.share.group import ShareGroup
from kohort.group.share.registry import registry_of
from kohort.model.errors import InvariantError
from kohort.records import values as v
from tests.group.consumer.picture import compacted, loaded
from tests.group.consumer.test_load import recorded, replayed
from tests.group.golden import golden_groups
from tests.group.harness import Image
from tests.group.share.picture import picture

GROUP = "group"
ORDERS, PAYMENTS = (Image().by_name[name].topic_id for name in ("orders", "payments"))
GONE = UUID(int=99)


# Logs of Apache Kafka


def names_in(group: ShareGroup, assignment: Assignment) -> list[str]:
    names = group.known_states.names
    return sorted(f"{names[topic_id]}-{each}" for topic_id, numbers in assignment.items() for each in numbers)


@pytest.mark.parametrize(
    ("run", "members"), [("main", 2), ("main-4.4.0", 3), ("expiry-4.4.0", 0), ("unclean-4.4.0", 1)]
)
def test_share_groups_are_the_brokers(run: str, members: int) -> None:
    groups = {
        group_id: group
        for records in recorded(run).values()
        for group_id, group in replayed(records, run).groups.items()
        if isinstance(group, ShareGroup)
    }
    theirs = {group_id: group for group_id, group in golden_groups()[run].items() if group["type"] == "Share"}
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
            assert (member.client_id, member.client_host, member.rack_id, member.epoch) == (
                known["client_id"],
                known["host"],
                known["rack_id"],
                known["member_epoch"],
            )
            assert names_in(group, member.assigned) == sorted(known["assignment"])
        assert names_in(group, group.known_states.initialized) == sorted(expected["share_offsets"])


@pytest.mark.parametrize("run", ["main", "main-4.4.0"])
def test_a_compacted_log_makes_the_same_groups(run: str, rng: Random) -> None:
    for records in recorded(run).values():
        whole = picture(replayed(records))
        pairs = [(golden.key_bytes, golden.value_bytes) for golden, _ in records]
        for _ in range(10):
            left = compacted(pairs, rng)
            assert picture(replayed(records[position] for position in left)) == whole, left


# Records in any order


def whole_group() -> list[GroupRecord]:
    info, gone = v.ShareGroupStatePartitionMetadataTopicPartitionsInfo, v.ShareGroupStatePartitionMetadataTopicInfo
    target, current = (
        v.ShareGroupTargetAssignmentMemberTopicPartition,
        v.ShareGroupCurrentMemberAssignmentTopicPartitions,
    )
    records: list[GroupRecord] = [
        v.ShareGroupMetadata(GROUP, 6, 12345),
        v.ShareGroupTargetAssignmentMetadata(GROUP, 5, 1_000),
        v.ShareGroupStatePartitionMetadata(
            GROUP,
            (info(PAYMENTS, "payments", (1,)),),
            (info(ORDERS, "orders", (0, 1)), info(PAYMENTS, "payments", (0,))),
            (gone(GONE, "gone"),),
        ),
    ]
    for member_id, names in (("a", ("orders",)), ("b", ("orders", "payments"))):
        records += [
            v.ShareGroupMemberMetadata(GROUP, member_id, None, "client", "/127.0.0.1", names),
            v.ShareGroupTargetAssignmentMember(GROUP, member_id, (target(ORDERS, (0, 1)),)),
            v.ShareGroupCurrentMemberAssignment(GROUP, member_id, 5, 4, 0, (current(ORDERS, (0,)),)),
        ]
    return records


@given(order=st.permutations(range(len(whole_group()))))
def test_records_in_any_order_make_the_same_group(order: Sequence[int]) -> None:
    records = whole_group()
    assert picture(loaded(records[position] for position in order)) == picture(loaded(records))


@pytest.mark.parametrize("position", range(len(whole_group())))
def test_any_record_alone_makes_a_group(position: int) -> None:
    record = whole_group()[position]
    group = loaded([record]).groups[GROUP]
    assert isinstance(group, ShareGroup)
    assert list(group.members) == ([] if group.is_empty else [getattr(record, "member_id", None)])


TOMBSTONES: list[GroupRecord] = [
    v.ShareGroupMetadataTombstone(GROUP),
    v.ShareGroupMemberMetadataTombstone(GROUP, "z"),
    v.ShareGroupTargetAssignmentMetadataTombstone(GROUP),
    v.ShareGroupTargetAssignmentMemberTombstone(GROUP, "z"),
    v.ShareGroupCurrentMemberAssignmentTombstone(GROUP, "z"),
    v.ShareGroupStatePartitionMetadataTombstone(GROUP),
]


@pytest.mark.parametrize("tombstone", TOMBSTONES, ids=lambda record: type(record).__name__)
def test_tombstones_of_nothing_have_no_effect(tombstone: GroupRecord) -> None:
    assert dict(loaded([tombstone]).groups) == {}
    shard = loaded([v.OffsetCommit(GROUP, "orders", 0, 1, -1, "", 0), tombstone])
    assert (list(shard.groups), shard.groups[GROUP].is_simple) == ([GROUP], True)


def test_the_tombstones_of_parts() -> None:
    shard = loaded(
        [
            *whole_group(),
            v.ShareGroupCurrentMemberAssignmentTombstone(GROUP, "a"),
            v.ShareGroupTargetAssignmentMetadataTombstone(GROUP),
            v.ShareGroupStatePartitionMetadataTombstone(GROUP),
        ]
    )
    group = shard.groups[GROUP]
    assert isinstance(group, ShareGroup)
    member = group.members["a"]
    assert (member.epoch, member.previous_epoch, member.assigned) == (-1, -1, {})
    assert (group.assignment_epoch.get(), group.states.get()) == (-1, None)
    assert picture(shard)["with_states"] == {}


def test_every_tombstone_removes_the_group() -> None:
    group = loaded(whole_group()).groups[GROUP]
    assert isinstance(group, ShareGroup)
    shard = loaded([*whole_group(), *group.tombstones()])
    assert dict(shard.groups) == {}
    assert picture(shard) == picture(loaded([]))


def test_the_tombstone_of_the_group_alone_forgets_its_states() -> None:
    shard = loaded([*whole_group(), v.ShareGroupMetadataTombstone(GROUP)])
    registry = registry_of(shard)
    assert [registry.with_states.groups(topic_id.hex) for topic_id in (ORDERS, PAYMENTS, GONE)] == [()] * 3
    assert registry.index.groups("orders") == ()


@pytest.mark.parametrize(
    "record", [v.GroupMetadata(GROUP, "consumer", 1, "range", None, 0, ()), v.ConsumerGroupMetadata(GROUP, 1, 0)]
)
def test_records_of_a_second_kind_fail_the_load(record: GroupRecord) -> None:
    for records in ([record, v.ShareGroupMetadata(GROUP, 1, 0)], [v.ShareGroupMetadata(GROUP, 1, 0), record]):
        if isinstance(records[1], v.GroupMetadata):
            continue
        with pytest.raises(InvariantError):
            loaded(records)
