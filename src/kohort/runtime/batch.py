"""The batch that is open: records that have been replayed and wait for the end of the turn to be appended together."""

from kohort.runtime.deferred import Waiting

RECORD_OVERHEAD_BYTES = 21
"""At most what a record of a batch needs beside its key and value. Source: Kafka DefaultRecord.MAX_RECORD_OVERHEAD."""
BATCH_OVERHEAD_BYTES = 61
"""The header of a record batch."""

Pair = tuple[bytes, bytes | None]


def size_bytes(pairs: list[Pair]) -> int:
    """An upper bound of what records take in a batch, without compression."""
    size = RECORD_OVERHEAD_BYTES * len(pairs)
    for key, value in pairs:
        size += len(key) if value is None else len(key) + len(value)
    return size


class OpenBatch:
    """Records of several operations, and those operations."""

    __slots__ = ("base_offset", "bytes_left", "events", "opened_ms", "pairs")

    def __init__(self, *, base_offset: int, bytes_max: int, opened_ms: int) -> None:
        self.base_offset = base_offset
        self.bytes_left = bytes_max - BATCH_OVERHEAD_BYTES
        self.opened_ms = opened_ms
        """The timestamp of all its records."""
        self.pairs: list[Pair] = []
        self.events: list[Waiting] = []

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.pairs)
