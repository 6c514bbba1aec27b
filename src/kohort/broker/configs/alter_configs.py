"""
IncrementalAlterConfigs (44), versions 0 and 1, and AlterConfigs (33), versions 0 to 2: the newest is flexible.

IncrementalAlterConfigs changes single keys, AlterConfigs replaces all keys of a resource. Resources are topics and groups; a
group need not exist. Configurations of brokers, loggers and client metrics cannot be changed at run time.

Source: KIP-133, KIP-339; Kafka ControllerApis, ConfigAdminManager, ConfigurationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

from kohort.broker.catalog import Catalog, CatalogChange, ConfiguredGroup, Topic
from kohort.broker.configs.definitions import TOPIC_KEYS, ConfigType
from kohort.broker.configs.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, RESOURCE_NAMES, TOPIC
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.ports import CallLater, Context
from kohort.broker.topics.creation import change_durably
from kohort.broker.topics.topic_names import name_error
from kohort.machine.gradual import chunks, repeated
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import CONFIGS_MAX
from kohort.wire import messages as m

if TYPE_CHECKING:
    IncrementalResource = m.IncrementalAlterConfigsRequestAlterConfigsResource
    Change = m.IncrementalAlterConfigsRequestAlterableConfig


class Resource(Protocol):
    """The resource to change, in either request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def configs(self) -> Sequence[object]: ...


class Setting(Protocol):
    """One key of a resource, in either request."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...


T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R", bound=Resource)
C = TypeVar("C", bound=Setting)
Subject: TypeAlias = Topic | ConfiguredGroup
Decisions: TypeAlias = "list[tuple[Resource, Subject | CoordinatorError]]"

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

TIMEOUT_MS = 30_000
"""The requests have no timeout. Source: the default request timeout of Kafka's clients."""


class AlterConfigs:
    """Handler of IncrementalAlterConfigs and AlterConfigs. Each resource is changed as a whole or not at all."""

    def __init__(self, catalog: Catalog, configs: TopicConfigs, groups: GroupConfigs, call_later: CallLater) -> None:
        self._catalog = catalog
        self._configs = configs
        self._groups = groups
        self._call_later = call_later

    def incremental_alter_configs(
        self,
        request: m.IncrementalAlterConfigsRequest,
        _context: Context,
        reply: Reply[m.IncrementalAlterConfigsResponse],
    ) -> Generator[None, None, m.IncrementalAlterConfigsResponse | None]:
        respond = m.IncrementalAlterConfigsResponseAlterConfigsResourceResponse

        def response(parts: Sequence[list[Any]]) -> m.IncrementalAlterConfigsResponse:
            return m.IncrementalAlterConfigsResponse(responses=[each for part in parts for each in part])

        return self._alter_all(request, self._altered, partial(_responses, respond), response, reply)

    def alter_configs(
        self, request: m.AlterConfigsRequest, _context: Context, reply: Reply[m.AlterConfigsResponse]
    ) -> Generator[None, None, m.AlterConfigsResponse | None]:
        respond = m.AlterConfigsResponseAlterConfigsResourceResponse

        def response(parts: Sequence[list[Any]]) -> m.AlterConfigsResponse:
            return m.AlterConfigsResponse(responses=[each for part in parts for each in part])

        return self._alter_all(request, _replaced, partial(_responses, respond), response, reply)

    def _alter_all(
        self,
        request: Any,
        altered: Callable[[Mapping[str, str], Any], dict[str, str]],
        respond: Callable[[Decisions, ErrorCode], list[Any]],
        response: Callable[[Sequence[list[Any]]], T],
        reply: Reply[T],
    ) -> Generator[None, None, T | None]:
        """Validate and change some resources at a time, and answer when all changes are durable."""
        twice = yield from repeated((resource.resource_type, resource.resource_name) for resource in request.resources)
        parts = list(chunks(request.resources))
        aggregator: ResponseAggregator[list[Any], T] = ResponseAggregator(len(parts), response, reply)
        for index, part in enumerate(parts):
            decided = self._validate_all(part, altered, twice)
            changed = self._change(decided, respond, aggregator.reply_to(index), validate_only=request.validate_only)
            aggregator.put(index, changed)
            yield
        return aggregator.finish()

    def _change(
        self,
        decided: Decisions,
        response: Callable[[Decisions, ErrorCode], T],
        reply: Reply[T],
        *,
        validate_only: bool,
    ) -> T | None:
        topics = tuple(outcome for _, outcome in decided if isinstance(outcome, Topic))
        groups = tuple(
            outcome
            for _, outcome in decided
            if isinstance(outcome, ConfiguredGroup) and outcome != self._catalog.newest_group(outcome.group_id)
        )
        if validate_only or not (topics or groups):
            return response(decided, ErrorCode.NONE)
        change_durably(
            self._catalog,
            CatalogChange(put=topics, groups=groups),
            TIMEOUT_MS,
            self._call_later,
            lambda code: reply(response(decided, code)),
        )
        return None

    def _validate_all(
        self,
        resources: Sequence[R],
        altered: Callable[[Mapping[str, str], R], dict[str, str]],
        twice: Container[tuple[int, str]],
    ) -> Decisions:
        decisions: Decisions = []
        for resource in resources:
            try:
                if (resource.resource_type, resource.resource_name) in twice:
                    raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                if len(resource.configs) > CONFIGS_MAX:
                    raise CoordinatorError(
                        ErrorCode.INVALID_CONFIG, f"{len(resource.configs)} configurations of one resource."
                    )
                subject = self._subject(resource)
                configs = altered(subject.configs if subject else {}, resource)
                self._validate(resource, configs)
                if subject is None:
                    raise CoordinatorError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
                    )
                decisions.append((resource, msgspec.structs.replace(subject, configs=configs)))
            except CoordinatorError as error:
                # A traceback would make a cycle, which only the garbage collector frees.
                decisions.append((resource, error.with_traceback(None)))
        return decisions

    def _subject(self, resource: Resource) -> Subject | None:
        """
        Find the topic or group; None for a topic that does not exist. Kafka reports that after all other errors.

        Raises:
            CoordinatorError: the resource cannot be changed.
        """
        if resource.resource_type == GROUP:
            if not resource.resource_name:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            return self._catalog.newest_group(resource.resource_name)
        if resource.resource_type != TOPIC:
            raise _not_alterable(resource.resource_type)
        return self._catalog.newest(resource.resource_name)

    def _validate(self, resource: Resource, configs: dict[str, str]) -> None:
        """
        Raises:
            CoordinatorError: the name or a configuration is invalid.

        Source: Kafka ControllerConfigurationValidator.
        """
        if resource.resource_type == TOPIC:
            if not resource.resource_name:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            if message := name_error(resource.resource_name):
                raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        rules = self._configs if resource.resource_type == TOPIC else self._groups
        try:
            rules.validate(configs)
        except ConfigError as error:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _altered(self, old: Mapping[str, str], resource: IncrementalResource) -> dict[str, str]:
        _check_changes(resource.configs, may_be_null=lambda change: change.config_operation == DELETE)
        configs = dict(old)
        for change in resource.configs:
            self._alter(configs, change)
        return configs

    def _alter(self, configs: dict[str, str], change: Change) -> None:
        match change.config_operation:
            case 0:
                configs[change.name] = change.value or ""
            case 1:
                configs.pop(change.name, None)
            case 2:
                self._alter_list(configs, change, lambda old, new: old + [item for item in new if item not in old])
            case 3:
                self._alter_list(configs, change, lambda old, new: [item for item in old if item not in new])
            case _:
                raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka has no message either.

    def _alter_list(
        self, configs: dict[str, str], change: Change, combine: Callable[[list[str], list[str]], list[str]]
    ) -> None:
        """Combine a list with the effective value of the key. Source: Kafka ConfigurationControlManager."""
        key = TOPIC_KEYS.get(change.name)
        if key is None or key.type is not ConfigType.LIST:
            what = "APPEND" if change.config_operation == APPEND else "SUBTRACT"
            raise CoordinatorError(
                ErrorCode.INVALID_CONFIG, f"Can't {what} to key {change.name} because its type is not LIST."
            )
        old = self._configs.value(change.name, configs).value or ""
        combined = combine(_split(old), _split(change.value or ""))
        configs[change.name] = ",".join(combined)


def _replaced(_old: Mapping[str, str], resource: m.AlterConfigsRequestAlterConfigsResource) -> dict[str, str]:
    _check_changes(resource.configs, may_be_null=lambda _: False)
    return {config.name: config.value or "" for config in resource.configs}


def _check_changes(changes: Sequence[C], *, may_be_null: Callable[[C], bool]) -> None:
    if len({change.name for change in changes}) < len(changes):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    null = [change.name for change in changes if change.value is None and not may_be_null(change)]
    if null:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(null)}")


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _not_alterable(resource_type: int) -> CoordinatorError:
    if resource_type in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
        what = RESOURCE_NAMES[resource_type]
        return CoordinatorError(ErrorCode.INVALID_REQUEST, f"Configurations of {what} cannot be changed at run time.")
    return CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _responses(respond: Callable[..., S], decisions: Decisions, code: ErrorCode) -> list[S]:
    return [
        respond(
            error_code=outcome.code if isinstance(outcome, CoordinatorError) else code,
            error_message=outcome.message if isinstance(outcome, CoordinatorError) else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, outcome in decisions
    ]
