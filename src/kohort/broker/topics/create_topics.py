"""
CreateTopics (19), versions 2 to 7: v5 responses with partitions, replication factor and configuration; v7 with topic id.

The response is sent when every API sees the topics. Policies are not served.

Source: Kafka ControllerApis.createTopics, ReplicationControlManager.createTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.changes import Changes, Decided, accepted, decide_each, verdict
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.ports import Context
from kohort.broker.quotas.client_quotas import ClientQuotas, Mutations
from kohort.broker.topics.creation import DEFAULT, PARTITIONS_PER_REQUEST_MAX, NewTopic, TopicCreation
from kohort.broker.topics.topic_names import RESERVED_NAMES
from kohort.machine.gradual import LOOK_STEP, chunks, gathered, has_any, repeated
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import CONFIGS_MAX
from kohort.wire import messages as m

if TYPE_CHECKING:
    Config = m.CreateTopicsResponseCreatableTopicConfigs
    Result = m.CreateTopicsResponseCreatableTopicResult
    Wanted = m.CreateTopicsRequestCreatableTopic

_STRICT_SINCE: Final = 6
"""The first version of which a client knows THROTTLING_QUOTA_EXCEEDED."""


class CreateTopics:
    """Handler of CreateTopics: validates each topic of a request by itself, then creates the valid ones."""

    def __init__(
        self,
        catalog: Catalog,
        creation: TopicCreation,
        configs: TopicConfigs,
        changes: Changes,
        quotas: ClientQuotas,
    ) -> None:
        self._catalog = catalog
        self._creation = creation
        self._configs = configs
        self._changes = changes
        self._quotas = quotas

    def create_topics(
        self, request: m.CreateTopicsRequest, context: Context, reply: Reply[m.CreateTopicsResponse]
    ) -> Generator[None, None, m.CreateTopicsResponse | None]:
        """Validate and create some topics at a time, and answer when all are durable."""
        twice = yield from repeated(topic.name for topic in request.topics)
        if request.timeout_ms <= 0 and (
            # Others do not reach Kafka's controller: they are refused before.
            yield from has_any(each.name not in twice and each.name not in RESERVED_NAMES for each in request.topics)
        ):
            return (yield from _refuse_all(request, ErrorCode.REQUEST_TIMED_OUT, None))
        if (yield from self._is_excessive(request)):
            message = "Excessively large number of partitions per request."
            return (yield from _refuse_all(request, ErrorCode.POLICY_VIOLATION, message))
        mutations = self._quotas.mutations(context, _STRICT_SINCE)

        def decide(part: Sequence[Wanted]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Result]]]:
            decided = decide_each(part, lambda wanted: self._validate(wanted, twice, mutations))
            created = () if request.validate_only else accepted(decided, Topic)
            return CatalogChange(put=created), partial(self._results, decided)

        def response(results: list[Result]) -> m.CreateTopicsResponse:
            return mutations.throttled(context, m.CreateTopicsResponse(topics=results))

        parts = list(chunks(list({topic.name: topic for topic in request.topics}.values())))
        return (yield from self._changes.make_in_parts(parts, decide, request.timeout_ms, response, reply))

    def _is_excessive(self, request: m.CreateTopicsRequest) -> Generator[None, None, bool]:
        default = self._configs.broker.get_int("num.partitions")
        counts = yield from gathered(
            (
                len(topic.assignments) or (default if topic.num_partitions == DEFAULT else topic.num_partitions)
                for topic in request.topics
            ),
            LOOK_STEP,
        )
        return sum(count for count in counts if count > 0) >= PARTITIONS_PER_REQUEST_MAX

    def _validate(self, wanted: Wanted, twice: Container[str], mutations: Mutations) -> Topic:
        """
        Raises:
            CoordinatorError: the topic cannot be created.
        """
        if wanted.name in twice:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if wanted.name in RESERVED_NAMES:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {wanted.name} is prohibited."
            )
        if len(wanted.configs) > CONFIGS_MAX:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"{len(wanted.configs)} configurations of a topic.")
        topic = self._creation.validate(_new_topic(wanted))
        mutations.record(topic.partition_count)
        return topic

    def _results(self, decided: Decided[Wanted, Topic], failure: ErrorCode) -> list[Result]:
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
            results.append(self._created(outcome, shown[key]))
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

    def _created(self, topic: Topic, configs: list[Config]) -> Result:
        return m.CreateTopicsResponseCreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=None,
            num_partitions=topic.partition_count,
            replication_factor=len(self._catalog.state(topic, 0).replicas),
            configs=configs,
        )


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


def _refusal(name: str, code: ErrorCode, message: str | None) -> Result:
    return m.CreateTopicsResponseCreatableTopicResult(name=name, error_code=code, error_message=message)
