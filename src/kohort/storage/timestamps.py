"""
The one question about records that a log answers itself: which of a batch's records is the first at or after a time.

Source: Kafka FileRecords.searchForOffsetWithTimestamp.
"""

from kohort.storage.log import TimestampOffset
from kohort.wire.batches import read_header, read_records


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
