"""
A transactional id with its latest transaction, and the transitions between its states.

A transition is a function from one value to the next, and raises nothing but `IllegalTransitionError`. Which request causes
which transition is decided in the modules of the APIs.

Source: Kafka TransactionMetadata, TxnTransitMetadata; KIP-98, KIP-360, KIP-890.
"""

from typing import Final

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREDECESSORS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

NO_TIMESTAMP: Final = -1
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

EPOCH_MAX: Final = 32_767
"""Reserved for the marker that fences the producer with the epoch before it."""
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""The last epoch that a client gets. The next one belongs to another producer id."""

VERSION_2: Final = 2
"""The transaction version in which each end of a transaction raises the producer epoch (KIP-890)."""


class IllegalTransitionError(CoordinatorError):
    """A transition that the state does not allow. Kafka answers UNKNOWN_SERVER_ERROR too."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class Transaction:
    """
    A transactional id.

    A plain class and no `msgspec.Struct`: compiled code reads its attributes from fixed places. Nothing changes one.

    Attributes:
        partitions: of the ongoing or prepared transaction.
        start_timestamp_ms: of the transaction; -1 in state EMPTY.
        client_version: the transaction version of the client that wrote last, which decides about epochs at the end.
        previous_producer_id: the producer id of the state before this one; accepted in retries. -1 in records of Kafka 4.2.1.
        next_producer_id: in a Prepare state: the id after the completion, if this one's epochs are exhausted; else -1.
        last_producer_epoch: the epoch before the last bump, by which a retry is recognised; -1 if a retry is not accepted.
            It is not in the log, and -1 after a load, as in Kafka.
        other_tags: tagged fields of its record that a later release of Kafka wrote; they are written again with each record.
    """

    __slots__ = (
        "client_version",
        "last_producer_epoch",
        "next_producer_id",
        "other_tags",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_timestamp_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "update_timestamp_ms",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        state: TransactionState,
        partitions: frozenset[TopicPartition],
        start_timestamp_ms: int,
        update_timestamp_ms: int,
        client_version: int = 0,
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
        last_producer_epoch: int = NO_PRODUCER_EPOCH,
        other_tags: tuple[bytes, ...] = (),
    ) -> None:
        self.transactional_id: Final = transactional_id
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch
        self.timeout_ms: Final = timeout_ms
        self.state: Final = state
        self.partitions: Final = partitions
        self.start_timestamp_ms: Final = start_timestamp_ms
        self.update_timestamp_ms: Final = update_timestamp_ms
        self.client_version: Final = client_version
        self.previous_producer_id: Final = previous_producer_id
        self.next_producer_id: Final = next_producer_id
        self.last_producer_epoch: Final = last_producer_epoch
        self.other_tags: Final = other_tags

    def _values(self) -> tuple[object, ...]:
        return (
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            self.state,
            self.partitions,
            self.start_timestamp_ms,
            self.update_timestamp_ms,
            self.client_version,
            self.previous_producer_id,
            self.next_producer_id,
            self.last_producer_epoch,
            self.other_tags,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transaction) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Transaction{self._values()!r}"

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def next_producer(self) -> tuple[int, int]:
        """The producer id and epoch after the completion of a prepared transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def _require(self, target: TransactionState) -> None:
        if self.state not in PREDECESSORS[target]:
            raise IllegalTransitionError(
                f"transactional id {self.transactional_id!r} cannot go from {self.state.wire_name} to {target.wire_name}"
            )

    # InitProducerId

    def bumped(self, last_producer_epoch: int, timeout_ms: int, now_ms: int) -> "Transaction":
        """
        EMPTY with the next epoch.

        Args:
            last_producer_epoch: the epoch whose holder may repeat the request; -1 if the request named none.
        """
        self._require(EMPTY)
        if self.is_epoch_exhausted:
            raise IllegalTransitionError(f"producer {self.producer_id} has no epoch after {self.producer_epoch}")
        return self._emptied(self.producer_id, self.producer_epoch + 1, last_producer_epoch, timeout_ms, now_ms)

    def repeated(self, timeout_ms: int, now_ms: int) -> "Transaction":
        """EMPTY with the same epoch: the answer to an earlier request was lost."""
        self._require(EMPTY)
        return self._emptied(self.producer_id, self.producer_epoch, self.last_producer_epoch, timeout_ms, now_ms)

    def rotated(self, producer_id: int, last_producer_epoch: int, timeout_ms: int, now_ms: int) -> "Transaction":
        """EMPTY with a new producer id and epoch 0: the epochs of the present one are exhausted."""
        self._require(EMPTY)
        return self._emptied(producer_id, 0, last_producer_epoch, timeout_ms, now_ms)

    def _emptied(
        self, producer_id: int, producer_epoch: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        return Transaction(
            self.transactional_id,
            producer_id,
            producer_epoch,
            timeout_ms,
            EMPTY,
            NO_PARTITIONS,
            NO_TIMESTAMP,
            now_ms,
            self.client_version,
            self.producer_id,
            NO_PRODUCER_ID,
            last_producer_epoch,
            self.other_tags,
        )

    # AddPartitionsToTxn, AddOffsetsToTxn

    def with_partitions(self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int) -> "Transaction":
        """ONGOING with more partitions."""
        self._require(ONGOING)
        is_ongoing = self.state is ONGOING
        return Transaction(
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            ONGOING,
            self.partitions | partitions if self.partitions else partitions,
            self.start_timestamp_ms if is_ongoing else now_ms,
            now_ms,
            client_version,
            self.producer_id,
            NO_PRODUCER_ID,
            self.last_producer_epoch,
            self.other_tags,
        )

    # EndTxn, timeouts and fencing

    def prepared(
        self,
        *,
        committed: bool,
        client_version: int,
        now_ms: int,
        is_fence: bool = False,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> "Transaction":
        """
        PREPARE_COMMIT or PREPARE_ABORT: the outcome is decided.

        The epoch rises in transaction version 2, and if the coordinator itself fences the producer; an abort leaves the last
        one. An abort without an ongoing transaction has no partitions and starts now.

        Args:
            is_fence: whether the coordinator ends the transaction: after its timeout, or because of an InitProducerId.
            next_producer_id: the id after the completion, if the epochs of the present one are exhausted.
        """
        target = PREPARE_COMMIT if committed else PREPARE_ABORT
        self._require(target)
        is_ongoing = self.state is ONGOING
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if is_fence or client_version >= VERSION_2:
            if committed and epoch >= EPOCH_MAX:
                raise IllegalTransitionError(f"producer {self.producer_id} has no epoch after {epoch}")
            last_epoch = epoch if client_version >= VERSION_2 else NO_PRODUCER_EPOCH
            epoch = min(epoch + 1, EPOCH_MAX)
        return Transaction(
            self.transactional_id,
            self.producer_id,
            epoch,
            self.timeout_ms,
            target,
            self.partitions if is_ongoing else NO_PARTITIONS,
            self.start_timestamp_ms if is_ongoing else now_ms,
            now_ms,
            client_version,
            self.producer_id,
            next_producer_id,
            last_epoch,
            self.other_tags,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """COMPLETE_COMMIT or COMPLETE_ABORT: every marker is written."""
        target = COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT
        self._require(target)
        producer_id, producer_epoch = self.next_producer
        return Transaction(
            self.transactional_id,
            producer_id,
            producer_epoch,
            self.timeout_ms,
            target,
            NO_PARTITIONS,
            self.start_timestamp_ms,
            now_ms,
            self.client_version,
            self.producer_id,
            NO_PRODUCER_ID,
            self.last_producer_epoch,
            self.other_tags,
        )


def new_transaction(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that nobody has used before, in state EMPTY with epoch 0."""
    return Transaction(
        transactional_id, producer_id, 0, timeout_ms, EMPTY, NO_PARTITIONS, NO_TIMESTAMP, now_ms, 0, producer_id
    )
