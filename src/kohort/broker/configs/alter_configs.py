"""
IncrementalAlterConfigs (44), versions 0 and 1, and AlterConfigs (33), versions 0 to 2: the newest is flexible.

IncrementalAlterConfigs changes single keys, AlterConfigs replaces all keys of a resource. Resources are topics, groups, this
broker (by its id), all brokers (the broker with an empty name), subscriptions of client metrics, and with
IncrementalAlterConfigs the broker's loggers. A group need not exist.

Source: KIP-133, KIP-339, KIP-412, KIP-714; Kafka ControllerApis, ConfigAdminManager, ConfigurationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from kohort.broker.catalog.catalog import NO_CHANGE, Catalog
from kohort.broker.catalog.changes import DEFAULT_TIMEOUT_MS, Changes, Decided, accepted, decide_each, verdict
from kohort.broker.catalog.view import CatalogChange, ConfiguredGroup, Setting, Topic
from kohort.broker.cluster import Cluster
from kohort.broker.configs import broker_changes, client_metrics, loggers
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.configs.definitions import BROKER_KEYS, TOPIC_KEYS
from kohort.broker.configs.dynamic_configs import BROKER_KIND, DynamicConfigs
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.configs.resources import BROKER, CLIENT_METRICS, TOPIC, canonical, node_id_of
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.configs.values import ConfigType, check_lengths
from kohort.broker.ports import Context
from kohort.broker.topics.topic_names import name_error
from kohort.machine.gradual import gathered, repeated
from kohort.machine.shard import Reply
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import CONFIGS_MAX, CONFIGURED_GROUPS_MAX
from kohort.wire import messages as m

if TYPE_CHECKING:
    Incremental = m.IncrementalAlterConfigsRequestAlterConfigsResource
    Change = m.IncrementalAlterConfigsRequestAlterableConfig
    Resource = Incremental | m.AlterConfigsRequestAlterConfigsResource

T = TypeVar("T")
Altered: TypeAlias = Callable[[Mapping[str, str], Any], dict[str, str]]
"""`altered(configs, resource) -> configs`: the new configurations of a resource."""

SET = 0
DELETE = 1
APPEND = 2

_STEP_RESOURCES = 20
"""Resources that are changed in one step."""
_STEP_LENGTH = 32_768
"""Characters of the values that are read in one step; those of the resource that exceeds it are read, too."""
_CHANGE_LENGTH = 32
"""Characters that a change counts as, beside those of its value."""


class AlterConfigs:
    """Handler of IncrementalAlterConfigs and AlterConfigs. Each resource is changed as a whole or not at all."""

    def __init__(
        self,
        catalog: Catalog,
        configs: TopicConfigs,
        groups: GroupConfigs,
        brokers: DynamicConfigs,
        cluster: Cluster,
        changes: Changes,
    ) -> None:
        self._catalog = catalog
        self._configs = configs
        self._groups = groups
        self._brokers = brokers
        self._cluster = cluster
        self._changes = changes

    def incremental_alter_configs(
        self,
        request: m.IncrementalAlterConfigsRequest,
        context: Context,
        reply: Reply[m.IncrementalAlterConfigsResponse],
    ) -> Generator[None, None, m.IncrementalAlterConfigsResponse | None]:
        result = m.IncrementalAlterConfigsResponseAlterConfigsResourceResponse
        return self._alter_all(request, self._altered, result, m.IncrementalAlterConfigsResponse, context, reply)

    def alter_configs(
        self, request: m.AlterConfigsRequest, context: Context, reply: Reply[m.AlterConfigsResponse]
    ) -> Generator[None, None, m.AlterConfigsResponse | None]:
        result = m.AlterConfigsResponseAlterConfigsResourceResponse
        return self._alter_all(request, _replaced, result, m.AlterConfigsResponse, context, reply)

    def _alter_all(
        self,
        request: Any,
        altered: Altered,
        result: Callable[..., Any],
        response: Callable[..., T],
        context: Context,
        reply: Reply[T],
    ) -> Generator[None, None, T | None]:
        """Validate and change some resources at a time, and answer when all changes are durable."""
        twice = yield from repeated((each.resource_type, each.resource_name) for each in request.resources)
        parts = yield from gathered(_parts(request.resources), 1)
        validate_only, is_forwarded = request.validate_only, context.is_forwarded

        def decide_one(one: Any) -> Topic | ConfiguredGroup | Setting | None:
            return self._decide(one, altered, twice, validate_only=validate_only, is_forwarded=is_forwarded)

        def decide(part: Sequence[Any]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Any]]]:
            decided = decide_each(part, decide_one)
            return NO_CHANGE if validate_only else self._change(decided), partial(_results, result, decided)

        def respond(results: list[Any]) -> T:
            return response(responses=results)

        return (yield from self._changes.make_in_parts(parts, decide, DEFAULT_TIMEOUT_MS, respond, reply))

    def _change(self, decided: Decided[Resource, Topic | ConfiguredGroup | Setting | None]) -> CatalogChange:
        """The changes to write: groups and settings that stay as they are are left out."""
        catalog = self._catalog
        return CatalogChange(
            put=accepted(decided, Topic),
            groups=tuple(
                group for group in accepted(decided, ConfiguredGroup) if group != catalog.newest_group(group.group_id)
            ),
            settings=tuple(
                setting
                for setting in accepted(decided, Setting)
                if setting.value != catalog.newest_settings(setting.kind).get(setting.name)
            ),
        )

    def _decide(
        self,
        resource: Resource,
        altered: Altered,
        twice: Container[tuple[int, str]],
        *,
        validate_only: bool,
        is_forwarded: bool,
    ) -> Topic | ConfiguredGroup | Setting | None:
        """
        Validate the change of a resource and return its new entry of the catalog; None if it concerns this process only.

        Raises:
            CoordinatorError: the resource does not exist, or cannot be changed so.
        """
        if (resource.resource_type, resource.resource_name) in twice:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_count(resource.configs)
        _check_changes(resource.configs)
        match resource.resource_type:
            case 2:
                return self._decide_topic(resource, altered)
            case 32:
                return self._decide_group(resource, altered)
            case 4:
                return self._decide_broker(resource, altered, is_forwarded=is_forwarded)
            case 8 if altered == self._altered:
                self._alter_loggers(resource, validate_only=validate_only)
                return None
            case 16:
                name = resource.resource_name
                configs = altered(self._catalog.newest_settings(CLIENT_METRICS_KIND).get(name, {}), resource)
                _check_length(configs)
                client_metrics.validate(self._catalog, name, configs)
                return Setting(CLIENT_METRICS_KIND, name, dict(configs) or None)
            case kind:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")

    def _decide_topic(self, resource: Resource, altered: Altered) -> Topic:
        """Kafka reports after all other errors that a topic does not exist. Source: ControllerConfigurationValidator."""
        name = resource.resource_name
        topic = self._catalog.newest(name)
        configs = altered(topic.configs if topic else {}, resource)
        if not name:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if message := name_error(name):
            raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        _check(self._configs.validate, configs)
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return msgspec.structs.replace(topic, configs=configs)

    def _decide_group(self, resource: Resource, altered: Altered) -> ConfiguredGroup:
        if not resource.resource_name:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        group = self._catalog.newest_group(resource.resource_name)
        configs = altered(group.configs, resource)
        _check(self._groups.validate, configs)
        if configs and not group.configs and not self._catalog.has_room_for_groups:
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION,
                f"{CONFIGURED_GROUPS_MAX} groups have configurations of their own, which is the most.",
            )
        return msgspec.structs.replace(group, configs=configs)

    def _decide_broker(self, resource: Resource, altered: Altered, *, is_forwarded: bool) -> Setting:
        """A node that forwards a change of its own configurations has checked them with its own values."""
        for_all = not resource.resource_name
        node_id = self._cluster.node_id
        if not for_all:
            message = "Unexpected broker id, expected {}, but received {}"
            node_id = self._checked_node_id(resource.resource_name, message, takes_others=is_forwarded)
        name = canonical(resource)
        configs = altered(self._brokers.newest(name), resource)
        _check_length(configs)
        own = self._brokers.brokers[self._cluster.node_id]
        if for_all or node_id == self._cluster.node_id:
            broker_changes.check(own, configs, for_all=for_all)
        else:
            broker_changes.check_each(configs)
        if not for_all:
            self._brokers.check_listeners(node_id, configs)
        for config in self._brokers.brokers.values() if for_all else ():
            if config.dynamic and config is not own:
                broker_changes.check(config, configs, for_all=True)
        broker_changes.check_min_isr(configs, [each.name for each in resource.configs], for_all=for_all)
        return Setting(BROKER_KIND, name, dict(configs) or None)

    def _alter_loggers(self, resource: Any, *, validate_only: bool) -> None:
        self._checked_node_id(resource.resource_name, "Unexpected node id. Expected {}, but received {}")
        loggers.check_changes(resource.configs)
        if not validate_only:
            loggers.apply_changes(resource.configs)

    def _checked_node_id(self, name: str, message: str, *, takes_others: bool = False) -> int:
        """
        The id of this node.

        Args:
            takes_others: whether it may be the id of any node of the cluster.

        Raises:
            CoordinatorError: it is another id.
        """
        node_id = node_id_of(name)
        if node_id is None:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if node_id != self._cluster.node_id and not (takes_others and node_id in self._cluster.brokers):
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, message.format(self._cluster.node_id, node_id))
        return node_id

    def _altered(self, old: Mapping[str, str], resource: Incremental) -> dict[str, str]:
        configs = dict(old)
        for change in resource.configs:
            self._alter(resource.resource_type, configs, change)
        return configs

    def _alter(self, resource_type: int, configs: dict[str, str], change: Change) -> None:
        match change.config_operation:
            case 0:
                configs[change.name] = change.value or ""
            case 1:
                configs.pop(change.name, None)
            case 2:
                self._alter_list(resource_type, configs, change, _appended)
            case 3:
                self._alter_list(resource_type, configs, change, _subtracted)
            case operation if resource_type == BROKER:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
            case _:
                raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka has no message either.

    def _alter_list(
        self,
        resource_type: int,
        configs: dict[str, str],
        change: Change,
        combine: Callable[[list[str], list[str]], list[str]],
    ) -> None:
        """
        Combine a list with the effective value of a topic's key, or with the value that is set for the broker.

        Source: Kafka ConfigurationControlManager, ConfigAdminManager.prepareIncrementalConfigs.
        """
        if resource_type == BROKER:
            old = _broker_list(configs, change)
        else:
            key = TOPIC_KEYS.get(change.name) if resource_type == TOPIC else None
            if key is None or key.type is not ConfigType.LIST:
                what = "APPEND" if change.config_operation == APPEND else "SUBTRACT"
                raise CoordinatorError(
                    ErrorCode.INVALID_CONFIG, f"Can't {what} to key {change.name} because its type is not LIST."
                )
            old = self._configs.value(change.name, configs).value or ""
        combined = combine(_split(old), _split(change.value or ""))
        configs[change.name] = ",".join(combined)


def _broker_list(configs: Mapping[str, str], change: Change) -> str:
    key = BROKER_KEYS.get(change.name)
    if key is None:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
    if key.type is not ConfigType.LIST:
        what = "append" if change.config_operation == APPEND else "subtract"
        raise CoordinatorError(
            ErrorCode.INVALID_CONFIG, f"Config value {what} is not allowed for config key: {change.name}"
        )
    return configs.get(change.name, key.default or "")


def _parts(resources: Sequence[Resource]) -> Iterator[Sequence[Resource]]:
    """
    Resources to change in one step each, with few and short values.

    A broker is alone, because it may be given under two names: 1 and 01. So is a subscription of client metrics: compiling its
    expressions takes milliseconds.
    """
    low = length = 0
    for high, resource in enumerate(resources, 1):
        length += sum([len(change.value or "") + _CHANGE_LENGTH for change in resource.configs])
        if high - low == _STEP_RESOURCES or length > _STEP_LENGTH or resource.resource_type in (BROKER, CLIENT_METRICS):
            yield resources[low:high]
            low = high
            length = 0
    if low < len(resources) or not resources:
        yield resources[low:]


def _check_count(configs: Sized) -> None:
    if len(configs) > CONFIGS_MAX:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"{len(configs)} configurations of one resource.")


def _check_length(configs: dict[str, str]) -> None:
    """Bound what clients can store under names of their own."""
    _check_count(configs)
    _check(check_lengths, configs)


def _check(check: Callable[[dict[str, str]], None], configs: dict[str, str]) -> None:
    try:
        check(configs)
    except ConfigError as error:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _replaced(_old: Mapping[str, str], resource: m.AlterConfigsRequestAlterConfigsResource) -> dict[str, str]:
    return {config.name: config.value or "" for config in resource.configs}


def _check_changes(changes: Sequence[Any]) -> None:
    """Refuse a key that is given twice, and null, which only a deletion may have."""
    if len({change.name for change in changes}) < len(changes):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    null = [
        change.name for change in changes if change.value is None and getattr(change, "config_operation", SET) != DELETE
    ]
    if null:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(null)}")


def _appended(old: list[str], new: list[str]) -> list[str]:
    """The old elements and those of the new ones that they lack, each once."""
    known = set(old)
    return old + [item for item in dict.fromkeys(new) if item not in known]


def _subtracted(old: list[str], gone: list[str]) -> list[str]:
    """The old elements, each of the others taken away once. Source: Kafka ConfigurationControlManager, by List.remove."""
    left = Counter(gone)
    kept: list[str] = []
    for item in old:
        if left[item] > 0:
            left[item] -= 1
        else:
            kept.append(item)
    return kept


def _split(text: str) -> list[str]:
    return [stripped for item in text.split(",") if (stripped := item.strip())]


def _results(
    result: Callable[..., Any], decided: Decided[Resource, Topic | ConfiguredGroup | Setting | None], failure: ErrorCode
) -> list[Any]:
    results = []
    for resource, outcome in decided:
        code, message = verdict(outcome, failure)
        results.append(
            result(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return results
