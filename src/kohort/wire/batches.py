"""
Record batches, magic 2: what is in a log, in Produce and in Fetch.

A batch is a header of 61 bytes and its records. Base offset and partition leader epoch lie outside the checksum, so that a
leader may set them in place. Sizes are in bytes and offsets are those of the log. Writing and reading of records is native
(aiokafka's record module); the header, the checksum and the compression are dealt with here.

Source: Kafka DefaultRecordBatch, LogValidator, EndTransactionMarker; KIP-98.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from struct import Struct, error
from typing import Final, Protocol, TypeAlias

import msgspec

from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    ATTRIBUTES_LOW_AT,
    BASE_TIMESTAMP_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    fields_struct,
)
from kohort.wire.compression import DECOMPRESSED_BYTES_MAX, Buffer, Codec, compress, decompress
from kohort.wire.native import CorruptRecordException, DefaultRecordBatch, DefaultRecordBatchBuilder, crc32c
from kohort.wire.primitives import write_varint

_LENGTH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_BASE_OFFSET: Final = Struct(">q")
_TIMES: Final = fields_struct("base_timestamp", "max_timestamp")

_ZSTD: Final = int(Codec.ZSTD)

_LENGTH_MIN: Final = 14
"""Of what follows the length in the oldest format."""

_SIZE_MAX: Final = (1 << 31) - 1
_LONG_RANGE_HALF: Final = 1 << 63

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


__all__ = [
    "ABORT",
    "ATTRIBUTES_LOW_AT",
    "CODEC_MASK",
    "COMMIT",
    "CONTROL",
    "DELETE_HORIZON",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD_BYTES",
    "MAGIC",
    "RECORDS_BELIEVED",
    "RECORD_OVERHEAD_BYTES",
    "TRANSACTIONAL",
    "BatchHeader",
    "BatchRecord",
    "EndTransactionMarker",
    "Headers",
    "LogRecord",
    "build_batch",
    "check_crc",
    "control_batch",
    "encode_batch",
    "iter_batches",
    "join_records",
    "read_header",
    "read_marker",
    "read_records",
    "record_front",
    "stamp",
    "stamp_log_append_time",
    "validate_produced",
    "write_crc",
]


class LogRecord(Protocol):
    """A record that was read: its offset in the log, its time in milliseconds, key, value and headers."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


class BatchRecord(msgspec.Struct, frozen=True):
    """A record to write. Without a time of its own it gets that of its batch."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a batch, field by field."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, which begins again at 0 after 2^31 - 1; -1 where there are no sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Then the base timestamp is the time from which tombstones of this batch may go."""
        return self.attributes & DELETE_HORIZON != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """
    The header of the batch at `position`; nothing in it is checked.

    Raises:
        CorruptError: fewer bytes than a header has.
    """
    try:
        return BatchHeader(*HEADER.unpack_from(buffer, position))
    except error:
        raise CorruptError(f"{len(buffer) - position} bytes are too short for a batch") from None


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """
    Position and header of every whole batch from `position` on; a batch that is cut off at the end is not there.

    Raises:
        CorruptError: what stands there is no batch of magic 2.
    """
    end = len(buffer)
    while end - position > MAGIC_AT:
        (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_AT)
        if buffer[position + MAGIC_AT] != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise CorruptError(f"no batch of magic {MAGIC} at byte {position}")
        if position + LOG_OVERHEAD_BYTES + length > end:
            return
        yield position, read_header(buffer, position)
        position += LOG_OVERHEAD_BYTES + length


def check_crc(buffer: Buffer, position: int = 0) -> bool:
    """Whether the checksum of the batch at `position` is right. The batch must be whole."""
    (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_AT)
    (crc,) = _CRC.unpack_from(buffer, position + CRC_AT)
    covered = memoryview(buffer)[position + ATTRIBUTES_AT : position + LOG_OVERHEAD_BYTES + length]
    return bool(crc32c(covered) == crc)


def encode_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = 0,
    transactional: bool = False,
) -> bytearray:
    """
    One batch of keys and values, all of one time: what coordinators write.

    The group coordinator's batches carry the base sequence 0 although they have no producer id, as Kafka's do; those of the
    transaction coordinator carry -1. 0.2 us a record and 0.7 us a batch.
    """
    builder = DefaultRecordBatchBuilder(MAGIC, 0, transactional, producer_id, producer_epoch, base_sequence, _SIZE_MAX)
    append = builder.append
    for offset, (key, value) in enumerate(pairs):
        append(offset, timestamp_ms, key, value, [])
    batch: bytearray = builder.build()
    return batch


def join_records(sections: Sequence[bytes], count: int, timestamp_ms: int, *, base_sequence: int = 0) -> bytearray:
    """
    `encode_batch` of records that are bytes already: sections of them, each with its records' offsets counted from the first
    of the batch, all of one time.
    """
    size = HEADER_BYTES + sum(map(len, sections))
    batch = bytearray(
        HEADER.pack(
            0,
            size - LOG_OVERHEAD_BYTES,
            0,
            MAGIC,
            0,
            0,
            count - 1,
            timestamp_ms,
            timestamp_ms,
            -1,
            -1,
            base_sequence,
            count,
        )
    )
    for section in sections:
        batch += section
    write_crc(batch)
    return batch


RECORD_OVERHEAD_BYTES: Final = 21
"""At most what a record needs beside its key and value. Source: Kafka DefaultRecord.MAX_RECORD_OVERHEAD."""


def record_front(key: bytes, value_bytes: int, offset_delta: int) -> bytes:
    """A record without headers and of its batch's time, as far as its value; a zero byte follows that (no headers)."""
    out = bytearray(2)  # attributes, timestamp delta
    write_varint(out, offset_delta)
    write_varint(out, len(key))
    out += key
    write_varint(out, value_bytes)
    front = bytearray()
    write_varint(front, len(out) + value_bytes + 1)
    return bytes(front + out)


def build_batch(
    records: Sequence[BatchRecord],
    *,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    compression: int = Codec.NONE,
    base_offset: int = 0,
) -> bytes:
    """One batch of any kind, of one record at least. `timestamp_ms` is that of records without one of their own."""
    assert records, "a batch without records"
    builder = DefaultRecordBatchBuilder(MAGIC, 0, transactional, producer_id, producer_epoch, base_sequence, _SIZE_MAX)
    times = [timestamp_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
    for offset, record in enumerate(records):
        # Relative times, because the builder takes a first time of -1 for none.
        builder.append(offset, _as_long(times[offset] - times[0]), record.key, record.value, list(record.headers))
    batch = builder.build()
    if compression:
        batch[HEADER_BYTES:] = compress(memoryview(batch)[HEADER_BYTES:].tobytes(), Codec(compression))
        _LENGTH.pack_into(batch, LENGTH_AT, len(batch) - LOG_OVERHEAD_BYTES)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes | compression | (CONTROL if control else 0))
    _TIMES.pack_into(batch, BASE_TIMESTAMP_AT, times[0], max(times))
    write_crc(batch)
    if base_offset:
        _BASE_OFFSET.pack_into(batch, 0, base_offset)
    return bytes(batch)


def _as_long(value: int) -> int:
    """In 64 bits, as Java has it: times further apart are found again, for a reader adds in the same way."""
    return (value + _LONG_RANGE_HALF) % (2 * _LONG_RANGE_HALF) - _LONG_RANGE_HALF


def write_crc(batch: bytearray) -> None:
    """Set the checksum of one whole batch to what it has to be."""
    with memoryview(batch) as view, view[ATTRIBUTES_AT:] as covered:
        crc = crc32c(covered)
    _CRC.pack_into(batch, CRC_AT, crc)


def stamp(batch: bytearray, *, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Set what a leader sets on append, in place; both lie outside the checksum."""
    _BASE_OFFSET.pack_into(batch, position, base_offset)
    _LENGTH.pack_into(batch, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(batch: bytearray, timestamp_ms: int) -> None:
    """Make `timestamp_ms` the time of all records of one batch, as in a topic with LogAppendTime; sets the checksum anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _BASE_OFFSET.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    write_crc(batch)


RECORDS_BELIEVED: Final = 1 << 16
"""How many records of a batch are read before their offsets are looked at."""


def read_records(
    batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX, header: BatchHeader | None = None
) -> Sequence[LogRecord]:
    """
    The records of one whole batch. The checksum is the caller's to check.

    Raises:
        CorruptError: the records are damaged, or unpack to more than `decompressed_bytes_max`.
    """
    header = header or read_header(batch)
    whole = bytes(memoryview(batch)[: header.size_bytes])
    if header.magic != MAGIC or len(whole) != header.size_bytes:
        raise CorruptError(f"no whole batch of magic {MAGIC}")
    if header.codec:
        plain = bytearray(whole[:HEADER_BYTES])
        _ATTRIBUTES.pack_into(plain, ATTRIBUTES_AT, header.attributes & ~CODEC_MASK)
        whole = bytes(plain) + decompress(memoryview(whole)[HEADER_BYTES:], header.codec, decompressed_bytes_max)
    try:
        records = DefaultRecordBatch(whole)
        return list(records) if header.record_count <= RECORDS_BELIEVED else _take_records(chain(records))
    except (CorruptRecordException, UnicodeDecodeError) as exc:
        raise CorruptError(f"records of the batch at offset {header.base_offset} cannot be read: {exc}") from exc


def _take_records(found: Iterator[LogRecord]) -> list[LogRecord]:
    """
    A record takes a hundred times the memory of the smallest that can be written: some kB of equal ones would unpack to
    gigabytes. Rising offsets do not compress like that, so of a batch with many records it is seen to that they rise.

    Raises:
        CorruptError: they do not.
    """
    records = list(islice(found, RECORDS_BELIEVED))
    while len(chunk := list(islice(found, RECORDS_BELIEVED))) > 0:
        if chunk[0].offset <= records[-1].offset or chunk[-1].offset - chunk[0].offset < len(chunk) - 1:
            raise CorruptError(f"offsets behind {records[-1].offset} that do not rise")
        records += chunk
    return records


# Control batches.

ABORT: Final = 0
COMMIT: Final = 1

_CONTROL_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")


class EndTransactionMarker(msgspec.Struct, frozen=True):
    """What a control record of a transaction says."""

    committed: bool
    coordinator_epoch: int


def control_batch(
    *, producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The marker that ends a transaction in one partition."""
    key = _CONTROL_KEY.pack(0, COMMIT if committed else ABORT)
    value = _MARKER_VALUE.pack(0, coordinator_epoch)
    return build_batch(
        [BatchRecord(key, value)],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(record: LogRecord) -> EndTransactionMarker | None:
    """
    The end of a transaction that a control record states; None for control records of other kinds.

    Raises:
        CorruptError: the record is damaged.
    """
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except error as exc:
        raise CorruptError(f"the control record at offset {record.offset} is damaged") from exc
    return EndTransactionMarker(kind == COMMIT, coordinator_epoch)


# What a producer sends.


def validate_produced(records: Buffer | None, *, api_version: int, batch_bytes_max: int | None = None) -> BatchHeader:
    """
    Judge what a producer sent for one partition by its header and checksum, in Kafka's order; the header of its one batch.

    What follows that batch is a piece of another and is dropped: use the first `size_bytes`.

    Raises:
        CoordinatorError: with the code that Kafka answers.

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
    if size < HEADER_BYTES or crc32c(memoryview(data)[ATTRIBUTES_AT:size]) != header.crc:
        raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE)
    _validate_batch(header)
    return header


def _only_batch(data: Buffer) -> BatchHeader:
    """The one batch that a producer may send for a partition."""
    if len(data) >= HEADER_BYTES:
        header = read_header(data)
        if header.length == len(data) - LOG_OVERHEAD_BYTES and header.magic == MAGIC:
            return header
    sizes = []
    position = 0
    while len(data) - position > MAGIC_AT:
        (length,) = _LENGTH.unpack_from(data, position + LENGTH_AT)
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
    elif count != header.last_offset_delta + 1:
        reason = f"Record batch with {count} records has a last offset delta of {header.last_offset_delta}"
    elif header.attributes & CONTROL:
        reason = "Clients are not allowed to write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        reason = f"Invalid sequence number {header.base_sequence} with producer id {header.producer_id}"
    else:
        return
    raise CoordinatorError(ErrorCode.INVALID_RECORD, reason)
