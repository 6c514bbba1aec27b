"""
Batches of which compaction needs no records, only keys and offsets: nearly all batches of coordinators.

The fast twin of `read_records` in `rules.py`: header and record objects of a batch take several times as long.
"""

from struct import Struct
from typing import Final

from kohort.model.errors import CorruptError
from kohort.model.limits import UNORDERED_RECORDS_MAX
from kohort.wire.batch_header import HEADER_BYTES, LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, MAGIC
from kohort.wire.scanning.record_scan import RecordReader

_read_fields: Final = Struct(">qi4xb4xhi16xq6xi").unpack_from
"""Base offset, length, magic, attributes, last offset delta, producer id, number of records."""


class SimpleBatch:
    """
    A batch that is not compressed, belongs to no transaction, has no delete horizon, and has records, each with a key, a value
    and an offset above the one before. So it stays as it is if all of its records do.

    Attributes:
        keys, offsets: of each record.
        next_offset: the offset after the batch; records that were after the last one may have been removed.
        has_producer: whether it has a producer id.
    """

    __slots__ = ("batch", "has_producer", "keys", "next_offset", "offsets")

    def __init__(
        self, batch: bytes, keys: list[bytes], offsets: list[int], next_offset: int, *, has_producer: bool
    ) -> None:
        self.batch: Final = batch
        self.keys: Final = keys
        self.offsets: Final = offsets
        self.next_offset: Final = next_offset
        self.has_producer: Final = has_producer


def read_simple(batch: bytes) -> SimpleBatch | None:
    """The keys of a batch; None if it is not a simple one, or damaged."""
    if len(batch) < HEADER_BYTES:
        return None
    # Declared, because `unpack` returns values of any type and compiled code would compute with objects.
    base_offset: int
    length: int
    magic: int
    attributes: int
    last_offset_delta: int
    producer_id: int
    count: int
    base_offset, length, magic, attributes, last_offset_delta, producer_id, count = _read_fields(batch)
    if (
        magic != MAGIC
        or attributes & ~LOG_APPEND_TIME
        or length + LOG_OVERHEAD_BYTES != len(batch)
        or not 0 < count <= UNORDERED_RECORDS_MAX
    ):
        return None
    reader = RecordReader(batch, HEADER_BYTES)
    keys: list[bytes] = []
    offsets: list[int] = []
    last = -1
    try:
        for _ in range(count):
            reader.read()
            key_bytes = reader.key_bytes
            offset_delta = reader.offset_delta
            if key_bytes < 0 or reader.value_bytes < 0 or offset_delta <= last:
                return None
            last = offset_delta
            keys.append(batch[reader.key_at : reader.key_at + key_bytes])
            offsets.append(base_offset + offset_delta)
    except (CorruptError, IndexError):
        return None
    if reader.position != len(batch):
        return None
    return SimpleBatch(batch, keys, offsets, base_offset + last_offset_delta + 1, has_producer=producer_id >= 0)
