"""
Record batches as a log handles them: position, size, offsets and largest timestamp, without their records.

Plain tuples and the few fields that a log needs, where `kohort.wire.batches` reads the whole header: every append, and every
batch of a recovery, comes through here.

Source: Kafka DefaultRecordBatch (the header of magic 2), FileLogInputStream.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from kohort.model.errors import CorruptError, InvariantError, RecordTooLargeError
from kohort.wire.batch_header import (
    ATTRIBUTES_LOW_AT,
    CONTROL,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    fields_struct,
)
from kohort.wire.compression import Buffer

Span: TypeAlias = tuple[int, int, int, int, int]
"""One batch of a set: where it begins in the set, its size in bytes, base offset, last offset, largest timestamp."""

read_front: Final = fields_struct("base_offset", "crc").unpack_from
"""Base offset, length, leader epoch, magic, CRC-32C: the first 21 bytes."""
read_deltas: Final = fields_struct("last_offset_delta", "max_timestamp").unpack_from
"""Last offset delta, base timestamp, largest timestamp: from byte 23 on."""
DELTAS_BEGIN: Final = LAST_OFFSET_DELTA_AT
_SIGN_MAX: Final = 0x7F
"""The largest first byte of a number that is not negative. Producers send the leader epoch -1."""
_read_some: Final = Struct(">8xi4xb6xi8xq").unpack_from
"""Length, magic, last offset delta, largest timestamp."""
_read_placed: Final = Struct(">qiib6xi8xq").unpack_from
"""Base offset, length, leader epoch, magic, last offset delta, largest timestamp."""
_seal_front: Final = fields_struct("base_offset", "leader_epoch").pack_into


def assign_offsets(
    batches: bytearray, size: int, *, base_offset: int, leader_epoch: int, batch_bytes_max: int
) -> list[Span]:
    """
    Give each batch its base offset and the leader epoch, in place; the checksum covers neither.

    Args:
        size: the size of all batches in bytes. `batches` may hold the header alone of a batch that was split.

    Raises:
        RecordTooLargeError: a batch is larger than `batch_bytes_max`; no batch of the set may be appended.
        InvariantError: the bytes are not whole batches, although the caller has validated them.
    """
    spans: list[Span] = []
    length: int  # declared, because `unpack` returns values of any type and compiled code would compute with objects
    magic: int
    last_offset_delta: int
    max_timestamp_ms: int
    start = 0
    while start < size:
        available = size - start
        if available < HEADER_BYTES:
            raise InvariantError(f"{available} bytes after the last whole batch of an append")
        length, magic, last_offset_delta, max_timestamp_ms = _read_some(batches, start)
        batch_bytes = length + LOG_OVERHEAD_BYTES
        if magic != MAGIC or batch_bytes < HEADER_BYTES or batch_bytes > available:
            raise InvariantError(
                f"an append holds no batch at byte {start}: magic {magic}, size {batch_bytes} of {available}"
            )
        if batch_bytes > batch_bytes_max:
            raise RecordTooLargeError(f"a batch of {batch_bytes} bytes where max.message.bytes is {batch_bytes_max}")
        _seal_front(batches, start, base_offset, length, leader_epoch)
        last_offset = base_offset + last_offset_delta
        spans.append((start, batch_bytes, base_offset, last_offset, max_timestamp_ms))
        base_offset = last_offset + 1
        start += batch_bytes
    return spans


def placed_span(batch: bytes, base_offset: int, leader_epoch: int, batch_bytes_max: int) -> Span | None:
    """
    The span of a single batch that has this base offset and leader epoch already, as a coordinator encodes its batches: no byte
    of it is to be changed. None for anything else.
    """
    size = len(batch)
    if size < HEADER_BYTES or size > batch_bytes_max or batch[LEADER_EPOCH_AT] > _SIGN_MAX:
        return None
    found_offset: int  # declared, as above
    length: int
    found_epoch: int
    magic: int
    last_offset_delta: int
    max_timestamp_ms: int
    found_offset, length, found_epoch, magic, last_offset_delta, max_timestamp_ms = _read_placed(batch)
    if (
        found_offset != base_offset
        or found_epoch != leader_epoch
        or magic != MAGIC
        or length + LOG_OVERHEAD_BYTES != size
    ):
        return None
    return 0, size, base_offset, base_offset + last_offset_delta, max_timestamp_ms


def split_one(batches: bytes) -> tuple[bytearray, memoryview] | None:
    """
    The header of a batch, copied, and a view of its records. None for a set of several batches, and for a control batch, whose
    records the log reads.
    """
    length = int.from_bytes(batches[LENGTH_AT:LEADER_EPOCH_AT], "big")
    if length + LOG_OVERHEAD_BYTES != len(batches) or batches[ATTRIBUTES_LOW_AT] & CONTROL:
        return None
    return bytearray(batches[:HEADER_BYTES]), memoryview(batches)[HEADER_BYTES:]


def iter_spans(batches: Buffer) -> Iterator[Span]:
    """
    The batches of a set read from a log.

    Raises:
        CorruptError: the bytes are not whole batches.
    """
    start, end = 0, len(batches)
    while start < end:
        span = span_at(batches, start)
        if span is None:
            raise CorruptError(f"no whole batch at byte {start} of {end}")
        yield span
        start += span[1]


def stated_size(data: Buffer, start: int = 0) -> int:
    """The size of the batch that begins at `start`, as its header states it; 0 if there is no header of magic 2."""
    if len(data) - start < HEADER_BYTES:
        return 0
    _, length, _, magic, _ = read_front(data, start)
    size: int = length + LOG_OVERHEAD_BYTES
    return size if magic == MAGIC and size >= HEADER_BYTES else 0


def span_at(batches: Buffer, start: int) -> Span | None:
    """The batch that begins at `start`; None if there is no whole batch of magic 2."""
    available = len(batches) - start
    if available < HEADER_BYTES:
        return None
    base_offset: int  # declared, as above
    length: int
    magic: int
    last_offset_delta: int
    max_timestamp_ms: int
    base_offset, length, _, magic, last_offset_delta, max_timestamp_ms = _read_placed(batches, start)
    size = length + LOG_OVERHEAD_BYTES
    if magic != MAGIC or size < HEADER_BYTES or size > available:
        return None
    return start, size, base_offset, base_offset + last_offset_delta, max_timestamp_ms
