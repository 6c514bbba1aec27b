"""
CreatePartitions (37), versions 0 to 3: v1 throttle time; v2 is flexible; v3 an error code of quotas.

Source: Kafka ControllerApis.createPartitions, ReplicationControlManager.createPartitions.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from typing import Final

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.ports import CallLater, Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.broker.topics.creation import PARTITIONS_PER_REQUEST_MAX, TopicCreation, change_durably
from kohort.machine.gradual import LOOK_STEP, chunks, repeated
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

_STRICT_SINCE: Final = 3
"""The first version of which a client knows THROTTLING_QUOTA_EXCEEDED."""


class CreatePartitions:
    """Handler of CreatePartitions."""

    def __init__(self, catalog: Catalog, creation: TopicCreation, call_later: CallLater, quotas: ClientQuotas) -> None:
        self._catalog = catalog
        self._creation = creation
        self._call_later = call_later
        self._quotas = quotas

    def create_partitions(
        self, request: m.CreatePartitionsRequest, context: Context, reply: Reply[m.CreatePartitionsResponse]
    ) -> Generator[None, None, m.CreatePartitionsResponse | None]:
        """Validate and change some topics at a time, and answer when all are durable."""
        twice = yield from repeated(topic.name for topic in request.topics)
        if request.timeout_ms <= 0 and (late := (yield from _late(request, twice))):
            return m.CreatePartitionsResponse(results=late)
        parts = list(chunks(list({topic.name: topic for topic in request.topics}.values())))
        mutations = self._quotas.mutations(context, _STRICT_SINCE)
        aggregator: ResponseAggregator[m.CreatePartitionsResponse, m.CreatePartitionsResponse] = ResponseAggregator(
            len(parts), lambda done: mutations.throttled(context, _joined(done)), reply
        )
        for index, part in enumerate(parts):
            decided = self._validate(part, twice, mutations)
            aggregator.put(index, self._create(decided, request, aggregator.reply_to(index)))
            yield
        return aggregator.finish()

    def _create(
        self,
        decided: dict[str, Topic | CoordinatorError],
        request: m.CreatePartitionsRequest,
        reply: Reply[m.CreatePartitionsResponse],
    ) -> m.CreatePartitionsResponse | None:
        topics = tuple(outcome for outcome in decided.values() if isinstance(outcome, Topic))
        if request.validate_only or not topics:
            return _response(decided, ErrorCode.NONE)
        change_durably(
            self._catalog,
            CatalogChange(put=topics),
            request.timeout_ms,
            self._call_later,
            lambda code: reply(_response(decided, code)),
        )
        return None

    def _validate(
        self, wanted: Sequence[m.CreatePartitionsTopic], twice: Container[str], mutations: Mutations
    ) -> dict[str, Topic | CoordinatorError]:
        decided: dict[str, Topic | CoordinatorError] = {}
        for topic in wanted:
            try:
                if topic.name in twice:
                    raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                decided[topic.name] = self._grow(topic, mutations)
            except CoordinatorError as error:
                decided[topic.name] = error.with_traceback(None)
        return decided

    def _grow(self, wanted: m.CreatePartitionsTopic, mutations: Mutations) -> Topic:
        topic = self._catalog.newest(wanted.name)
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        count, added = topic.partition_count, wanted.count - topic.partition_count
        if added == 0:
            raise CoordinatorError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
        if added < 0:
            raise CoordinatorError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {count} partition(s); {wanted.count} would not be an increase.",
            )
        if added >= PARTITIONS_PER_REQUEST_MAX:
            raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._check_assignments(wanted, added)
        mutations.record(added)
        if not topic.partitions and topic.start == self._catalog.starts and self._creation.is_alone:
            return msgspec.structs.replace(topic, partition_count=wanted.count)
        states = self._catalog.states(topic)
        assigned = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
        new = self._creation.place(topic, assigned or added, len(states[0].replicas))
        return self._catalog.with_states(topic, (*states, *new))

    def _check_assignments(self, wanted: m.CreatePartitionsTopic, added: int) -> None:
        if wanted.assignments is None:
            return
        if len(wanted.assignments) != added:
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified.",
            )
        self._creation.check_assignments([assignment.broker_ids for assignment in wanted.assignments])


def _response(decided: dict[str, Topic | CoordinatorError], code: ErrorCode) -> m.CreatePartitionsResponse:
    results = [
        m.CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
        if isinstance(outcome, CoordinatorError)
        else m.CreatePartitionsTopicResult(name=name, error_code=code, error_message=None)
        for name, outcome in decided.items()
    ]
    return m.CreatePartitionsResponse(results=results)


def _late(
    request: m.CreatePartitionsRequest, twice: Container[str]
) -> Generator[None, None, list[m.CreatePartitionsTopicResult]]:
    """The answer to a request that has expired: each topic timed out; none if all are refused before the controller."""
    results = []
    is_asked = False
    for number, topic in enumerate(request.topics):
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
        is_asked = is_asked or topic.name not in twice
        results.append(
            m.CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None)
        )
    return results if is_asked else []


def _joined(parts: Sequence[m.CreatePartitionsResponse]) -> m.CreatePartitionsResponse:
    return m.CreatePartitionsResponse(results=[result for part in parts for result in part.results])
