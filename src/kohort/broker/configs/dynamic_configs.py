"""
Broker configurations that were set at run time: kept by the catalog, applied to the broker's configuration.

Each broker has a setting, and all brokers together one with an empty name. A change is applied when it is durable, before its
response is sent, and again at the next start.

Source: KIP-226; Kafka DynamicBrokerConfig, BrokerConfigHandler.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import Setting
from kohort.broker.cluster import Cluster
from kohort.broker.configs.broker_changes import CORDONED
from kohort.broker.configs.definitions import BROKER_KEYS, BrokerConfig, bound_keys
from kohort.broker.configs.listener_configs import LISTENERS, PROTOCOLS
from kohort.broker.configs.topic_configs import DEFAULTS_OF_TOPICS, TopicConfigs
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode

BROKER_KIND: Final = "broker"
"""The kind of the catalog's setting; its name is the broker's id, or empty, and its fields are the configurations."""
ALL_BROKERS: Final = ""

EFFECT_PER_BROKER: Final = DEFAULTS_OF_TOPICS | {
    CORDONED,
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    LISTENERS,
    PROTOCOLS,
}
"""The keys whose own value of each virtual broker has an effect. Of other keys the first broker's own value has."""

_log = logging.getLogger("kohort.broker")


class DynamicConfigs:
    """
    Applies the catalog's broker configurations to the configuration of each broker.

    `config` is that of the first broker. The parts that all brokers of the process share read it: controller, coordinators,
    log cleaner, quotas. What belongs to a broker reads the broker's own: limits of connections, and the values that topics
    have by default, which are those of the partition's leader (`EFFECT_PER_BROKER`).

    The values are valid: requests were checked, and the start has set aside what it cannot use (`stored_values`).
    """

    def __init__(self, catalog: Catalog, config: BrokerConfig, cluster: Cluster) -> None:
        self._catalog = catalog
        self._config = config
        self._cordoned = cluster.cordoned
        first, *others = cluster.nodes
        self.brokers = {first: config} | {node_id: config.with_dynamic({}, {}) for node_id in others}
        """The configuration of each broker by its id. A configuration tells its watchers of changes."""
        self.of_topics = {node_id: TopicConfigs(each) for node_id, each in self.brokers.items()}
        """The configurations of topics as each broker sees them."""
        self.listener_checks: dict[int, Callable[[BrokerConfig], None]] = {}
        """By broker: raises ConfigError if its listeners cannot have a configuration."""
        catalog.watch_settings(BROKER_KIND, self._on_change)
        self._apply()
        self._log_cut()
        config.watch(_log_change)

    def _log_cut(self) -> None:
        for name, text in (self._config.dynamic_defaults | self._config.dynamic).items():
            if any(bound_keys(name)) and self._config[name] != BROKER_KEYS[name].parse(text):
                _log.warning("config.cut key=%s value=%s used=%s", name, text, self._config[name])

    def newest(self, name: str) -> dict[str, str]:
        """The configurations that a broker, or all brokers, will have when all changes in progress are durable."""
        stored = self._catalog.newest_settings(BROKER_KIND).get(name, {})
        return (self._config.initial_defaults if name == ALL_BROKERS else {}) | dict(stored)

    def check_listeners(self, node_id: int, configs: Mapping[str, str]) -> None:
        """
        Check the values that a broker would have of its own against its listeners.

        Raises:
            CoordinatorError: INVALID_REQUEST, with Kafka's message where it has one.
        """
        check = self.listener_checks.get(node_id)
        if check is None:
            return
        config = self.brokers[node_id]
        try:
            check(config.with_dynamic(configs, config.dynamic_defaults))
        except ConfigError as error:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _on_change(self, _settings: list[Setting]) -> None:
        before = {node_id: config.dynamic for node_id, config in self.brokers.items() if config is not self._config}
        self._apply()
        for node_id, dynamic in before.items():
            _log_own_change(node_id, dynamic, self.brokers[node_id].dynamic)

    def _apply(self) -> None:
        stored = self._catalog.settings(BROKER_KIND)
        for node_id, config in self.brokers.items():
            config.set_dynamic(stored.get(str(node_id), {}), stored.get(ALL_BROKERS, {}))
            # Each broker has one log directory, so any valid value names it.
            change = self._cordoned.add if config.get_list(CORDONED) else self._cordoned.discard
            change(node_id)


def _log_own_change(node_id: int, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Log which own values of a virtual broker, not the first one, have changed."""
    for name in sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        if name in EFFECT_PER_BROKER or name not in BROKER_KEYS:
            _log.info("config.changed key=%r broker=%d", name, node_id)
        else:
            _log.warning("config.without_effect key=%s broker=%d", name, node_id)


def _log_change(names: frozenset[str]) -> None:
    for name in sorted(names):
        has_effect = name not in BROKER_KEYS or BROKER_KEYS[name].has_effect
        _log.info("config.changed key=%r", name) if has_effect else _log.warning("config.without_effect key=%s", name)
