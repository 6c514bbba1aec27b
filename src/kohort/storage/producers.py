"""
The state of the producers of one partition: sequence numbers, by which duplicates and gaps are found, and open transactions,
at which readers with `read_committed` stop.

Only `update` changes the state, from batches in the log. A state rebuilt from the log equals the live state, except for
batches older than the last one of each producer, which a snapshot leaves out. A sequence counts records, from 0 to 2^31 - 1,
and wraps to 0.

Source: Kafka ProducerStateManager, ProducerAppendInfo, ProducerStateEntry, VerificationStateEntry; KIP-98, KIP-890.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import PRODUCERS_OF_PARTITION_MAX
from kohort.runtime.ports import NO_SEQUENCE
from kohort.storage.batchset import Span
from kohort.storage.markers import StoredMarker, stored_marker
from kohort.storage.producer_states import (
    NO_PRODUCER_EPOCH,
    SEQUENCE_MASK,
    AbortedTxn,
    BatchMetadata,
    ProducerStateEntry,
    VerificationStateEntry,
)
from kohort.wire.batch_header import ATTRIBUTES_LOW_AT, CONTROL, PRODUCER_ID_AT, TRANSACTIONAL, fields_struct
from kohort.wire.batches import BatchHeader
from kohort.wire.compression import Buffer

EXPIRATION_MS: Final = 86_400_000
"""Source: producer.id.expiration.ms."""

read_producer_id: Final = fields_struct("producer_id", "producer_id").unpack_from
_read_producer: Final = fields_struct("producer_id", "count").unpack_from
"""Producer id, producer epoch, base sequence, record count."""


_EPOCH_MAX: Final = 32_767
_LOOKED_AT: Final = 8
"""Producers that are looked at to forget one for a new one."""
VERIFICATIONS_MAX: Final = 10_000
"""Verifications under way in one partition; the oldest is forgotten for a new one. Kafka has no limit but their expiration."""


def _use(state: ProducerStateEntry) -> int:
    """The place in the log where a producer has written last. Without a batch it has ended a transaction, maybe just now."""
    return state.batches[-1].last_offset if state.batches else 1 << 63


def _ignore(_state: ProducerStateEntry) -> None:
    """A log on disk or in memory has the states in no other place."""


class ProducerStateManager:
    """
    The producers of one partition.

    Attributes:
        states: by producer id.
        first_unstable_offset: the first offset of the first transaction that is open, or whose marker is not below the high
            watermark; None if there is no such transaction.
        on_forgotten: called with the state of a producer that has expired, or has gone for a new one.
    """

    def __init__(self, states: Iterable[ProducerStateEntry] = ()) -> None:
        self.states = {state.producer_id: state for state in states}
        self.first_unstable_offset: int | None = None
        self.on_forgotten: Callable[[ProducerStateEntry], None] = _ignore
        begun = [
            (state.transaction_offset, state.producer_id)
            for state in self.states.values()
            if state.transaction_offset is not None
        ]
        self._open = dict(sorted(begun))
        """Producer ids by the first offset of their open transactions, which rises: batches come in the order of the log."""
        self._ended: dict[int, int] = {}
        """Ended transactions whose marker is not below the high watermark: first offset to the offset of the marker."""
        self._verifications: dict[int, VerificationStateEntry] = {}
        """By producer id, in the order of creation."""
        self._find_first_unstable()

    # Validation

    def has_transaction(self, producer_id: int) -> bool:
        state = self.states.get(producer_id)
        return state is not None and state.transaction_offset is not None

    @property
    def oldest_transaction_ms(self) -> int | None:
        """
        The last timestamp of the producer whose open transaction begins first; None if none is open.

        Source: Kafka ProducerStateManager.hasLateTransaction, updateOldestTxnTimestamp.
        """
        first = next(iter(self._open), None)
        return None if first is None else self.states[self._open[first]].timestamp_ms

    def validate(self, header: BatchHeader, guard: object | None) -> BatchMetadata | None:
        """
        Validate a client's batch with a producer id.

        Args:
            guard: of a transactional batch; as for `check_transactional`.

        Returns:
            The batch in the log that this one repeats; None if the batch is to be appended.

        Raises:
            CoordinatorError: as `check_transactional`, then as `check`.

        Source: UnifiedLog.analyzeAndValidateProducerState.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        state = self.states.get(producer_id)
        duplicate = state.find(producer_epoch, header.base_sequence, header.last_sequence) if state else None
        if duplicate is None:
            is_transactional = header.is_transactional
            if is_transactional:
                self.check_transactional(producer_id=producer_id, producer_epoch=producer_epoch, guard=guard)
            self.check(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                first_sequence=header.base_sequence,
                is_transactional=is_transactional,
            )
        return duplicate

    def check(self, *, producer_id: int, producer_epoch: int, first_sequence: int, is_transactional: bool) -> None:
        """
        Check that a client's batch is the next one of its producer.

        A producer without state (new or expired) may begin with any sequence, unless its transaction was verified.

        Raises:
            CoordinatorError: INVALID_PRODUCER_EPOCH: the epoch is an earlier one; OUT_OF_ORDER_SEQUENCE_NUMBER: the batch
                does not follow the last one; INVALID_TXN_STATE: plain data within a transaction.

        Source: ProducerAppendInfo.maybeValidateDataBatch, checkSequence.
        """
        state = self.states.get(producer_id)
        if state is not None:
            state.check_epoch(producer_epoch)
        if self._verifications:
            verification = self._verifications.get(producer_id)
            has_batches = state is not None and bool(state.batches)
            if verification is not None and not verification.may_begin(first_sequence, has_batches=has_batches):
                raise CoordinatorError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if state is None or state.producer_epoch == NO_PRODUCER_EPOCH:
            return
        follows = (state.last_sequence + 1) & SEQUENCE_MASK if producer_epoch == state.producer_epoch else 0
        if first_sequence != follows:
            raise CoordinatorError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if state.transaction_offset is not None and not is_transactional:
            raise CoordinatorError(ErrorCode.INVALID_TXN_STATE)

    def check_marker(self, end: EndTransaction) -> None:
        """
        Check that a transaction marker may be appended. From transaction version 2 on the marker of an open transaction
        carries a higher epoch than its data.

        Raises:
            CoordinatorError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.

        Source: ProducerAppendInfo.appendEndTxnMarker, checkProducerEpoch, checkCoordinatorEpoch; KIP-890.
        """
        state = self.states.get(end.producer_id)
        if state is None:
            return
        is_bumped = end.transaction_version >= 2 and state.transaction_offset is not None
        # No epoch follows the last one: a coordinator that fences it writes its marker under the same epoch.
        earliest = min(state.producer_epoch + is_bumped, _EPOCH_MAX)
        if end.producer_epoch < earliest:
            raise CoordinatorError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if end.coordinator_epoch < state.coordinator_epoch:
            raise CoordinatorError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def start_verification(
        self, producer: Producer, now_ms: int, first_sequence: int = NO_SEQUENCE
    ) -> VerificationStateEntry | None:
        """
        Begin the verification of a producer's transaction, and return the guard for the append that follows; None if the
        transaction is open here, so that nothing has to be verified.

        A transaction of an earlier epoch may have ended, so it is verified.

        Args:
            first_sequence: of the batch that is to be appended.

        Raises:
            CoordinatorError: INVALID_PRODUCER_EPOCH: the partition has seen a later epoch of the producer.

        Source: UnifiedLog.maybeStartTransactionVerification, ProducerStateManager.maybeCreateVerificationStateEntry; KIP-890,
            KAFKA-19690.
        """
        state = self.states.get(producer.producer_id)
        if state is not None:
            state.check_epoch(producer.producer_epoch)
            if state.is_in_transaction(producer.producer_epoch):
                return None
        verifications = self._verifications
        verification = verifications.get(producer.producer_id)
        if verification is None:
            if len(verifications) >= VERIFICATIONS_MAX:
                del verifications[next(iter(verifications))]
            verification = verifications[producer.producer_id] = VerificationStateEntry(
                producer.producer_epoch, first_sequence, producer.adds_partition, now_ms
            )
        else:
            verification.update(producer.producer_epoch, first_sequence)
        return verification

    def is_verifying(self, producer_id: int, guard: object) -> bool:
        """Whether the verification that this guard is of is under way: no batch or marker has ended it."""
        return self._verifications.get(producer_id) is guard

    def check_transactional(self, *, producer_id: int, producer_epoch: int, guard: object | None) -> None:
        """
        Check that a batch may be appended to a producer's transaction, apart from its sequence, which a coordinator's batches
        do not have.

        Args:
            guard: from `start_verification`; None if the transaction was not verified, or was open.

        Raises:
            CoordinatorError: INVALID_PRODUCER_EPOCH: the partition has seen a later epoch of the producer. INVALID_TXN_STATE:
                the transaction has ended since its verification began, so the batch would open a transaction that nobody
                ends, and block readers with `read_committed`.

        Source: UnifiedLog.batchMissingRequiredVerification, ProducerAppendInfo.checkProducerEpoch; KIP-890, KAFKA-19690.
        """
        state = self.states.get(producer_id)
        if state is not None:
            state.check_epoch(producer_epoch)
            if state.is_in_transaction(producer_epoch):
                return
        if guard is None or not self.is_verifying(producer_id, guard):
            raise CoordinatorError(ErrorCode.INVALID_TXN_STATE)

    # Updates from the log

    def update(self, data: Buffer, span: Span) -> AbortedTxn | None:
        """
        Update the state with a batch that was appended, and return the transaction that it aborts, if any.

        Args:
            data: bytes that hold the batch at the position of the span.

        Raises:
            CorruptError: a control batch without a readable control record.
        """
        start, size, base_offset, last_offset, timestamp_ms = span
        base_sequence: int  # declared, because `unpack` returns values of any type
        producer_id, producer_epoch, base_sequence, count = _read_producer(data, start + PRODUCER_ID_AT)
        attributes: int = data[start + ATTRIBUTES_LOW_AT]
        if attributes & CONTROL:
            found = stored_marker(data, start, size, base_offset) if count else None
            return None if found is None else self._update_from_marker(producer_id, producer_epoch, found)
        offset_delta = last_offset - base_offset
        self._update_from_data(
            producer_id,
            producer_epoch,
            BatchMetadata(
                (base_sequence + offset_delta) & SEQUENCE_MASK if base_sequence >= 0 else NO_SEQUENCE,
                last_offset,
                offset_delta,
                timestamp_ms,
            ),
            base_offset,
            is_transactional=attributes & TRANSACTIONAL != 0,
        )
        return None

    def _update_from_data(
        self,
        producer_id: int,
        producer_epoch: int,
        written: BatchMetadata,
        first_offset: int,
        *,
        is_transactional: bool,
    ) -> None:
        state = self.states.get(producer_id)
        if state is None:
            state = self._make(producer_id)
        state.move_to(producer_epoch)
        state.batches.append(written)
        state.timestamp_ms = written.timestamp_ms
        if not is_transactional:
            return
        self._verifications.pop(producer_id, None)
        if state.transaction_offset is None:
            state.transaction_offset = first_offset
            self._open[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def _make(self, producer_id: int) -> ProducerStateEntry:
        states = self.states
        if len(states) >= PRODUCERS_OF_PARTITION_MAX:
            self._forget_one()
        state = states[producer_id] = ProducerStateEntry(producer_id)
        return state

    def _forget_one(self) -> None:
        """
        Forget the first producer that has written before the one behind it: it was not used since it came. Those that were
        used, or have an open transaction, become the last ones. If some in a row were used, one of them is forgotten too.
        """
        states = self.states
        used = []
        for _ in range(_LOOKED_AT):
            first, second = islice(states.values(), 2)
            del states[first.producer_id]
            if first.transaction_offset is None:
                if _use(first) <= _use(second):
                    self.on_forgotten(first)
                    return
                used.append(first)
            states[first.producer_id] = first
        if used:
            self.on_forgotten(states.pop(min(used, key=_use).producer_id))

    def end(self, end: EndTransaction, offset: int, timestamp_ms: int) -> AbortedTxn | None:
        """As `update`, with a marker that was made here."""
        marker = offset, timestamp_ms, end.coordinator_epoch, end.committed
        return self._update_from_marker(end.producer_id, end.producer_epoch, marker)

    def _update_from_marker(self, producer_id: int, producer_epoch: int, marker: StoredMarker) -> AbortedTxn | None:
        offset, timestamp_ms, coordinator_epoch, is_committed = marker
        self._verifications.pop(producer_id, None)
        state = self.states.get(producer_id)
        if state is None:
            state = self._make(producer_id)
        state.move_to(producer_epoch)
        state.timestamp_ms, state.coordinator_epoch = timestamp_ms, coordinator_epoch
        first_offset, state.transaction_offset = state.transaction_offset, None
        if first_offset is None:
            return None
        # The transaction stays unstable until the high watermark passes its marker.
        self._open.pop(first_offset, None)
        self._ended[first_offset] = offset
        if is_committed:
            return None
        return AbortedTxn(producer_id, first_offset, offset, next(iter(self._open), offset + 1))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker lies below the high watermark."""
        if self._ended:
            self._ended = {first: last for first, last in self._ended.items() if last >= high_watermark}
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open), None)
        for ended in self._ended:
            if first is None or ended < first:
                first = ended
        self.first_unstable_offset = first

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """
        Remove producers without an open transaction whose last timestamp is at least `expiration_ms` ago, and verifications
        that began so long ago.

        Source: ProducerStateManager.removeExpiredProducers.
        """
        expired = [
            producer_id
            for producer_id, state in self.states.items()
            if state.transaction_offset is None and now_ms - state.timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            self.on_forgotten(self.states.pop(producer_id))
        abandoned = [
            producer_id
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.created_ms >= expiration_ms
        ]
        for producer_id in abandoned:
            del self._verifications[producer_id]
