"""
EndTxn: the decision about a transaction, and its completion when all markers are written.

The decision is a record; its commit makes the outcome final and answers the client. Markers follow in the background.

| state (version 2) | abort, retry | abort, present epoch | commit, retry | commit, present epoch |
|---|---|---|---|---|
| EMPTY           | PRODUCER_FENCED   | a new epoch     | PRODUCER_FENCED   | INVALID_TXN_STATE |
| ONGOING         | PRODUCER_FENCED   | PREPARE_ABORT   | PRODUCER_FENCED   | PREPARE_COMMIT    |
| PREPARE_*       | CONCURRENT_TRANSACTIONS |           |                   |                   |
| COMPLETE_COMMIT | INVALID_TXN_STATE | a new epoch     | NONE              | INVALID_TXN_STATE |
| COMPLETE_ABORT  | NONE              | a new epoch     | INVALID_TXN_STATE | INVALID_TXN_STATE |

A retry names the epoch before the present one, because the end has raised it.

Source: KIP-98, KIP-890; Kafka TransactionCoordinator.endTransaction, endTransactionWithTV1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.transaction.context import HasContext, TransactionContext
from kohort.transaction.effects import Decided
from kohort.transaction.events import TransactionFenced
from kohort.transaction.partitions import check_producer
from kohort.transaction.records import TransactionRecord
from kohort.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, is_complete, is_prepared
from kohort.transaction.transaction import EPOCH_EXHAUSTED, VERSION_2, Transaction
from kohort.wire import messages as m
from kohort.wire.templates import PreparedResponse

EndTxnResponse: TypeAlias = m.EndTxnResponse | PreparedResponse

T = TypeVar("T")

_NONE: Final = ErrorCode.NONE


class WantedEnd:
    """
    What a request asks for. A plain class: it serves a request that a client repeats, and compiled code reads it quickly.

    Args:
        client_version: the transaction version that the client speaks: 2 from EndTxn 5 on.
        failed: the answer by the error with which the transaction does not end.
        ended: the answer to a client of another version when its transaction ends, if it is encoded already.
    """

    __slots__ = (
        "client_version",
        "committed",
        "ended",
        "failed",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        request: m.EndTxnRequest,
        client_version: int,
        failed: Callable[[Exception], m.EndTxnResponse],
        ended: PreparedResponse | None = None,
    ) -> None:
        self.transactional_id: Final[str] = request.transactional_id
        self.producer_id: Final[int] = request.producer_id
        self.producer_epoch: Final[int] = request.producer_epoch
        self.committed: Final[bool] = request.committed
        self.client_version: Final = client_version
        self.failed: Final = failed
        self.ended: Final = ended


def end_txn(shard: HasContext, now_ms: int, wanted: WantedEnd) -> Result[TransactionRecord, EndTxnResponse]:
    """
    Commit or abort the ongoing transaction.

    Raises:
        CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS: as `add_partitions`.
            INVALID_TXN_STATE: there is no transaction to end, or it has ended the other way.
    """
    context = shard.context
    transaction = context.find(wanted.transactional_id)
    client_version = wanted.client_version
    if client_version >= VERSION_2:
        return _end_version_2(context, transaction, wanted, now_ms)
    check_producer(transaction, wanted.producer_id, wanted.producer_epoch)
    if is_prepared(transaction.state):
        raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is ONGOING:
        prepared = transaction.prepared(committed=wanted.committed, client_version=client_version, now_ms=now_ms)
        return end_ongoing(prepared, now_ms, _answer(prepared) if wanted.ended is None else wanted.ended)
    if transaction.state is EMPTY:
        raise CoordinatorError(ErrorCode.INVALID_TXN_STATE)
    return _repeated(transaction, wanted.committed)


def _end_version_2(
    context: TransactionContext, transaction: Transaction, wanted: WantedEnd, now_ms: int
) -> Result[TransactionRecord, EndTxnResponse]:
    if is_prepared(transaction.state):
        raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if is_complete(transaction.state) and _is_retry(context, transaction, wanted.producer_id, wanted.producer_epoch):
        return _repeated(transaction, wanted.committed)
    check_producer(transaction, wanted.producer_id, wanted.producer_epoch)
    if transaction.state is not ONGOING and wanted.committed:
        raise CoordinatorError(ErrorCode.INVALID_TXN_STATE)
    prepared = transaction.prepared(
        committed=wanted.committed,
        client_version=wanted.client_version,
        now_ms=now_ms,
        next_producer_id=context.new_producer_id() if transaction.is_epoch_exhausted else NO_PRODUCER_ID,
    )
    return end_ongoing(prepared, now_ms, _answer(prepared))


def _is_retry(context: TransactionContext, transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """
    Whether a request of version 2 names the producer as it was before the end of the transaction.

    If both sides speak version 2 and the last end did not, that end has not raised the epoch: the epoch before the present one
    belongs to a producer that was fenced. Kafka takes its request for a retry, and gives it the present epoch.
    """
    if context.own_version == VERSION_2 and transaction.client_version < VERSION_2:
        return False
    if producer_id == transaction.producer_id:
        return producer_epoch + 1 == transaction.producer_epoch
    return (
        producer_id == transaction.previous_producer_id
        and producer_epoch == EPOCH_EXHAUSTED
        and transaction.producer_epoch == 0
    )


def _repeated(transaction: Transaction, committed: bool) -> Result[TransactionRecord, EndTxnResponse]:
    """Answer a request about a transaction that has ended."""
    if committed is not (transaction.state is COMPLETE_COMMIT):
        raise CoordinatorError(ErrorCode.INVALID_TXN_STATE)
    return Result(
        response=m.EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    )


def _answer(prepared: Transaction) -> m.EndTxnResponse:
    """The producer id and epoch after the completion. Versions below 5 have no place for them."""
    producer_id, producer_epoch = prepared.next_producer
    return m.EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def end_ongoing(
    prepared: Transaction,
    now_ms: int,
    response: T,
    event: TransactionFenced | None = None,
) -> Result[TransactionRecord, T]:
    """
    Write the decision about a transaction. Once it is committed, the markers are sent.

    A transaction without partitions needs no markers: its completion is written at once.
    """
    records = [prepared] if prepared.partitions else [prepared, prepared.completed(now_ms)]
    return Result(records, response, effects=[Decided(prepared, event)])


def fenced(context: TransactionContext, transaction: Transaction, now_ms: int) -> Transaction:
    """
    The abort of an ongoing transaction by the coordinator, under the next epoch, which the producer does not have. In version 2
    it gives the id another producer id if there is no epoch after that one.

    Raises:
        CoordinatorError: COORDINATOR_LOAD_IN_PROGRESS: as `TransactionContext.new_producer_id`.
    """
    version = context.own_version
    is_rotated = version >= VERSION_2 and transaction.is_epoch_exhausted
    return transaction.prepared(
        committed=False,
        client_version=version,
        now_ms=now_ms,
        is_fence=True,
        next_producer_id=context.new_producer_id() if is_rotated else NO_PRODUCER_ID,
    )


def complete_transaction(
    shard: HasContext, now_ms: int, prepared: Transaction, coordinator_epoch: int
) -> Result[TransactionRecord, ErrorCode]:
    """
    Write the completion of a transaction, all of whose markers are written. Nothing is written if that has happened already.

    Args:
        coordinator_epoch: under which the markers were sent; those of an earlier epoch complete nothing.
    """
    context = shard.context
    present = context.transactions.get(prepared.transactional_id)
    if (
        present is None
        or coordinator_epoch != context.coordinator_epoch
        or present.state is not prepared.state
        or present.producer_id != prepared.producer_id
        or present.producer_epoch != prepared.producer_epoch
    ):
        return Result((), _NONE)
    return Result([present.completed(now_ms)], _NONE)


def refused_end(code: ErrorCode) -> m.EndTxnResponse:
    return m.EndTxnResponse(error_code=int(code), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
