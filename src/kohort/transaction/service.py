"""
The transaction coordinator's APIs on one node. What does not depend on a transactional id is checked here; then its shard is
asked.

Every API is a method `api(request, context, reply)`: it returns the response, or None and calls `reply` later, exactly once.
No method raises: errors become codes of the response.

Source: Kafka TransactionCoordinator, and the transaction handlers of KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeAlias

from kohort.machine.front import Front
from kohort.machine.gradual import distinct
from kohort.machine.ports import ProducerIdGenerator
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Reply, Runner
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.image import ClusterImage
from kohort.transaction.config import TransactionConfig
from kohort.transaction.context import HasContext
from kohort.transaction.end_txn import EndTxnResponse, WantedEnd, end_txn, refused_end
from kohort.transaction.errors import append_error, downgraded
from kohort.transaction.init_producer_id import init_producer_id
from kohort.transaction.listing import (
    describe_transaction,
    described_error,
    filter_of,
    list_transactions,
)
from kohort.transaction.metrics import TransactionGauges
from kohort.transaction.partition_apis import PartitionApis
from kohort.transaction.states import KNOWN_NAMES
from kohort.transaction.transaction import VERSION_2, Transaction
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.templates import PreparedResponse, Repeatable, RequestTemplate

Remaining: TypeAlias = Callable[[int, str], frozenset[TopicPartition] | None]
"""`remaining(partition, transactional_id)`: see `kohort.transaction.markers.MarkerSender.remaining`."""

Transactions: TypeAlias = tuple[ErrorCode, Iterable[tuple[str, Transaction]]]
"""The transactional ids of a shard, or the error."""

_NONE: Final = ErrorCode.NONE
_VERSION_2_SINCE: Final = 5
"""EndTxn: transaction version 2."""


class TransactionService(Front[HasContext]):
    """
    Args:
        image: the topics of the cluster; a live view.
        now_ms: returns the present time.
        offsets_partition_count: returns the number of partitions of `__consumer_offsets`.

    Attributes:
        partitions: the APIs that add partitions to transactions; also verifies for partition leaders.
    """

    def __init__(
        self,
        runner: Runner[HasContext],
        config: TransactionConfig,
        image: ClusterImage,
        producer_ids: ProducerIdGenerator,
        remaining: Remaining,
        now_ms: Callable[[], int],
        offsets_partition_count: Callable[[], int],
    ) -> None:
        super().__init__(runner, ErrorCode.INVALID_REQUEST)
        self._config = config
        self._producer_ids = producer_ids
        self._remaining = remaining
        self._now_ms = now_ms
        self.partitions = PartitionApis(self, image, offsets_partition_count)

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            **self.partitions.handlers(),
            ApiKey.END_TXN: Repeatable(self.end_txn, self.end_txn_again),
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
        }

    # InitProducerId

    def init_producer_id(
        self, request: m.InitProducerIdRequest, context: RequestContext, reply: Reply[m.InitProducerIdResponse]
    ) -> m.InitProducerIdResponse | None:
        """Without a transactional id the producer gets a new producer id with epoch 0, and nothing is written."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return _init_refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            max_timeout_ms = self._config.transaction_max_timeout_ms
            code = self.refusal(request.transactional_id)
            if code is ErrorCode.NONE and not 0 < request.transaction_timeout_ms <= max_timeout_ms:
                code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
            if code is not ErrorCode.NONE:
                return _init_refused(code)
        # One part: the ids may be available now or later, and either way the shard may answer now or later.
        answer: ResponseAggregator[m.InitProducerIdResponse, m.InitProducerIdResponse] = ResponseAggregator(
            1, itemgetter(0), reply
        )

        def ready(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.put(0, self._init(request, context.api_version, answer.reply_to(0)))
            else:
                answer.put(0, _init_refused(code))

        self._producer_ids.when_available(ready)
        return answer.finish()

    def _init(
        self, request: m.InitProducerIdRequest, api_version: int, reply: Reply[m.InitProducerIdResponse]
    ) -> m.InitProducerIdResponse | None:
        if request.transactional_id is None:
            producer_id = self._producer_ids.take()
            if producer_id is None:
                return _init_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        return self.runner.write(
            self.partition_for(request.transactional_id),
            Operation(init_producer_id, request),
            reply,
            lambda error: _init_refused(downgraded(append_error(error), ApiKey.INIT_PRODUCER_ID, api_version)),
        )

    # EndTxn

    def end_txn(
        self, request: m.EndTxnRequest, context: RequestContext, reply: Reply[m.EndTxnResponse]
    ) -> m.EndTxnResponse | None:
        response: m.EndTxnResponse | None = self._end(_wanted(request, context.api_version, None), reply)
        return response

    def end_txn_again(
        self, template: RequestTemplate, context: RequestContext, reply: Reply[EndTxnResponse]
    ) -> EndTxnResponse | None:
        """As `end_txn`, for a request of a version whose answers say nothing but the code."""
        wanted: WantedEnd | None = template.memo
        if wanted is None:
            encoded = response_encoder(ApiKey.END_TXN, context.api_version)(0, m.EndTxnResponse())
            ended = PreparedResponse(encoded)
            wanted = template.memo = _wanted(template.request, context.api_version, ended)
        response: EndTxnResponse | None = self._end(wanted, reply)
        return response

    def _end(self, wanted: WantedEnd, reply: Reply[Any]) -> Any:
        code = self.refusal(wanted.transactional_id)
        if code is not _NONE:
            return refused_end(code)
        partition = self.partition_for(wanted.transactional_id)
        return self.runner.write(partition, Operation(end_txn, wanted), reply, wanted.failed)

    # DescribeTransactions, ListTransactions

    def describe_transactions(
        self,
        request: m.DescribeTransactionsRequest,
        _context: RequestContext,
        _reply: Reply[m.DescribeTransactionsResponse],
    ) -> m.DescribeTransactionsResponse:
        return m.DescribeTransactionsResponse(
            transaction_states=[self._describe(each) for each in request.transactional_ids]
        )

    def _describe(self, transactional_id: str) -> m.DescribeTransactionsResponseTransactionState:
        code = self.refusal(transactional_id)
        if code is not ErrorCode.NONE:
            return described_error(transactional_id, code)
        partition = self.partition_for(transactional_id)
        return self.runner.read(
            partition,
            lambda shard, at: describe_transaction(
                shard.context, transactional_id, at, partial(self._remaining, partition)
            ),
            lambda error: described_error(transactional_id, append_error(error)),
        )

    def list_transactions(
        self,
        request: m.ListTransactionsRequest,
        context: RequestContext,
        _reply: Reply[m.ListTransactionsResponse],
    ) -> Generator[None, None, m.ListTransactionsResponse]:
        """
        List, in steps, the ids of all shards here: the committed state of one moment. An error of one shard fails the request,
        unless it is NOT_COORDINATOR.
        """
        if not self.is_active:
            return _list_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        states = yield from distinct(request.state_filters)
        try:
            wanted = filter_of(request, states, context.api_version)
        except CoordinatorError as error:
            return _list_refused(error.code)
        now_ms = self._now_ms()
        answers: Sequence[Transactions] = self.runner.read_all(
            lambda shard, at: (ErrorCode.NONE, shard.context.transactions.items_at(at)),
            lambda error: (append_error(error), ()),
        )
        for code, _ in answers:
            if code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                return _list_refused(code)
        transactions = chain.from_iterable(transactions for _, transactions in answers)
        try:
            found = yield from list_transactions(transactions, wanted, now_ms)
        except CoordinatorError as error:
            return _list_refused(error.code)
        # Upper and lower case differ.
        unknown = [name for name in states if name not in KNOWN_NAMES]
        return m.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)

    # Metrics

    def gauges(self) -> TransactionGauges:
        """Count the transactional ids of all shards that are active here."""
        gauges = TransactionGauges()
        self.runner.read_all(
            lambda shard, _: gauges.add_shard(shard.context.transactions, shard.context.unfinished), lambda _: gauges
        )
        return gauges


def _wanted(request: m.EndTxnRequest, api_version: int, ended: PreparedResponse | None) -> WantedEnd:
    client_version = VERSION_2 if api_version >= _VERSION_2_SINCE else 0
    return WantedEnd(request, client_version, partial(_not_ended, api_version), ended)


def _not_ended(api_version: int, error: Exception) -> m.EndTxnResponse:
    return refused_end(downgraded(append_error(error), ApiKey.END_TXN, api_version))


def _init_refused(code: ErrorCode) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=int(code), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _list_refused(code: ErrorCode) -> m.ListTransactionsResponse:
    return m.ListTransactionsResponse(error_code=int(code))
