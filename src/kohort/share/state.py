"""
The state of one share partition, and what records make of it.

Source: Kafka ShareGroupOffset, ShareCoordinatorShard.replay.
"""

import msgspec

from kohort.records.values import ShareSnapshot, ShareUpdate
from kohort.share.batches import NO_OFFSET, Batches, combined, is_ordered
from kohort.share.records import batches_of


class ShareState(msgspec.Struct, frozen=True, gc=False):
    """
    Attributes:
        snapshot_epoch: the number of the last snapshot.
        complete_count: offsets from the start offset on that are acknowledged or archived; -1 if that is not known.
        created_ms, written_ms: the times of the last snapshot. A snapshot that only lets the log be cut keeps the first one.
        newest_leader_epoch: the highest that was ever stored; older leaders are fenced. An initialisation stores 0.
        updates: the updates that count for the next snapshot. An initialisation does not reset them.
        snapshot_offset: the offset of the last snapshot in the log, which the log needs.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Batches
    created_ms: int
    written_ms: int
    newest_leader_epoch: int
    updates: int
    snapshot_offset: int


def after_snapshot(state: ShareState | None, record: ShareSnapshot, offset: int, updates_max: int) -> ShareState:
    """
    The state after a snapshot.

    Args:
        offset: of the record in the log.
        updates_max: the number of updates after which a snapshot is written.
    """
    batches = batches_of(record)
    if not is_ordered(batches):
        # Kafka stores a batch that ends before it begins, and fails to combine it.
        batches = combined((), batches, NO_OFFSET)
    newest_leader_epoch, updates = record.leader_epoch, 0
    if state is not None:
        newest_leader_epoch = max(newest_leader_epoch, state.newest_leader_epoch)
        updates = 0 if state.updates >= updates_max else state.updates
    return ShareState(
        record.snapshot_epoch,
        record.state_epoch,
        record.leader_epoch,
        record.start_offset,
        record.delivery_complete_count,
        batches,
        record.create_timestamp_ms,
        record.write_timestamp_ms,
        newest_leader_epoch,
        updates,
        offset,
    )


def after_update(state: ShareState | None, record: ShareUpdate, offset: int) -> ShareState:
    """
    The state after an update. A start offset or leader epoch of -1 keeps the stored one. An update without a snapshot before it
    is the state itself.

    Args:
        offset: of the record in the log.
    """
    if state is None:
        state = ShareState(record.snapshot_epoch, 0, record.leader_epoch, NO_OFFSET, -1, (), 0, 0, 0, 0, offset)
    start_offset = state.start_offset if record.start_offset == NO_OFFSET else record.start_offset
    leader_epoch = state.leader_epoch if record.leader_epoch < 0 else record.leader_epoch
    return ShareState(
        state.snapshot_epoch,
        state.state_epoch,
        leader_epoch,
        start_offset,
        record.delivery_complete_count,
        combined(state.batches, batches_of(record), start_offset),
        state.created_ms,
        state.written_ms,
        max(state.newest_leader_epoch, leader_epoch),
        state.updates + 1,
        state.snapshot_offset,
    )
