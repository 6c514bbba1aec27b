"""
The transaction coordinator's APIs on one node. What does not depend on a transactional id is checked here; then its shard is
asked.

Every API is a method `api(request, context, reply)`: it returns the response, or None and calls `reply` later, exactly once.
No method raises: errors become codes of the response.

Source: Kafka TransactionCoordinator, and the transaction handlers of KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from kohort.machine.ports import ProducerIdGenerator
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Producer, Reply, Result, Runner
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicPartition, coordinator_partition
from kohort.model.image import ClusterImage
from kohort.transaction.config import TransactionConfig
from kohort.transaction.context import HasContext, TransactionContext
from kohort.transaction.end_txn import end_txn, refused_end
from kohort.transaction.errors import downgraded, error_code
from kohort.transaction.init_producer_id import init_producer_id
from kohort.transaction.listing import (
    describe_transaction,
    described_error,
    filter_of,
    list_transactions,
    unknown_states,
)
from kohort.transaction.metrics import TransactionGauges
from kohort.transaction.partitions import TransactionEndingError, add_partitions, verify_partitions
from kohort.transaction.transaction import VERSION_2
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

Remaining: TypeAlias = Callable[[int, str], frozenset[TopicPartition] | None]
"""`remaining(partition, transactional_id)`: see `kohort.transaction.markers.MarkerSender.remaining`."""

T = TypeVar("T")

Added: TypeAlias = dict[TopicPartition, ErrorCode]

_BATCHED_SINCE: Final = 4
"""AddPartitionsToTxn: brokers send several transactions, and speak transaction version 2."""
_VERSION_2_SINCE: Final = 5
"""EndTxn: transaction version 2."""


class TransactionService:
    """
    Args:
        image: the topics of the cluster; a live view.
        now_ms: returns the present time.
        offsets_partition_count: returns the number of partitions of `__consumer_offsets`.

    Attributes:
        is_active: whether this node coordinates transactions. Before the start and after the end every request is refused.
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
        self._runner = runner
        self._config = config
        self._image = image
        self._producer_ids = producer_ids
        self._remaining = remaining
        self._now_ms = now_ms
        self._offsets_partition_count = offsets_partition_count
        self.is_active = True

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
            ApiKey.END_TXN: self.end_txn,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
        }

    def _partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds the id."""
        return coordinator_partition(transactional_id, self._runner.partition_count)

    def _refusal(self, transactional_id: str) -> ErrorCode:
        """The code with which a request is refused before the shard is asked; NONE if it is not refused."""
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST

    def _add_to(
        self,
        transactional_id: str,
        operation: Callable[[HasContext, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        """
        Run an operation that adds partitions to a transaction.

        If it meets the end of the producer's last transaction, it runs again after the completion, instead of telling the
        client to ask again. The client cannot tell, and saves a back-off of 20 to 100 ms for each transaction.
        """
        partition = self._partition_for(transactional_id)
        again = partial(self._add_again, partition, operation, reply, on_error)
        return self._runner.write(
            partition,
            lambda shard, now_ms: _run_or_wait(operation, shard, now_ms, transactional_id, again),
            reply,
            on_error,
        )

    def _add_again(
        self,
        partition: int,
        operation: Callable[[HasContext, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> None:
        response = self._runner.write(partition, operation, reply, on_error)
        if response is not None:
            reply(response)

    # InitProducerId

    def init_producer_id(
        self, request: m.InitProducerIdRequest, context: RequestContext, reply: Reply[m.InitProducerIdResponse]
    ) -> m.InitProducerIdResponse | None:
        """Without a transactional id the producer gets a new producer id with epoch 0, and nothing is written."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return _init_refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            code = self._refusal(request.transactional_id)
            if code is ErrorCode.NONE and not 0 < request.transaction_timeout_ms <= self._max_timeout_ms:
                code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
            if code is not ErrorCode.NONE:
                return _init_refused(code)
        waiting = _Waiting(reply)

        def ready(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                waiting.put(self._init(request, context.api_version, waiting.reply))
            else:
                waiting.put(_init_refused(code))

        self._producer_ids.when_available(ready)
        return waiting.returned()

    @property
    def _max_timeout_ms(self) -> int:
        return self._config.transaction_max_timeout_ms

    def _init(
        self, request: m.InitProducerIdRequest, api_version: int, reply: Reply[m.InitProducerIdResponse]
    ) -> m.InitProducerIdResponse | None:
        if request.transactional_id is None:
            producer_id = self._producer_ids.take()
            if producer_id is None:
                return _init_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        return self._runner.write(
            self._partition_for(request.transactional_id),
            lambda shard, now_ms: init_producer_id(shard.context, request, now_ms),
            reply,
            lambda error: _init_refused(downgraded(error_code(error), ApiKey.INIT_PRODUCER_ID, api_version)),
        )

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions_to_txn(
        self,
        request: m.AddPartitionsToTxnRequest,
        context: RequestContext,
        reply: Reply[m.AddPartitionsToTxnResponse],
    ) -> m.AddPartitionsToTxnResponse | None:
        version = context.api_version
        if version < _BATCHED_SINCE:
            transactions: Sequence[m.AddPartitionsToTxnTransaction] = (
                m.AddPartitionsToTxnTransaction(
                    transactional_id=request.v3_and_below_transactional_id,
                    producer_id=request.v3_and_below_producer_id,
                    producer_epoch=request.v3_and_below_producer_epoch,
                    verify_only=False,
                    topics=request.v3_and_below_topics,
                ),
            )
        else:
            transactions = request.transactions
        aggregator: ResponseAggregator[Added, m.AddPartitionsToTxnResponse] = ResponseAggregator(
            len(transactions), lambda parts: _added_response(transactions, parts, version), reply
        )
        for index, transaction in enumerate(transactions):
            aggregator.put(index, self._add(transaction, version, aggregator.reply_to(index)))
        return aggregator.finish()

    def _add(self, transaction: m.AddPartitionsToTxnTransaction, version: int, reply: Reply[Added]) -> Added | None:
        partitions = dict.fromkeys(
            TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
        )
        refused = {each: code for each in partitions if (code := self._unusable(each, version))}
        if refused:
            return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
        code = self._refusal(transaction.transactional_id)
        if code is not ErrorCode.NONE:
            return dict.fromkeys(partitions, code)
        wanted = frozenset(partitions)

        return self._add_to(
            transaction.transactional_id,
            lambda shard, now_ms: _added_or_verified(shard.context, transaction, wanted, version, now_ms),
            reply,
            lambda error: dict.fromkeys(
                partitions, downgraded(error_code(error), ApiKey.ADD_PARTITIONS_TO_TXN, version)
            ),
        )

    def _unusable(self, topic_partition: TopicPartition, version: int) -> ErrorCode | None:
        topic, index = topic_partition
        if version < _BATCHED_SINCE and topic in INTERNAL_TOPICS:
            # Kafka authorizes no client for them; versions from 4 on are those of brokers.
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = self._image.topic(topic)
        exists = found is not None and 0 <= index < found.partition_count
        return None if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def add_offsets_to_txn(
        self, request: m.AddOffsetsToTxnRequest, context: RequestContext, reply: Reply[m.AddOffsetsToTxnResponse]
    ) -> m.AddOffsetsToTxnResponse | None:
        """Add the partition of `__consumer_offsets` that holds the group."""
        code = self._refusal(request.transactional_id)
        if code is not ErrorCode.NONE:
            return m.AddOffsetsToTxnResponse(error_code=int(code))
        index = coordinator_partition(request.group_id, self._offsets_partition_count())
        wanted = frozenset({TopicPartition(CONSUMER_OFFSETS, index)})
        version = context.api_version

        return self._add_to(
            request.transactional_id,
            lambda shard, now_ms: _offsets_added(shard.context, request, wanted, now_ms),
            reply,
            lambda error: m.AddOffsetsToTxnResponse(
                error_code=int(downgraded(error_code(error), ApiKey.ADD_OFFSETS_TO_TXN, version))
            ),
        )

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        """See `kohort.machine.ports.Verification`."""
        code = self._refusal(producer.transactional_id)
        if code is not ErrorCode.NONE:
            verified(CoordinatorError(code))
            return
        wanted = frozenset({topic_partition})

        answer = partial(_answer_verification, verified)
        response = self._add_to(
            producer.transactional_id,
            lambda shard, now_ms: _verified(shard.context, producer, wanted, now_ms),
            answer,
            error_code,
        )
        if response is not None:
            answer(response)

    # EndTxn

    def end_txn(
        self, request: m.EndTxnRequest, context: RequestContext, reply: Reply[m.EndTxnResponse]
    ) -> m.EndTxnResponse | None:
        code = self._refusal(request.transactional_id)
        if code is not ErrorCode.NONE:
            return refused_end(code)
        api_version = context.api_version
        client_version = VERSION_2 if api_version >= _VERSION_2_SINCE else 0
        return self._runner.write(
            self._partition_for(request.transactional_id),
            lambda shard, now_ms: end_txn(shard.context, request, client_version, now_ms),
            reply,
            lambda error: refused_end(downgraded(error_code(error), ApiKey.END_TXN, api_version)),
        )

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
        code = self._refusal(transactional_id)
        if code is not ErrorCode.NONE:
            return described_error(transactional_id, code)
        partition = self._partition_for(transactional_id)
        return self._runner.read(
            partition,
            lambda shard, at: describe_transaction(
                shard.context, transactional_id, at, partial(self._remaining, partition)
            ),
            lambda error: described_error(transactional_id, error_code(error)),
        )

    def list_transactions(
        self,
        request: m.ListTransactionsRequest,
        context: RequestContext,
        _reply: Reply[m.ListTransactionsResponse],
    ) -> m.ListTransactionsResponse:
        """List the ids of all shards here. An error of one shard fails the request, unless it is NOT_COORDINATOR."""
        if not self.is_active:
            return _list_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            wanted = filter_of(request, context.api_version)
        except CoordinatorError as error:
            return _list_refused(error.code)
        now_ms = self._now_ms()
        answers = self._runner.read_all(
            lambda shard, at: (ErrorCode.NONE, list(list_transactions(shard.context, wanted, now_ms, at))),
            lambda error: (error_code(error), []),
        )
        found: list[m.ListTransactionsResponseTransactionState] = []
        for code, listed in answers:
            if code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                return _list_refused(code)
            found += listed
        return m.ListTransactionsResponse(unknown_state_filters=unknown_states(request), transaction_states=found)

    # Metrics

    def gauges(self) -> TransactionGauges:
        """Count the transactional ids of all shards that are active here."""
        gauges = TransactionGauges()
        self._runner.read_all(
            lambda shard, _: gauges.add_shard(shard.context.transactions, shard.context.unfinished), lambda _: gauges
        )
        return gauges


# The operations are functions of the module. Compiled, a function within a method and the variables that it shares with the
# method refer to each other, so every request would leave its objects to the garbage collector.


def _run_or_wait(
    operation: Callable[[HasContext, int], Result[Any, T]],
    shard: HasContext,
    now_ms: int,
    transactional_id: str,
    again: Callable[[], None],
) -> Result[Any, T]:
    """Run the operation. If it meets the end of the producer's last transaction, `again` is called after the completion."""
    try:
        return operation(shard, now_ms)
    except TransactionEndingError as error:
        if error.is_of_producer and shard.context.markers.when_finished(transactional_id, again):
            return Result()
        raise


def _added_or_verified(
    context: TransactionContext,
    transaction: m.AddPartitionsToTxnTransaction,
    wanted: frozenset[TopicPartition],
    version: int,
    now_ms: int,
) -> Result[Any, Added]:
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    codes = dict.fromkeys(wanted, ErrorCode.NONE)
    if transaction.verify_only:
        missing = verify_partitions(context, *producer, wanted)
        return Result(response=codes | dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE))
    client_version = VERSION_2 if version >= _BATCHED_SINCE else 0
    return Result(add_partitions(context, *producer, wanted, client_version, now_ms), codes)


def _offsets_added(
    context: TransactionContext, request: m.AddOffsetsToTxnRequest, wanted: frozenset[TopicPartition], now_ms: int
) -> Result[Any, m.AddOffsetsToTxnResponse]:
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    return Result(add_partitions(context, *producer, wanted, 0, now_ms), m.AddOffsetsToTxnResponse())


def _verified(
    context: TransactionContext, producer: Producer, wanted: frozenset[TopicPartition], now_ms: int
) -> Result[Any, ErrorCode]:
    claimed = (producer.transactional_id, producer.producer_id, producer.producer_epoch)
    if producer.adds_partition:
        return Result(add_partitions(context, *claimed, wanted, VERSION_2, now_ms), ErrorCode.NONE)
    missing = verify_partitions(context, *claimed, wanted)
    return Result(response=ErrorCode.TRANSACTION_ABORTABLE if missing else ErrorCode.NONE)


def _answer_verification(verified: Callable[[CoordinatorError | None], None], code: ErrorCode) -> None:
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    verified(None if code is ErrorCode.NONE else CoordinatorError(code))


class _Waiting:
    """
    One answer that is known inside the call or later: `returned` gives the first, `reply` gets the second.
    """

    __slots__ = ("_is_inside", "_reply", "_response")

    def __init__(self, reply: Reply[m.InitProducerIdResponse]) -> None:
        self._reply = reply
        self._response: m.InitProducerIdResponse | None = None
        self._is_inside = True

    @property
    def reply(self) -> Reply[m.InitProducerIdResponse]:
        return self._reply

    def put(self, response: m.InitProducerIdResponse | None) -> None:
        """Take the response; None if `reply` gets it later."""
        if self._is_inside:
            self._response = response
        elif response is not None:
            self._reply(response)

    def returned(self) -> m.InitProducerIdResponse | None:
        self._is_inside = False
        return self._response


def _init_refused(code: ErrorCode) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=int(code), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _list_refused(code: ErrorCode) -> m.ListTransactionsResponse:
    return m.ListTransactionsResponse(error_code=int(code))


def _added_response(
    transactions: Sequence[m.AddPartitionsToTxnTransaction], parts: Sequence[Added], version: int
) -> m.AddPartitionsToTxnResponse:
    if version < _BATCHED_SINCE:
        return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(transactions[0].topics, parts[0]))
    if any(ErrorCode.UNSUPPORTED_VERSION in codes.values() for codes in parts):
        # Kafka's request fails as a whole.
        return m.AddPartitionsToTxnResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    return m.AddPartitionsToTxnResponse(
        results_by_transaction=[
            m.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_by_topic(transaction.topics, codes)
            )
            for transaction, codes in zip(transactions, parts, strict=True)
        ]
    )


def _by_topic(topics: Sequence[m.AddPartitionsToTxnTopic], codes: Added) -> list[m.AddPartitionsToTxnTopicResult]:
    """The codes in the form of the request: a partition that is listed twice is answered twice."""
    return [
        m.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                m.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=int(codes[TopicPartition(topic.name, index)])
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
