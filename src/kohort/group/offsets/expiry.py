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
from kohort.group.offsets.offsets import CommittedOffset, Offsets
from kohort.group.records import NO_TIMESTAMP_MS, GroupRecord, GroupTombstone, OffsetTombstone

OFFSETS_AT_ONCE = 5_000
TOMBSTONES_AT_ONCE = 1_000
"""When a part of a sweep is enough: some milliseconds of looking, or of writing."""

BaseTimestamp: TypeAlias = Callable[[CommittedOffset], int]


def sweep(
    registry: GroupRegistry, offsets: Offsets, now_ms: int, group_ids: Sequence[str], start: int = 0
) -> tuple[list[GroupRecord], int]:
    """
    Tombstones for what has lapsed by now, in some of these groups; and where to go on, which is their number at the end.

    It stops behind the group with which enough has been looked at: it is one operation, and others wait for its end.
    """
    retention_ms = registry.config.offsets_retention_ms
    records: list[GroupRecord] = []
    looked_at = 0
    for index in range(start, len(group_ids)):
        if looked_at >= OFFSETS_AT_ONCE or len(records) >= TOMBSTONES_AT_ONCE:
            return records, index
        group_id = group_ids[index]
        group = registry.groups.get(group_id)
        if group is None:
            continue
        looked_at += 1 + len(offsets.by_group.get(group_id, ()))
        lapsed = lapsed_offsets(group, offsets, now_ms=now_ms, retention_ms=retention_ms)
        records += lapsed
        registry.counters.offset_expirations += len(lapsed)
        is_bare = len(lapsed) == len(offsets.by_group.get(group_id, ())) and group_id not in offsets.writers
        if is_bare and group.state is EMPTY:
            records.append(GroupTombstone(group_id))
    return records, len(group_ids)


def lapsed_offsets(group: ClassicGroup, offsets: Offsets, *, now_ms: int, retention_ms: int) -> list[OffsetTombstone]:
    base = _base_timestamp(group)
    if base is None:
        return []
    return [
        OffsetTombstone(group.group_id, topic, partition)
        for (topic, partition), offset in offsets.of_group(group.group_id)
        if not group.is_subscribed(topic)
        and not offsets.has_pending(group.group_id, (topic, partition))
        and has_lapsed(offset, base(offset), now_ms=now_ms, retention_ms=retention_ms)
    ]


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
