"""The open batch of a shard: records that are replayed and not yet appended."""

from typing import Any, Final

from kohort.machine.bulk import PackedRecords
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.runtime.append.deferred import DeferredEvent
from kohort.runtime.timers.wheel import WheelTimer
from kohort.wire.batches import RECORD_OVERHEAD_BYTES, BatchRecord, build_batch, encode_batch, join_records
from kohort.wire.compression import Codec

_UNCOMPRESSED: Final = Codec.NONE
BATCH_OVERHEAD_BYTES: Final = 61
"""The header of a record batch."""
BASE_SEQUENCE: Final = 0
"""Kafka's coordinators write base sequence 0 although their batches have no producer id (seen in logs of 4.2.1)."""

Pair = tuple[bytes, bytes | None]


def size_bytes(pairs: list[Pair]) -> int:
    """An upper bound of the size of records in a batch without compression."""
    size = RECORD_OVERHEAD_BYTES * len(pairs)
    for key, value in pairs:
        size += len(key) if value is None else len(key) + len(value)
    return size


class OpenBatch:
    """Records of several operations, with these operations. A batch with a producer id belongs to a transaction."""

    __slots__ = (
        "base_offset",
        "bytes_left",
        "bytes_max",
        "count",
        "events",
        "guard",
        "linger",
        "opened_ms",
        "packed",
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
        self.bytes_max = bytes_max
        """The limit of the partition for one batch."""
        self.bytes_left = bytes_max - BATCH_OVERHEAD_BYTES
        self.opened_ms = opened_ms
        """The timestamp of all its records."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.guard = guard
        """The guard of a verified transaction; see `PartitionLog.start_verification`."""
        self.count = 0
        """The number of records."""
        self.pairs: list[Pair] = []
        self.packed: list[PackedRecords[Any]] = []
        """Encoded records in place of `pairs`, if the batch holds no others."""
        self.events: list[DeferredEvent] = []
        self.linger: WheelTimer | None = None
        """The timer of a fixed linger."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count

    def add(self, pairs: list[Pair], needed: int) -> None:
        if self.packed:
            self._unpack()
        self.pairs.extend(pairs)
        self.count += len(pairs)
        self.bytes_left -= needed

    def add_packed(self, records: PackedRecords[Any]) -> None:
        if self.pairs:
            self.add(records.pairs(), records.size_bytes)
            return
        self.packed.append(records)
        self.count += len(records)
        self.bytes_left -= records.size_bytes

    def _unpack(self) -> None:
        for records in self.packed:
            self.pairs += records.pairs()
        self.packed.clear()

    def encode(self, codec: Codec, leader_epoch: int) -> bytes:
        """
        Return the bytes of the batch for the log.

        Args:
            leader_epoch: with it and the base offset in place, the log need not copy the batch to set them.
        """
        is_transactional = self.producer_id != NO_PRODUCER_ID
        if self.packed:
            if codec is _UNCOMPRESSED and not is_transactional:
                return self._encode_packed(leader_epoch)
            self._unpack()
        if codec is _UNCOMPRESSED:
            return encode_batch(
                self.pairs,
                self.opened_ms,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=BASE_SEQUENCE,
                transactional=is_transactional,
                base_offset=self.base_offset,
                leader_epoch=leader_epoch,
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

    def _encode_packed(self, leader_epoch: int) -> bytes:
        sections: list[bytes] = []
        delta = 0
        for records in self.packed:
            sections.append(records.pack(delta))
            delta += len(records)
        return join_records(
            sections,
            delta,
            self.opened_ms,
            base_sequence=BASE_SEQUENCE,
            base_offset=self.base_offset,
            leader_epoch=leader_epoch,
        )
