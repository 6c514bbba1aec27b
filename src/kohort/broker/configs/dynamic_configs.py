"""
Broker configurations that were set at run time: kept by the catalog, applied to the broker's configuration.

Each broker has a setting, and all brokers together one with an empty name. A change is applied when it is durable, before its
response is sent, and again at the next start.

Source: KIP-226; Kafka DynamicBrokerConfig, BrokerConfigHandler.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_settings import Setting
from kohort.broker.configs.definitions import BROKER_KEYS, BrokerConfig
from kohort.model.errors import ConfigError

BROKER_KIND: Final = "broker"
"""The kind of the catalog's setting; its name is the broker's id, or empty, and its fields are the configurations."""
ALL_BROKERS: Final = ""

_log = logging.getLogger("kohort.broker")


class DynamicConfigs:
    """
    Applies the catalog's broker configurations to `config`, which all brokers of the process share.

    The values of its first broker have an effect. Those of other virtual brokers are kept and shown.

    A value that this version refuses, which another version has stored, is logged and has no effect, as in Kafka.
    """

    def __init__(self, catalog: Catalog, config: BrokerConfig, node_id: int) -> None:
        self._catalog = catalog
        self._config = config
        self._node_id = str(node_id)
        catalog.watch_settings(BROKER_KIND, self._on_change)
        if catalog.settings(BROKER_KIND):
            self._apply()
        config.watch(_log_change)

    def newest(self, name: str) -> dict[str, str]:
        """The configurations that a broker, or all brokers, will have when all changes in progress are durable."""
        stored = self._catalog.newest_settings(BROKER_KIND).get(name, {})
        return (self._config.initial_defaults if name == ALL_BROKERS else {}) | dict(stored)

    def config_of(self, node_id: int) -> BrokerConfig:
        """The configuration of one broker."""
        if str(node_id) == self._node_id:
            return self._config
        stored = self._catalog.settings(BROKER_KIND)
        return self._config.with_dynamic(_valid(stored.get(str(node_id), {})), self._config.dynamic_defaults)

    def _on_change(self, _settings: list[Setting]) -> None:
        self._apply()

    def _apply(self) -> None:
        stored = self._catalog.settings(BROKER_KIND)
        self._config.set_dynamic(*(_valid(stored.get(name, {})) for name in (self._node_id, ALL_BROKERS)))


def _log_change(names: frozenset[str]) -> None:
    for name in sorted(names):
        has_effect = name not in BROKER_KEYS or BROKER_KEYS[name].has_effect
        _log.info("config.changed key=%r", name) if has_effect else _log.warning("config.without_effect key=%s", name)


def _valid(configs: Mapping[str, Any]) -> dict[str, str]:
    valid: dict[str, str] = {}
    for name, text in configs.items():
        try:
            if name in BROKER_KEYS:
                BROKER_KEYS[name].parse(text)
            valid[name] = text
        except ConfigError as error:
            _log.error("config.dynamic_invalid key=%s error=%r", name, str(error))
    return valid
