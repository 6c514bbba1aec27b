"""
Search by time among the records of one batch, without an object for each record.

A search may take a second and 128 MB: a few kB decompress to a million records. It is done on a thread of its own, gives up the
interpreter's lock between two steps, and one batch is decompressed at a time.

Source: Kafka FileRecords.searchForOffsetWithTimestamp.
"""

import threading
import time
from typing import Final

from kohort.model.errors import CorruptError
from kohort.storage.log import NO_TIMESTAMP, TimestampOffset
from kohort.wire.batch_header import HEADER_BYTES, MAGIC
from kohort.wire.batches import BatchHeader, read_header
from kohort.wire.scanning.record_scan import check_left
from kohort.wire.scanning.record_windows import STEP_RECORDS, RecordWindows
from kohort.wire.scanning.room import Room

_one_at_a_time: Final = threading.Lock()
_NEVER_MS: Final = 1 << 63
"""Later than any timestamp."""


def newest_from(batch: bytes, offset_min: int) -> int:
    """The largest timestamp of a batch's records from an offset on, -1 for none. Raises: as `first_at_least`."""
    return _search(batch, read_header(batch), _NEVER_MS, offset_min)[1]


def first_at_least(batch: bytes, timestamp_ms: int, offset_min: int) -> TimestampOffset | None:
    """
    The first record of one batch with at least this timestamp and offset.

    Raises:
        CorruptError: the records cannot be decoded.
    """
    header = read_header(batch)
    offset, newest_ms = _search(batch, header, timestamp_ms, offset_min)
    return TimestampOffset(offset, newest_ms, header.partition_leader_epoch) if offset >= 0 else None


def _search(batch: bytes, header: BatchHeader, timestamp_ms: int, offset_min: int) -> tuple[int, int]:
    """Offset and timestamp of the first record with at least these; without one, -1 and the largest timestamp."""
    if header.magic != MAGIC or len(batch) < header.size_bytes:
        raise CorruptError(f"no whole batch of magic {MAGIC}")
    if not header.codec:
        return _scan(memoryview(batch)[: header.size_bytes], HEADER_BYTES, header, timestamp_ms, offset_min)
    with _one_at_a_time:
        room = Room()
        try:
            records = room.decompress(batch[HEADER_BYTES : header.size_bytes], header.codec)
            return _scan(records, 0, header, timestamp_ms, offset_min)
        finally:
            for _ in room.release():
                time.sleep(0)


def _scan(records: memoryview, start: int, header: BatchHeader, timestamp_ms: int, offset_min: int) -> tuple[int, int]:
    """As `_search`, of records that are not compressed."""
    reader = RecordWindows(records, start)
    count = header.record_count
    newest_ms = NO_TIMESTAMP
    try:
        for number in range(count):
            if number % STEP_RECORDS == STEP_RECORDS - 1:
                time.sleep(0)
            if not reader.read_small():
                for _ in reader.read_large():
                    time.sleep(0)
            offset = header.base_offset + reader.offset_delta
            found_ms = header.base_timestamp + reader.timestamp_delta
            if header.is_log_append_time:
                found_ms = header.max_timestamp
            if offset < offset_min:
                continue
            if found_ms >= timestamp_ms:
                return offset, found_ms
            newest_ms = max(newest_ms, found_ms)
    except IndexError:
        raise CorruptError(f"the records end before there are {count}") from None
    check_left(reader.left, count)
    return -1, newest_ms
