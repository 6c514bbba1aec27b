"""Search for whole batches in the bytes of a damaged segment."""

import mmap
from typing import Final

from kohort.storage.batchset import Span, span_at, stated_size
from kohort.storage.files.checksums import correct_bit
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
)
from kohort.wire.batches import check_crc
from kohort.wire.native import crc32c

_MENDED_BYTES_MAX: Final = 64 << 10
"""Other damage of a batch of this size is taken for one wrong bit with a probability of 1 in 8,000."""
_MAGIC_BYTE: Final = bytes([MAGIC])


def mend(content: mmap.mmap, position: int, next_offset: int) -> bytes | None:
    """The batch at a position with its one wrong bit corrected; None if the damage is another one, or the batch is large."""
    size = stated_size(content[position : position + HEADER_BYTES])
    if not size or size > _MENDED_BYTES_MAX or position + size > len(content):
        return None
    batch = content[position : position + size]
    stored, crc = int.from_bytes(batch[CRC_AT:ATTRIBUTES_AT], "big"), crc32c(batch[ATTRIBUTES_AT:])
    if (stored ^ crc).bit_count() == 1:  # of the checksum itself
        batch = batch[:CRC_AT] + crc.to_bytes(4, "big") + batch[ATTRIBUTES_AT:]
    elif (covered := correct_bit(batch[ATTRIBUTES_AT:], stored)) is not None:
        batch = batch[:ATTRIBUTES_AT] + covered
    else:
        return None
    span = span_at(batch, 0)
    return batch if span is not None and next_offset <= span[2] <= span[3] else None


def valid_span(content: mmap.mmap, position: int, next_offset: int) -> Span | None:
    """
    The batch at a position, if it is whole, its checksum is right and its offsets are between those of its neighbours: no
    checksum covers an offset.
    """
    span = _whole_span(content, position)
    if span is None or not next_offset <= span[2] <= span[3]:
        return None
    following = _whole_span(content, position + span[1])
    is_behind = following is not None and next_offset <= following[2] <= span[3]
    return None if is_behind else span


def _whole_span(content: mmap.mmap, position: int) -> Span | None:
    size = stated_size(content[position : position + HEADER_BYTES])
    if not size or position + size > len(content):
        return None
    batch = content[position : position + size]
    span = span_at(batch, 0)
    if span is None or not check_crc(batch):
        return None
    return position, span[1], span[2], span[3], span[4]


def next_valid(content: mmap.mmap, position: int, next_offset: int) -> Span | None:
    """The first valid batch behind the damaged one at a position: where its length says, else anywhere."""
    size = stated_size(content[position : position + HEADER_BYTES])
    span = valid_span(content, position + size, next_offset) if size else None
    if span is not None:
        return span
    at = content.find(_MAGIC_BYTE, position + 1 + MAGIC_AT)
    while at >= 0:
        span = valid_span(content, at - MAGIC_AT, next_offset)
        if span is not None:
            return span
        at = content.find(_MAGIC_BYTE, at + 1)
    return None
