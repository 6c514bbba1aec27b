"""
Values in the catalog that this version cannot use. A start sets them aside: it logs each with the reason and goes on without.

Requests are checked before anything is stored. A value that another version has stored, or that the configurations of this
start contradict, is left in the catalog's log until its entry changes. Nothing uses or shows it.

Source: Kafka DynamicBrokerConfig.fromPersistentProps, which does so for configurations of brokers.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from kohort.broker.acls.stored_acls import ACLS, acl_of
from kohort.broker.admin.client_quotas import check_quota
from kohort.broker.admin.scram_credentials import check_credential
from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import SCRAM, TOKENS, CatalogChange, Setting
from kohort.broker.configs import client_metrics
from kohort.broker.configs.broker_changes import usable
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.dynamic_configs import ALL_BROKERS, BROKER_KIND
from kohort.broker.configs.group_configs import parse_group_value
from kohort.broker.configs.topic_configs import parse_topic_value
from kohort.broker.features import FEATURE_KIND, check_level
from kohort.broker.quotas.limits import QUOTAS
from kohort.broker.tokens.token import token_of
from kohort.model.errors import ConfigError, CoordinatorError

V = TypeVar("V")
_log: Final = logging.getLogger("kohort.broker")


def set_aside_unusable(catalog: Catalog, config: BrokerConfig) -> None:
    """
    Set aside the stored values that cannot be used.

    Args:
        config: what was set at the start.
    """
    catalog.replace_loaded(
        CatalogChange(
            put=tuple(
                msgspec.structs.replace(topic, configs=kept)
                for topic in catalog.topics()
                if (kept := _kept("topic", topic.name, topic.configs, parse_topic_value)) != topic.configs
            ),
            groups=tuple(
                msgspec.structs.replace(group, configs=kept)
                for group in catalog.configured_groups()
                if (kept := _kept("group", group.group_id, group.configs, parse_group_value)) != group.configs
            ),
            settings=(
                *_brokers(catalog, config),
                *_wholes(catalog, CLIENT_METRICS_KIND, client_metrics.check),
                *_quotas(catalog),
                *_wholes(catalog, SCRAM, check_credential),
                *_wholes(catalog, ACLS, acl_of),
                *_wholes(catalog, FEATURE_KIND, check_level),
                *_wholes(catalog, TOKENS, token_of),
            ),
        )
    )


def _tell(kind: str, name: str, key: str, error: Exception) -> None:
    _log.error(
        "catalog.set_aside kind=%s name=%r key=%r error=%r",
        kind,
        name,
        key,
        f"{error}. The value has no effect and is not shown; set it anew.",
    )


def _kept(kind: str, name: str, values: Mapping[str, V], check: Callable[[str, V], object]) -> dict[str, V]:
    """The values that can be used; the others are logged."""
    kept: dict[str, V] = {}
    for key, value in values.items():
        try:
            check(key, value)
            kept[key] = value
        except (ConfigError, CoordinatorError) as error:
            _tell(kind, name, key, error)
    return kept


def _brokers(catalog: Catalog, config: BrokerConfig) -> Iterator[Setting]:
    """The configurations of all brokers, and then those of single ones over them."""
    stored = catalog.settings(BROKER_KIND)
    defaults: dict[str, str] = {}
    for name in sorted(stored, key=lambda name: (name != ALL_BROKERS, name)):
        used, refused = usable(config, stored[name], None if name == ALL_BROKERS else defaults)
        if name == ALL_BROKERS:
            defaults = used
        for key, reason in refused.items():
            _tell(BROKER_KIND, name, key, ConfigError(reason))
        if refused:
            yield Setting(BROKER_KIND, name, used or None)


def _quotas(catalog: Catalog) -> Iterator[Setting]:
    for name, fields in catalog.settings(QUOTAS).items():
        kept = _kept(QUOTAS, name, fields, partial(check_quota, name))
        if kept != fields:
            yield Setting(QUOTAS, name, kept or None)


def _wholes(catalog: Catalog, kind: str, check: Callable[[str, Mapping[str, Any]], object]) -> Iterator[Setting]:
    """Settings of a kind that can be used as a whole or not at all."""
    for name, fields in catalog.settings(kind).items():
        try:
            check(name, fields)
        except (ConfigError, CoordinatorError) as error:
            _tell(kind, name, "", error)
            yield Setting(kind, name, None)
