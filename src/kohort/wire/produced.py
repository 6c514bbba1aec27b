"""
Checks of the batch that a producer sends for one partition, by its header and checksum.

Source: Kafka ProduceRequest, UnifiedLog, LogValidator.
"""

from typing import Final

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import BATCH_RECORDS_MAX
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
)
from kohort.wire.batches import BatchHeader, read_header
from kohort.wire.compression import Codec
from kohort.wire.native import crc32c
from kohort.wire.primitives import INT32

_ZSTD: Final = int(Codec.ZSTD)

_COPIED_BYTES_MAX: Final = 1_024
"""A copy of fewer bytes takes less time than a view of them."""
_LENGTH_MIN: Final = 14
"""The least length in the oldest format."""


def validate_produced(records: bytes | None, *, api_version: int, batch_bytes_max: int | None = None) -> BatchHeader:
    """
    Check what a producer sent for one partition by its header and checksum, in Kafka's order, and return the header.

    Bytes after the one batch are a piece of another and do not count: use the first `size_bytes`.

    Raises:
        CoordinatorError: with the error code of Kafka's response.

    Source: Kafka ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch.
    """
    data = records or b""
    header = _only_batch(data)
    codec = header.attributes & CODEC_MASK
    if codec > _ZSTD:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {codec}")
    if codec == _ZSTD and api_version < 7:
        raise CoordinatorError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if header.base_offset != 0:
        raise CoordinatorError(
            ErrorCode.INVALID_RECORD, f"The baseOffset of the record batch should be 0, but it is {header.base_offset}"
        )
    size = header.length + LOG_OVERHEAD_BYTES
    if batch_bytes_max is not None and size > batch_bytes_max:
        raise CoordinatorError(ErrorCode.MESSAGE_TOO_LARGE)
    if size < HEADER_BYTES:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE)
    covered = data[ATTRIBUTES_AT:size] if size <= _COPIED_BYTES_MAX else memoryview(data)[ATTRIBUTES_AT:size]
    if crc32c(covered) != header.crc:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE)
    _validate_batch(header)
    return header


def _only_batch(data: bytes) -> BatchHeader:
    """The one batch that a producer may send for a partition."""
    if len(data) >= HEADER_BYTES:
        header = read_header(data)
        if header.length == len(data) - LOG_OVERHEAD_BYTES and header.magic == MAGIC:
            return header
    sizes = []
    position = 0
    while len(data) - position > MAGIC_AT:
        (length,) = INT32.unpack_from(data, position + LENGTH_AT)
        magic = data[position + MAGIC_AT]
        if length < _LENGTH_MIN:
            raise CoordinatorError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Record size {length} is less than the minimum record overhead ({_LENGTH_MIN})",
            )
        if magic > MAGIC:
            magic -= (magic & 0x80) << 1
            raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
        if position + LOG_OVERHEAD_BYTES + length > len(data):
            break
        if magic != MAGIC:
            raise CoordinatorError(ErrorCode.INVALID_RECORD, "Produce requests with version 3 and above need magic 2")
        sizes.append(LOG_OVERHEAD_BYTES + length)
        position += sizes[-1]
    if len(sizes) != 1:
        raise CoordinatorError(
            ErrorCode.INVALID_RECORD, "Produce requests must have exactly one record batch per partition"
        )
    if sizes[0] < HEADER_BYTES:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE)
    return read_header(data)


def _validate_batch(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0:
        reason = f"Record batch has {count} records"
    elif count > BATCH_RECORDS_MAX:
        reason = f"Record batch has {count} records, and {BATCH_RECORDS_MAX} are allowed"
    elif count != header.last_offset_delta + 1:
        reason = f"Record batch with {count} records has a last offset delta of {header.last_offset_delta}"
    elif header.attributes & CONTROL:
        reason = "Clients are not allowed to write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        reason = f"Invalid sequence number {header.base_sequence} with producer id {header.producer_id}"
    else:
        return
    raise CoordinatorError(ErrorCode.INVALID_RECORD, reason)
