"""
Validation of a producer's batch against the rules of its topic, after its header and checksum have been checked.

The records of every batch are scanned, without an object for any of them (`kohort.wire.record_scan`). A batch that breaks no
rule is appended as it was sent, unless the topic has another codec or timestamps of its own.

Source: Kafka LogValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from kohort.broker.records.produce_rules import ProduceRules
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.model.limits import RECORD_ERRORS_MAX, UNORDERED_RECORDS_MAX
from kohort.wire import batches
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    LENGTH_AT,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
)
from kohort.wire.batches import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, as_long
from kohort.wire.compression import Codec, compress, decompress
from kohort.wire.record_scan import RecordReader, RecordScan, scan_records

NO_TIMESTAMP: Final = -1
_ERRORS_LISTED: Final = 3
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class InvalidRecordsError(CoordinatorError):
    """A batch is refused because some of its records break a rule. `record_errors` are (index, message)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def validate_batch(
    data: bytes, header: BatchHeader, rules: ProduceRules, now_ms: int, *, where: object = ""
) -> bytes | bytearray:
    """
    Validate a batch and return it in the form in which it is appended.

    Args:
        where: the partition, for error messages.

    Raises:
        CoordinatorError: the batch breaks a rule. InvalidRecordsError names the records.
    """
    codec = header.attributes & CODEC_MASK
    if not codec:
        records, position = data, HEADER_BYTES
        scan = _scan(records, position, header)
        base_ms = header.base_timestamp
        if (
            rules.takes_as_it_is
            and base_ms + scan.latest_delta == header.max_timestamp
            and base_ms + scan.earliest_delta >= NO_TIMESTAMP
            and header.max_timestamp <= now_ms + rules.timestamp_after_max_ms
            and not header.attributes & LOG_APPEND_TIME
        ):
            return data
    else:
        records, position = _decompress(data, header), 0
        scan = _scan(records, position, header)
    latest_ms = _check_records(RecordReader(records, position), scan, header, rules, now_ms, where)
    if rules.codec is not None and rules.codec != codec:
        data = _recompress(data, records[position:], rules.codec)
    if rules.is_log_append_time:
        stamped = bytearray(data)
        batches.stamp_log_append_time(stamped, now_ms)
        return stamped
    if header.attributes & LOG_APPEND_TIME or latest_ms != header.max_timestamp:
        return _as_create_time(data, latest_ms)
    return data


def _decompress(data: bytes, header: BatchHeader) -> bytes:
    """
    Raises:
        CoordinatorError: UNKNOWN_SERVER_ERROR, as Kafka.
    """
    try:
        return decompress(memoryview(data)[HEADER_BYTES:], header.codec)
    except CorruptError as error:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _scan(records: bytes, position: int, header: BatchHeader) -> RecordScan:
    """
    Scan the records, and check their offsets.

    Kafka stores wrong offsets in an uncompressed batch as they were sent. Repeated ones are stored here too, unless there are
    more records than readers accept with them. Offsets outside the batch are not, because consumers would seek to them.

    Raises:
        CoordinatorError: INVALID_RECORD, or UNKNOWN_SERVER_ERROR for wrong offsets in a compressed batch, as Kafka.
    """
    count = header.record_count
    try:
        scan = scan_records(records, position, count, must_rise=count > UNORDERED_RECORDS_MAX)
    except CorruptError as error:
        raise CoordinatorError(ErrorCode.INVALID_RECORD, str(error)) from error
    lowest, highest = scan.lowest_offset_delta, scan.highest_offset_delta
    if scan.is_rising and lowest == 0 and highest == count - 1:
        return scan
    if header.attributes & CODEC_MASK:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, "offsets inside the batch do not follow each other")
    if lowest < 0 or highest > header.last_offset_delta:
        raise CoordinatorError(ErrorCode.INVALID_RECORD, "a record has an offset outside the batch")
    return scan


def _check_records(
    reader: RecordReader, scan: RecordScan, header: BatchHeader, rules: ProduceRules, now_ms: int, where: object
) -> int:
    """
    Check the keys and timestamps of the records, and return their largest timestamp; -1 if all are less.

    Raises:
        InvalidRecordsError: of each record the first rule that it breaks, but not more than `RECORD_ERRORS_MAX`.

    Source: Kafka LogValidator.validateRecord, validateTimestamp, processRecordErrors.
    """
    if header.is_log_append_time:
        latest_ms = header.max_timestamp
        may_err = rules.is_log_append_time or latest_ms == NO_TIMESTAMP
    else:
        earliest_ms, latest_ms = header.base_timestamp + scan.earliest_delta, header.base_timestamp + scan.latest_delta
        may_err = earliest_ms != as_long(earliest_ms) or latest_ms != as_long(latest_ms)
        if not rules.is_log_append_time:
            low_ms, high_ms = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
            may_err = may_err or earliest_ms < low_ms or latest_ms > high_ms
    if may_err or (rules.is_compacted and scan.null_keys):
        latest_ms = _check_each_record(reader, header, rules, now_ms, where)
    return max(latest_ms, NO_TIMESTAMP)


def _check_each_record(
    reader: RecordReader, header: BatchHeader, rules: ProduceRules, now_ms: int, where: object
) -> int:
    """As `_check_records`, record by record."""
    errors: list[tuple[int, str]] = []
    error_count = 0
    has_timestamp_error = False
    latest_ms = NO_TIMESTAMP
    for place in range(header.record_count):
        reader.read()
        timestamp_ms = as_long(header.base_timestamp + reader.timestamp_delta)
        if header.is_log_append_time:
            timestamp_ms = header.max_timestamp
        latest_ms = max(latest_ms, timestamp_ms)
        if rules.is_compacted and reader.key_bytes < 0:
            message = f"Compacted topic cannot accept message without key in topic partition {where}"
        else:
            message = _timestamp_error(reader, timestamp_ms, header, rules, now_ms)
            if not message:
                continue
            has_timestamp_error = True
        error_count += 1
        if error_count <= RECORD_ERRORS_MAX:
            errors.append((place, message))
    if has_timestamp_error:
        message = "One or more records have been rejected due to invalid timestamp"
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, errors)
    if errors:
        raise InvalidRecordsError(ErrorCode.INVALID_RECORD, _summary(errors, error_count), errors)
    return latest_ms


def _timestamp_error(
    reader: RecordReader, timestamp_ms: int, header: BatchHeader, rules: ProduceRules, now_ms: int
) -> str:
    """The message of a record whose timestamp breaks a rule, else an empty string."""
    offset = header.base_offset + reader.offset_delta
    if header.is_log_append_time and (rules.is_log_append_time or timestamp_ms == NO_TIMESTAMP):
        return (
            f"Invalid timestamp type in message DefaultRecord(offset={offset}, timestamp={timestamp_ms}, "
            f"key={max(reader.key_bytes, 0)} bytes, value={max(reader.value_bytes, 0)} bytes). "
            "Producer should not set timestamp type to LogAppendTime."
        )
    if rules.is_log_append_time or header.is_log_append_time or timestamp_ms == NO_TIMESTAMP:
        return ""
    earliest_ms, latest_ms = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if earliest_ms <= timestamp_ms <= latest_ms:
        return ""
    return (
        f"Timestamp {timestamp_ms} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
    )


def _summary(errors: Sequence[tuple[int, str]], error_count: int) -> str:
    first = ", ".join(
        f"RecordError(batchIndex={place}, message='{message}')" for place, message in errors[:_ERRORS_LISTED]
    )
    return (
        f"One or more records have been rejected due to {error_count} record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )


def _recompress(data: bytes, records: bytes, codec: int) -> bytes:
    """
    The batch with its records compressed by the topic's codec. Of the attributes the transactional bit stays, as in Kafka.

    The records stay as they are. Kafka encodes them again, which gives the same bytes for batches of the usual clients.
    """
    packed = compress(records, Codec(codec))
    batch = bytearray(data[:HEADER_BYTES])
    _INT32.pack_into(batch, LENGTH_AT, HEADER_BYTES + len(packed) - LOG_OVERHEAD_BYTES)
    _INT16.pack_into(batch, ATTRIBUTES_AT, codec | batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL)
    batch += packed
    batches.write_crc(batch)
    return bytes(batch)


def _as_create_time(data: bytes, max_timestamp_ms: int) -> bytearray:
    """Clear the LogAppendTime bit and set the largest timestamp, as Kafka does for topics with CreateTime."""
    changed = bytearray(data)
    changed[batches.ATTRIBUTES_LOW_AT] &= ~LOG_APPEND_TIME
    _INT64.pack_into(changed, MAX_TIMESTAMP_AT, max_timestamp_ms)
    batches.write_crc(changed)
    return changed
