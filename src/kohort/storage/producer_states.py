"""
What a partition knows of one producer: its last batches, its open transaction, and a verification under way.

Source: Kafka ProducerStateEntry, BatchMetadata, VerificationStateEntry, AbortedTxn; KIP-98, KIP-890.
"""

from collections import deque
from typing import Final

import msgspec

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.runtime.ports import NO_SEQUENCE

NO_PRODUCER_EPOCH: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
SEQUENCE_MASK: Final = (1 << 31) - 1

BATCHES_KEPT: Final = 5
"""How many batches of a producer are kept to find duplicates. Source: ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""


class BatchMetadata(msgspec.Struct, frozen=True, gc=False):
    """A batch in the log. `offset_delta` is the last offset minus the first; the timestamp is the largest of its records."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The last sequence minus the offset delta, with wrap-around."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class AbortedTxn(msgspec.Struct, frozen=True, gc=False):
    """
    An aborted transaction: first offset, offset of the marker, and the last stable offset when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerStateEntry:  # noqa: PLW1641 -- it changes, so it has no hash
    """One producer. `transaction_offset` is the first offset of its open transaction, None if there is none."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "producer_epoch",
        "producer_id",
        "timestamp_ms",
        "transaction_offset",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        batches: deque[BatchMetadata] | None = None,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        timestamp_ms: int = -1,
        transaction_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_KEPT) if batches is None else batches
        self.coordinator_epoch = coordinator_epoch
        self.timestamp_ms = timestamp_ms
        self.transaction_offset = transaction_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerStateEntry) and self._values() == other._values()

    def _values(self) -> tuple[object, ...]:
        return (
            self.producer_id,
            self.producer_epoch,
            self.batches,
            self.coordinator_epoch,
            self.timestamp_ms,
            self.transaction_offset,
        )

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def copy(self) -> "ProducerStateEntry":
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.batches.copy(),
            self.coordinator_epoch,
            self.timestamp_ms,
            self.transaction_offset,
        )

    def move_to(self, producer_epoch: int) -> None:
        """Begin a producer epoch; the batches of an earlier epoch are dropped."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()

    def check_epoch(self, producer_epoch: int) -> None:
        """
        Raises:
            CoordinatorError: INVALID_PRODUCER_EPOCH: the partition has seen a later epoch.
        """
        if producer_epoch < self.producer_epoch:
            raise CoordinatorError(ErrorCode.INVALID_PRODUCER_EPOCH)

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch is open."""
        return self.transaction_offset is not None and self.producer_epoch == producer_epoch

    def find(self, producer_epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The retained batch with these sequences, or None."""
        if producer_epoch != self.producer_epoch:
            return None
        for written in self.batches:
            if written.last_sequence == last_sequence and written.first_sequence == first_sequence:
                return written
        return None


class VerificationStateEntry(msgspec.Struct, eq=False, gc=False):
    """
    A verification under way of a producer's transaction: none of its batches is in the log yet.

    The entry is the guard of the append that follows, by its identity. A transactional batch or a marker in the log ends it, so
    a guard from before the end of a transaction is not valid for the next one.

    Attributes:
        lowest_sequence: the lowest first sequence of the batches of this epoch that were to be verified. A batch with a higher
            one must not be the first in the log: an earlier one, whose verification failed, is sent again.
        adds_partition: as in `Producer`, of the first verification; its first batch in the log has sequence 0.
    """

    producer_epoch: int
    lowest_sequence: int
    adds_partition: bool
    created_ms: int

    def update(self, producer_epoch: int, first_sequence: int) -> None:
        """Take note of a further batch that is to be verified."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, first_sequence
        elif producer_epoch == self.producer_epoch and first_sequence < self.lowest_sequence:
            self.lowest_sequence = first_sequence

    def may_begin(self, first_sequence: int, *, has_batches: bool) -> bool:
        """Whether a client's batch may be the first one after this verification."""
        if first_sequence > self.lowest_sequence:
            return False
        return first_sequence == 0 or has_batches or not self.adds_partition
