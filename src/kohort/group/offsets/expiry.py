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

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import EMPTY, STABLE
from kohort.group.offsets.offsets import CommittedOffset, Offsets, Partition
from kohort.group.records import NO_TIMESTAMP_MS, GroupRecord, GroupTombstone, OffsetTombstone

OFFSETS_AT_ONCE = 5_000
TOMBSTONES_AT_ONCE = 1_000
"""When a part of a sweep is enough: some milliseconds of looking, or of writing."""

BaseTimestamp: TypeAlias = Callable[[CommittedOffset], int]


class Sweep(msgspec.Struct, frozen=True):
    """
    How far a sweep is.

    Attributes:
        group_ids: the groups that there were when it began.
        index: the group that is next.
        partitions: those with an offset in that group when its turn came, if they are too many for one operation.
        place: which of them is next.
    """

    group_ids: Sequence[str]
    index: int = 0
    partitions: Sequence[Partition] = ()
    place: int = 0


def sweep(
    registry: GroupRegistry, offsets: Offsets, now_ms: int, under_way: Sweep
) -> tuple[list[GroupRecord], Sweep | None]:
    """
    Tombstones for what has lapsed by now; and where to go on, if that was not all.

    It stops when enough has been looked at, within a group if need be: it is one operation, and others wait for its end.
    """
    records: list[GroupRecord] = []
    looked_at, index = 0, under_way.index
    partitions, place = under_way.partitions, under_way.place
    while index < len(under_way.group_ids):
        if looked_at >= OFFSETS_AT_ONCE or len(records) >= TOMBSTONES_AT_ONCE:
            return records, Sweep(under_way.group_ids, index)
        group_id = under_way.group_ids[index]
        group = registry.groups.get(group_id)
        if group is not None:
            if not place:
                partitions = list(offsets.by_group.get(group_id, ()))
            until = place + TOMBSTONES_AT_ONCE
            looked_at += 1 + len(partitions[place:until])
            lapsed = _lapsed(registry, group, offsets, partitions[place:until], now_ms)
            records += lapsed
            if until < len(partitions):
                return records, Sweep(under_way.group_ids, index, partitions, until)
            is_bare = len(lapsed) == len(offsets.by_group.get(group_id, ())) and group_id not in offsets.writers
            if is_bare and group.state is EMPTY:
                records.append(GroupTombstone(group_id))
        index, place = index + 1, 0
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
