"""
Periodic work of one shard, and what follows the deletion of topics.

- Pruning: the log is cut before the oldest record that is needed, which is the oldest of the last snapshots of all share
  partitions.
- Cold share partitions: one that is seldom written would keep the log long, so it gets a snapshot.
- The states of deleted topics are deleted, also those of topics that were deleted while nobody coordinated the partition. Kafka
  keeps the latter for ever.

Source: Kafka ShareCoordinatorService.setupRecordPruning, setupSnapshotColdPartitions; ShareCoordinatorOffsetsManager;
ShareCoordinatorShard.snapshotColdPartitions, maybeCleanupShareState.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, cast

from kohort.machine.ports import SharePartitionKey
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Key, Operation
from kohort.model.ids import uuid_text
from kohort.records.values import ShareSnapshot, ShareSnapshotTombstone
from kohort.share.records import ShareRecord
from kohort.share.state import ShareState
from kohort.share.states import ShareStates

_PRUNE: Final = ("prune the log",)
_COLD: Final = ("snapshot cold share partitions",)
_COLD_PART: Final = ("snapshot some cold share partitions",)
_DELETE_PART: Final = ("delete some states of deleted topics",)

KEYS_AT_ONCE: Final = 500
"""The number of records that one operation makes."""


class Pruned:
    """
    An effect: the records before an offset are not needed any more.

    Attributes:
        offset: it and all before it are committed.
    """

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset: Final = offset


# Pruning


def prune_deadline(shard: ShareStates) -> Deadline:
    """The deadline of the next pruning."""
    return Deadline(_PRUNE, shard.config.share_coordinator_state_topic_prune_interval_ms, Operation(prune))


def prune(shard: ShareStates, _now_ms: int) -> Result[ShareRecord, None]:
    """Cut the log, unless it was cut there before. Without share partitions nothing is cut."""
    effects: list[Pruned] = []
    if shard.level():
        oldest = min((state.snapshot_offset for state in shard.states.values()), default=0)
        if oldest > 0 and oldest != shard.pruned_offset:
            shard.pruned_offset = oldest
            effects.append(Pruned(oldest))
    return Result(deadlines=[prune_deadline(shard)], effects=effects)


# Cold share partitions


def cold_deadline(shard: ShareStates) -> Deadline:
    """The deadline of the next look for cold share partitions."""
    return Deadline(
        _COLD, shard.config.share_coordinator_cold_partition_snapshot_interval_ms, Operation(begin_cold_snapshots)
    )


def begin_cold_snapshots(shard: ShareStates, now_ms: int) -> Result[ShareRecord, None]:
    """
    Begin with the share partitions whose last snapshot is old. A round ends when all have a snapshot of this kind, and the next
    one begins with a snapshot of another.
    """
    states = shard.states
    deadlines = [cold_deadline(shard)]
    if shard.level() and any(state.created_ms == state.written_ms for state in states.values()):
        oldest_ms = now_ms - shard.config.share_coordinator_cold_partition_snapshot_interval_ms
        cold = [key for key, state in states.items() if state.written_ms <= oldest_ms]
        if cold:
            deadlines.append(_part(_COLD_PART, snapshot_part, cold))
    return Result(deadlines=deadlines)


def snapshot_part(
    shard: ShareStates, now_ms: int, keys: Sequence[SharePartitionKey], start: int
) -> Result[ShareRecord, None]:
    """Write a snapshot of some share partitions, which lets the log be cut."""
    records: list[ShareRecord] = []
    for key in islice(keys, start, start + KEYS_AT_ONCE):
        state = shard.states.get(key)
        if state is not None:
            records.append(_cold_snapshot(key, state, now_ms))
    return Result(records, is_atomic=False, then=_following(_COLD_PART, snapshot_part, keys, start))


def _cold_snapshot(key: SharePartitionKey, state: ShareState, now_ms: int) -> ShareSnapshot:
    return ShareSnapshot(
        key.group_id,
        key.topic_id,
        key.partition,
        state.snapshot_epoch + 1,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.created_ms,
        now_ms,
        cast("Any", state.batches),
        state.complete_count,
    )


# Deleted topics


def delete_states(keys: Sequence[SharePartitionKey]) -> Deadline:
    """The deadline that begins to delete states, whose topics are gone."""
    return _part((*_DELETE_PART, uuid_text(keys[0].topic_id)), delete_part, keys)


def delete_part(
    shard: ShareStates, _now_ms: int, keys: Sequence[SharePartitionKey], start: int
) -> Result[ShareRecord, None]:
    """Delete the states of some share partitions."""
    records = [
        ShareSnapshotTombstone(key.group_id, key.topic_id, key.partition)
        for key in islice(keys, start, start + KEYS_AT_ONCE)
        if key in shard.states
    ]
    following = _following((*_DELETE_PART, uuid_text(keys[0].topic_id)), delete_part, keys, start)
    return Result(records, is_atomic=False, then=following)


# Parts


def _part(key: Key, function: Callable[..., Any], keys: Sequence[SharePartitionKey], start: int = 0) -> Deadline:
    return Deadline(key, 0, Operation(function, keys, start))


def _following(
    key: Key, function: Callable[..., Any], keys: Sequence[SharePartitionKey], start: int
) -> Operation | None:
    """The operation that lets the next part begin."""
    end = start + KEYS_AT_ONCE
    return Operation(begin_part, _part(key, function, keys, end)) if end < len(keys) else None


def begin_part(_shard: ShareStates, _now_ms: int, part: Deadline) -> Result[ShareRecord, None]:
    return Result(deadlines=[part])
