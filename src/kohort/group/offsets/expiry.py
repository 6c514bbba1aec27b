"""
Expiration of committed offsets, and of empty groups that have none (KIP-211).

`Group.offset_expiration_base` says from when the retention of a group's offsets counts. Offsets of topics that a member of the
group reads do not expire, nor does an offset that an open transaction is about to replace. An offset with an expire timestamp
of its own expires at that time.

Source: Kafka OffsetMetadataManager.cleanupExpiredOffsets, OffsetExpirationConditionImpl.
"""

from collections.abc import Sequence

import msgspec

from kohort.group.context import GroupContext
from kohort.group.events import GroupDeleted, GroupEvent, OffsetsExpired
from kohort.group.groups import Group
from kohort.group.offsets.offsets import CommittedOffset, Partition
from kohort.group.offsets.scan import OFFSETS_AT_ONCE, TOMBSTONES_AT_ONCE, OffsetScan
from kohort.group.records import GroupRecord
from kohort.records.offset_commits import NO_TIMESTAMP_MS
from kohort.records.values import OffsetCommitTombstone


class ExpiredPart(msgspec.Struct, frozen=True):
    """
    The outcome of one part of the cleanup.

    Attributes:
        records: tombstones.
        events: to emit when the records are committed.
        rest: where the next part begins; None if this was the last.
    """

    records: Sequence[GroupRecord]
    events: Sequence[GroupEvent]
    rest: OffsetScan | None


def cleanup_expired_offsets(context: GroupContext, now_ms: int, scan: OffsetScan) -> ExpiredPart:
    """
    Collect tombstones of offsets that have expired, and of empty groups without offsets.

    Stops after some milliseconds, within a group if need be: other operations of the shard wait meanwhile.
    """
    records: list[GroupRecord] = []
    events: list[GroupEvent] = []
    offsets, looked_at = context.offsets, 0
    while not scan.is_over:
        if looked_at >= OFFSETS_AT_ONCE or len(records) >= TOMBSTONES_AT_ONCE:
            return ExpiredPart(records, events, scan)
        chunk = scan.step(lambda group_id: list(offsets.by_group.get(group_id, ())))
        scan = chunk.rest
        group_id = chunk.group_id
        group = context.groups.get(group_id)
        if group is None:
            continue
        looked_at += 1 + len(chunk.partitions)
        expired = _expired(context, group, chunk.partitions, now_ms)
        records += expired
        if expired:
            events.append(OffsetsExpired(group_id, len(expired)))
        if not chunk.is_last:
            return ExpiredPart(records, events, scan)
        has_none = len(expired) == len(offsets.by_group.get(group_id, ())) and group_id not in offsets.writers
        if has_none and group.is_empty and group.offset_expiration_base() is not None:
            records += group.tombstones()
            events.append(GroupDeleted(group_id, 0, "expired"))
    return ExpiredPart(records, events, None)


def _expired(
    context: GroupContext, group: Group, partitions: Sequence[Partition], now_ms: int
) -> list[OffsetCommitTombstone]:
    """Tombstones of these partitions' offsets that have expired; a partition may have no offset any more."""
    base, retention_ms = group.offset_expiration_base(), context.config.offsets_retention_ms
    group_id, offsets = group.group_id, context.offsets
    committed = offsets.by_group.get(group_id)
    if base is None or committed is None:
        return []
    expired = [
        OffsetCommitTombstone(group_id, *partition)
        for partition in partitions
        if not group.is_subscribed_to(partition[0])
        and not offsets.has_pending(group_id, partition)
        and (offset := committed.get(partition)) is not None
        and has_expired(offset, base(offset), now_ms=now_ms, retention_ms=retention_ms)
    ]
    context.counters.offset_expirations += len(expired)
    return expired


def has_expired(offset: CommittedOffset, base_ms: int, *, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms
