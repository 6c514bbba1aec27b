"""The checks of the APIs of topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.broker.access.checks import Check, Decision, Need, adding, at_cluster
from kohort.broker.access.requester import SENTENCES, Requester, Steps
from kohort.broker.apis.request_rules import with_field
from kohort.machine.gradual import LOOK_STEP, gathered
from kohort.model.errors import ErrorCode
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m

_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOPIC: Final = ResourceType.TOPIC


class NamedTopics(Check):
    """Metadata: DESCRIBE before anything is looked up, then the creation of the topics that do not exist."""

    needs = (
        Need(Operation.DESCRIBE, _TOPIC, "topics", "each; of all topics, the others are not shown"),
        at_cluster(Operation.CREATE, "to create missing topics"),
        Need(Operation.CREATE, _TOPIC, "topics", "or each that is missing"),
    )

    def decide(self, request: m.MetadataRequest, requester: Requester) -> Steps[Decision | None]:
        version = requester.api_version
        wanted = request.topics
        if wanted is None or (not wanted and version == 0):
            return Decision(request, lambda response: _visible(response, requester))
        resources = requester.resources
        names = yield from gathered(
            resources.name_of(topic.topic_id) if topic.topic_id is not None else topic.name for topic in wanted
        )
        known = [name for name in names if name is not None]
        allowed = yield from requester.allowed(Operation.DESCRIBE, _TOPIC, known)
        denied: set[str] = set()
        if resources.creates_topics and (request.allow_auto_topic_creation or version < 4):
            missing = yield from gathered(
                topic.name
                for topic in wanted
                if topic.topic_id is None and topic.name in allowed and resources.catalog.topic(topic.name) is None
            )
            if missing and not requester.may_at_cluster(Operation.CREATE, logs_refusal=False):
                denied = set(missing) - (yield from requester.allowed(Operation.CREATE, _TOPIC, missing))
        pairs = list(zip(wanted, names, strict=True))
        kept = tuple([topic for topic, name in pairs if name is None or (name in allowed and name not in denied)])
        if len(kept) == len(wanted):
            return None
        refusals = yield from gathered(_refused(topic) for topic, name in pairs if name in denied)
        refusals += yield from gathered(
            _refused(topic) for topic, name in pairs if name is not None and name not in allowed
        )
        is_all = not kept and version == 0

        def complete(response: m.MetadataResponse) -> m.MetadataResponse:
            """Add the refused topics; version 0 has answered all topics if none was left."""
            topics = refusals if is_all else [*response.topics, *refusals]
            return msgspec.structs.replace(response, topics=topics)

        return Decision(with_field(request, "topics", kept), complete)


def _refused(topic: m.MetadataRequestTopic) -> m.MetadataResponseTopic:
    name = topic.name if topic.topic_id is None else None
    return m.MetadataResponseTopic(error_code=_REFUSED, name=name, topic_id=topic.topic_id)


def _visible(response: m.MetadataResponse, requester: Requester) -> Steps[m.MetadataResponse]:
    names = (topic.name or "" for topic in response.topics)
    allowed = yield from requester.allowed(Operation.DESCRIBE, _TOPIC, names, logs_refusal=False)
    return msgspec.structs.replace(response, topics=[topic for topic in response.topics if topic.name in allowed])


class PagedTopics(Check):
    """DescribeTopicPartitions: refused topics come last, and the limit of the page does not count them."""

    needs = (Need(Operation.DESCRIBE, _TOPIC, "topics", "each; of all topics, the others are not shown"),)

    def decide(self, request: m.DescribeTopicPartitionsRequest, requester: Requester) -> Steps[Decision | None]:
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        asked = {topic.name for topic in request.topics}
        if asked:
            if cursor is not None and (cursor.partition_index < 0 or cursor.topic_name not in asked):
                return None
            names = [name for name in asked if name >= first]
        else:
            names = [topic.name for topic in requester.resources.catalog.topics() if topic.name >= first]
        yield
        allowed = yield from requester.allowed(Operation.DESCRIBE, _TOPIC, names, logs_refusal=bool(asked))
        refusals = []
        if asked:
            refusals = yield from gathered(
                m.DescribeTopicPartitionsResponseTopic(error_code=_REFUSED, name=name)
                for name in sorted(set(names) - allowed)
            )
        if not allowed:
            return Decision(answer=m.DescribeTopicPartitionsResponse(topics=refusals, next_cursor=None))
        topics = yield from gathered(m.DescribeTopicPartitionsRequestTopicRequest(name=name) for name in allowed)
        kept = with_field(request, "topics", tuple(topics))
        if first not in allowed:
            kept = with_field(kept, "cursor", None)
        return Decision(kept, adding("topics", refusals) if refusals else None)


class CreatedTopics(Check):
    """CreateTopics: who may not create a topic is not told whether it exists; configurations need a permission of their own."""

    needs = (
        at_cluster(Operation.CREATE, "for all"),
        Need(Operation.CREATE, _TOPIC, "topics", "or each"),
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, "topics", "for the configurations in the answer"),
    )

    def decide(self, request: m.CreateTopicsRequest, requester: Requester) -> Steps[Decision | None]:
        topics = request.topics
        refusals: list[m.CreateTopicsResponseCreatableTopicResult] = []
        if not requester.may_at_cluster(Operation.CREATE, logs_refusal=False):
            counts = Counter(topic.name for topic in topics)
            # A repeated name is an error of the request, whatever the user may do.
            repeated = {name for name, count in counts.items() if count > 1}
            allowed = yield from requester.allowed(Operation.CREATE, _TOPIC, set(counts) - repeated)
            allowed |= repeated
            refusals = yield from gathered(_not_created(topic.name) for topic in topics if topic.name not in allowed)
            if len(refusals) == len(topics) and topics:
                return Decision(answer=m.CreateTopicsResponse(topics=refusals))
            if refusals:
                request = with_field(request, "topics", tuple([topic for topic in topics if topic.name in allowed]))

        def complete(response: m.CreateTopicsResponse) -> Steps[m.CreateTopicsResponse]:
            names = (topic.name for topic in response.topics if not topic.error_code)
            shown = yield from requester.allowed(Operation.DESCRIBE_CONFIGS, _TOPIC, names, logs_refusal=False)
            answers = [
                topic if topic.error_code or topic.name in shown else _without_configs(topic)
                for topic in response.topics
            ]
            return msgspec.structs.replace(response, topics=[*answers, *refusals])

        return Decision(request, complete)


def _not_created(name: str) -> m.CreateTopicsResponseCreatableTopicResult:
    return m.CreateTopicsResponseCreatableTopicResult(
        name=name, error_code=_REFUSED, error_message="Authorization failed."
    )


def _without_configs(topic: m.CreateTopicsResponseCreatableTopicResult) -> m.CreateTopicsResponseCreatableTopicResult:
    return msgspec.structs.replace(
        topic, topic_config_error_code=_REFUSED, num_partitions=-1, replication_factor=-1, configs=()
    )


class DeletedTopics(Check):
    """DeleteTopics: a name is looked up only for those who may describe it; an id is not told its name without that."""

    needs = (
        at_cluster(Operation.DELETE, "for all"),
        Need(Operation.DELETE, _TOPIC, "topics", "or each"),
        Need(Operation.DESCRIBE, _TOPIC, "topics", "to learn that a name does not exist, or the name of an id"),
    )

    def decide(self, request: m.DeleteTopicsRequest, requester: Requester) -> Steps[Decision | None]:
        if requester.may_at_cluster(Operation.DELETE, logs_refusal=False):
            return None
        has_states = bool(request.topics)
        elements: Sequence[Any] = request.topics or request.topic_names
        states = [(topic.name, topic.topic_id) if has_states else (topic, None) for topic in elements]
        counts = Counter(states)
        resources = requester.resources
        found = yield from gathered(
            resources.name_of(topic_id) if topic_id is not None else name for name, topic_id in counts
        )
        names = dict(zip(counts, found, strict=True))
        checked = [name for name in names.values() if name is not None]
        describable = yield from requester.allowed(Operation.DESCRIBE, _TOPIC, checked)
        deletable = yield from requester.allowed(
            Operation.DELETE, _TOPIC, [name for name in checked if resources.catalog.topic(name) is not None]
        )
        refusals = []
        kept = []
        for number, (element, state) in enumerate(zip(elements, states, strict=True), 1):
            if number % LOOK_STEP == 0:
                yield
            name, topic_id = names[state], state[1]
            # The handler refuses repeated and missing names, and unknown ids.
            is_open = counts[state] > 1 or name is None or (state[0] is not None and topic_id is not None)
            is_missing = topic_id is None and name in describable and resources.catalog.topic(name or "") is None
            if is_open or is_missing or (name in deletable and (topic_id is not None or name in describable)):
                kept.append(element)
            else:
                refusals.append(_not_deleted(name if topic_id is None or name in describable else None, topic_id))
        if not refusals:
            return None
        if not kept:
            return Decision(answer=m.DeleteTopicsResponse(responses=refusals))
        field = "topics" if has_states else "topic_names"
        return Decision(with_field(request, field, tuple(kept)), adding("responses", refusals))


def _not_deleted(name: str | None, topic_id: UUID | None) -> m.DeleteTopicsResponseDeletableTopicResult:
    return m.DeleteTopicsResponseDeletableTopicResult(
        name=name, topic_id=topic_id, error_code=_REFUSED, error_message=SENTENCES[_REFUSED]
    )
