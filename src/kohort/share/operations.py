"""
The operations on the state of one share partition. The order of their checks is Kafka's.

Every operation answers with the state, or with a refusal; both wait until everything that was seen is committed.

Source: Kafka ShareCoordinatorShard.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

from kohort.machine.ports import SharePartitionKey, SharePartitionState, StateBatch
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import SHARE_STATE_BATCHES_MAX, SHARE_WRITE_BATCHES_MAX
from kohort.records.values import ShareSnapshot, ShareSnapshotTombstone, ShareUpdate
from kohort.share.batches import NO_OFFSET, combined
from kohort.share.records import ShareRecord
from kohort.share.state import ShareState
from kohort.share.states import ShareStates

Answer: TypeAlias = SharePartitionState | CoordinatorError
Answered: TypeAlias = Result[ShareRecord, Answer]

NO_STATE: Final = SharePartitionState(0, 0, NO_OFFSET, -1)
"""The answer about a state that does not exist."""
_INITIALIZED_LEADER_EPOCH: Final = 0

_NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
_NEGATIVE_LEADER_EPOCH: Final = "The leader epoch cannot be a negative number."
_NEGATIVE_STATE_EPOCH: Final = "The state epoch cannot be a negative number."
_NO_READ: Final = "Read operation on uninitialized share partition not allowed."
_NO_WRITE: Final = "Write operation on uninitialized share partition not allowed."
_OLD_LEADER: Final = "The leader epoch in the request is older than the epoch on the broker."
_OLD_STATE: Final = "The coordinator rejected the request because the state epoch did not match."
_UNKNOWN: Final = "This server does not host this topic-partition."
_BACKWARDS: Final = "A state batch ends before it begins."
_TOO_LONG: Final = f"A write can have {SHARE_WRITE_BATCHES_MAX} state batches."
_TOO_MANY: Final = f"A share partition can have {SHARE_STATE_BATCHES_MAX} state batches."


def initialize(
    shard: ShareStates, now_ms: int, key: SharePartitionKey, state_epoch: int, start_offset: int
) -> Answered:
    """Begin anew with a start offset. Nothing of an earlier state is kept but its number of snapshots, and what is fenced."""
    if key.partition < 0:
        return _invalid(_NEGATIVE_PARTITION)
    if state_epoch < 0:
        return _invalid(_NEGATIVE_STATE_EPOCH)
    state = shard.states.get(key)
    if state is not None and state_epoch < state.state_epoch:
        return _refused(ErrorCode.FENCED_STATE_EPOCH, _OLD_STATE)
    if not _exists(shard, key):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    record = ShareSnapshot(
        key.group_id,
        key.topic_id,
        key.partition,
        0 if state is None else state.snapshot_epoch + 1,
        state_epoch,
        _INITIALIZED_LEADER_EPOCH,
        start_offset,
        now_ms,
        now_ms,
        (),
        -1 if start_offset == NO_OFFSET else 0,
    )
    return Result([record], NO_STATE)


def read(shard: ShareStates, now_ms: int, key: SharePartitionKey, leader_epoch: int) -> Answered:
    """Answer a leader with the state. A leader that is new is noted, so that earlier ones are fenced."""
    if key.partition < 0:
        return _invalid(_NEGATIVE_PARTITION)
    if leader_epoch < 0:
        return _invalid(_NEGATIVE_LEADER_EPOCH)
    state = shard.states.get(key)
    if state is None:
        return _invalid(_NO_READ)
    if leader_epoch < state.newest_leader_epoch:
        return _refused(ErrorCode.FENCED_LEADER_EPOCH, _OLD_LEADER)
    if not _exists(shard, key):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    if leader_epoch == state.newest_leader_epoch:
        return Result((), answer_of(state))
    record = _change(shard, now_ms, key, state, leader_epoch, state.start_offset, state.complete_count, ())
    return Result([record], answer_of(state)._replace(leader_epoch=leader_epoch))


def write(shard: ShareStates, now_ms: int, key: SharePartitionKey, changed: SharePartitionState) -> Answered:
    """
    Store what a leader has changed. The start offset never falls, and the count of a start offset neither. The epochs are
    checked, and not stored.
    """
    if key.partition < 0:
        return _invalid(_NEGATIVE_PARTITION)
    if changed.leader_epoch < 0:
        return _invalid(_NEGATIVE_LEADER_EPOCH)
    if changed.state_epoch < 0:
        return _invalid(_NEGATIVE_STATE_EPOCH)
    state = shard.states.get(key)
    if state is None:
        return _invalid(_NO_WRITE)
    if changed.leader_epoch < state.newest_leader_epoch:
        return _refused(ErrorCode.FENCED_LEADER_EPOCH, _OLD_LEADER)
    if changed.state_epoch < state.state_epoch:
        return _refused(ErrorCode.FENCED_STATE_EPOCH, _OLD_STATE)
    if not _exists(shard, key):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    batches = changed.batches
    if len(batches) > SHARE_WRITE_BATCHES_MAX:
        return _invalid(_TOO_LONG)
    for batch in batches:
        # Kafka stores it, and cannot combine it with the next write.
        if batch.last_offset < batch.first_offset:
            return _invalid(_BACKWARDS)
    start_offset, count = changed.start_offset, changed.delivery_complete_count
    if start_offset == state.start_offset:
        count = max(count, state.complete_count)
    elif start_offset < state.start_offset:
        start_offset, count = state.start_offset, state.complete_count
    if (
        len(state.batches) + 2 * len(batches) > SHARE_STATE_BATCHES_MAX
        and len(combined(state.batches, batches, start_offset)) > SHARE_STATE_BATCHES_MAX
    ):
        return _invalid(_TOO_MANY)
    return Result([_change(shard, now_ms, key, state, state.leader_epoch, start_offset, count, batches)], NO_STATE)


def delete(shard: ShareStates, _now_ms: int, key: SharePartitionKey) -> Answered:
    """Forget the state, and what it fences. A state that does not exist is no error."""
    if key.partition < 0:
        return _invalid(_NEGATIVE_PARTITION)
    if not _exists(shard, key):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    if key not in shard.states:
        return Result((), NO_STATE)
    return Result([ShareSnapshotTombstone(key.group_id, key.topic_id, key.partition)], NO_STATE)


def summary(shard: ShareStates, committed: int, key: SharePartitionKey) -> Answer:
    """The committed state without its batches."""
    if key.partition < 0:
        return CoordinatorError(ErrorCode.INVALID_REQUEST, _NEGATIVE_PARTITION)
    if not _exists(shard, key):
        return CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    state = shard.states.get_at(key, committed)
    return NO_STATE if state is None else answer_of(state)._replace(batches=())


def answer_of(state: ShareState) -> SharePartitionState:
    """The state as leaders and groups get it."""
    return SharePartitionState(
        state.state_epoch, state.leader_epoch, state.start_offset, state.complete_count, state.batches
    )


def _change(
    shard: ShareStates,
    now_ms: int,
    key: SharePartitionKey,
    state: ShareState,
    leader_epoch: int,
    start_offset: int,
    count: int,
    batches: Sequence[StateBatch],
) -> ShareRecord:
    """An update; after so many of them a snapshot."""
    if state.updates >= shard.updates_max:
        return ShareSnapshot(
            key.group_id,
            key.topic_id,
            key.partition,
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start_offset,
            now_ms,
            now_ms,
            cast("Any", combined(state.batches, batches, start_offset)),
            count,
        )
    return ShareUpdate(
        key.group_id,
        key.topic_id,
        key.partition,
        state.snapshot_epoch,
        leader_epoch,
        start_offset,
        cast("Any", tuple(batches)),
        count,
    )


def _exists(shard: ShareStates, key: SharePartitionKey) -> bool:
    topic = shard.image.topic_by_id(key.topic_id)
    return topic is not None and key.partition < topic.partition_count


def _invalid(message: str) -> Answered:
    return _refused(ErrorCode.INVALID_REQUEST, message)


def _refused(code: ErrorCode, message: str) -> Answered:
    return Result((), CoordinatorError(code, message))
