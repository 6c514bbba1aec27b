"""
Verification of the transactions of Produce requests, before their batches are appended (KIP-890).

The leader of a partition asks the transaction coordinator about the first batch of a transaction. From version 12 on the
coordinator adds the partition to the transaction. It refuses that while it ends the producer's previous transaction, which
takes milliseconds, so the question is repeated for some time before the client learns of it.

Source: Kafka ReplicaManager.handleProduceAppend, maybeSendPartitionsToTransactionCoordinator, AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import CallLater
from kohort.machine.ports import Verification
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.runtime.metrics import Histogram
from kohort.runtime.ports import Clock

ADDS_PARTITIONS_SINCE: Final = 12
"""The version of Produce from which on the coordinator adds partitions (transaction version 2)."""
_ABORTABLE_SINCE: Final = 11

_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class VerificationError(CoordinatorError):
    """The transaction of a batch is not verified. The message, if there is one, goes into the response."""


class TransactionalBatch:
    """A batch whose transaction has to be verified, by its producer, and the partition that it is for."""

    __slots__ = ("base_sequence", "partition", "producer_epoch", "producer_id")

    def __init__(self, partition: Partition, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence


class Verified:
    """
    The outcome for one request.

    Attributes:
        guards: the guards of the appends; partitions with an open transaction have none.
        errors: the partitions whose batch must not be appended.
    """

    __slots__ = ("errors", "guards")

    def __init__(self) -> None:
        self.guards: dict[TopicPartition, object] = {}
        self.errors: dict[TopicPartition, CoordinatorError] = {}


OnVerified: TypeAlias = Callable[[Verified], bool]
"""Takes the outcome, and returns whether the request is still appending its batches: `TransactionVerifier.appended` follows."""


class VerificationMetrics:
    """
    Measurements of verifications. Source: Kafka AddPartitionsToTxnManager.

    Attributes:
        time: of the requests about which the coordinator was asked, repeated questions included. Kafka: VerificationTimeMs.
        failures: partitions that it refused. Kafka: VerificationFailureRate.
    """

    def __init__(self) -> None:
        self.time = Histogram()
        self.failures = 0


class TransactionVerifier:
    """
    Verifies the transactions of Produce requests.

    Requests of one transactional id are appended in the order of arrival: a request waits for the verification of the one
    before it. Kafka handles one request of a connection at a time.
    """

    def __init__(self, verification: Verification, config: BrokerConfig, clock: Clock, call_later: CallLater) -> None:
        self.verification = verification
        self.clock = clock
        self.call_later = call_later
        self.metrics = VerificationMetrics()
        self.backoff_ms = config.get_int("add.partitions.to.txn.retry.backoff.ms")
        self.retry_ms = config.get_int("add.partitions.to.txn.retry.backoff.max.ms")
        self._queues: dict[str, deque[_Request]] = {}
        """The requests under verification, by transactional id."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under verification."""
        return not self._queues

    def verify(
        self,
        transactional_id: str,
        api_version: int,
        batches: Sequence[TransactionalBatch],
        on_verified: OnVerified,
    ) -> None:
        """Verify the batches of one request; `on_verified` is called once, now or later."""
        request = _Request(self, transactional_id, api_version, batches, on_verified)
        queue = self._queues.get(transactional_id)
        if queue is not None:
            queue.append(request)
        elif not request.is_verified() or request.finish():
            self._queues[transactional_id] = deque((request,))

    def advance(self, transactional_id: str) -> None:
        """Finish the requests at the head of a queue whose batches are verified, and begin with the next one."""
        queue = self._queues.get(transactional_id)
        while queue and queue[0].is_verified():
            if queue[0].finish():
                return
            queue.popleft()
        if not queue:
            self._queues.pop(transactional_id, None)

    def appended(self, transactional_id: str) -> None:
        """The request at the head of a queue has appended its batches in later turns: go on with the next one."""
        self._queues[transactional_id].popleft()
        self.advance(transactional_id)


class _Request:
    """The verification of one request."""

    __slots__ = (
        "_api_version",
        "_batches",
        "_began_ms",
        "_has_begun",
        "_is_beginning",
        "_on_verified",
        "_outstanding",
        "_transactional_id",
        "_verified",
        "_verifier",
        "_was_asked",
    )

    def __init__(
        self,
        verifier: TransactionVerifier,
        transactional_id: str,
        api_version: int,
        batches: Sequence[TransactionalBatch],
        on_verified: OnVerified,
    ) -> None:
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._api_version = api_version
        self._batches = batches
        self._on_verified = on_verified
        self._verified = Verified()
        self._outstanding = len(batches)
        self._has_begun = self._is_beginning = self._was_asked = False
        self._began_ms = 0

    def is_verified(self) -> bool:
        """Begin if this has not begun, and return whether there is an outcome for every batch."""
        if not self._has_begun:
            self._has_begun = self._is_beginning = True
            self._began_ms = self._verifier.clock.now_ms()
            for batch in self._batches:
                self._ask(batch, self._began_ms)
            self._is_beginning = False
        return self._outstanding == 0

    def finish(self) -> bool:
        """Use the outcome; returns whether the request is still appending its batches."""
        if self._was_asked:
            self._verifier.metrics.time.record(self._verifier.clock.now_ms() - self._began_ms)
        return self._on_verified(self._verified)

    def _ask(self, batch: TransactionalBatch, now_ms: int) -> None:
        partition = batch.partition
        producer = Producer(self._transactional_id, batch.producer_id, batch.producer_epoch, self._adds_partitions)
        try:
            guard = partition.log.start_verification(producer, now_ms, batch.base_sequence)
        except CoordinatorError as error:
            self._settle(batch, error)
            return
        if guard is None:
            self._settle(batch, None)
            return
        self._was_asked = True
        self._verifier.verification.verify(partition.topic_partition, producer, partial(self._on_answer, batch, guard))

    def _on_answer(self, batch: TransactionalBatch, guard: object, error: CoordinatorError | None) -> None:
        if error is None:
            if self._adds_partitions and not batch.partition.log.is_verifying(batch.producer_id, guard):
                # The marker of the previous transaction came while the coordinator waited for its end.
                self._ask(batch, self._verifier.clock.now_ms())
                return
            self._verified.guards[batch.partition.topic_partition] = guard
        elif self._may_ask_again(error.code):
            self._verifier.call_later(self._verifier.backoff_ms, partial(self._ask_again, batch))
            return
        else:
            self._verifier.metrics.failures += 1
        self._settle(batch, error)

    @property
    def _adds_partitions(self) -> bool:
        return self._api_version >= ADDS_PARTITIONS_SINCE

    def _may_ask_again(self, code: ErrorCode) -> bool:
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or not self._adds_partitions:
            return False
        return self._verifier.clock.now_ms() - self._began_ms < self._verifier.retry_ms

    def _ask_again(self, batch: TransactionalBatch) -> None:
        if batch.partition.topic.is_deleted:
            self._settle(batch, None)  # the append answers that there is no such partition
        else:
            self._ask(batch, self._verifier.clock.now_ms())

    def _settle(self, batch: TransactionalBatch, error: CoordinatorError | None) -> None:
        if error is not None:
            self._verified.errors[batch.partition.topic_partition] = produce_error(error, self._api_version)
        self._outstanding -= 1
        if self._outstanding == 0 and not self._is_beginning:
            self._verifier.advance(self._transactional_id)


def produce_error(error: CoordinatorError, api_version: int) -> CoordinatorError:
    """
    Translate an error of the transaction coordinator for a version of Produce.

    Older clients may not repeat a request after an error of the coordinator. NOT_ENOUGH_REPLICAS makes them repeat it without a
    new look at the metadata.

    Source: Kafka ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager.
    """
    code = error.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return VerificationError(code, "Partition was not added to the transaction")
    is_concurrent = code is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < ADDS_PARTITIONS_SINCE
    if is_concurrent or code in _UNAVAILABLE:
        return VerificationError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return VerificationError(code)
