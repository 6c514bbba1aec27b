"""
CreateTopics (19), versions 2 to 7: v5 responses with partitions, replication factor and configuration; v7 with topic id.

The response is sent when every API sees the topics. Policies are not served.

Source: Kafka ControllerApis.createTopics, ReplicationControlManager.createTopics.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.cluster import Cluster
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.ports import CallLater, Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.broker.topics.creation import DEFAULT, PARTITIONS_PER_REQUEST_MAX, NewTopic, TopicCreation, change_durably
from kohort.broker.topics.topic_names import RESERVED_NAMES
from kohort.machine.gradual import LOOK_STEP, chunks, repeated
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import CONFIGS_MAX
from kohort.wire import messages as m

if TYPE_CHECKING:
    Config = m.CreateTopicsResponseCreatableTopicConfigs

_STRICT_SINCE: Final = 6
"""The first version of which a client knows THROTTLING_QUOTA_EXCEEDED."""


class CreateTopics:
    """Handler of CreateTopics: validates each topic of a request by itself, then creates the valid ones."""

    def __init__(
        self,
        catalog: Catalog,
        creation: TopicCreation,
        configs: TopicConfigs,
        cluster: Cluster,
        call_later: CallLater,
        quotas: ClientQuotas,
    ) -> None:
        self._catalog = catalog
        self._creation = creation
        self._configs = configs
        self._cluster = cluster
        self._call_later = call_later
        self._quotas = quotas

    def create_topics(
        self, request: m.CreateTopicsRequest, context: Context, reply: Reply[m.CreateTopicsResponse]
    ) -> Generator[None, None, m.CreateTopicsResponse | None]:
        """Validate and create some topics at a time, and answer when all are durable."""
        twice = yield from repeated(topic.name for topic in request.topics)
        refusal: CoordinatorError | None = None
        if request.timeout_ms <= 0 and (yield from _is_asked(request, twice)):
            refusal = CoordinatorError(ErrorCode.REQUEST_TIMED_OUT)
        elif (yield from self._is_excessive(request)):
            message = "Excessively large number of partitions per request."
            refusal = CoordinatorError(ErrorCode.POLICY_VIOLATION, message)
        if refusal is not None:
            return m.CreateTopicsResponse(topics=(yield from _refuse_all(request, refusal)))
        parts = list(chunks(list({topic.name: topic for topic in request.topics}.values())))
        mutations = self._quotas.mutations(context, _STRICT_SINCE)
        aggregator: ResponseAggregator[m.CreateTopicsResponse, m.CreateTopicsResponse] = ResponseAggregator(
            len(parts), lambda done: mutations.throttled(context, _joined(done)), reply
        )
        for index, part in enumerate(parts):
            decided = self._validate(part, twice, mutations)
            answer = self._create(decided, request, aggregator.reply_to(index))
            aggregator.put(index, answer)
            yield
        return aggregator.finish()

    def _create(
        self,
        decided: dict[str, Topic | CoordinatorError],
        request: m.CreateTopicsRequest,
        reply: Reply[m.CreateTopicsResponse],
    ) -> m.CreateTopicsResponse | None:
        topics = tuple(outcome for outcome in decided.values() if isinstance(outcome, Topic))
        if request.validate_only or not topics:
            return self._response(decided, ErrorCode.NONE)
        change_durably(
            self._catalog,
            CatalogChange(put=topics),
            request.timeout_ms,
            self._call_later,
            lambda code: reply(self._response(decided, code)),
        )
        return None

    def _is_excessive(self, request: m.CreateTopicsRequest) -> Generator[None, None, bool]:
        default = self._configs.broker.get_int("num.partitions")
        total = 0
        for number, topic in enumerate(request.topics):
            if number % LOOK_STEP == LOOK_STEP - 1:
                yield
            count = len(topic.assignments) or (default if topic.num_partitions == DEFAULT else topic.num_partitions)
            total += max(count, 0)
        return total >= PARTITIONS_PER_REQUEST_MAX

    def _validate(
        self, topics: Iterable[m.CreateTopicsRequestCreatableTopic], twice: Container[str], mutations: Mutations
    ) -> dict[str, Topic | CoordinatorError]:
        decided: dict[str, Topic | CoordinatorError] = {}
        for wanted in topics:
            try:
                if wanted.name in twice:
                    raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                if wanted.name in RESERVED_NAMES:
                    raise CoordinatorError(
                        ErrorCode.INVALID_REQUEST, f"Creation of internal topic {wanted.name} is prohibited."
                    )
                if len(wanted.configs) > CONFIGS_MAX:
                    raise CoordinatorError(
                        ErrorCode.INVALID_CONFIG, f"{len(wanted.configs)} configurations of a topic."
                    )
                topic = self._creation.validate(_new_topic(wanted))
                mutations.record(topic.partition_count)
                decided[wanted.name] = topic
            except CoordinatorError as error:
                decided[wanted.name] = error.with_traceback(None)
        return decided

    def _response(self, decided: dict[str, Topic | CoordinatorError], code: ErrorCode) -> m.CreateTopicsResponse:
        results = []
        shown: dict[tuple[tuple[str, str], ...], list[Config]] = {}
        """The shown configurations, shared by topics with the same ones: a topic has some thirty."""
        for name, outcome in decided.items():
            if isinstance(outcome, CoordinatorError):
                results.append(_refusal(name, outcome.code, outcome.message))
            elif code:
                results.append(_refusal(name, code, None))
            else:
                key = tuple(outcome.configs.items())
                if key not in shown:
                    shown[key] = self._configs_of(outcome)
                results.append(self._created(outcome, shown[key]))
        return m.CreateTopicsResponse(topics=results)

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

    def _created(self, topic: Topic, configs: list[Config]) -> m.CreateTopicsResponseCreatableTopicResult:
        return m.CreateTopicsResponseCreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=None,
            num_partitions=topic.partition_count,
            replication_factor=len(self._catalog.state(topic, 0).replicas),
            configs=configs,
        )


def _is_asked(request: m.CreateTopicsRequest, twice: Container[str]) -> Generator[None, None, bool]:
    """Whether a topic of a request reaches Kafka's controller: others are refused before."""
    for number, topic in enumerate(request.topics):
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
        if topic.name not in twice and topic.name not in RESERVED_NAMES:
            return True
    return False


def _refuse_all(
    request: m.CreateTopicsRequest, refusal: CoordinatorError
) -> Generator[None, None, list[m.CreateTopicsResponseCreatableTopicResult]]:
    refused = []
    for number, topic in enumerate(request.topics):
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
        refused.append(_refusal(topic.name, refusal.code, refusal.message))
    return refused


def _joined(parts: Sequence[m.CreateTopicsResponse]) -> m.CreateTopicsResponse:
    return m.CreateTopicsResponse(topics=[topic for part in parts for topic in part.topics])


def _new_topic(wanted: m.CreateTopicsRequestCreatableTopic) -> NewTopic:
    """The requested topic. The last value of a repeated configuration key counts."""
    return NewTopic(
        wanted.name,
        wanted.num_partitions,
        wanted.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in wanted.assignments],
        {config.name: config.value for config in wanted.configs},
    )


def _refusal(name: str, code: ErrorCode, message: str | None) -> m.CreateTopicsResponseCreatableTopicResult:
    return m.CreateTopicsResponseCreatableTopicResult(name=name, error_code=code, error_message=message)
