"""
CreateTopics (19), versions 2 to 7: v5 responses with partitions, replication factor and configuration; v7 with topic id.
CreatePartitions (37), versions 0 to 3: v1 throttle time; v2 is flexible; v3 an error code of quotas.
DeleteTopics (20), versions 1 to 6: v5 error messages; v6 topic ids.

The response is sent when every API sees the topics, or no API sees them any more and their files are deleted. Policies are not
served.

Source: KIP-516; Kafka ControllerApis.createTopics, createPartitions, deleteTopics; ReplicationControlManager.createTopics,
createPartitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.changes import Changes, Decided, accepted, decide_each, verdict
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.ports import Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.broker.topics.creation import DEFAULT, RECORDS_PER_REQUEST_MAX, NewTopic, TopicCreation
from kohort.broker.topics.topic_names import RESERVED_NAMES
from kohort.machine.gradual import CHUNK, HANDLER_STEP, LOOK_STEP, chunks, distinct, gathered, has_any, repeated
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import CONFIGS_MAX
from kohort.wire import messages as m

if TYPE_CHECKING:
    Config = m.CreateTopicsResponseCreatableTopicConfigs
    Created = m.CreateTopicsResponseCreatableTopicResult
    Deleted = m.DeleteTopicsResponseDeletableTopicResult
    Larger = m.CreatePartitionsTopic
    Wanted = m.CreateTopicsRequestCreatableTopic

R = TypeVar("R", bound=msgspec.Struct)
Requested: TypeAlias = tuple[str | None, UUID | None]
"""Name and id of a topic to delete."""

_CREATE_IS_STRICT_SINCE: Final = 6
"""The first version of which a client knows THROTTLING_QUOTA_EXCEEDED."""
_GROW_IS_STRICT_SINCE: Final = 3
_DELETE_IS_STRICT_SINCE: Final = 5
_DELETED_PARTITIONS_STEP: Final = 10_000
"""
To take so many partitions out of everything that knows them takes about a millisecond. So does a change of the catalog by
itself, of which the shards of all groups hear; and changes that become durable together are published in one turn.
"""
_UNKNOWN_NAME: Final = "This server does not host this topic-partition."
_UNKNOWN_ID: Final = "This server does not host this topic ID."


class TopicChanges:
    """Handlers of these APIs: each topic of a request is validated by itself, then the valid ones are changed."""

    def __init__(
        self,
        catalog: Catalog,
        creation: TopicCreation,
        configs: TopicConfigs,
        config: BrokerConfig,
        changes: Changes,
        quotas: ClientQuotas,
    ) -> None:
        self._catalog = catalog
        self._creation = creation
        self._configs = configs
        self._may_delete = config.get_bool("delete.topic.enable")
        self._changes = changes
        self._quotas = quotas

    def create_topics(
        self, request: m.CreateTopicsRequest, context: Context, reply: Reply[m.CreateTopicsResponse]
    ) -> Generator[None, None, m.CreateTopicsResponse | None]:
        """Validate and create some topics at a time, and answer when all are durable."""
        twice = yield from repeated(topic.name for topic in request.topics)
        if request.timeout_ms <= 0 and (
            # Kafka's brokers refuse other elements before they reach the controller.
            yield from has_any(each.name not in twice and each.name not in RESERVED_NAMES for each in request.topics)
        ):
            return (yield from _refuse_all(request, ErrorCode.REQUEST_TIMED_OUT, None))
        if message := (yield from self._excess(request, twice)):
            return (yield from _refuse_all(request, ErrorCode.POLICY_VIOLATION, message))
        mutations = self._quotas.mutations(context, _CREATE_IS_STRICT_SINCE)

        def response(results: list[Created]) -> m.CreateTopicsResponse:
            return mutations.throttled(context, m.CreateTopicsResponse(topics=results))

        return (
            yield from self._put(
                request, twice, lambda wanted: self._create(wanted, mutations), self._created_results, response, reply
            )
        )

    def create_partitions(
        self, request: m.CreatePartitionsRequest, context: Context, reply: Reply[m.CreatePartitionsResponse]
    ) -> Generator[None, None, m.CreatePartitionsResponse | None]:
        """Validate and change some topics at a time, and answer when all are durable."""
        twice = yield from repeated(topic.name for topic in request.topics)
        # Topics that are given twice do not reach Kafka's controller: they are refused before.
        if request.timeout_ms <= 0 and (yield from has_any(topic.name not in twice for topic in request.topics)):
            late = yield from gathered(
                (_grown(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) for topic in request.topics), LOOK_STEP
            )
            return m.CreatePartitionsResponse(results=late)
        added = yield from gathered(
            (self._added(topic) for topic in request.topics if topic.name not in twice), LOOK_STEP
        )
        is_excessive = sum(added) > RECORDS_PER_REQUEST_MAX
        mutations = self._quotas.mutations(context, _GROW_IS_STRICT_SINCE)

        def response(results: list[m.CreatePartitionsTopicResult]) -> m.CreatePartitionsResponse:
            return mutations.throttled(context, m.CreatePartitionsResponse(results=results))

        def grow(wanted: Larger) -> Topic:
            if is_excessive:
                message = "Excessively large number of additional partitions per request."
                raise CoordinatorError(ErrorCode.POLICY_VIOLATION, message)
            return self._grow(wanted, mutations)

        return (yield from self._put(request, twice, grow, _grown_results, response, reply))

    def _put(
        self,
        request: Any,
        twice: Collection[str],
        decide: Callable[[Any], Topic],
        results: Callable[[Decided[Any, Topic], ErrorCode], list[Any]],
        response: Callable[[list[Any]], R],
        reply: Reply[R],
    ) -> Generator[None, None, R | None]:
        """Decide what each topic becomes, and write some topics at a time."""

        def decide_once(wanted: Any) -> Topic:
            if wanted.name in twice:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            return decide(wanted)

        def decide_part(part: Sequence[Any]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Any]]]:
            decided = decide_each(part, decide_once)
            topics = () if request.validate_only else accepted(decided, Topic)
            return CatalogChange(put=topics), partial(results, decided)

        parts = list(chunks(list({topic.name: topic for topic in request.topics}.values())))
        return (yield from self._changes.make_in_parts(parts, decide_part, request.timeout_ms, response, reply))

    def _excess(self, request: m.CreateTopicsRequest, twice: Collection[str]) -> Generator[None, None, str | None]:
        """
        Why a request is too large: its partitions, or its records of Kafka's metadata log, which are one for each topic,
        configuration and partition. As a topic that is refused makes none, those do not count that are given twice or exist.
        """
        default = self._configs.broker.get_int("num.partitions")
        counts = yield from gathered(
            (
                len(topic.assignments) or (default if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0))
                for topic in request.topics
            ),
            LOOK_STEP,
        )
        if sum(counts) > RECORDS_PER_REQUEST_MAX:
            return "Excessively large number of partitions per request."
        newest = self._catalog.newest
        records = yield from gathered(
            (
                1 + len(topic.configs) + count
                for topic, count in zip(request.topics, counts, strict=True)
                if topic.name not in twice and newest(topic.name) is None
            ),
            LOOK_STEP,
        )
        if sum(records) > RECORDS_PER_REQUEST_MAX:
            return "Unable to perform excessively large batch operation."
        return None

    def _create(self, wanted: Wanted, mutations: Mutations) -> Topic:
        """
        Raises:
            CoordinatorError: the topic cannot be created.
        """
        if wanted.name in RESERVED_NAMES:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {wanted.name} is prohibited."
            )
        if len(wanted.configs) > CONFIGS_MAX:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"{len(wanted.configs)} configurations of a topic.")
        topic = self._creation.validate(_new_topic(wanted))
        mutations.record(topic.partition_count)
        return topic

    def _created_results(self, decided: Decided[Wanted, Topic], failure: ErrorCode) -> list[Created]:
        results = []
        shown: dict[tuple[tuple[str, str], ...], list[Config]] = {}
        """The shown configurations, shared by topics with the same ones: a topic has some thirty."""
        for wanted, outcome in decided:
            code, message = verdict(outcome, failure)
            if code or isinstance(outcome, CoordinatorError):
                results.append(_refusal(wanted.name, code, message))
                continue
            key = tuple(outcome.configs.items())
            if key not in shown:
                shown[key] = self._configs_of(outcome)
            results.append(self._result(outcome, shown[key]))
        return results

    def _configs_of(self, topic: Topic) -> list[Config]:
        return [
            m.CreateTopicsResponseCreatableTopicConfigs(
                name=effective.key.name,
                value=effective.value,
                config_source=effective.source,
                is_sensitive=effective.key.is_sensitive,
            )
            for effective in self._configs.effective(topic.configs)
        ]

    def _result(self, topic: Topic, configs: list[Config]) -> Created:
        return m.CreateTopicsResponseCreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=None,
            num_partitions=topic.partition_count,
            replication_factor=len(self._catalog.state(topic, 0).replicas),
            configs=configs,
        )

    def _added(self, wanted: Larger) -> int:
        """The number of new partitions; 0 if the topic is unknown, or would not grow."""
        topic = self._catalog.newest(wanted.name)
        return 0 if topic is None else max(wanted.count - topic.partition_count, 0)

    def _grow(self, wanted: Larger, mutations: Mutations) -> Topic:
        """
        Raises:
            CoordinatorError: the topic cannot have so many partitions.
        """
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
        self._check_assignments(wanted, added)
        factor = len(self._catalog.state(topic, 0).replicas)
        if wanted.assignments is None:
            self._creation.check_factor(factor)
        mutations.record(added)
        if not topic.partitions and topic.start == self._catalog.starts and self._creation.is_alone:
            return msgspec.structs.replace(topic, partition_count=wanted.count)
        states = self._catalog.states(topic)
        assigned = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
        new = self._creation.place(topic, assigned or added, factor)
        return self._catalog.with_states(topic, (*states, *new))

    def _check_assignments(self, wanted: Larger, added: int) -> None:
        if wanted.assignments is None:
            return
        if len(wanted.assignments) != added:
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified.",
            )
        self._creation.check_assignments([assignment.broker_ids for assignment in wanted.assignments])

    def delete_topics(
        self, request: m.DeleteTopicsRequest, context: Context, reply: Reply[m.DeleteTopicsResponse]
    ) -> Generator[None, None, m.DeleteTopicsResponse | None]:
        """Find all topics, then delete some of them at a time, and answer when all are deleted durably."""
        requested = yield from _requested(request, context.api_version)
        if not self._may_delete:
            code = ErrorCode.INVALID_REQUEST if context.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            return m.DeleteTopicsResponse(responses=[_deleted(each, code) for each in requested])
        if request.timeout_ms <= 0 and (yield from _has_valid(requested)):
            late = yield from gathered((_deleted(each, ErrorCode.REQUEST_TIMED_OUT) for each in requested), LOOK_STEP)
            return m.DeleteTopicsResponse(responses=late)
        mutations = self._quotas.mutations(context, _DELETE_IS_STRICT_SINCE)
        topics, refusals = yield from self._find_all(requested, mutations)

        def response(results: list[Deleted]) -> m.DeleteTopicsResponse:
            return mutations.throttled(context, m.DeleteTopicsResponse(responses=refusals + results))

        parts = list(_deleted_together(topics))
        return (yield from self._changes.make_in_parts(parts, self._delete, request.timeout_ms, response, reply))

    def _delete(self, topics: Sequence[Topic]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Deleted]]]:
        """Delete topics, of which another request may have deleted some since they were found."""
        found = [topic for topic in topics if self._catalog.newest_by_id(topic.topic_id) is not None]
        gone = [
            _deleted((topic.name, topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
            for topic in topics
            if topic not in found
        ]

        def results(code: ErrorCode) -> list[Deleted]:
            return gone + [_deleted((topic.name, topic.topic_id), code) for topic in found]

        return CatalogChange(deleted=tuple(found)), results

    def _find_all(
        self, requested: Sequence[Requested], mutations: Mutations
    ) -> Generator[None, None, tuple[list[Topic], list[Deleted]]]:
        """The topics to delete, and the refusals of the other entries."""
        twice = yield from repeated(requested)
        refusals: list[Deleted] = []
        topics: dict[UUID, Topic] = {}
        once = yield from distinct(requested)
        for number, entry in enumerate(once):
            if number % HANDLER_STEP == HANDLER_STEP - 1:
                yield
            named = entry
            try:
                topic = self._find(*entry, is_duplicate=entry in twice)
                if topics.pop(topic.topic_id, None) is not None:
                    named = topic.name, topic.topic_id
                    message = "The provided topic name maps to an ID that was already supplied."
                    raise CoordinatorError(ErrorCode.INVALID_REQUEST, message)
                mutations.record(topic.partition_count)
                topics[topic.topic_id] = topic
            except CoordinatorError as error:
                refusals.append(_deleted(named, error.code, error.message))
        return list(topics.values()), refusals

    def _find(self, name: str | None, topic_id: UUID | None, *, is_duplicate: bool) -> Topic:
        """
        Raises:
            CoordinatorError: the entry is invalid, or there is no such topic.
        """
        if name is not None and topic_id is not None:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is None and topic_id is None:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if is_duplicate:
            what = "name" if topic_id is None else "id"
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
        topic = self._catalog.newest(name or "") if topic_id is None else self._catalog.newest_by_id(topic_id)
        if topic is not None:
            return topic
        if topic_id is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_NAME)
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)


def _refuse_all(
    request: m.CreateTopicsRequest, code: ErrorCode, message: str | None
) -> Generator[None, None, m.CreateTopicsResponse]:
    refused = yield from gathered((_refusal(topic.name, code, message) for topic in request.topics), LOOK_STEP)
    return m.CreateTopicsResponse(topics=refused)


def _new_topic(wanted: Wanted) -> NewTopic:
    """The requested topic. The last value of a repeated configuration key counts."""
    return NewTopic(
        wanted.name,
        wanted.num_partitions,
        wanted.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in wanted.assignments],
        {config.name: config.value for config in wanted.configs},
    )


def _refusal(name: str, code: ErrorCode, message: str | None) -> Created:
    return m.CreateTopicsResponseCreatableTopicResult(name=name, error_code=code, error_message=message)


def _grown_results(decided: Decided[Larger, Topic], code: ErrorCode) -> list[m.CreatePartitionsTopicResult]:
    return [_grown(wanted.name, *verdict(outcome, code)) for wanted, outcome in decided]


def _grown(name: str, code: ErrorCode, message: str | None) -> m.CreatePartitionsTopicResult:
    return m.CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


def _requested(request: m.DeleteTopicsRequest, api_version: int) -> Generator[None, None, list[Requested]]:
    if api_version < 6:
        return [(name, None) for name in request.topic_names]
    return (yield from gathered(((topic.name, topic.topic_id) for topic in request.topics), LOOK_STEP))


def _has_valid(requested: Sequence[Requested]) -> Generator[None, None, bool]:
    """Whether an entry reaches Kafka's controller: others are refused before."""
    twice = yield from repeated(requested)
    return (yield from has_any((each[0] is None) != (each[1] is None) and each not in twice for each in requested))


def _deleted_together(topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    """Cut topics into parts, one at least, which are deleted in one turn each."""
    part: list[Topic] = []
    partitions = 0
    for topic in topics:
        partitions += topic.partition_count
        if len(part) == CHUNK or (part and partitions > _DELETED_PARTITIONS_STEP):
            yield part
            part, partitions = [], topic.partition_count
        part.append(topic)
    yield part


def _deleted(entry: Requested, code: ErrorCode, message: str | None = None) -> Deleted:
    name, topic_id = entry
    return m.DeleteTopicsResponseDeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )
