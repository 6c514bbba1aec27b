"""The checks of the APIs of configurations, and the refusals of other APIs of administrators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kohort.broker.access.checks import Check, Decision, Need, Refuse, adding, at_cluster, element_class, response_class
from kohort.broker.access.requester import REFUSALS, SENTENCES, Requester, Steps
from kohort.broker.apis.request_rules import with_field
from kohort.broker.configs.resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kohort.machine.gradual import HANDLER_STEP, distinct, gathered, gathered_by_topic
from kohort.model.errors import ErrorCode
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey


class Configured(Check):
    """
    Configurations: those of topics and groups belong to these, all others to the cluster. Refused resources come last.

    Args:
        silent: the kinds of resources whose refusal has no sentence: the broker itself refuses them, not the controller.
    """

    def __init__(self, api: ApiKey, operation: Operation, answers: str, silent: Sequence[int] = ()) -> None:
        self._operation = operation
        self._answers = answers
        self._silent = silent
        self._response = response_class(api)
        self._element = element_class(api, answers)
        self.needs = (
            Need(operation, ResourceType.TOPIC, "resources", "of a topic"),
            Need(operation, ResourceType.GROUP, "resources", "of a group"),
            at_cluster(operation, "of a broker, its loggers, or of client metrics"),
        )

    def decide(self, request: Any, requester: Requester) -> Steps[Decision | None]:
        kept: list[Any] = []
        refusals: list[Any] = []
        may_at_cluster: bool | None = None
        for number, resource in enumerate(request.resources, 1):
            if number % HANDLER_STEP == 0:
                yield
            resource_type = _TYPES.get(resource.resource_type, ResourceType.CLUSTER)
            if resource_type is not ResourceType.CLUSTER:
                is_allowed = requester.may(self._operation, resource_type, resource.resource_name)
            elif resource.resource_type not in _OF_CLUSTER:
                is_allowed = True  # The handler refuses what it does not know.
            else:
                if may_at_cluster is None:
                    may_at_cluster = requester.may(self._operation, resource_type, CLUSTER_NAME)
                is_allowed = may_at_cluster
            if is_allowed:
                kept.append(resource)
                continue
            code = REFUSALS[resource_type]
            refusals.append(
                self._element(
                    error_code=code,
                    error_message=None if resource.resource_type in self._silent else SENTENCES[code],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        if not refusals:
            return None
        if not kept:
            return Decision(answer=self._response(**{self._answers: refusals}))
        return Decision(with_field(request, "resources", tuple(kept)), adding(self._answers, refusals))


_TYPES: Final = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}
_OF_CLUSTER: Final = (BROKER, BROKER_LOGGER, CLIENT_METRICS)
BROKERS_OWN: Final = (BROKER, BROKER_LOGGER)
"""The kinds of resources that a broker changes itself."""


def each_of(api: ApiKey, field: str, answers: str, make: Callable[[Any], dict[str, Any]]) -> Refuse:
    """
    A refusal at each element.

    Args:
        make: the fields of the answer of an element, beside its code and its sentence.
    """
    response, element = response_class(api), element_class(api, answers)

    def refuse(request: Any, code: ErrorCode, _requester: Requester) -> Steps[Any]:
        refused = yield from gathered(
            element(error_code=code, error_message=SENTENCES[code], **make(one)) for one in getattr(request, field)
        )
        return response(**{answers: refused})

    return refuse


def elections_refused(request: m.ElectLeadersRequest, code: ErrorCode, _requester: Requester) -> Steps[Any]:
    """The refusal of ElectLeaders, at the top and at each partition that is named."""
    results = yield from gathered_by_topic(
        ((topic.topic, topic.partitions) for topic in request.topic_partitions or ()),
        lambda _, index: m.ElectLeadersResponsePartitionResult(
            partition_id=index, error_code=code, error_message=SENTENCES[code]
        ),
        lambda topic, refused: m.ElectLeadersResponseReplicaElectionResult(topic=topic, partition_result=refused),
    )
    return m.ElectLeadersResponse(error_code=code, replica_election_results=results)


def moves_refused(request: m.AlterReplicaLogDirsRequest, code: ErrorCode, _requester: Requester) -> Steps[Any]:
    """The refusal of AlterReplicaLogDirs, at each partition, by topic."""
    partitions: dict[str, list[int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            partitions.setdefault(topic.name, []).extend(topic.partitions)
        yield
    result = m.AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult
    results = yield from gathered_by_topic(
        partitions.items(),
        lambda _, index: result(partition_index=index, error_code=code),
        lambda topic, refused: m.AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(
            topic_name=topic, partitions=refused
        ),
    )
    return m.AlterReplicaLogDirsResponse(results=results)


def quotas_refused(request: m.AlterClientQuotasRequest, code: ErrorCode, _requester: Requester) -> Steps[Any]:
    """The refusal of AlterClientQuotas, at each entry."""
    entries = yield from gathered(
        m.AlterClientQuotasResponseEntryData(
            error_code=code,
            error_message=SENTENCES[code],
            entity=[
                m.AlterClientQuotasResponseEntityData(entity_type=one.entity_type, entity_name=one.entity_name)
                for one in entry.entity
            ],
        )
        for entry in request.entries
    )
    return m.AlterClientQuotasResponse(entries=entries)


def credentials_refused(
    request: m.AlterUserScramCredentialsRequest, code: ErrorCode, _requester: Requester
) -> Steps[Any]:
    """The refusal of AlterUserScramCredentials, at each user."""
    names = [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    users = yield from distinct(names)
    results = yield from gathered(
        m.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=SENTENCES[code]) for user in users
    )
    return m.AlterUserScramCredentialsResponse(results=results)


def users_refused(request: m.DescribeUserScramCredentialsRequest, code: ErrorCode, _requester: Requester) -> Any:
    """The refusal of DescribeUserScramCredentials: an element for each user, without the name."""
    refused = m.DescribeUserScramCredentialsResult(error_code=code, error_message=None)
    results = [refused] * len(request.users or ())
    return m.DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=results)
