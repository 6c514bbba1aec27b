"""
The sweep: offsets that nobody needs any more lapse, and with them groups that are empty (KIP-211).

| group                                          | counts from                        | which topics   |
|------------------------------------------------|------------------------------------|----------------|
| Empty, had members                             | when it became empty, if known     | all            |
| consumers, Stable, subscriptions known         | the commit                         | not subscribed |
| simple                                         | the commit                         | all            |
| any other (rebalancing, of another kind)       | never                              |                |

An offset with an expire timestamp of its own lapses then. One that an open transaction is about to replace never does.

Source: Kafka OffsetMetadataManager.cleanupExpiredOffsets, ClassicGroup.offsetExpirationCondition.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import EMPTY, STABLE
from kohort.group.offsets.offsets import CommittedOffset, Offsets, Partition
from kohort.group.offsets.scan import OFFSETS_AT_ONCE, TOMBSTONES_AT_ONCE, OffsetScan
from kohort.group.records import NO_TIMESTAMP_MS, GroupRecord, GroupTombstone, OffsetTombstone

BaseTimestamp: TypeAlias = Callable[[CommittedOffset], int]


def cleanup_expired_offsets(
    registry: GroupRegistry, offsets: Offsets, now_ms: int, under_way: OffsetScan
) -> tuple[list[GroupRecord], OffsetScan | None]:
    """
    Tombstones for what has lapsed by now; and where to go on, if that was not all.

    It stops when enough has been looked at, within a group if need be: it is one operation, and others wait for its end.
    """
    records: list[GroupRecord] = []
    looked_at = 0
    while not under_way.is_over:
        if looked_at >= OFFSETS_AT_ONCE or len(records) >= TOMBSTONES_AT_ONCE:
            return records, under_way
        step = under_way.step(lambda group_id: list(offsets.by_group.get(group_id, ())))
        under_way = step.rest
        group = registry.groups.get(step.group_id)
        if group is None:
            continue
        looked_at += 1 + len(step.partitions)
        lapsed = _lapsed(registry, group, offsets, step.partitions, now_ms)
        records += lapsed
        if not step.is_last:
            return records, under_way
        has_none = len(lapsed) == len(offsets.by_group.get(step.group_id, ())) and step.group_id not in offsets.writers
        if has_none and group.state is EMPTY:
            records.append(GroupTombstone(step.group_id))
    return records, None


def _lapsed(
    registry: GroupRegistry, group: ClassicGroup, offsets: Offsets, partitions: Sequence[Partition], now_ms: int
) -> list[OffsetTombstone]:
    """Those of these partitions whose offset has lapsed; some may have none any more."""
    base, retention_ms = _base_timestamp(group), registry.config.offsets_retention_ms
    committed = offsets.by_group.get(group.group_id)
    if base is None or committed is None:
        return []
    lapsed = [
        OffsetTombstone(group.group_id, *partition)
        for partition in partitions
        if not group.is_subscribed(partition[0])
        and not offsets.has_pending(group.group_id, partition)
        and (offset := committed.get(partition)) is not None
        and has_lapsed(offset, base(offset), now_ms=now_ms, retention_ms=retention_ms)
    ]
    registry.counters.offset_expirations += len(lapsed)
    return lapsed


def has_lapsed(offset: CommittedOffset, base_ms: int, *, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms


def _base_timestamp(group: ClassicGroup) -> BaseTimestamp | None:
    """From when an offset's retention counts; None while nothing in the group may lapse."""
    if group.protocol_type is None:
        return _committed_at
    if group.state is EMPTY:
        emptied_at_ms = group.state_timestamp_ms
        return _committed_at if emptied_at_ms is None else lambda _: emptied_at_ms
    if group.is_consumer and group.subscribed_topics is not None and group.state is STABLE:
        return _committed_at
    return None


def _committed_at(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms
