"""
DeleteTopics (20), versions 1 to 6: v5 error messages; v6 topic ids.

When the response is sent no API sees the topics any more, and their files are deleted.

Source: KIP-516; Kafka ControllerApis.deleteTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.changes import Changes
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.machine.gradual import HANDLER_STEP, LOOK_STEP, chunks, distinct, gathered, has_any, repeated
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

    def __init__(self, catalog: Catalog, config: BrokerConfig, changes: Changes, quotas: ClientQuotas) -> None:
        self._catalog = catalog
        self._is_enabled = config.get_bool("delete.topic.enable")
        self._changes = changes
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
        if request.timeout_ms <= 0 and (yield from _has_valid(requested)):
            late = yield from gathered((_result(*each, ErrorCode.REQUEST_TIMED_OUT) for each in requested), LOOK_STEP)
            return m.DeleteTopicsResponse(responses=late)
        mutations = self._quotas.mutations(context, _STRICT_SINCE)
        topics, refusals = yield from self._decide(requested, mutations)

        def response(results: list[Result]) -> m.DeleteTopicsResponse:
            return mutations.throttled(context, m.DeleteTopicsResponse(responses=refusals + results))

        parts = list(chunks(topics))
        return (yield from self._changes.make_in_parts(parts, self._delete, request.timeout_ms, response, reply))

    def _delete(self, topics: Sequence[Topic]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Result]]]:
        """Delete topics, of which another request may have deleted some since they were found."""
        found = [topic for topic in topics if self._catalog.newest_by_id(topic.topic_id) is not None]
        gone = [
            _result(topic.name, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
            for topic in topics
            if topic not in found
        ]

        def results(code: ErrorCode) -> list[Result]:
            return gone + [_result(topic.name, topic.topic_id, code) for topic in found]

        return CatalogChange(deleted=tuple(found)), results

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
    return (yield from gathered(((topic.name, topic.topic_id) for topic in request.topics), LOOK_STEP))


def _has_valid(requested: Sequence[tuple[str | None, UUID | None]]) -> Generator[None, None, bool]:
    """Whether an entry reaches Kafka's controller: others are refused before."""
    twice = yield from repeated(requested)
    return (yield from has_any((each[0] is None) != (each[1] is None) and each not in twice for each in requested))


def _result(name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None = None) -> Result:
    return m.DeleteTopicsResponseDeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )
