"""
When offsets lapse, and groups with them.

Source: KIP-211; the rows are those of `kohort.group.offsets.expiry`, tried against a broker of Apache Kafka 4.2.1.
"""

import pytest

from kohort.group.classic.states import PREPARING_REBALANCE
from kohort.group.configs import GroupConfig
from kohort.group.offsets.expiry import TOMBSTONES_AT_ONCE, sweep
from kohort.group.records import GroupRecord, GroupTombstone, OffsetCommit, OffsetTombstone
from kohort.model.errors import UnavailableError
from tests.group.harness import Coordinator, subscription

MINUTE_MS = 60_000
CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10 * MINUTE_MS)
ORDERS = OffsetTombstone("group", "orders", 0)
PAYMENTS = OffsetTombstone("group", "payments", 0)
GROUP = GroupTombstone("group")


def swept(coordinator: Coordinator, now_ms: int) -> list[GroupRecord]:
    """All of it, in one."""
    shard = coordinator.shard
    records, following = sweep(shard.registry, shard.offsets, now_ms, list(shard.groups))
    assert following == len(shard.groups)
    return records


@pytest.mark.parametrize(("age_ms", "records"), [(59_999, []), (60_000, [ORDERS, GROUP]), (60_001, [ORDERS, GROUP])])
def test_a_simple_group_counts_from_the_commit(age_ms: int, records: list[GroupRecord]) -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.commit()
    assert swept(coordinator, coordinator.now_ms + age_ms) == records


@pytest.mark.parametrize(("age_ms", "is_over"), [(59_999, False), (60_000, True)])
def test_an_empty_group_counts_from_when_it_became_empty(age_ms: int, is_over: bool) -> None:
    coordinator = Coordinator(CONFIG)
    (member,) = coordinator.stable(1)
    coordinator.commit(member_id=member, generation=1)
    coordinator.advance(5_000)
    coordinator.leave((member, None))
    assert swept(coordinator, coordinator.now_ms + age_ms) == ([ORDERS, GROUP] if is_over else [])
    coordinator.restart()
    assert swept(coordinator, coordinator.now_ms + age_ms) == ([ORDERS, GROUP] if is_over else [])


def test_what_nobody_subscribes_to_lapses_under_a_stable_group() -> None:
    coordinator = Coordinator(CONFIG)
    (member,) = coordinator.stable(1, protocols=(("range", subscription("orders")),))
    coordinator.commit({("orders", 0): 1, ("payments", 0): 1}, member_id=member, generation=1)
    later = coordinator.now_ms + MINUTE_MS
    assert swept(coordinator, later - 1) == []
    assert swept(coordinator, later) == [PAYMENTS]
    coordinator.join(member, protocols=(("range", subscription("orders", "x")),))
    coordinator.join("", version=3)
    assert coordinator.shard.groups["group"].state is not PREPARING_REBALANCE or swept(coordinator, later) == []


def test_a_group_that_rebalances_keeps_everything() -> None:
    coordinator = Coordinator(CONFIG)
    leader, _ = coordinator.stable(2, protocols=(("range", subscription("orders")),))
    coordinator.commit({("payments", 0): 1}, member_id=leader, generation=1)
    coordinator.join(leader)
    assert coordinator.shard.groups["group"].state is PREPARING_REBALANCE
    assert swept(coordinator, coordinator.now_ms + 10 * MINUTE_MS) == []


def test_other_kinds_of_members_and_unreadable_subscriptions_keep_everything() -> None:
    coordinator = Coordinator(CONFIG)
    (member,) = coordinator.stable(1, protocols=(("range", b"\0"),))
    coordinator.commit(member_id=member, generation=1)
    assert swept(coordinator, coordinator.now_ms + 10 * MINUTE_MS) == []
    coordinator.shard.groups["group"].protocol_type = "connect"
    assert swept(coordinator, coordinator.now_ms + 10 * MINUTE_MS) == []


@pytest.mark.parametrize("retention_ms", [1_000, 10 * MINUTE_MS])
def test_an_expire_timestamp_overrules_retention(retention_ms: int) -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.commit(retention_ms=retention_ms, version=4)
    (record,) = coordinator.records()
    assert isinstance(record, OffsetCommit)
    assert record.expire_timestamp_ms == coordinator.now_ms + retention_ms
    coordinator.restart()
    assert swept(coordinator, record.expire_timestamp_ms - 1) == []
    assert swept(coordinator, record.expire_timestamp_ms) == [ORDERS, GROUP]


def test_an_open_transaction_keeps_offset_and_group() -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.commit({("orders", 0): 1, ("payments", 0): 1})
    coordinator.shard.replay(50, 7, 0, OffsetCommit("group", "orders", 0, 5, -1, "", 0))
    coordinator.shard.replay(51, 7, 0, OffsetCommit("only-pending", "orders", 0, 5, -1, "", 0))
    assert swept(coordinator, coordinator.now_ms + 10 * MINUTE_MS) == [PAYMENTS]


def test_an_empty_group_without_offsets_goes_at_the_next_sweep() -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.advance(10 * MINUTE_MS - 1)
    pending = coordinator.new_member_id(session_ms=1_000_000)
    assert coordinator.listed() == {"group": "Empty"}
    coordinator.advance(1)
    assert coordinator.listed() == {}
    assert coordinator.join(pending).code == 25


def test_the_sweep_comes_again_and_again_and_after_a_failure() -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.commit()
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.advance(10 * MINUTE_MS)
    assert coordinator.listed() == {"group": "Empty"}
    coordinator.advance(10 * MINUTE_MS)
    assert coordinator.listed() == {}
    coordinator.commit()
    coordinator.advance(10 * MINUTE_MS)
    assert coordinator.listed() == {}


def test_a_large_sweep_is_done_in_parts_that_others_can_come_between() -> None:
    coordinator = Coordinator(CONFIG)
    groups = [f"group-{index}" for index in range(2 * TOMBSTONES_AT_ONCE)]
    for group in groups:
        coordinator.commit(group=group)
    before = coordinator.end
    coordinator.advance(CONFIG.offsets_retention_check_interval_ms)
    assert not coordinator.shard.groups
    assert not coordinator.shard.offsets.by_group
    assert coordinator.end == before + 2 * len(groups)
    shard = coordinator.shard
    coordinator.commit({("orders", 0): 1})
    records, following = sweep(shard.registry, shard.offsets, coordinator.now_ms, ["gone", "group", "gone too"], 1)
    assert (records, following) == ([], 3)


def test_a_part_that_cannot_be_written_is_tried_again() -> None:
    coordinator = Coordinator(CONFIG)
    for index in range(TOMBSTONES_AT_ONCE):
        coordinator.commit(group=f"group-{index}")
    coordinator.log.fail_next_append = UnavailableError("full")
    coordinator.advance(CONFIG.offsets_retention_check_interval_ms + 499)
    assert coordinator.shard.groups
    coordinator.advance(1)
    assert not coordinator.shard.groups
