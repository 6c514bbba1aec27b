"""
Batches rewritten by compaction: with fewer records, or empty.

Offsets, sequences and the last offset delta of a batch never change. A batch with a tombstone, or with a marker whose
transaction has no batch left, gets a delete horizon: the time from which these may be removed. The header has it in place of
the base timestamp, so the records' timestamps are relative to it.

Source: Kafka MemoryRecords.filterTo, buildRetainedRecordsInto, DefaultRecordBatch.writeEmptyHeader; KIP-534.
"""

from collections.abc import Sequence

from kohort.storage.log import LONG_MAX, NO_TIMESTAMP
from kohort.wire.batch_header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    as_long,
)
from kohort.wire.batches import BatchHeader, LogRecord, write_crc
from kohort.wire.compression import Codec, compress
from kohort.wire.native_records import DefaultRecordBatchBuilder
from kohort.wire.scanning.header_keys import write_any_record

_SIZE_MAX = (1 << 31) - 1
_ORIGIN_BYTES = 7
"""A record without key, value and headers, at offset and time 0."""


def rebuild(header: BatchHeader, kept: Sequence[LogRecord], *, delete_horizon_ms: int = NO_TIMESTAMP) -> bytes:
    """
    A batch with some of its records, at least one.

    Args:
        delete_horizon_ms: -1 for none.
    """
    has_horizon = delete_horizon_ms >= 0
    base_timestamp = delete_horizon_ms if has_horizon else kept[0].timestamp
    codec = Codec(header.codec)
    attributes = codec | (header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL))
    max_timestamp = header.max_timestamp if header.is_log_append_time else max(record.timestamp for record in kept)
    return _pack(
        header,
        compress(_encode(header, kept, base_timestamp, has_origin=has_horizon), codec),
        attributes | (DELETE_HORIZON if has_horizon else 0),
        base_timestamp,
        max_timestamp,
        len(kept),
    )


def _encode(header: BatchHeader, kept: Sequence[LogRecord], base_timestamp: int, *, has_origin: bool) -> bytes:
    """The records' bytes."""
    try:
        return _encode_natively(header, kept, base_timestamp, has_origin=has_origin)
    except UnicodeEncodeError:  # a header key that is not UTF-8
        records = bytearray()
        for record in kept:
            write_any_record(records, record, base_offset=header.base_offset, base_timestamp=base_timestamp)
        return bytes(records)


def _encode_natively(header: BatchHeader, kept: Sequence[LogRecord], base_timestamp: int, *, has_origin: bool) -> bytes:
    """
    The builder writes timestamps relative to its first record; for another base, a record with that
    timestamp is written first and its bytes are removed.
    """
    builder = DefaultRecordBatchBuilder(MAGIC, 0, 0, -1, -1, -1, _SIZE_MAX)
    if has_origin:
        builder.append(0, 0, None, None, [])
    base_offset = header.base_offset
    for record in kept:
        since_ms = record.timestamp - base_timestamp
        if not -LONG_MAX <= since_ms <= LONG_MAX:
            since_ms = as_long(since_ms)
        builder.append(record.offset - base_offset, since_ms, record.key, record.value, record.headers)
    return bytes(memoryview(builder.build())[HEADER_BYTES + (_ORIGIN_BYTES if has_origin else 0) :])


def empty(header: BatchHeader) -> bytes:
    """The batch without its records; the header has the producer state that the next batch is checked against."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _pack(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _pack(
    header: BatchHeader, records: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        HEADER_BYTES + len(records) - LOG_OVERHEAD_BYTES,
        header.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    batch += records
    write_crc(batch)
    return bytes(batch)
