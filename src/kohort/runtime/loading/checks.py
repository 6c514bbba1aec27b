"""
Checks of the batches that a load has read: a flipped bit on the disk must not become a wrong record.

No checksum covers the base offset, so offsets are checked against those of the batches before.
"""

from collections.abc import Generator
from struct import Struct
from typing import Final

from kohort.model.errors import CorruptError
from kohort.wire.batch_header import ATTRIBUTES_AT, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, fields_struct
from kohort.wire.native import crc32c

CHECKED_PER_STEP: Final = 256
"""The batches that are checked between two yields."""
_FRONT: Final[Struct] = fields_struct("base_offset", "last_offset_delta")
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES


def check_batches(data: bytes, start: int, end: int) -> Generator[None, None, int]:
    """
    Check whole batches that were read from a log, and return the offset behind them. Yields from time to time.

    Args:
        start: the offset from which they were read; the first batch may begin before.
        end: the offset below which they have to end.

    Raises:
        CorruptError: a checksum is wrong, an offset does not follow, or the bytes are not whole batches of magic 2.
    """
    view, unpack = memoryview(data), _FRONT.unpack_from
    at, size, next_offset = 0, len(data), start
    checked = 0
    while at < size:
        if size - at < HEADER_BYTES:
            raise CorruptError(f"{size - at} bytes behind offset {next_offset - 1} are no batch")
        base_offset, length, _, magic, crc, _, delta = unpack(data, at)
        after = at + LOG_OVERHEAD_BYTES + length
        if magic != MAGIC or length < _LENGTH_MIN or after > size:
            raise CorruptError(f"no whole batch of magic {MAGIC} begins at offset {next_offset}")
        if crc32c(view[at + ATTRIBUTES_AT : after]) != crc:
            raise CorruptError(f"the checksum of the batch at offset {base_offset} is wrong")
        last_offset = base_offset + delta
        if delta < 0 or last_offset >= end or (base_offset if at else last_offset) < next_offset:
            raise CorruptError(
                f"a batch with the offsets {base_offset} to {last_offset} begins where {next_offset} to {end - 1} are left"
            )
        at, next_offset = after, last_offset + 1
        checked += 1
        if checked % CHECKED_PER_STEP == 0:
            yield
    return next_offset
