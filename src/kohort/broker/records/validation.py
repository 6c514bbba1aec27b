"""
Validation of a producer's batch against the rules of its topic, after its header and checksum have been checked.

The records of every batch are scanned, without an object for any of them (`kohort.wire.scanning`). A batch that breaks no rule
is appended as it was sent, unless the topic has another codec or timestamps of its own.

Source: Kafka LogValidator.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final

from kohort.broker.records.produce_rules import ProduceRules
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.model.limits import COMPRESSED_PARTS_AT_ONCE, RECORD_ERRORS_MAX, UNORDERED_RECORDS_MAX
from kohort.wire import batches
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    ATTRIBUTES_LOW_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    as_long,
)
from kohort.wire.batches import BatchHeader
from kohort.wire.compression import Buffer, Codec, TooLargeError, compress, decompress
from kohort.wire.scanning.record_scan import ManyHeaders, RecordReader, RecordScan, scan_records, skip_records
from kohort.wire.scanning.record_windows import STEP_RECORDS, RecordWindows, scan_in_steps

NO_TIMESTAMP: Final = -1

AT_ONCE_RECORDS: Final = 2_000
"""Records that are scanned at once: 2 ms in plain Python."""
_AT_ONCE_HEADERS: Final = 4_000
AT_ONCE_BYTES: Final = 1 << 20
"""Records that are decompressed at once: at most 4 ms (gzip)."""
_AT_ONCE_COMPRESSED_BYTES: Final = 1 << 15
"""Records that are compressed at once, for topics with another codec: at most 4 ms (LZ4)."""
_AT_ONCE_SLOWLY_BYTES: Final = 1 << 12
"""The same for high levels of compression: at most 2 ms (Zstandard)."""

_ERRORS_LISTED: Final = 3
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class LargeBatch(Exception):  # noqa: N818 -- not an error: it is validated in steps
    """The validation of a batch takes too long for one turn of the event loop."""


class InvalidRecordsError(CoordinatorError):
    """A batch is refused because some of its records break a rule. `record_errors` are (index, message)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def validate_batch(
    data: bytes,
    header: BatchHeader,
    rules: ProduceRules,
    now_ms: int,
    *,
    where: object = "",
    plain: bytes | None = None,
) -> bytes | bytearray:
    """
    Validate a batch and return it in the form in which it is appended.

    Args:
        where: the partition, for error messages.
        plain: the decompressed records, if the caller has them.

    Raises:
        CoordinatorError: the batch breaks a rule. InvalidRecordsError names the records.
        LargeBatch: the batch is to be validated in steps (`large_batches`).
    """
    if header.record_count > AT_ONCE_RECORDS:
        raise LargeBatch
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
        records, position = decompressed_at_once(data, header) if plain is None else plain, 0
        if len(records) > rules.decompressed_bytes_max:
            _skip(records, 0, header.record_count, rules)
        scan = _scan(records, position, header)
    latest_ms = _latest_ms(scan, header, rules, now_ms)
    if latest_ms is None:
        checked = CheckedRecords(header, rules, now_ms, where)
        reader = RecordReader(records, position)
        for place in range(header.record_count):
            reader.read()
            checked.check(place, reader)
        latest_ms = checked.finish()
    if needs_codec(header, rules):
        if len(records) > (_AT_ONCE_SLOWLY_BYTES if rules.compresses_slowly else _AT_ONCE_COMPRESSED_BYTES):
            raise LargeBatch
        return stored_form(data, header, rules, now_ms, latest_ms, packed_records(records, position, rules))
    return stored_form(data, header, rules, now_ms, latest_ms, None)


def validate_in_steps(
    records: Buffer, header: BatchHeader, rules: ProduceRules, now_ms: int, *, where: object = ""
) -> Generator[None, None, int]:
    """
    Validate the records of a large batch, and return their largest timestamp; -1 if all are less.

    Args:
        records: the decompressed records, or the batch itself if it is not compressed.

    Raises:
        CoordinatorError: as `validate_batch`.
    """
    position = HEADER_BYTES
    if header.attributes & CODEC_MASK:
        position = 0
        if len(records) > rules.decompressed_bytes_max:
            at = 0
            for low in range(0, header.record_count, STEP_RECORDS):
                at = _skip(records, at, min(header.record_count - low, STEP_RECORDS), rules)
                yield
    try:
        scan = yield from scan_in_steps(
            RecordWindows(records, position),
            header.record_count,
            must_rise=header.record_count > UNORDERED_RECORDS_MAX,
        )
    except CorruptError as error:
        raise CoordinatorError(ErrorCode.INVALID_RECORD, str(error)) from error
    _check_offsets(scan, header)
    latest_ms = _latest_ms(scan, header, rules, now_ms)
    if latest_ms is not None:
        return latest_ms
    checked = CheckedRecords(header, rules, now_ms, where)
    reader = RecordWindows(records, position)
    for place in range(header.record_count):
        if place % STEP_RECORDS == STEP_RECORDS - 1:
            yield
        if not reader.read_small():
            yield from reader.read_large()
        checked.check(place, reader)
    return checked.finish()


def needs_codec(header: BatchHeader, rules: ProduceRules) -> bool:
    """Whether the records are stored with another codec than the producer's."""
    return rules.codec is not None and rules.codec != header.attributes & CODEC_MASK


def packed_records(records: Buffer, position: int, rules: ProduceRules) -> bytes:
    """
    The records from a position on, compressed by the topic's codec.

    The records stay as they are. Kafka encodes them again, which gives the same bytes for batches of the usual clients.
    """
    assert rules.codec is not None, "needs_codec"
    return compress(memoryview(records)[position:], Codec(rules.codec), rules.level)


def stored_form(
    data: bytes, header: BatchHeader, rules: ProduceRules, now_ms: int, latest_ms: int, packed: bytes | None
) -> bytes | bytearray:
    """
    A valid batch in the form in which it is appended.

    Args:
        latest_ms: the largest timestamp of its records.
        packed: the records compressed by the topic's codec; None if they stay as they are.
    """
    if packed is not None and rules.codec is not None:
        data = _with_records(data, packed, rules.codec)
    if rules.is_log_append_time:
        stamped = bytearray(data)
        batches.stamp_log_append_time(stamped, now_ms)
        return stamped
    if header.attributes & LOG_APPEND_TIME or latest_ms != header.max_timestamp:
        return _as_create_time(data, latest_ms)
    return data


def decompressed_at_once(data: bytes, header: BatchHeader) -> bytes:
    """
    The decompressed records of a batch.

    Raises:
        CoordinatorError: UNKNOWN_SERVER_ERROR, as Kafka.
        LargeBatch: the records are larger than `AT_ONCE_BYTES`, or compressed in many parts.
    """
    packed = memoryview(data)[HEADER_BYTES:]
    try:
        return decompress(packed, header.codec, AT_ONCE_BYTES, parts_max=COMPRESSED_PARTS_AT_ONCE)
    except TooLargeError as error:
        raise LargeBatch from error
    except CorruptError as error:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _skip(records: Buffer, position: int, count: int, rules: ProduceRules) -> int:
    """
    The position after some records of a compressed batch.

    Raises:
        CoordinatorError: INVALID_RECORD: one is too large. Kafka finds that when it reads the record, before it judges any, and
            has no message.
    """
    position = skip_records(records, position, count, rules.decompressed_bytes_max)
    if position < 0:
        raise CoordinatorError(ErrorCode.INVALID_RECORD)
    return position


def _scan(records: bytes, position: int, header: BatchHeader) -> RecordScan:
    """
    Scan the records, and check their offsets.

    Kafka stores wrong offsets in an uncompressed batch as they were sent. Repeated ones are stored here too, unless there are
    more records than readers accept with them. Offsets outside the batch are not, because consumers would seek to them.

    Raises:
        CoordinatorError: INVALID_RECORD, or UNKNOWN_SERVER_ERROR for wrong offsets in a compressed batch, as Kafka.
        LargeBatch: there are more headers than are scanned at once.
    """
    count = header.record_count
    try:
        scan = scan_records(records, position, count, must_rise=False, headers_max=_AT_ONCE_HEADERS)
    except CorruptError as error:
        raise CoordinatorError(ErrorCode.INVALID_RECORD, str(error)) from error
    except ManyHeaders:
        raise LargeBatch from None
    _check_offsets(scan, header)
    return scan


def _check_offsets(scan: RecordScan, header: BatchHeader) -> None:
    """
    Raises:
        CoordinatorError: as `_scan`.
    """
    lowest, highest = scan.lowest_offset_delta, scan.highest_offset_delta
    if scan.is_rising and lowest == 0 and highest == header.record_count - 1:
        return
    if header.attributes & CODEC_MASK:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, "offsets inside the batch do not follow each other")
    if lowest < 0 or highest > header.last_offset_delta:
        raise CoordinatorError(ErrorCode.INVALID_RECORD, "a record has an offset outside the batch")


def _latest_ms(scan: RecordScan, header: BatchHeader, rules: ProduceRules, now_ms: int) -> int | None:
    """The largest timestamp of the records, -1 if all are less; None if a record may break a rule."""
    if rules.is_compacted and scan.null_keys:
        return None
    if header.is_log_append_time:
        latest_ms = header.max_timestamp
        may_err = rules.is_log_append_time or latest_ms == NO_TIMESTAMP
    else:
        earliest_ms, latest_ms = header.base_timestamp + scan.earliest_delta, header.base_timestamp + scan.latest_delta
        may_err = earliest_ms != as_long(earliest_ms) or latest_ms != as_long(latest_ms)
        if not rules.is_log_append_time:
            low_ms, high_ms = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
            may_err = may_err or earliest_ms < low_ms or latest_ms > high_ms
    return None if may_err else max(latest_ms, NO_TIMESTAMP)


class CheckedRecords:
    """
    Checks of the keys and timestamps of the records of a batch, one after the other.

    Source: Kafka LogValidator.validateRecord, validateTimestamp, processRecordErrors.
    """

    __slots__ = (
        "_error_count",
        "_errors",
        "_has_timestamp_error",
        "_header",
        "_latest_ms",
        "_now_ms",
        "_rules",
        "_where",
    )

    def __init__(self, header: BatchHeader, rules: ProduceRules, now_ms: int, where: object) -> None:
        self._header = header
        self._rules = rules
        self._now_ms = now_ms
        self._where = where
        self._errors: list[tuple[int, str]] = []
        self._error_count = 0
        self._has_timestamp_error = False
        self._latest_ms = NO_TIMESTAMP

    def check(self, place: int, reader: RecordReader) -> None:
        """Check the record that was just read, for the first rule that it breaks."""
        header, rules = self._header, self._rules
        timestamp_ms = as_long(header.base_timestamp + reader.timestamp_delta)
        if header.is_log_append_time:
            timestamp_ms = header.max_timestamp
        self._latest_ms = max(self._latest_ms, timestamp_ms)
        if rules.is_compacted and reader.key_bytes < 0:
            message = f"Compacted topic cannot accept message without key in topic partition {self._where}"
        else:
            message = _timestamp_error(reader, timestamp_ms, header, rules, self._now_ms)
            if not message:
                return
            self._has_timestamp_error = True
        self._error_count += 1
        if self._error_count <= RECORD_ERRORS_MAX:
            self._errors.append((place, message))

    def finish(self) -> int:
        """
        The largest timestamp of the records; -1 if all are less.

        Raises:
            InvalidRecordsError: some records break a rule. It names at most `RECORD_ERRORS_MAX` of them.
        """
        errors = self._errors
        if self._has_timestamp_error:
            message = "One or more records have been rejected due to invalid timestamp"
            raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, errors)
        if errors:
            raise InvalidRecordsError(ErrorCode.INVALID_RECORD, _summary(errors, self._error_count), errors)
        return self._latest_ms


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


def _with_records(data: bytes, packed: bytes, codec: int) -> bytes:
    """The batch with other records. Of the attributes the transactional bit stays, as in Kafka."""
    batch = bytearray(data[:HEADER_BYTES])
    _INT32.pack_into(batch, LENGTH_AT, HEADER_BYTES + len(packed) - LOG_OVERHEAD_BYTES)
    _INT16.pack_into(batch, ATTRIBUTES_AT, codec | batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL)
    batch += packed
    batches.write_crc(batch)
    return bytes(batch)


def _as_create_time(data: bytes, max_timestamp_ms: int) -> bytearray:
    """Clear the LogAppendTime bit and set the largest timestamp, as Kafka does for topics with CreateTime."""
    changed = bytearray(data)
    changed[ATTRIBUTES_LOW_AT] &= ~LOG_APPEND_TIME
    _INT64.pack_into(changed, MAX_TIMESTAMP_AT, max_timestamp_ms)
    batches.write_crc(changed)
    return changed
