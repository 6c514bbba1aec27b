"""
Transaction markers as batches of a log: the fast path of the control batch that every end of a transaction writes and reads.

Each function gives what `kohort.wire.batches` gives for the same marker, in a fraction of its time, and leaves a control batch
of another form to that module. tests/storage/test_markers.py compares them.

Source: Kafka EndTransactionMarker, MemoryRecords.withEndTransactionMarker.
"""

from struct import Struct
from typing import Final, TypeAlias

from kohort.machine.shard import EndTransaction
from kohort.wire.batch_header import (
    ATTRIBUTES_LOW_AT,
    BASE_TIMESTAMP_AT,
    CONTROL,
    COUNT_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    fields_struct,
)
from kohort.wire.batches import ABORT, COMMIT, read_marker, read_records
from kohort.wire.compression import Buffer
from kohort.wire.native import crc32c

StoredMarker: TypeAlias = tuple[int, int, int, bool]
"""Offset, timestamp in milliseconds, coordinator epoch, and whether the transaction was committed."""

_FRONT: Final = b"\x20\x00\x00\x00\x08"
"""Of the record: its length of 16 bytes, no attributes, offset and timestamp of the batch, and the length of the key."""
_VALUE_LENGTH: Final = 0x0C
_RECORD: Final = Struct(">5shhbhib")
"""The front; version and type, which are the key; length, version and coordinator epoch of the value; no headers."""
_FRONT_FIELDS: Final = fields_struct("base_offset", "crc")
_COVERED: Final = Struct(fields_struct("attributes", "count").format + _RECORD.format[1:])
"""The fields that the checksum covers, and the record."""
_BATCH_BYTES: Final = 78
_ATTRIBUTES: Final = 0x30
_TIMESTAMP: Final = Struct(">q")
_COUNT: Final = Struct(">i")

assert _FRONT_FIELDS.size + _COVERED.size == _BATCH_BYTES
assert _ATTRIBUTES == CONTROL | TRANSACTIONAL


def marker_batch(end: EndTransaction, timestamp_ms: int, base_offset: int, leader_epoch: int) -> bytes:
    """Encode a transaction marker as a control batch with its place in the log."""
    covered = _COVERED.pack(
        _ATTRIBUTES,
        0,
        timestamp_ms,
        timestamp_ms,
        end.producer_id,
        end.producer_epoch,
        -1,
        1,
        _FRONT,
        0,
        COMMIT if end.committed else ABORT,
        _VALUE_LENGTH,
        0,
        end.coordinator_epoch,
        0,
    )
    front: bytes = _FRONT_FIELDS.pack(
        base_offset, _BATCH_BYTES - LOG_OVERHEAD_BYTES, leader_epoch, MAGIC, crc32c(covered)
    )
    return front + covered


def stored_marker(data: Buffer, start: int, size: int, base_offset: int) -> StoredMarker | None:
    """
    Read the marker in the control batch at `start`; None for a control batch of another kind, or without records.

    Raises:
        CorruptError: there is no readable control record.
    """
    if size == _BATCH_BYTES and data[start + ATTRIBUTES_LOW_AT] == _ATTRIBUTES:
        kind: int  # declared, because `unpack` returns values of any type
        front, _, kind, value_length, _, epoch, headers = _RECORD.unpack_from(data, start + HEADER_BYTES)
        (count,) = _COUNT.unpack_from(data, start + COUNT_AT)
        if front == _FRONT and value_length == _VALUE_LENGTH and headers == 0 and count == 1 and 0 <= kind <= COMMIT:
            return base_offset, _TIMESTAMP.unpack_from(data, start + BASE_TIMESTAMP_AT)[0], epoch, kind == COMMIT
    return any_stored_marker(data[start : start + size])


def any_stored_marker(batch: Buffer) -> StoredMarker | None:
    """As `stored_marker`, for a control batch of any form."""
    record = next(iter(read_records(batch)), None)
    marker = read_marker(record) if record is not None else None
    if record is None or marker is None:
        return None
    return record.offset, record.timestamp, marker.coordinator_epoch, marker.committed
