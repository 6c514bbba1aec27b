"""
CreatePartitions (37), versions 0 to 3: v1 throttle time; v2 is flexible; v3 an error code of quotas.

Source: Kafka ControllerApis.createPartitions, ReplicationControlManager.createPartitions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.changes import Changes, Decided, accepted, decide_each, verdict
from kohort.broker.ports import Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.broker.topics.creation import PARTITIONS_PER_REQUEST_MAX, TopicCreation
from kohort.machine.gradual import LOOK_STEP, chunks, gathered, has_any, repeated
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

if TYPE_CHECKING:
    Result = m.CreatePartitionsTopicResult
    Wanted = m.CreatePartitionsTopic

_STRICT_SINCE: Final = 3
"""The first version of which a client knows THROTTLING_QUOTA_EXCEEDED."""


class CreatePartitions:
    """Handler of CreatePartitions."""

    def __init__(self, catalog: Catalog, creation: TopicCreation, changes: Changes, quotas: ClientQuotas) -> None:
        self._catalog = catalog
        self._creation = creation
        self._changes = changes
        self._quotas = quotas

    def create_partitions(
        self, request: m.CreatePartitionsRequest, context: Context, reply: Reply[m.CreatePartitionsResponse]
    ) -> Generator[None, None, m.CreatePartitionsResponse | None]:
        """Validate and change some topics at a time, and answer when all are durable."""
        twice = yield from repeated(topic.name for topic in request.topics)
        # Topics that are given twice do not reach Kafka's controller: they are refused before.
        if request.timeout_ms <= 0 and (yield from has_any(topic.name not in twice for topic in request.topics)):
            late = yield from gathered(
                (_result(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics), LOOK_STEP
            )
            return m.CreatePartitionsResponse(results=late)
        mutations = self._quotas.mutations(context, _STRICT_SINCE)

        def decide(part: Sequence[Wanted]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Result]]]:
            decided = decide_each(part, lambda wanted: self._grow(wanted, twice, mutations))
            grown = () if request.validate_only else accepted(decided, Topic)
            return CatalogChange(put=grown), partial(_results, decided)

        def response(results: list[Result]) -> m.CreatePartitionsResponse:
            return mutations.throttled(context, m.CreatePartitionsResponse(results=results))

        parts = list(chunks(list({topic.name: topic for topic in request.topics}.values())))
        return (yield from self._changes.make_in_parts(parts, decide, request.timeout_ms, response, reply))

    def _grow(self, wanted: Wanted, twice: Container[str], mutations: Mutations) -> Topic:
        """
        Raises:
            CoordinatorError: the topic cannot have so many partitions.
        """
        if wanted.name in twice:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
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

    def _check_assignments(self, wanted: Wanted, added: int) -> None:
        if wanted.assignments is None:
            return
        if len(wanted.assignments) != added:
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified.",
            )
        self._creation.check_assignments([assignment.broker_ids for assignment in wanted.assignments])


def _results(decided: Decided[Wanted, Topic], code: ErrorCode) -> list[Result]:
    return [_result(wanted.name, *verdict(outcome, code)) for wanted, outcome in decided]


def _result(name: str, code: ErrorCode, message: str | None) -> Result:
    return m.CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
