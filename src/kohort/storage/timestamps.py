"""
Search by time among the records of one batch.

Source: Kafka FileRecords.searchForOffsetWithTimestamp.
"""

from kohort.storage.log import NO_TIMESTAMP, TimestampOffset
from kohort.wire.batches import read_header, read_records


def newest_from(batch: bytes, offset_min: int) -> int:
    """The largest timestamp of a batch's records from an offset on, -1 for none. Raises: as `first_at_least`."""
    times = (record.timestamp for record in read_records(batch) if record.offset >= offset_min)
    return max(times, default=NO_TIMESTAMP)


def first_at_least(batch: bytes, timestamp_ms: int, offset_min: int) -> TimestampOffset | None:
    """
    The first record of one batch with at least this timestamp and offset.

    Raises:
        CorruptError: the records cannot be decoded.
    """
    header = read_header(batch)
    for record in read_records(batch, header=header):
        if record.timestamp >= timestamp_ms and record.offset >= offset_min:
            return TimestampOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None
