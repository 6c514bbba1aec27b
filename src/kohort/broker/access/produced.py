"""The checks of Produce, and of the APIs of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import msgspec

from kohort.broker.access.checks import Check, Decision, EachTopic, Need, TopicShape, at_cluster
from kohort.broker.access.requester import Requester, Steps, finished
from kohort.broker.ports import NoResponse
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ErrorCode
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import ATTRIBUTES_AT, HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD_BYTES, TRANSACTIONAL

_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_BY_BATCH_SINCE: Final = 4
"""The version of AddPartitionsToTxn from which on brokers send it."""


class Produced(Check):
    """
    A transaction needs WRITE on its id; topics are refused one by one. A client that wants no answer is disconnected.

    A producer of plain or idempotent records needs nothing for its id. The bit of each batch counts, not the id in the request.
    """

    _SHAPE = TopicShape(
        ApiKey.PRODUCE,
        topics="topic_data",
        partitions="partition_data",
        index="index",
        answers="responses",
        answer_partitions="partition_responses",
        answer_index="index",
        ids_since=13,
        blank={"base_offset": -1},
    )

    def __init__(self) -> None:
        self._topics = EachTopic(self._SHAPE, Operation.WRITE)
        self._transaction = Need(
            Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", "if a batch is transactional"
        )
        self.needs = (self._transaction, *self._topics.needs)

    def decide(self, request: m.ProduceRequest, requester: Requester) -> Steps[Decision | None]:
        if (yield from _has_transactional(request)) and not (
            request.transactional_id is not None and self._transaction.is_met(request, requester)
        ):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            topics = yield from self._SHAPE.refused(request.topic_data, code)
            decision: Decision | None = Decision(answer=m.ProduceResponse(responses=topics))
        else:
            decision = yield from finished(self._topics.decide(request, requester))
        if request.acks != 0 or decision is None:
            return decision
        if decision.request is None:
            return Decision(answer=NoResponse.CLOSE_CONNECTION)
        return Decision(decision.request, _disconnect, completes_silence=True)


def _disconnect(_response: Any) -> NoResponse:
    return NoResponse.CLOSE_CONNECTION


def _has_transactional(request: m.ProduceRequest) -> Steps[bool]:
    count = 0
    for topic in request.topic_data:
        for partition in topic.partition_data:
            count += 1
            if count % HANDLER_STEP == 0:
                yield
            if partition.records and _is_transactional(partition.records):
                return True
    return False


def _is_transactional(records: bytes) -> bool:
    """Whether one of the batches is transactional. What is no batch is refused by the handler."""
    at = 0
    while at + HEADER_BYTES <= len(records):
        if _SHORT.unpack_from(records, at + ATTRIBUTES_AT)[0] & TRANSACTIONAL:
            return True
        length = _INT.unpack_from(records, at + LENGTH_AT)[0]
        if length <= 0:
            return False
        at += LOG_OVERHEAD_BYTES + length
    return False


class ProducerId(Check):
    """InitProducerId: for a transactional id, or for any idempotent producer."""

    _id = Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", "if there is a transactional id")
    _two_phases = Need(
        Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "transactional_id", "for two-phase commits"
    )
    _idempotent = at_cluster(Operation.IDEMPOTENT_WRITE, "without a transactional id")
    needs = (_id, _two_phases, _idempotent, Need(Operation.WRITE, ResourceType.TOPIC, detail="or that, of any topic"))

    def decide(self, request: m.InitProducerIdRequest, requester: Requester) -> Decision | None:
        if request.transactional_id is not None:
            is_allowed = self._id.is_met(request, requester) and (
                not request.enable2_pc or self._two_phases.is_met(request, requester)
            )
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            is_allowed = self._idempotent.is_met(request, requester, logs_refusal=False) or requester.may_for_any(
                Operation.WRITE, ResourceType.TOPIC
            )
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if is_allowed:
            return None
        return Decision(answer=m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))


class AddedPartitions(Check):
    """
    AddPartitionsToTxn: a client needs its transactional id and all topics, a broker CLUSTER_ACTION.

    If one topic is refused, no partition is added: the others are answered OPERATION_NOT_ATTEMPTED, or that they do not exist.
    """

    _SHAPE = TopicShape(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        topics="v3_and_below_topics",
        index="",
        answers="results_by_topic_v3_and_below",
        answer_partitions="results_by_partition",
        code="partition_error_code",
    )
    _id = Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id", "of a client")
    _broker = at_cluster(Operation.CLUSTER_ACTION, "of a broker, from version 4 on")
    needs = (_broker, _id, Need(Operation.WRITE, ResourceType.TOPIC, "v3_and_below_topics", "of a client, each"))

    def decide(self, request: m.AddPartitionsToTxnRequest, requester: Requester) -> Steps[Decision | None]:
        if requester.api_version >= _BY_BATCH_SINCE:
            if self._broker.is_met(request, requester):
                return None
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return Decision(answer=m.AddPartitionsToTxnResponse(error_code=code))
        shape = self._SHAPE
        if not self._id.is_met(request, requester):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            refused = yield from shape.refused(request.v3_and_below_topics, code)
            return Decision(answer=m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused))
        topics = request.v3_and_below_topics
        names = [topic.name for topic in topics]
        allowed = yield from requester.allowed(Operation.WRITE, ResourceType.TOPIC, names)
        if len(allowed) == len(set(names)):
            return None
        answers = []
        for number, topic in enumerate(topics, 1):
            found = requester.resources.catalog.topic(topic.name)
            count = 0 if found is None else found.partition_count
            partitions = [
                shape.refused_partition(index, _not_added(index, count, is_allowed=topic.name in allowed))
                for index in topic.partitions
            ]
            answers.append(shape.answered_topic(topic, partitions))
            if number % HANDLER_STEP == 0:
                yield
        return Decision(answer=m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answers))


def _not_added(index: int, partition_count: int, *, is_allowed: bool) -> ErrorCode:
    if not is_allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if 0 <= index < partition_count:
        return ErrorCode.OPERATION_NOT_ATTEMPTED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def markers_refused(request: m.WriteTxnMarkersRequest, code: ErrorCode, _requester: Requester) -> Steps[Any]:
    """The refusal of WriteTxnMarkers, at each partition."""
    markers = []
    for marker in request.markers:
        topics = [
            m.WriteTxnMarkersResponseWritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    m.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        markers.append(m.WriteTxnMarkersResponseWritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        yield
    return m.WriteTxnMarkersResponse(markers=markers)


class DescribedTransactions(Check):
    """The topics of described transactions are shown to those who may describe them."""

    needs = (Need(Operation.DESCRIBE, ResourceType.TOPIC, detail="each in a transaction, or it is not shown"),)

    def decide(self, request: m.DescribeTransactionsRequest, requester: Requester) -> Decision:
        def complete(response: m.DescribeTransactionsResponse) -> Steps[m.DescribeTransactionsResponse]:
            states = response.transaction_states
            names = (topic.topic for state in states for topic in state.topics)
            allowed = yield from requester.allowed(Operation.DESCRIBE, ResourceType.TOPIC, names, logs_refusal=False)
            return msgspec.structs.replace(response, transaction_states=[_shown(state, allowed) for state in states])

        return Decision(request, complete)


def _shown(
    state: m.DescribeTransactionsResponseTransactionState, allowed: set[str]
) -> m.DescribeTransactionsResponseTransactionState:
    topics: Sequence[Any] = [topic for topic in state.topics if topic.topic in allowed]
    return state if len(topics) == len(state.topics) else msgspec.structs.replace(state, topics=topics)
