"""
When offsets lapse, and groups with them.

Source: KIP-211; the rows are those of `kohort.group.offsets.expiry`, tried against a broker of Apache Kafka 4.2.1.
"""

from collections.abc import Iterator

import pytest

from kohort.group.classic.states import PREPARING_REBALANCE
from kohort.group.configs import GroupConfig
from kohort.group.offsets.expiry import cleanup_expired_offsets
from kohort.group.offsets.scan import TOMBSTONES_AT_ONCE, OffsetScan
from kohort.group.records import GroupRecord
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.model.errors import UnavailableError
from kohort.records.values import GroupMetadataTombstone, OffsetCommit, OffsetCommitTombstone
from tests.group.harness import Coordinator, subscription

LONG_MAX = (1 << 63) - 1
MINUTE_MS = 60_000
CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10 * MINUTE_MS)
ORDERS = OffsetCommitTombstone("group", "orders", 0)
PAYMENTS = OffsetCommitTombstone("group", "payments", 0)
GROUP = GroupMetadataTombstone("group")


def swept(coordinator: Coordinator, now_ms: int) -> list[GroupRecord]:
    """The records of the whole cleanup, which is one part."""
    found = cleanup_expired_offsets(coordinator.shard.context, now_ms, OffsetScan(list(coordinator.groups)))
    assert found.rest is None
    return list(found.records)


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
    assert coordinator.groups["group"].state is not PREPARING_REBALANCE or swept(coordinator, later) == []


def test_a_group_that_rebalances_keeps_everything() -> None:
    coordinator = Coordinator(CONFIG)
    leader, _ = coordinator.stable(2, protocols=(("range", subscription("orders")),))
    coordinator.commit({("payments", 0): 1}, member_id=leader, generation=1)
    coordinator.join(leader)
    assert coordinator.groups["group"].state is PREPARING_REBALANCE
    assert swept(coordinator, coordinator.now_ms + 10 * MINUTE_MS) == []


def test_other_kinds_of_members_and_unreadable_subscriptions_keep_everything() -> None:
    coordinator = Coordinator(CONFIG)
    (member,) = coordinator.stable(1, protocols=(("range", b"\0"),))
    coordinator.commit(member_id=member, generation=1)
    assert swept(coordinator, coordinator.now_ms + 10 * MINUTE_MS) == []
    coordinator.groups["group"].protocol_type = "connect"
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


def test_the_longest_retention_never_ends() -> None:
    """The sum has 64 bits. In Kafka it wraps around, so that the offset expires at once."""
    coordinator = Coordinator(CONFIG)
    coordinator.commit(retention_ms=LONG_MAX, version=2)
    (record,) = coordinator.records()
    assert isinstance(record, OffsetCommit)
    assert record.expire_timestamp_ms == LONG_MAX
    coordinator.restart()
    assert swept(coordinator, LONG_MAX - 1) == []


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
    assert not coordinator.groups
    assert not coordinator.shard.offsets.by_group
    assert coordinator.end == before + 2 * len(groups)
    coordinator.commit({("orders", 0): 1})
    some = OffsetScan(["deleted", "group", "deleted too"], 1)
    found = cleanup_expired_offsets(coordinator.shard.context, coordinator.now_ms, some)
    assert (found.records, found.rest) == ([], None)


def replayed(coordinator: Coordinator, *records: GroupRecord) -> None:
    for record in records:
        coordinator.shard.replay(0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, record)


def committed(coordinator: Coordinator, count: int) -> None:
    """So many offsets of one group."""
    now_ms = coordinator.now_ms
    replayed(coordinator, *(OffsetCommit("group", "orders", number, 1, -1, "", now_ms) for number in range(count)))


def parts(coordinator: Coordinator, now_ms: int) -> Iterator[list[GroupRecord]]:
    """The records of each part of a cleanup; each part is written before the next."""
    scan: OffsetScan | None = OffsetScan(list(coordinator.groups))
    while scan is not None:
        found = cleanup_expired_offsets(coordinator.shard.context, now_ms, scan)
        scan = found.rest
        replayed(coordinator, *found.records)
        yield list(found.records)


def test_a_large_group_is_swept_in_parts_and_goes_with_the_last() -> None:
    coordinator = Coordinator(CONFIG)
    count = 2 * TOMBSTONES_AT_ONCE + 1
    committed(coordinator, count)
    later = coordinator.now_ms + MINUTE_MS
    found = list(parts(coordinator, later))
    assert [len(records) for records in found] == [TOMBSTONES_AT_ONCE, TOMBSTONES_AT_ONCE, 2]
    assert found[-1] == [OffsetCommitTombstone("group", "orders", count - 1), GROUP]
    assert [record for records in found for record in records[:TOMBSTONES_AT_ONCE]][:count] == [
        OffsetCommitTombstone("group", "orders", partition) for partition in range(count)
    ]


def test_what_is_committed_or_deleted_between_the_parts_of_a_group_counts() -> None:
    coordinator = Coordinator(CONFIG)
    count = TOMBSTONES_AT_ONCE + 2
    committed(coordinator, count)
    coordinator.advance(MINUTE_MS)
    swept_parts = parts(coordinator, coordinator.now_ms)
    assert len(next(swept_parts)) == TOMBSTONES_AT_ONCE
    replayed(
        coordinator,
        *(
            OffsetCommit("group", "orders", number, 2, -1, "", coordinator.now_ms)
            for number in (TOMBSTONES_AT_ONCE, count)
        ),
        OffsetCommitTombstone("group", "orders", count - 1),
    )
    assert list(swept_parts) == [[]]
    assert list(coordinator.shard.offsets.by_group["group"]) == [("orders", TOMBSTONES_AT_ONCE), ("orders", count)]


def test_a_part_that_cannot_be_written_is_tried_again() -> None:
    coordinator = Coordinator(CONFIG)
    for index in range(TOMBSTONES_AT_ONCE):
        coordinator.commit(group=f"group-{index}")
    coordinator.log.fail_next_append = UnavailableError("full")
    coordinator.advance(CONFIG.offsets_retention_check_interval_ms + 499)
    assert coordinator.groups
    coordinator.advance(1)
    assert not coordinator.groups
