"""
AddPartitionsToTxn and AddOffsetsToTxn, and the verification of transactions for partition leaders.

Source: KIP-98, KIP-890; Kafka KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest,
AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Producer, Reply, Result
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicPartition, coordinator_partition
from kohort.model.image import ClusterImage
from kohort.transaction.context import HasContext, TransactionContext
from kohort.transaction.errors import append_error, downgraded
from kohort.transaction.front import TransactionFront
from kohort.transaction.partitions import TransactionEndingError, add_partitions, verify_partitions
from kohort.transaction.transaction import VERSION_2
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

T = TypeVar("T")

Added: TypeAlias = dict[TopicPartition, ErrorCode]

_BATCHED_SINCE: Final = 4
"""AddPartitionsToTxn: brokers send several transactions, and speak transaction version 2."""


class PartitionApis:
    """
    The APIs that add partitions to a transaction; also a `kohort.machine.ports.Verification`.

    Args:
        image: the topics of the cluster; a live view.
        offsets_partition_count: returns the number of partitions of `__consumer_offsets`.
    """

    def __init__(
        self, front: TransactionFront, image: ClusterImage, offsets_partition_count: Callable[[], int]
    ) -> None:
        self._front = front
        self._image = image
        self._offsets_partition_count = offsets_partition_count

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
        }

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
        code = self._front.refusal(transaction.transactional_id)
        if code is not ErrorCode.NONE:
            return dict.fromkeys(partitions, code)
        wanted = frozenset(partitions)

        return self._add_to(
            transaction.transactional_id,
            lambda shard, now_ms: _added_or_verified(shard.context, transaction, wanted, version, now_ms),
            reply,
            lambda error: dict.fromkeys(
                partitions, downgraded(append_error(error), ApiKey.ADD_PARTITIONS_TO_TXN, version)
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
        code = self._front.refusal(request.transactional_id)
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
                error_code=int(downgraded(append_error(error), ApiKey.ADD_OFFSETS_TO_TXN, version))
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
        code = self._front.refusal(producer.transactional_id)
        if code is not ErrorCode.NONE:
            verified(CoordinatorError(code))
            return
        wanted = frozenset({topic_partition})

        answer = partial(_answer_verification, verified)
        response = self._add_to(
            producer.transactional_id,
            lambda shard, now_ms: _verified(shard.context, producer, wanted, now_ms),
            answer,
            append_error,
        )
        if response is not None:
            answer(response)

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
        partition = self._front.partition_for(transactional_id)
        again = partial(self._add_again, partition, operation, reply, on_error)
        return self._front.runner.write(
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
        response = self._front.runner.write(partition, operation, reply, on_error)
        if response is not None:
            reply(response)


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
