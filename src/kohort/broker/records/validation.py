"""
Validation of a producer's batch against the rules of its topic, after its header and checksum have been checked.

Records are decoded only if they are compressed or a rule of the topic needs them.

Source: Kafka LogValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kohort.broker.records.produce_rules import ProduceRules
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.storage.log import LONG_MAX
from kohort.wire import batches
from kohort.wire.batch_header import MAX_TIMESTAMP_AT
from kohort.wire.batches import HEADER_BYTES, BatchHeader
from kohort.wire.compression import decompress

NO_TIMESTAMP: Final = -1
_ERRORS_LISTED: Final = 3


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
        CoordinatorError: the batch breaks a rule of the topic.
    """
    if (
        rules.takes_as_it_is
        and not header.attributes & (batches.CODEC_MASK | batches.LOG_APPEND_TIME)
        and NO_TIMESTAMP <= header.max_timestamp <= now_ms + rules.timestamp_after_max_ms
    ):
        return data
    records: Sequence[batches.LogRecord] | None = None
    latest_ms = header.max_timestamp
    if _needs_records(header, rules, now_ms):
        records = _records(data, header)
        _check_records(records, header, rules, now_ms, where)
        latest_ms = max(record.timestamp for record in records)
    if rules.codec is not None and rules.codec != header.codec:
        data, header = _recompress(data, header, rules.codec)
    if rules.is_log_append_time:
        stamped = bytearray(data)
        batches.stamp_log_append_time(stamped, now_ms)
        return stamped
    latest_ms = max(latest_ms, NO_TIMESTAMP)
    if header.is_log_append_time or latest_ms != header.max_timestamp:
        return _as_create_time(data, latest_ms)
    return data


def _needs_records(header: BatchHeader, rules: ProduceRules, now_ms: int) -> bool:
    """
    Whether the header alone is not enough. Compressed records must be known to decompress before a consumer gets them, and a
    rule may concern each record. The largest timestamp of the header is trusted if the topic has no limit for old records.
    """
    if header.codec or rules.is_compacted or header.is_log_append_time:
        return True
    if rules.is_log_append_time:
        return False
    return rules.timestamp_before_max_ms < LONG_MAX or header.max_timestamp > now_ms + rules.timestamp_after_max_ms


def _check_records(
    records: Sequence[batches.LogRecord], header: BatchHeader, rules: ProduceRules, now_ms: int, where: object
) -> None:
    """
    Check each record against the topic's rules; the first broken rule counts.

    Raises:
        CoordinatorError: InvalidRecordsError names the records; UNKNOWN_SERVER_ERROR: the offsets are not consecutive.

    Source: Kafka LogValidator.validateRecord, validateTimestamp, processRecordErrors.
    """
    offsets = [record.offset for record in records]
    if header.codec and offsets != list(range(header.base_offset, header.base_offset + len(offsets))):
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, "offsets inside the batch do not follow each other")
    if not rules.is_compacted and _are_timestamps_valid(records, header, rules, now_ms):
        return
    errors: list[tuple[int, str]] = []
    has_timestamp_error = False
    for place, record in enumerate(records):
        if rules.is_compacted and record.key is None:
            errors.append((place, f"Compacted topic cannot accept message without key in topic partition {where}"))
        elif message := _timestamp_error(record, header, rules, now_ms):
            errors.append((place, message))
            has_timestamp_error = True
    if has_timestamp_error:
        message = "One or more records have been rejected due to invalid timestamp"
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, errors)
    if errors:
        raise InvalidRecordsError(ErrorCode.INVALID_RECORD, _summary(errors), errors)


def _are_timestamps_valid(
    records: Sequence[batches.LogRecord], header: BatchHeader, rules: ProduceRules, now_ms: int
) -> bool:
    """Check all timestamps at once; False means that each record has to be checked."""
    if header.is_log_append_time:
        return False
    times = [record.timestamp for record in records]
    earliest_ms, latest_ms = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    return rules.is_log_append_time or (earliest_ms <= min(times) and max(times) <= latest_ms)


def _timestamp_error(record: batches.LogRecord, header: BatchHeader, rules: ProduceRules, now_ms: int) -> str | None:
    timestamp_ms = record.timestamp
    if header.is_log_append_time and (rules.is_log_append_time or timestamp_ms == NO_TIMESTAMP):
        return (
            f"Invalid timestamp type in message DefaultRecord(offset={record.offset}, timestamp={timestamp_ms}, "
            f"key={len(record.key or b'')} bytes, value={len(record.value or b'')} bytes). "
            "Producer should not set timestamp type to LogAppendTime."
        )
    if rules.is_log_append_time or header.is_log_append_time or timestamp_ms == NO_TIMESTAMP:
        return None
    earliest_ms, latest_ms = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if earliest_ms <= timestamp_ms <= latest_ms:
        return None
    return (
        f"Timestamp {timestamp_ms} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
    )


def _summary(errors: Sequence[tuple[int, str]]) -> str:
    first = ", ".join(
        f"RecordError(batchIndex={place}, message='{message}')" for place, message in errors[:_ERRORS_LISTED]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )


def _recompress(data: bytes, header: BatchHeader, codec: int) -> tuple[bytes, BatchHeader]:
    """Compress the records with the topic's codec; the fields about the producer stay."""
    records = [
        batches.BatchRecord(record.key, record.value, record.headers, record.timestamp)
        for record in _records(data, header)
    ]
    built = batches.build_batch(
        records,
        timestamp_ms=header.base_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        compression=codec,
    )
    return built, batches.read_header(built)


def _records(data: bytes, header: BatchHeader) -> Sequence[batches.LogRecord]:
    """
    Decode the records.

    Raises:
        CoordinatorError: as Kafka, UNKNOWN_SERVER_ERROR if decompression fails, INVALID_RECORD if a record is malformed.
    """
    try:
        return batches.read_records(data, header=header)
    except CorruptError as error:
        code = ErrorCode.INVALID_RECORD if _can_decompress(data, header) else ErrorCode.UNKNOWN_SERVER_ERROR
        raise CoordinatorError(code, str(error)) from error


def _can_decompress(data: bytes, header: BatchHeader) -> bool:
    try:
        decompress(memoryview(data)[HEADER_BYTES : header.size_bytes], header.codec)
    except CorruptError:
        return False
    return True


def _as_create_time(data: bytes, max_timestamp_ms: int) -> bytearray:
    """Clear the LogAppendTime bit and set the largest timestamp, as Kafka does for topics with CreateTime."""
    changed = bytearray(data)
    changed[batches.ATTRIBUTES_LOW_AT] &= ~batches.LOG_APPEND_TIME
    changed[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = max_timestamp_ms.to_bytes(8, "big", signed=True)
    batches.write_crc(changed)
    return changed
