"""Batches with bytes that a test wrote: length, magic and checksum are corrected."""

from collections.abc import Generator
from typing import Any, TypeVar

from kohort.wire.batch_header import LOG_OVERHEAD_BYTES, MAGIC
from kohort.wire.batches import write_crc

T = TypeVar("T")


def sealed(batch: bytearray) -> bytes:
    """The batch with a correct length and checksum, so that readers accept its header."""
    batch[8:12] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    batch[16] = MAGIC
    write_crc(batch)
    return bytes(batch)


def drained(steps: Generator[Any, None, T]) -> T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
