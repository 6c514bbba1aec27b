"""The batch that is open: records that have been replayed and wait to be appended together."""

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.runtime.deferred import Waiting
from kohort.runtime.wheel import WheelTimer
from kohort.wire.batches import BatchRecord, build_batch, encode_batch
from kohort.wire.compression import Codec

RECORD_OVERHEAD_BYTES = 21
"""At most what a record of a batch needs beside its key and value. Source: Kafka DefaultRecord.MAX_RECORD_OVERHEAD."""
BATCH_OVERHEAD_BYTES = 61
"""The header of a record batch."""
BASE_SEQUENCE = 0
"""Kafka's coordinators write base sequence 0 though their batches have no producer id (seen in every log of 4.2.1)."""

Pair = tuple[bytes, bytes | None]


def size_bytes(pairs: list[Pair]) -> int:
    """An upper bound of what records take in a batch, without compression."""
    size = RECORD_OVERHEAD_BYTES * len(pairs)
    for key, value in pairs:
        size += len(key) if value is None else len(key) + len(value)
    return size


class OpenBatch:
    """Records of several operations, and those operations. One with a producer id is a piece of a transaction."""

    __slots__ = (
        "base_offset",
        "bytes_left",
        "events",
        "guard",
        "linger",
        "opened_ms",
        "pairs",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        *,
        base_offset: int,
        bytes_max: int,
        opened_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.bytes_left = bytes_max - BATCH_OVERHEAD_BYTES
        self.opened_ms = opened_ms
        """The timestamp of all its records."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.guard = guard
        """Of a transaction that was verified; see `PartitionLog.start_verification`."""
        self.pairs: list[Pair] = []
        self.events: list[Waiting] = []
        self.linger: WheelTimer | None = None
        """What ends a fixed linger."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.pairs)

    def encode(self, codec: Codec) -> bytes | bytearray:
        """The batch as the log takes it."""
        is_transactional = self.producer_id != NO_PRODUCER_ID
        if codec is Codec.NONE:
            return encode_batch(
                self.pairs,
                self.opened_ms,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=BASE_SEQUENCE,
                transactional=is_transactional,
            )
        return build_batch(
            [BatchRecord(key, value) for key, value in self.pairs],
            timestamp_ms=self.opened_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=BASE_SEQUENCE,
            transactional=is_transactional,
            compression=codec,
        )
