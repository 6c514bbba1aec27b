"""Batches whose bytes a test wrote itself: length, magic and checksum are made right."""

from collections.abc import Generator
from typing import TypeVar

from kohort.wire.batches import LOG_OVERHEAD_BYTES, MAGIC, write_crc

T = TypeVar("T")


def sealed(batch: bytearray) -> bytes:
    """With a length and a checksum that fit, so that whoever reads it believes it."""
    batch[8:12] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    batch[16] = MAGIC
    write_crc(batch)
    return bytes(batch)


def drained(steps: Generator[None, None, T]) -> T:
    """What a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
