"""
DescribeTransactions and ListTransactions: committed state, as an administrator sees it.

Source: KIP-664, KIP-994, KIP-1152; Kafka TransactionCoordinator.handleDescribeTransactions,
TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable
from typing import Final

import msgspec

from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.expressions import ExpensiveMatchError, Expression, ExpressionError
from kohort.model.ids import TopicPartition
from kohort.transaction.context import TransactionContext
from kohort.transaction.states import is_prepared
from kohort.transaction.transaction import Transaction
from kohort.wire import messages as m

NO_FILTER = -1
"""Any negative duration."""
_STEPS: Final = 250_000
"""Instructions of the pattern that are carried out between two yields, at most: a match takes up to 8 ns for each."""


class TransactionFilter(msgspec.Struct, frozen=True):
    """
    The conditions of a ListTransactions request; all of them have to hold.

    Attributes:
        states: names of states; empty for all.
        producer_ids: empty for all.
        longer_than_ms: the transaction began more than this time ago. An id without a transaction began at -1.
        pattern: which the whole transactional id has to match; None for all.
    """

    states: Collection[str]
    producer_ids: Collection[int]
    longer_than_ms: int
    pattern: Expression | None

    def accepts(self, transaction: Transaction, now_ms: int) -> bool:
        return (
            (not self.states or transaction.state.wire_name in self.states)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or now_ms - transaction.start_timestamp_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.matches(transaction.transactional_id))
        )


def filter_of(request: m.ListTransactionsRequest, states: Collection[str], api_version: int) -> TransactionFilter:
    """
    Args:
        states: the state filters of the request, each once.

    Raises:
        CoordinatorError: INVALID_REGULAR_EXPRESSION: the pattern is not an expression of RE2, or costs too much.
    """
    pattern = request.transactional_id_pattern if api_version >= 2 else None
    try:
        expression = Expression(pattern) if pattern else None
    except ExpressionError as error:
        raise CoordinatorError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return TransactionFilter(
        frozenset(states),
        frozenset(request.producer_id_filters),
        request.duration_filter if api_version >= 1 else NO_FILTER,
        expression,
    )


def list_transactions(
    transactions: Iterable[tuple[str, Transaction]], wanted: TransactionFilter, now_ms: int
) -> Generator[None, None, list[m.ListTransactionsResponseTransactionState]]:
    """
    List, in steps, the transactional ids that pass the filter.

    Raises:
        CoordinatorError: INVALID_REGULAR_EXPRESSION: the pattern and an id are both large.
    """
    listed = []
    steps = 0
    for number, (transactional_id, transaction) in enumerate(transactions, 1):
        if wanted.pattern is not None:
            steps += wanted.pattern.cost(transactional_id)
            if steps > _STEPS:
                steps = 0
                yield
        try:
            is_accepted = wanted.accepts(transaction, now_ms)
        except ExpensiveMatchError as error:
            raise CoordinatorError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
        if is_accepted:
            listed.append(
                m.ListTransactionsResponseTransactionState(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.wire_name,
                )
            )
        if number % HANDLER_STEP == 0:
            yield
    return listed


def describe_transaction(
    context: TransactionContext,
    transactional_id: str,
    committed_offset: int,
    remaining: Callable[[str], Iterable[TopicPartition] | None],
) -> m.DescribeTransactionsResponseTransactionState:
    """
    Describe a transactional id.

    Args:
        remaining: returns the partitions without a durable marker; None if no markers of the id are under way.
    """
    transaction = context.transactions.get_at(transactional_id, committed_offset)
    if transaction is None:
        return described_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    partitions: Iterable[TopicPartition] | None = None
    if is_prepared(transaction.state):
        partitions = remaining(transactional_id)
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(transaction.partitions if partitions is None else partitions):
        by_topic[topic].append(index)
    return m.DescribeTransactionsResponseTransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.wire_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            m.DescribeTransactionsResponseTopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
    )


def described_error(transactional_id: str, code: ErrorCode) -> m.DescribeTransactionsResponseTransactionState:
    """The other fields are zero and empty, as in Kafka."""
    return m.DescribeTransactionsResponseTransactionState(
        error_code=int(code),
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
