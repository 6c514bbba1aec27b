"""Transaction markers, encoded as any other batch. `kohort.storage.markers` has the quick way."""

from struct import pack

from kohort.wire.batches import ABORT, COMMIT, BatchRecord, build_batch


def control_batch(
    *, producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """Encode the marker that ends a transaction in one partition."""
    key = pack(">hh", 0, COMMIT if committed else ABORT)
    value = pack(">hi", 0, coordinator_epoch)
    return build_batch(
        [BatchRecord(key, value)],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
