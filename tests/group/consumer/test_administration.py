"""
Groups of all kinds side by side in the APIs of administrators, and the expiration of the offsets of consumer groups.

Source: Kafka GroupMetadataManager.listGroups, consumerGroupDescribe; OffsetMetadataManager.cleanupExpiredOffsets;
KIP-848; KIP-211.
"""

from typing import Any

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.offsets.expiry import cleanup_expired_offsets
from kohort.group.offsets.scan import OffsetScan
from kohort.group.records import GroupRecord
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ErrorCode
from kohort.records.values import ConsumerGroupMetadataTombstone, OffsetCommitTombstone
from kohort.testing import FixedContext
from kohort.testing.context import take_all
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.group.consumer.members import GROUP, Member, settle
from tests.group.harness import Coordinator

MINUTE_MS = 60_000
CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10 * MINUTE_MS)
POSITIONS = {("orders", 0): 5, ("payments", 0): 6}


def groups_of_all_kinds() -> Coordinator:
    """A simple group, a stable and an empty classic group, a stable and an empty consumer group; all with offsets."""
    coordinator = Coordinator()
    coordinator.commit(group="simple")
    (classic,) = coordinator.stable(1, group="classic")
    coordinator.commit(group="classic", member_id=classic, generation=1)
    (left,) = coordinator.stable(1, group="classic-empty")
    coordinator.commit(group="classic-empty", member_id=left, generation=1)
    coordinator.leave((left, None), group="classic-empty")
    a = Member(coordinator, "a", group="consumer")
    a.join()
    coordinator.commit(group="consumer", member_id="a", generation=2)
    b = Member(coordinator, "b", group="consumer-empty")
    b.join()
    coordinator.commit(group="consumer-empty", member_id="b", generation=2)
    b.leave()
    return coordinator


STATES = {
    "simple": ("classic", "Empty"),
    "classic": ("classic", "Stable"),
    "classic-empty": ("classic", "Empty"),
    "consumer": ("consumer", "Stable"),
    "consumer-empty": ("consumer", "Empty"),
}


def listed(coordinator: Coordinator, version: int = 5, **filters: Any) -> dict[str, tuple[str, str]]:
    answer = coordinator.ask("list_groups", m.ListGroupsRequest(**filters), version=version)
    return {group.group_id: (group.group_type, group.group_state) for group in answer.groups}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, set(STATES)),
        ({"types_filter": ["consumer"]}, {"consumer", "consumer-empty"}),
        ({"types_filter": ["Consumer"], "states_filter": ["EMPTY"]}, {"consumer-empty"}),
        ({"types_filter": ["classic"]}, {"simple", "classic", "classic-empty"}),
        ({"types_filter": ["classic", "consumer"], "states_filter": ["Stable"]}, {"classic", "consumer"}),
        ({"types_filter": ["share"]}, set()),
        ({"states_filter": ["Reconciling", "Assigning"]}, set()),
    ],
)
def test_list_groups(filters: dict[str, Any], expected: set[str]) -> None:
    assert listed(groups_of_all_kinds(), **filters) == {group_id: STATES[group_id] for group_id in expected}


def test_partitions_that_a_member_has_to_revoke_are_described_as_assigned() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    Member(coordinator, "b").join()
    assert a.beat(topic_partitions=None).assignment is not None
    (group,) = coordinator.ask("consumer_group_describe", m.ConsumerGroupDescribeRequest(group_ids=["group"])).groups
    described = {
        member.member_id: [
            [(topic.topic_name, topic.partitions) for topic in each.topic_partitions]
            for each in (member.assignment, member.target_assignment)
        ]
        for member in group.members
    }
    assert described == {
        "a": [[("orders", (0, 1, 2, 3))], [("orders", (0, 1))]],
        "b": [[], [("orders", (2, 3))]],
    }


def test_each_api_describes_the_groups_of_its_kind() -> None:
    coordinator = groups_of_all_kinds()
    ids = [*STATES, "none", ""]
    answer = coordinator.ask("consumer_group_describe", m.ConsumerGroupDescribeRequest(group_ids=ids))
    assert [group.group_id for group in answer.groups] == ids
    codes = {group.group_id: ErrorCode(group.error_code) for group in answer.groups}
    assert codes == {
        **dict.fromkeys(ids, ErrorCode.GROUP_ID_NOT_FOUND),
        "consumer": ErrorCode.NONE,
        "consumer-empty": ErrorCode.NONE,
        "": ErrorCode.INVALID_GROUP_ID,
    }
    classic = {group_id: coordinator.describe(group_id) for group_id in (*STATES, "none")}
    assert {group_id: ErrorCode(group.error_code) for group_id, group in classic.items()} == {
        **dict.fromkeys(("simple", "classic", "classic-empty"), ErrorCode.NONE),
        **dict.fromkeys(("consumer", "consumer-empty", "none"), ErrorCode.GROUP_ID_NOT_FOUND),
    }
    # Before version 6, such a group is dead.
    before = coordinator.describe("consumer", version=5)
    assert (ErrorCode(before.error_code), before.group_state) == (ErrorCode.NONE, "Dead")


def test_a_large_group_is_described_in_steps_as_it_was_at_the_first() -> None:
    coordinator = Coordinator()
    members = [Member(coordinator, f"member-{number:03}") for number in range(HANDLER_STEP + 10)]
    for member in members:
        member.join()
    request = m.ConsumerGroupDescribeRequest(group_ids=[GROUP])
    before = coordinator.ask("consumer_group_describe", request).groups
    handler = coordinator.service.handlers()[ApiKey.CONSUMER_GROUP_DESCRIBE]
    steps = handler(request, FixedContext(1), lambda _: None)
    next(steps)
    for member in members[-50:]:
        member.leave()
    answers: list[m.ConsumerGroupDescribeResponse] = []
    take_all(steps, answers.append)
    assert list(answers[0].groups) == list(before)
    assert len(coordinator.ask("consumer_group_describe", request).groups[0].members) == len(members) - 50


def test_groups_without_members_are_deleted_with_their_offsets() -> None:
    coordinator = groups_of_all_kinds()
    assert coordinator.delete(*STATES, "none") == {
        "simple": ErrorCode.NONE,
        "classic": ErrorCode.NON_EMPTY_GROUP,
        "classic-empty": ErrorCode.NONE,
        "consumer": ErrorCode.NON_EMPTY_GROUP,
        "consumer-empty": ErrorCode.NONE,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    for _ in range(2):
        assert set(listed(coordinator)) == {"classic", "consumer"}
        assert {group_id: bool(coordinator.fetch(group_id)) for group_id in STATES} == {
            group_id: group_id in ("classic", "consumer") for group_id in STATES
        }
        coordinator.restart()


@pytest.mark.parametrize(
    ("group_id", "orders", "payments"),
    [
        ("simple", ErrorCode.NONE, ErrorCode.NONE),
        ("classic-empty", ErrorCode.NONE, ErrorCode.NONE),
        ("consumer-empty", ErrorCode.NONE, ErrorCode.NONE),
        # The member subscribes to orders.
        ("consumer", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE),
    ],
)
def test_offset_delete(group_id: str, orders: ErrorCode, payments: ErrorCode) -> None:
    coordinator = groups_of_all_kinds()
    request = m.OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            m.OffsetDeleteRequestTopic(name=name, partitions=[m.OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("orders", "payments")
        ],
    )
    answer = coordinator.ask("offset_delete", request)
    codes = {topic.name: ErrorCode(topic.partitions[0].error_code) for topic in answer.topics}
    assert (answer.code, codes) == (ErrorCode.NONE, {"orders": orders, "payments": payments})
    assert bool(coordinator.fetch(group_id)) == (orders is not ErrorCode.NONE)


# Expiration


def swept(coordinator: Coordinator, age_ms: int) -> list[GroupRecord]:
    context = coordinator.shard.context
    found = cleanup_expired_offsets(context, coordinator.now_ms + age_ms, OffsetScan(list(context.groups)))
    assert found.rest is None
    return list(found.records)


@pytest.mark.parametrize(("age_ms", "is_over"), [(59_999, False), (60_000, True)])
def test_offsets_of_topics_without_subscription_expire_by_their_commit(age_ms: int, is_over: bool) -> None:
    coordinator = Coordinator(CONFIG)
    a = Member(coordinator, "a")
    a.join()
    coordinator.commit(POSITIONS, member_id="a", generation=2)
    assert swept(coordinator, age_ms) == ([OffsetCommitTombstone("group", "payments", 0)] if is_over else [])


def test_a_topic_that_a_resolved_pattern_matches_does_not_expire() -> None:
    coordinator = Coordinator(CONFIG)
    a = Member(coordinator, "a", None, subscribed_topic_regex="pay.*")
    a.join()
    coordinator.commit(POSITIONS, member_id="a", generation=1)
    assert swept(coordinator, MINUTE_MS) == [OffsetCommitTombstone("group", "orders", 0)]


def test_offsets_expire_while_the_group_reconciles() -> None:
    """A classic group that rebalances keeps everything; a consumer group knows its subscriptions at any time."""
    coordinator = Coordinator(CONFIG)
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    coordinator.commit(POSITIONS, member_id="a", generation=2)
    b.join()
    assert listed(coordinator)["group"] == ("consumer", "Reconciling")
    assert swept(coordinator, MINUTE_MS) == [OffsetCommitTombstone("group", "payments", 0)]


def test_an_empty_consumer_group_expires_with_its_last_offset() -> None:
    """The offsets count from their commit, not from when the group became empty."""
    coordinator = Coordinator(CONFIG)
    a = Member(coordinator, "a")
    a.join()
    settle(a)
    coordinator.commit(member_id="a", generation=2)
    coordinator.advance(30_000)
    a.leave()
    assert swept(coordinator, 29_999) == []
    records = swept(coordinator, 30_000)
    assert records[0] == OffsetCommitTombstone("group", "orders", 0)
    assert records[-1] == ConsumerGroupMetadataTombstone("group")
    coordinator.advance(11 * MINUTE_MS)
    assert coordinator.listed() == {}
    coordinator.restart()
    assert coordinator.listed() == {}


def test_a_consumer_group_without_offsets_is_kept_while_it_has_members() -> None:
    coordinator = Coordinator(CONFIG)
    a = Member(coordinator, "a")
    a.join()
    assert swept(coordinator, 10 * MINUTE_MS) == []
    a.leave()
    assert swept(coordinator, 0)[-1] == ConsumerGroupMetadataTombstone("group")
