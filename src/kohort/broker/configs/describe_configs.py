"""
DescribeConfigs (32), versions 1 to 4: v1 synonyms; v3 types and documentation; v4 is flexible. And ListConfigResources (74),
versions 0 and 1: names of resources with configurations; v0 client metrics only, v1 all types.

Resources are topics, this broker (by its id), the cluster's dynamic defaults (the broker with an empty name), groups, the
broker's loggers and subscriptions of client metrics. A repeated resource is described once. The documentation of a key is ours.

Source: KIP-1142; Kafka ConfigHelper.describeConfigs, KafkaApis.handleListConfigResources.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kohort.broker.apis.find_coordinator import MALFORMED
from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs import loggers
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.configs.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigKey,
    UpdateMode,
    known_key,
)
from kohort.broker.configs.dynamic_configs import DynamicConfigs
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.configs.resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    canonical,
    node_id_of,
)
from kohort.broker.configs.topic_configs import BROKER_SYNONYMS, ConfigSource, Synonym, TopicConfigs
from kohort.broker.configs.values import text_of
from kohort.broker.ports import Context
from kohort.broker.topics.topic_names import name_error
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

if TYPE_CHECKING:
    Entry = m.DescribeConfigsResourceResult

_FAMILIES = {
    name: tuple(broker for broker, _ in brokers)
    for brokers in BROKER_SYNONYMS.values()
    if len(brokers) > 1
    for name in ([brokers[0][0]] if brokers[0][0] == "log.flush.interval.ms" else [broker for broker, _ in brokers])
}
"""Broker keys for one value in several units, by precedence."""
_KEYS = {TOPIC: TOPIC_KEYS, BROKER: BROKER_KEYS, GROUP: GROUP_KEYS, CLIENT_METRICS: CLIENT_METRICS_KEYS}

_LISTED_TYPES = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
"""In Kafka's order."""


class DescribeConfigs:
    """Handlers of both APIs."""

    def __init__(
        self,
        catalog: Catalog,
        configs: TopicConfigs,
        groups: GroupConfigs,
        brokers: DynamicConfigs,
        cluster: Cluster,
    ) -> None:
        self._catalog = catalog
        self._configs = configs
        self._groups = groups
        self._brokers = brokers
        self._cluster = cluster

    def describe_configs(
        self, request: m.DescribeConfigsRequest, _context: Context, _reply: Reply[m.DescribeConfigsResponse]
    ) -> Generator[None, None, m.DescribeConfigsResponse]:
        """Describe each resource once, in steps. Kafka describes a repeated resource repeatedly."""
        results: dict[Hashable, m.DescribeConfigsResult] = {}
        for number, resource in enumerate(request.resources):
            keys = frozenset(resource.configuration_keys or ())
            identity = (resource.resource_type, canonical(resource), keys)
            if identity not in results:
                results[identity] = self._describe(resource, request, keys)
                yield
            elif number % HANDLER_STEP == 0:
                yield
        return m.DescribeConfigsResponse(results=list(results.values()))

    def _describe(
        self, resource: m.DescribeConfigsResource, request: m.DescribeConfigsRequest, keys: frozenset[str]
    ) -> m.DescribeConfigsResult:
        entries: list[Entry] = []
        code, message = ErrorCode.NONE, ""
        try:
            entries = [entry for entry in self._entries(resource) if not keys or entry.name in keys]
            if not request.include_synonyms:
                entries = [msgspec.structs.replace(entry, synonyms=()) for entry in entries]
            if request.include_documentation and resource.resource_type != BROKER_LOGGER:
                entries = _documented(resource.resource_type, entries)
        except CoordinatorError as error:
            code, message = error.code, error.message or ""
        return m.DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=entries,
        )

    def _entries(self, resource: m.DescribeConfigsResource) -> Iterable[Entry]:
        match resource.resource_type:
            case 2:
                return self._topic(resource.resource_name)
            case 4 if not resource.resource_name:
                return self._dynamic_defaults()
            case 4:
                self._check_broker(resource.resource_name)
                return self._broker()
            case 32:
                return self._group(resource.resource_name)
            case 8:
                if not resource.resource_name:
                    raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                self._check_broker(resource.resource_name, "")
                return _loggers()
            case 16:
                return self._client_metrics(resource.resource_name)
            case _:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, MALFORMED)

    def _topic(self, name: str) -> list[Entry]:
        if message := name_error(name):
            raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        topic = self._catalog.topic(name)
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            _entry(
                effective.key,
                effective.value,
                self._configs.synonyms(effective.key.name, topic.configs),
            )
            for effective in self._configs.effective(topic.configs)
        ]

    def _check_broker(self, name: str, other: str = "or empty string, ") -> None:
        node_id = node_id_of(name)
        if node_id is None:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if node_id != self._cluster.node_id:
            expected = self._cluster.node_id
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {expected} {other}but received {name}",
            )

    def _broker(self) -> Iterable[Entry]:
        facts = self._broker_facts()
        configs = self._configs
        broker = configs.broker
        for name, key in broker.keys.broker.items():
            if name in facts and name not in broker.explicit:
                synonyms = [Synonym(name, facts[name], ConfigSource.STATIC_BROKER)]
                yield _entry(key, facts[name], synonyms, read_only=True)
            elif not key.is_internal:
                synonyms = configs.synonyms_of_broker(_FAMILIES.get(name, (name,)), first=name)
                read_only = key.update_mode is UpdateMode.READ_ONLY
                value = broker.text(name)
                yield _entry(key, value, synonyms, read_only=read_only)
        yield from self._others(broker)

    def _others(self, broker: BrokerConfig) -> Iterable[Entry]:
        """Keys that the release does not define under their name: of plug-ins, of single listeners, and of later releases."""
        known = broker.keys.broker
        later = {name: text for name, text in broker.explicit.items() if name not in known}
        layers = (
            (ConfigSource.DYNAMIC_BROKER, broker.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_defaults),
            (ConfigSource.STATIC_BROKER, broker.others | later),
        )
        for name in dict.fromkeys(name for _, layer in layers for name in layer if name not in known):
            synonyms = [Synonym(name, layer[name], source) for source, layer in layers if name in layer]
            yield self._other(name, synonyms + self._synonyms_of_all(name))

    def _synonyms_of_all(self, name: str) -> list[Synonym]:
        """The value for all listeners of a key of one listener. Source: Kafka DynamicBrokerConfig.brokerConfigSynonyms."""
        key = known_key(name)
        return [] if key is None or key.name == name else self._configs.synonyms_of_broker((key.name,))

    def _other(self, name: str, synonyms: Sequence[Synonym]) -> Entry:
        key = known_key(name)
        if key is None or name in BROKER_KEYS:
            return _unknown(name, synonyms)
        key = msgspec.structs.replace(key, name=name)
        value = text_of(key.parse(synonyms[0].value or ""))
        return _entry(key, value, synonyms, read_only=True)

    def _broker_facts(self) -> dict[str, str]:
        """Default values of keys that a Kafka broker requires or determines at its start."""
        cluster = self._cluster
        return {
            "node.id": str(cluster.node_id),
            "broker.id": str(cluster.node_id),
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "advertised.listeners": ",".join(
                f"{name}://{host}:{port}" for name, (host, port) in cluster.here.endpoints.items()
            ),
        }

    def _dynamic_defaults(self) -> Iterable[Entry]:
        broker = self._configs.broker
        for name, text in broker.dynamic_defaults.items():
            synonyms = [Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
            key = broker.keys.broker.get(name)
            if key is not None:
                yield _entry(key, text_of(key.parse(text)), synonyms)
            else:
                yield self._other(name, synonyms)

    def _client_metrics(self, name: str) -> Iterable[Entry]:
        """A subscription of client metrics, which need not exist. Source: ClientMetricsConfigs; a 4.2.1."""
        if not name:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        configs = self._catalog.settings(CLIENT_METRICS_KIND).get(name, {})
        for key in CLIENT_METRICS_KEYS.values():
            if key.name in configs:
                text = text_of(key.parse(configs[key.name]))
                synonyms = [Synonym(key.name, text, ConfigSource.CLIENT_METRICS)]
                yield _entry(key, text, synonyms)
            else:
                yield _entry(key, key.default, ())

    def _group(self, name: str) -> list[Entry]:
        if not name:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        overrides = self._catalog.configured_group(name).configs
        groups = self._groups
        return [
            _entry(key, groups.value(key.name, overrides), groups.synonyms(key.name, overrides))
            for key in self._configs.broker.keys.group.values()
            if not key.is_internal
        ]

    def list_config_resources(
        self, request: m.ListConfigResourcesRequest, context: Context, _reply: Reply[m.ListConfigResourcesResponse]
    ) -> m.ListConfigResourcesResponse:
        """Groups are listed that have configurations."""
        wanted = {CLIENT_METRICS} if context.api_version == 0 else set(request.resource_types or _LISTED_TYPES)
        if not wanted <= set(_LISTED_TYPES):
            return m.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return m.ListConfigResourcesResponse(
            config_resources=[
                m.ListConfigResourcesResponseConfigResource(resource_name=name, resource_type=kind)
                for kind in _LISTED_TYPES
                if kind in wanted
                for name in self._names(kind)
            ]
        )

    def _names(self, kind: int) -> list[str]:
        if kind == GROUP:
            return [group.group_id for group in self._catalog.configured_groups()]
        if kind == TOPIC:
            return [topic.name for topic in self._catalog.topics()]
        if kind == CLIENT_METRICS:
            return sorted(self._catalog.settings(CLIENT_METRICS_KIND))
        return [str(node_id) for node_id in self._cluster.nodes]


def _loggers() -> Iterable[Entry]:
    """The loggers of the broker with their levels. Source: LoggingController; a 4.2.1."""
    for name, level in loggers.levels():
        yield m.DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            config_type=0,
            documentation="",
        )


def _unknown(name: str, synonyms: Sequence[Synonym]) -> Entry:
    """A key without a definition: Kafka hides its value."""
    return m.DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=True,
        config_source=synonyms[0].source,
        is_sensitive=True,
        synonyms=_shown_synonyms(synonyms, is_sensitive=True),
        config_type=0,
        documentation=None,
    )


def _documented(resource_type: int, entries: Sequence[Entry]) -> list[Entry]:
    """The entries with our documentation of their keys."""
    keys = _KEYS.get(resource_type, {})
    return [
        msgspec.structs.replace(entry, documentation=keys[entry.name].documentation if entry.name in keys else None)
        for entry in entries
    ]


def _entry(
    key: ConfigKey,
    value: str | None,
    synonyms: Sequence[Synonym],
    *,
    read_only: bool = False,
) -> Entry:
    is_sensitive = key.is_sensitive
    return m.DescribeConfigsResourceResult(
        name=key.name,
        value=None if is_sensitive else value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=is_sensitive,
        synonyms=_shown_synonyms(synonyms, is_sensitive=is_sensitive),
        config_type=key.type,
        documentation=None,
    )


def _shown_synonyms(synonyms: Sequence[Synonym], *, is_sensitive: bool) -> list[m.DescribeConfigsSynonym]:
    return [
        m.DescribeConfigsSynonym(name=each.name, value=None if is_sensitive else each.value, source=each.source)
        for each in synonyms
    ]
