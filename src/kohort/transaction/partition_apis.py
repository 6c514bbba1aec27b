"""
AddPartitionsToTxn and AddOffsetsToTxn, and the verification of transactions for partition leaders.

Source: KIP-98, KIP-890; Kafka KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest,
AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from kohort.machine.front import Front
from kohort.machine.gradual import CHUNK, HANDLER_STEP, Awaited, Stepwise, chunks, take_steps
from kohort.machine.shard import Producer, Reply, Result, Runner
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicPartition, coordinator_partition
from kohort.model.image import ClusterImage, TopicImage
from kohort.transaction.context import HasContext
from kohort.transaction.errors import append_error, downgraded
from kohort.transaction.partitions import TransactionEndingError, add_partitions, ongoing_partitions
from kohort.transaction.transaction import VERSION_2
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.templates import PreparedResponse, RequestTemplate

T = TypeVar("T")

Added: TypeAlias = dict[TopicPartition, ErrorCode]

_NONE: Final = ErrorCode.NONE
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
        self, front: Front[HasContext], image: ClusterImage, offsets_partition_count: Callable[[], int]
    ) -> None:
        self._front = front
        self._image = image
        self._offsets_partition_count = offsets_partition_count

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: Stepwise(self.add_in_steps, self.add_at_once, self.add_again),
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
        }

    def add_at_once(
        self, request: m.AddPartitionsToTxnRequest, context: RequestContext, reply: Reply[m.AddPartitionsToTxnResponse]
    ) -> m.AddPartitionsToTxnResponse | None:
        """As `add_in_steps`, for a short request: that of a client in one step."""
        version = context.api_version
        if version >= _BATCHED_SINCE:
            return take_steps(self.add_in_steps(request, context, reply), reply)
        transaction = _transaction_of_client(request)
        partitions: Added = {}
        refused: Added = {}
        for topic in transaction.topics:
            self._check(topic.name, topic.partitions, version, partitions, refused)
        answer = partial(_answer_client, transaction.topics, reply)
        codes = self._add_checked(transaction, version, partitions, refused, answer)
        return None if codes is None else _answer_of_client(transaction.topics, codes)

    def add_again(
        self, template: RequestTemplate, context: RequestContext, reply: Reply[Any]
    ) -> m.AddPartitionsToTxnResponse | PreparedResponse | None:
        """As `add_at_once`, for a request of the versions of clients that a connection repeats."""
        known: _KnownAddition | None = template.memo
        if known is None or not known.is_current(self._image):
            known = template.memo = self._know(template.request, context.api_version)
        if known is None or self._front.refusal(known.transactional_id) is not _NONE:
            return self.add_at_once(template.request, context, reply)
        return self._add_to(known.transactional_id, Operation(_known_added, known), reply, known.failed)

    def _know(self, request: m.AddPartitionsToTxnRequest, version: int) -> _KnownAddition | None:
        """The addition that a request asks for; None if a partition cannot be added."""
        partitions: Added = {}
        refused: Added = {}
        topics = request.v3_and_below_topics
        for topic in topics:
            self._check(topic.name, topic.partitions, version, partitions, refused)
        if refused:
            return None
        images = [(topic.name, self._image.topic(topic.name)) for topic in topics]
        return _KnownAddition(request, version, images, partitions)

    def add_in_steps(
        self, request: m.AddPartitionsToTxnRequest, context: RequestContext, _reply: Reply[m.AddPartitionsToTxnResponse]
    ) -> Generator[Any, None, m.AddPartitionsToTxnResponse]:
        """Each transaction gets its partitions at once. The versions of clients have one transaction."""
        version = context.api_version
        if version < _BATCHED_SINCE:
            transaction = _transaction_of_client(request)
            awaited, response = yield from self._begin(transaction, version)
            codes = yield from awaited.get(response)
            by_topic = yield from _by_topic(transaction.topics, codes)
            return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=by_topic)
        begun = []
        for transaction in request.transactions:
            begun.append((yield from self._begin(transaction, version)))
            if len(begun) % CHUNK == 0:
                yield
        added: list[Added] = []
        for awaited, response in begun:
            added.append((yield from awaited.get(response)))
            if len(added) % HANDLER_STEP == 0:
                yield
        results = []
        for index, transaction in enumerate(request.transactions):
            codes = added[index]
            if ErrorCode.UNSUPPORTED_VERSION in codes.values():
                # Kafka's request fails as a whole.
                return m.AddPartitionsToTxnResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
            by_topic = yield from _by_topic(transaction.topics, codes)
            results.append(
                m.AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=by_topic)
            )
            if len(results) % HANDLER_STEP == 0:
                yield
        return m.AddPartitionsToTxnResponse(results_by_transaction=results)

    def _begin(
        self, transaction: m.AddPartitionsToTxnTransaction, version: int
    ) -> Generator[None, None, tuple[Awaited[Added], Added | None]]:
        """Check the partitions of a transaction in steps, and begin to add them; the arguments of `Awaited.get`."""
        partitions: Added = {}
        refused: Added = {}
        for topic in transaction.topics:
            for indexes in chunks(topic.partitions, HANDLER_STEP):
                self._check(topic.name, indexes, version, partitions, refused)
                yield
        awaited: Awaited[Added] = Awaited()
        return awaited, self._add_checked(transaction, version, partitions, refused, awaited.reply)

    def _check(self, name: str, indexes: Sequence[int], version: int, partitions: Added, refused: Added) -> None:
        """Put partitions of a topic into `partitions`, and those that cannot be added also into `refused`."""
        for index in indexes:
            topic_partition = TopicPartition(name, index)
            partitions[topic_partition] = _NONE
            unusable = self._unusable(name, index, version)
            if unusable is not None:
                refused[topic_partition] = unusable

    def _add_checked(
        self,
        transaction: m.AddPartitionsToTxnTransaction,
        version: int,
        partitions: Added,
        refused: Added,
        reply: Reply[Added],
    ) -> Added | None:
        if refused:
            return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
        code = self._front.refusal(transaction.transactional_id)
        if code is not _NONE:
            return dict.fromkeys(partitions, code)
        return self._add_to(
            transaction.transactional_id,
            Operation(_added_or_verified, transaction, partitions, version),
            reply,
            partial(_not_added, partitions, version),
        )

    def _unusable(self, topic: str, index: int, version: int) -> ErrorCode | None:
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
        if code is not _NONE:
            return m.AddOffsetsToTxnResponse(error_code=int(code))
        index = coordinator_partition(request.group_id, self._offsets_partition_count())
        wanted = frozenset({TopicPartition(CONSUMER_OFFSETS, index)})
        return self._add_to(
            request.transactional_id,
            Operation(_offsets_added, request, wanted),
            reply,
            partial(_offsets_not_added, context.api_version),
        )

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        """See `kohort.machine.ports.Verification`."""
        transactional_id = producer.transactional_id
        code = self._front.refusal(transactional_id)
        if code is not _NONE:
            verified(CoordinatorError(code))
            return
        operation = Operation(_verified, producer, topic_partition)
        answer = partial(_answer_verification, verified)
        if producer.adds_partition:
            response = self._add_to(transactional_id, operation, answer, append_error)
        else:
            # Only an operation that adds a partition waits for the end of the last transaction.
            response = self._front.runner.write(
                self._front.partition_for(transactional_id), operation, answer, append_error
            )
        if response is not None:
            _answer_verification(verified, response)

    def _add_to(
        self,
        transactional_id: str,
        operation: Operation,
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        front = self._front
        partition = front.partition_for(transactional_id)
        addition = _Addition(front.runner, partition, transactional_id, operation, reply, on_error)
        return front.runner.write(partition, addition, reply, on_error)


class _KnownAddition:
    """
    The request of a client whose partitions can be added: everything that does not depend on the transaction.

    Args:
        images: the topics of the request, as the cluster has them.
        partitions: all of them.

    Attributes:
        response: the answer when they are added.
        failed: the answer by the error with which they are not.
    """

    __slots__ = (
        "_images",
        "_topics",
        "_version",
        "failed",
        "partitions",
        "producer_epoch",
        "producer_id",
        "response",
        "transactional_id",
    )

    def __init__(
        self,
        request: m.AddPartitionsToTxnRequest,
        version: int,
        images: list[tuple[str, TopicImage | None]],
        partitions: Added,
    ) -> None:
        self._images: Final = images
        self._topics: Final = request.v3_and_below_topics
        self._version: Final = version
        self.transactional_id: Final[str] = request.v3_and_below_transactional_id
        self.producer_id: Final[int] = request.v3_and_below_producer_id
        self.producer_epoch: Final[int] = request.v3_and_below_producer_epoch
        self.partitions: Final = frozenset(partitions)
        encode = response_encoder(ApiKey.ADD_PARTITIONS_TO_TXN, version)
        self.response: Final = PreparedResponse(encode(0, _answer_of_client(self._topics, partitions)))
        self.failed: Final[Callable[[Exception], m.AddPartitionsToTxnResponse]] = self._failed

    def is_current(self, image: ClusterImage) -> bool:
        """Whether the topics are unchanged. A changed topic is another object."""
        for name, topic in self._images:  # noqa: SIM110 -- as for a commit
            if image.topic(name) is not topic:
                return False
        return True

    def _failed(self, error: Exception) -> m.AddPartitionsToTxnResponse:
        return _answer_of_client(self._topics, _not_added(self.partitions, self._version, error))


class _Addition(Operation):
    """
    An operation that adds partitions to a transaction.

    If it meets the end of the producer's last transaction, it runs again after the completion, instead of telling the
    client to ask again. The client cannot tell, and saves a back-off of 20 to 100 ms for each transaction.
    """

    __slots__ = ("_on_error", "_operation", "_partition", "_reply", "_runner", "_transactional_id")

    def __init__(
        self,
        runner: Runner[HasContext],
        partition: int,
        transactional_id: str,
        operation: Operation,
        reply: Reply[Any],
        on_error: Callable[[Exception], Any],
    ) -> None:
        super().__init__(operation.function, *operation.arguments)
        self._runner = runner
        self._partition = partition
        self._transactional_id = transactional_id
        self._operation = operation
        self._reply = reply
        self._on_error = on_error

    def run(self, shard: Any, now_ms: int) -> Any:
        try:
            return self._operation.run(shard, now_ms)
        except TransactionEndingError as error:
            if error.is_of_producer and shard.context.markers.when_finished(self._transactional_id, self._again):
                return Result()
            raise

    def _again(self) -> None:
        response = self._runner.write(self._partition, self._operation, self._reply, self._on_error)
        if response is not None:
            self._reply(response)


# The operations are functions of the module. Compiled, a function within a method and the variables that it shares with the
# method refer to each other, so every request would leave its objects to the garbage collector.


def _added_or_verified(
    shard: HasContext,
    now_ms: int,
    transaction: m.AddPartitionsToTxnTransaction,
    partitions: Added,
    version: int,
) -> Result[Any, Added]:
    context, wanted = shard.context, frozenset(partitions)
    transactional_id, producer_id, epoch = (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
    )
    if transaction.verify_only:
        missing = wanted - ongoing_partitions(context, transactional_id, producer_id, epoch)
        return Result((), partitions | dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE))
    client_version = VERSION_2 if version >= _BATCHED_SINCE else 0
    return Result(
        add_partitions(context, transactional_id, producer_id, epoch, wanted, client_version, now_ms), partitions
    )


def _known_added(shard: HasContext, now_ms: int, known: _KnownAddition) -> Result[Any, PreparedResponse]:
    """As `_added_or_verified`."""
    records = add_partitions(
        shard.context, known.transactional_id, known.producer_id, known.producer_epoch, known.partitions, 0, now_ms
    )
    return Result(records, known.response)


def _not_added(partitions: Iterable[TopicPartition], version: int, error: Exception) -> Added:
    return dict.fromkeys(partitions, downgraded(append_error(error), ApiKey.ADD_PARTITIONS_TO_TXN, version))


def _offsets_added(
    shard: HasContext, now_ms: int, request: m.AddOffsetsToTxnRequest, wanted: frozenset[TopicPartition]
) -> Result[Any, m.AddOffsetsToTxnResponse]:
    records = add_partitions(
        shard.context, request.transactional_id, request.producer_id, request.producer_epoch, wanted, 0, now_ms
    )
    return Result(records, m.AddOffsetsToTxnResponse())


def _offsets_not_added(version: int, error: Exception) -> m.AddOffsetsToTxnResponse:
    code = downgraded(append_error(error), ApiKey.ADD_OFFSETS_TO_TXN, version)
    return m.AddOffsetsToTxnResponse(error_code=int(code))


def _verified(
    shard: HasContext, now_ms: int, producer: Producer, topic_partition: TopicPartition
) -> Result[Any, ErrorCode]:
    context = shard.context
    transactional_id, producer_id, epoch = producer.transactional_id, producer.producer_id, producer.producer_epoch
    if producer.adds_partition:
        wanted = frozenset((topic_partition,))
        return Result(add_partitions(context, transactional_id, producer_id, epoch, wanted, VERSION_2, now_ms), _NONE)
    is_added = topic_partition in ongoing_partitions(context, transactional_id, producer_id, epoch)
    return Result((), _NONE if is_added else ErrorCode.TRANSACTION_ABORTABLE)


def _answer_verification(verified: Callable[[CoordinatorError | None], None], code: ErrorCode) -> None:
    if code is _NONE:
        verified(None)
    elif code is ErrorCode.PRODUCER_FENCED:
        verified(CoordinatorError(ErrorCode.INVALID_PRODUCER_EPOCH))
    else:
        verified(CoordinatorError(code))


def _transaction_of_client(request: m.AddPartitionsToTxnRequest) -> m.AddPartitionsToTxnTransaction:
    """The transaction of a request of the versions of clients."""
    return m.AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


def _by_topic(
    topics: Sequence[m.AddPartitionsToTxnTopic], codes: Added
) -> Generator[None, None, list[m.AddPartitionsToTxnTopicResult]]:
    """The codes in the form of the request: a partition that is listed twice is answered twice."""
    results = []
    for topic in topics:
        partitions: list[m.AddPartitionsToTxnPartitionResult] = []
        for indexes in chunks(topic.partitions, HANDLER_STEP):
            partitions += _results(topic.name, indexes, codes)
            if len(indexes) == HANDLER_STEP:
                yield
        results.append(m.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
        if len(results) % HANDLER_STEP == 0:
            yield
    return results


def _results(topic: str, indexes: Sequence[int], codes: Added) -> list[m.AddPartitionsToTxnPartitionResult]:
    return [
        m.AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=int(codes[TopicPartition(topic, index)])
        )
        for index in indexes
    ]


def _answer_of_client(topics: Sequence[m.AddPartitionsToTxnTopic], codes: Added) -> m.AddPartitionsToTxnResponse:
    """As `_by_topic`, at once."""
    return m.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            m.AddPartitionsToTxnTopicResult(
                name=topic.name, results_by_partition=_results(topic.name, topic.partitions, codes)
            )
            for topic in topics
        ]
    )


def _answer_client(
    topics: Sequence[m.AddPartitionsToTxnTopic], reply: Reply[m.AddPartitionsToTxnResponse], codes: Added
) -> None:
    reply(_answer_of_client(topics, codes))
