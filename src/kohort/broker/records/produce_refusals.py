"""Produce requests that are refused: the form of what was sent, and the answers with errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kohort.broker.records.produce_verification import VerificationError
from kohort.broker.records.validation import InvalidRecordsError
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.wire import messages as m
from kohort.wire.batch_header import (
    ATTRIBUTES_LOW_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
)
from kohort.wire.batches import read_header
from kohort.wire.compression import Codec
from kohort.wire.frames import read_int32

if TYPE_CHECKING:
    Data = m.ProduceRequestPartitionProduceData
    Answer = m.ProduceResponsePartitionProduceResponse

NO_OFFSET: Final = -1
_ZSTD_SINCE: Final = 7


def has_transactional_batch(request: m.ProduceRequest) -> bool:
    """Whether the first batch of a partition is transactional. Source: Kafka RequestUtils.hasTransactionalRecords."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) >= HEADER_BYTES
                and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL
                and records[MAGIC_AT] == MAGIC
                and _size(records) <= len(records)
            ):
                return True
    return False


_ERRORS_OF_LOG: Final = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)


def has_reached_log(error: CoordinatorError | StorageError, data: Data, api_version: int) -> bool:
    """
    Whether an error comes from the append to the log; the answer then has the log start offset.

    Before the append Kafka checks the request: that there is exactly one batch, its format, and in old versions its codec.
    """
    records = data.records or b""
    if error.code not in _ERRORS_OF_LOG or isinstance(error, VerificationError) or not is_one_batch(records):
        return False
    return api_version >= _ZSTD_SINCE or records[ATTRIBUTES_LOW_AT] & CODEC_MASK <= Codec.ZSTD


def is_one_batch(records: bytes) -> bool:
    if len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return False
    size = _size(records)
    return size <= len(records) < size + HEADER_BYTES


def _size(records: bytes) -> int:
    """The size of the first batch as its header has it."""
    return read_int32(records, LENGTH_AT) + LOG_OVERHEAD_BYTES


def has_invalid_offsets_or_sequence(records: bytes) -> bool:
    """
    Whether a refused batch has not as many offsets as records, or no sequence number for a producer.

    Source: Kafka LogValidator.validateBatch.
    """
    if not is_one_batch(records):
        return False
    header = read_header(records)
    count = header.record_count
    return count <= 0 or count != header.last_offset_delta + 1 or header.producer_id >= 0 > header.base_sequence


def _has_message(error: CoordinatorError) -> bool:
    """Whether clients get its message. Source: Kafka LogAppendResult.hasCustomErrorMessage, ProduceRequest.validateRecords."""
    return isinstance(error, InvalidRecordsError | VerificationError) or error.code == ErrorCode.CORRUPT_MESSAGE


def refusal(index: int, error: CoordinatorError | StorageError, *, log_start_offset: int) -> Answer:
    record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return m.ProduceResponsePartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_start_offset=log_start_offset,
        record_errors=[
            m.ProduceResponseBatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=message)
            for place, message in record_errors
        ],
        error_message=error.message if isinstance(error, CoordinatorError) and _has_message(error) else None,
    )
