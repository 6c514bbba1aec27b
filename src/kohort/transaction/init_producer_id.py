"""
InitProducerId for a transactional id: a producer takes the id over, and every earlier producer with the id is fenced.

Source: KIP-98, KIP-360, KIP-890; Kafka TransactionCoordinator.handleInitProducerId, prepareInitProducerIdTransit.
"""

from __future__ import annotations

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.transaction.context import HasContext, TransactionContext
from kohort.transaction.end_txn import end_ongoing, fenced
from kohort.transaction.events import TransactionFenced
from kohort.transaction.records import TransactionRecord
from kohort.transaction.states import ONGOING, is_prepared
from kohort.transaction.transaction import EPOCH_EXHAUSTED, Transaction, new_transaction
from kohort.wire import messages as m


def init_producer_id(
    shard: HasContext, now_ms: int, request: m.InitProducerIdRequest
) -> Result[TransactionRecord, m.InitProducerIdResponse]:
    """
    Return the producer id and epoch of the transactional id for the caller.

    An ongoing transaction is aborted first, and the caller told to ask again.

    Raises:
        CoordinatorError: CONCURRENT_TRANSACTIONS: the last transaction has not ended in all of its partitions.
            PRODUCER_FENCED: the producer id and epoch in the request are not the present ones.
    """
    assert request.transactional_id is not None
    context = shard.context
    transaction = context.transactions.get(request.transactional_id)
    timeout_ms = request.transaction_timeout_ms
    if transaction is None:
        return _answer(new_transaction(request.transactional_id, context.new_producer_id(), timeout_ms, now_ms))
    if is_prepared(transaction.state):
        raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _is_accepted(transaction, request.producer_id, request.producer_epoch):
        raise CoordinatorError(ErrorCode.PRODUCER_FENCED)
    if transaction.state is ONGOING:
        return _fence(context, transaction, now_ms)
    return _answer(_next(context, transaction, request.producer_epoch, timeout_ms, now_ms))


def _is_accepted(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    if producer_id == NO_PRODUCER_ID:
        return True
    is_rotated = producer_id == transaction.previous_producer_id and producer_epoch >= EPOCH_EXHAUSTED
    return producer_id == transaction.producer_id or is_rotated


def _next(
    context: TransactionContext, transaction: Transaction, expected_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """Decide whether the epoch rises, the producer id changes, or the request is a repeated one."""
    is_any, is_present = expected_epoch == NO_PRODUCER_EPOCH, expected_epoch == transaction.producer_epoch
    if is_any or is_present:
        if transaction.is_epoch_exhausted:
            return transaction.rotated(context.new_producer_id(), expected_epoch, timeout_ms, now_ms)
        return transaction.bumped(expected_epoch, timeout_ms, now_ms)
    if transaction.is_epoch_exhausted:
        # Kafka's answer: its check of the exhausted epoch comes before that of the expected one.
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if expected_epoch == transaction.last_producer_epoch:
        return transaction.repeated(timeout_ms, now_ms)
    raise CoordinatorError(ErrorCode.PRODUCER_FENCED)


def _fence(
    context: TransactionContext, transaction: Transaction, now_ms: int
) -> Result[TransactionRecord, m.InitProducerIdResponse]:
    aborted = fenced(context, transaction, now_ms)
    event = TransactionFenced(aborted.transactional_id, aborted.producer_id, aborted.producer_epoch)
    response = m.InitProducerIdResponse(
        error_code=int(ErrorCode.CONCURRENT_TRANSACTIONS),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
    return end_ongoing(aborted, now_ms, response, event)


def _answer(transaction: Transaction) -> Result[TransactionRecord, m.InitProducerIdResponse]:
    return Result(
        [transaction],
        m.InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch),
    )
