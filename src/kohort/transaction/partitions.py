"""
Partitions of a transaction: AddPartitionsToTxn and AddOffsetsToTxn add them, partition leaders verify them.

Source: KIP-98, KIP-890; Kafka TransactionCoordinator.handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction.
"""

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.transaction.context import TransactionContext
from kohort.transaction.records import TransactionRecord
from kohort.transaction.states import ONGOING, is_prepared
from kohort.transaction.transaction import NO_PARTITIONS, Transaction


class TransactionEndingError(CoordinatorError):
    """
    CONCURRENT_TRANSACTIONS: the last transaction has not ended in all of its partitions.

    Attributes:
        is_of_producer: whether the request names the producer that continues after the end. Any other is refused then, too.
    """

    def __init__(self, *, is_of_producer: bool) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS)
        self.is_of_producer = is_of_producer


def add_partitions(
    context: TransactionContext,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> list[TransactionRecord]:
    """
    Add partitions to the ongoing transaction, or begin one with them. There is no record if they all belong to it already.

    Args:
        client_version: the transaction version that the client speaks.

    Raises:
        CoordinatorError: INVALID_PRODUCER_ID_MAPPING: the transactional id is unknown, or has another producer id.
            CONCURRENT_TRANSACTIONS: the last transaction has not ended in all of its partitions. PRODUCER_FENCED: another
            epoch is the present one.
    """
    transaction = context.find(transactional_id)
    if is_prepared(transaction.state):
        raise TransactionEndingError(is_of_producer=(producer_id, producer_epoch) == transaction.next_producer)
    check_producer(transaction, producer_id, producer_epoch)
    if transaction.state is ONGOING and partitions <= transaction.partitions:
        return []
    return [transaction.with_partitions(partitions, client_version, now_ms)]


def ongoing_partitions(
    context: TransactionContext, transactional_id: str, producer_id: int, producer_epoch: int
) -> frozenset[TopicPartition]:
    """
    Return the partitions of the ongoing transaction, for a verification; none if there is none.

    Raises:
        CoordinatorError: as `add_partitions`; producer id and epoch are checked before the state.
    """
    transaction = context.find(transactional_id)
    check_producer(transaction, producer_id, producer_epoch)
    if is_prepared(transaction.state):
        raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction.partitions if transaction.state is ONGOING else NO_PARTITIONS


def check_producer(transaction: Transaction, producer_id: int, producer_epoch: int) -> None:
    """
    Raises:
        CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    if producer_id != transaction.producer_id:
        raise CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer_epoch != transaction.producer_epoch:
        raise CoordinatorError(ErrorCode.PRODUCER_FENCED)
