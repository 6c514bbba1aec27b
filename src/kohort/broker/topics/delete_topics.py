"""
DeleteTopics (20), versions 1 to 6: v5 error messages; v6 topic ids.

When the response is sent no API sees the topics any more, and their files are deleted.

Source: KIP-516; Kafka ControllerApis.deleteTopics.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import CallLater, Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.broker.topics.creation import change_durably
from kohort.machine.gradual import HANDLER_STEP, LOOK_STEP, chunks, distinct, repeated
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

if TYPE_CHECKING:
    Result = m.DeleteTopicsResponseDeletableTopicResult

_STRICT_SINCE: Final = 5
"""The first version of which a client knows THROTTLING_QUOTA_EXCEEDED."""
_UNKNOWN_NAME = "This server does not host this topic-partition."
_UNKNOWN_ID = "This server does not host this topic ID."


class DeleteTopics:
    """Handler of DeleteTopics: refuses ambiguous entries and deletes the other topics in one change."""

    def __init__(self, catalog: Catalog, config: BrokerConfig, call_later: CallLater, quotas: ClientQuotas) -> None:
        self._catalog = catalog
        self._is_enabled = config.get_bool("delete.topic.enable")
        self._call_later = call_later
        self._quotas = quotas

    def delete_topics(
        self, request: m.DeleteTopicsRequest, context: Context, reply: Reply[m.DeleteTopicsResponse]
    ) -> Generator[None, None, m.DeleteTopicsResponse | None]:
        """Find all topics, then delete some of them at a time, and answer when all are deleted durably."""
        requested = yield from _requested(request, context.api_version)
        if not self._is_enabled:
            code = ErrorCode.INVALID_REQUEST if context.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            refused = [_result(n, i, code) for n, i in requested]
            return m.DeleteTopicsResponse(responses=refused)
        if request.timeout_ms <= 0 and (late := (yield from _late(requested))):
            return m.DeleteTopicsResponse(responses=late)
        mutations = self._quotas.mutations(context, _STRICT_SINCE)
        topics, refusals = yield from self._decide(requested, mutations)

        def joined(results: Sequence[list[Result]]) -> m.DeleteTopicsResponse:
            answers = refusals + [result for part in results for result in part]
            return mutations.throttled(context, m.DeleteTopicsResponse(responses=answers))

        if not topics:
            return joined([])

        parts = list(chunks(topics))
        aggregator = ResponseAggregator(len(parts), joined, reply)
        for index, part in enumerate(parts):
            aggregator.put(index, self._delete(part, request.timeout_ms, aggregator.reply_to(index)))
            yield
        return aggregator.finish()

    def _delete(self, topics: Sequence[Topic], timeout_ms: int, reply: Reply[list[Result]]) -> list[Result] | None:
        """Delete topics, of which another request may have deleted some since they were found."""
        found = [topic for topic in topics if self._catalog.newest_by_id(topic.topic_id) is not None]
        gone = [
            _result(topic.name, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
            for topic in topics
            if topic not in found
        ]
        if not found:
            return gone
        change_durably(
            self._catalog,
            CatalogChange(deleted=tuple(found)),
            timeout_ms,
            self._call_later,
            lambda code: reply(gone + [_result(topic.name, topic.topic_id, code) for topic in found]),
        )
        return None

    def _decide(
        self, requested: Sequence[tuple[str | None, UUID | None]], mutations: Mutations
    ) -> Generator[None, None, tuple[list[Topic], list[Result]]]:
        twice = yield from repeated(requested)
        refusals: list[Result] = []
        topics: dict[UUID, Topic] = {}
        once = yield from distinct(requested)
        for number, (name, topic_id) in enumerate(once):
            if number % HANDLER_STEP == HANDLER_STEP - 1:
                yield
            topic, refusal = self._find(name, topic_id, is_duplicate=(name, topic_id) in twice)
            if topic is not None and topic.topic_id in topics:
                del topics[topic.topic_id]
                message = "The provided topic name maps to an ID that was already supplied."
                refusals.append(_result(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message))
            elif topic is not None:
                try:
                    mutations.record(topic.partition_count)
                except CoordinatorError as error:
                    refusals.append(_result(name, topic_id, error.code, error.message))
                else:
                    topics[topic.topic_id] = topic
            else:
                refusals.append(refusal)
        return list(topics.values()), refusals

    def _find(self, name: str | None, topic_id: UUID | None, *, is_duplicate: bool) -> tuple[Topic | None, Result]:
        def refuse(code: ErrorCode, message: str) -> tuple[None, Result]:
            return None, _result(name, topic_id, code, message)

        if name is not None and topic_id is not None:
            return refuse(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is None and topic_id is None:
            return refuse(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if is_duplicate:
            return refuse(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'name' if topic_id is None else 'id'}.")
        if topic_id is not None:
            topic = self._catalog.newest_by_id(topic_id)
            unknown = refuse(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
        else:
            topic = self._catalog.newest(name or "")
            unknown = refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_NAME)
        return (topic, unknown[1]) if topic is not None else unknown


def _requested(
    request: m.DeleteTopicsRequest, api_version: int
) -> Generator[None, None, list[tuple[str | None, UUID | None]]]:
    """Name and id of each entry."""
    if api_version < 6:
        return [(name, None) for name in request.topic_names]
    requested: list[tuple[str | None, UUID | None]] = []
    for topics in chunks(request.topics, LOOK_STEP):
        requested += [(topic.name, topic.topic_id) for topic in topics]
        if len(topics) == LOOK_STEP:
            yield
    return requested


def _late(requested: Sequence[tuple[str | None, UUID | None]]) -> Generator[None, None, list[Result]]:
    """The answer to a request that has expired: each topic timed out; none if all are refused before the controller."""
    twice = yield from repeated(requested)
    results = []
    is_asked = False
    for number, (name, topic_id) in enumerate(requested):
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
        is_asked = is_asked or ((name is None) != (topic_id is None) and (name, topic_id) not in twice)
        results.append(_result(name, topic_id, ErrorCode.REQUEST_TIMED_OUT))
    return results if is_asked else []


def _result(name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None = None) -> Result:
    return m.DeleteTopicsResponseDeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )
