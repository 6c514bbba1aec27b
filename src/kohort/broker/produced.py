"""
What a producer may send to a topic, after its header and checksum were found right: records are looked at only where they are
compressed, or a rule of the topic needs them.

Source: Kafka LogValidator.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kohort.broker.topic_configs import TopicConfigs
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.storage.producers import Producers, Written
from kohort.wire import batches
from kohort.wire.batches import BatchHeader
from kohort.wire.compression import Codec

_CODECS = {codec.name.lower(): int(codec) for codec in Codec} | {"uncompressed": int(Codec.NONE)}
NO_TIMESTAMP = -1
_ATTRIBUTES_LOW_BYTE = 22


class InvalidRecordsError(CoordinatorError):
    """Some records of a batch break a rule, so the batch is refused. `record_errors` are (index, sentence)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class ProduceRules(msgspec.Struct, frozen=True):
    """What a topic's configuration says about batches. `codec` is None when the producer's is kept."""

    is_compacted: bool
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    codec: int | None

    @classmethod
    def of(cls, configs: TopicConfigs, overrides: dict[str, str]) -> ProduceRules:
        values: dict[str, object] = {name.replace(".", "_"): configs.parsed(name, overrides) for name in _RULES}
        policy = configs.parsed("cleanup.policy", overrides)
        return msgspec.convert(
            {
                "is_compacted": isinstance(policy, tuple) and "compact" in policy,
                "is_log_append_time": values["message_timestamp_type"] == "LogAppendTime",
                "timestamp_before_max_ms": values["message_timestamp_before_max_ms"],
                "timestamp_after_max_ms": values["message_timestamp_after_max_ms"],
                "codec": _CODECS.get(str(values["compression_type"])),
            },
            cls,
        )


_RULES = (
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "compression.type",
)


def admit(data: bytes, header: BatchHeader, rules: ProduceRules, now_ms: int) -> bytes | bytearray:
    """
    The batch as it is to be written.

    Raises:
        CoordinatorError: the topic does not take it.
    """
    if rules.is_compacted:
        _check_keys(data, header)
    elif header.codec:
        _records(data, header)  # What cannot be unpacked must not reach a consumer.
    if header.is_log_append_time and (rules.is_log_append_time or header.max_timestamp == NO_TIMESTAMP):
        raise CoordinatorError(ErrorCode.INVALID_TIMESTAMP, "Invalid timestamp type in message: LogAppendTime")
    if not rules.is_log_append_time and not header.is_log_append_time:
        _check_timestamps(data, header, rules, now_ms)
    if rules.codec is not None and rules.codec != header.codec:
        data, header = _recompress(data, header, rules.codec)
    if rules.is_log_append_time:
        stamped = bytearray(data)
        batches.stamp_log_append_time(stamped, now_ms)
        return stamped
    return _as_create_time(data) if header.is_log_append_time else data


def judge(producers: Producers, header: BatchHeader) -> Written | None:
    """
    Whether a producer's batch is the next one; if it was written already, what was.

    Raises:
        CoordinatorError: it is neither.

    Source: Kafka UnifiedLog.analyzeAndValidateProducerState.
    """
    written = producers.find_duplicate(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        first_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
    )
    if written is None:
        producers.check(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    return written


def _check_keys(data: bytes, header: BatchHeader) -> None:
    missing = [index for index, record in enumerate(_records(data, header)) if record.key is None]
    if missing:
        raise InvalidRecordsError(
            ErrorCode.INVALID_RECORD,
            "One or more records have been rejected due to invalid records",
            [(index, "Compacted topic cannot accept message without key.") for index in missing],
        )


def _check_timestamps(data: bytes, header: BatchHeader, rules: ProduceRules, now_ms: int) -> None:
    """The header says whether any record may be outside the limits; only then each is looked at."""
    earliest_ms, latest_ms = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if header.max_timestamp <= latest_ms and header.base_timestamp >= earliest_ms:
        return
    errors = [
        (index, f"Timestamp {record.timestamp} of message is out of range [{earliest_ms}, {latest_ms}]")
        for index, record in enumerate(_records(data, header))
        if record.timestamp != NO_TIMESTAMP and not earliest_ms <= record.timestamp <= latest_ms
    ]
    if errors:
        message = "One or more records have been rejected due to invalid timestamp"
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, errors)


def _recompress(data: bytes, header: BatchHeader, codec: int) -> tuple[bytes, BatchHeader]:
    """The same records in the topic's compression; what the producer said of itself stays."""
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
        compression=codec,
    )
    return built, batches.read_header(built)


def _records(data: bytes, header: BatchHeader) -> Sequence[batches.LogRecord]:
    try:
        return batches.read_records(data, header=header)
    except CorruptError as error:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if header.codec else ErrorCode.INVALID_RECORD
        raise CoordinatorError(code, str(error)) from error


def _as_create_time(data: bytes) -> bytearray:
    """Clear the bit that says LogAppendTime, as Kafka does on a topic with CreateTime."""
    cleared = bytearray(data)
    cleared[_ATTRIBUTES_LOW_BYTE] &= ~batches.LOG_APPEND_TIME
    batches.write_crc(cleared)
    return cleared
