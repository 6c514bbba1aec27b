"""
The one question about records that a log answers itself: which of a batch's records is the first at or after a time.

Source: Kafka FileRecords.searchForOffsetWithTimestamp.
"""

from aiokafka.record.default_records import DefaultRecordBatch

from kohort.model.errors import CorruptError
from kohort.storage.batchset import read_front
from kohort.storage.log import TimestampOffset


def first_at_least(batch: bytes, timestamp_ms: int, offset_min: int) -> TimestampOffset | None:
    """
    The first record of one batch with at least this timestamp and offset.

    Raises:
        CorruptError: the records cannot be decoded.
    """
    leader_epoch = read_front(batch)[2]
    try:
        for record in DefaultRecordBatch(batch):
            if record.timestamp >= timestamp_ms and record.offset >= offset_min:
                return TimestampOffset(record.offset, record.timestamp, leader_epoch)
    except Exception as exc:
        raise CorruptError(f"the records of the batch at offset {read_front(batch)[0]} cannot be decoded") from exc
    return None
