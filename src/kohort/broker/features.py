"""
Features of the cluster (KIP-584): what is supported, and the finalised levels, by which clients choose their protocol.

A feature is supported if the APIs that it stands for are served. Its finalised level is the newest one, until UpdateFeatures or
the operator (`--feature`, at a start) changes it; a changed level is a setting in the catalog. Level 0 turns a feature off;
clients are not told of it.

`metadata.version`, `kraft.version` and `eligible.leader.replicas.version` are the levels that Apache Kafka 4.2.1 has, because
tools and clients read them. They change nothing here: there is no metadata log, and each partition has one replica.

Source: KIP-584, KIP-890, KIP-1022; Kafka FeatureVersion, MetadataVersion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kohort.broker.api_table import served_versions
from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Setting
from kohort.broker.ports import Handler
from kohort.model.errors import ConfigError
from kohort.model.numbers import is_number
from kohort.wire.apis import ApiKey

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

_ABSENT: Final = frozenset({"share.version", "streams.version"})
"""Features that Apache Kafka has and Kohort has not. The operator may ask for their level 0."""
FEATURE_KIND: Final = "feature"
_LEVEL: Final = "level"
_LEVEL_MAX: Final = (1 << 15) - 1


class Feature(msgspec.Struct, frozen=True):
    """
    A feature with levels from `oldest` to `newest`. It is supported if `api` is served in this version.

    Attributes:
        api: None if the feature stands for no API.
    """

    name: str
    oldest: int
    newest: int
    api: ApiKey | None = None
    api_version: int = 0

    def is_supported(self, handlers: Mapping[ApiKey, Handler]) -> bool:
        if self.api is None:
            return True
        return self.api in handlers and served_versions(self.api)[1] >= self.api_version


FEATURES: Final = (
    Feature(GROUP_VERSION, 0, 1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    Feature(KRAFT_VERSION, 0, 1),
    Feature(METADATA_VERSION, 7, 29),
    Feature(TRANSACTION_VERSION, 0, 2, ApiKey.END_TXN, 5),
    Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1),
)


class Features:
    """
    The features of one cluster.

    Args:
        levels: the finalised levels that the operator asks for, by name. They replace those in the catalog.

    Raises:
        ConfigError: a feature or a level is unknown.
    """

    def __init__(self, levels: Mapping[str, int] | None = None) -> None:
        known = {feature.name: feature for feature in FEATURES}
        levels = {name: level for name, level in (levels or {}).items() if level or name not in _ABSENT}
        for name, level in levels.items():
            if name not in known:
                raise ConfigError(f"Feature {name!r} is unknown; there are {', '.join(known)}")
            feature = known[name]
            if not feature.oldest <= level <= feature.newest:
                raise ConfigError(f"Feature {name} has the levels {feature.oldest} to {feature.newest}, not {level}")
        self._asked = dict(levels)
        self._levels = {feature.name: feature.newest for feature in FEATURES} | self._asked

    def attach(self, catalog: Catalog) -> None:
        """
        Take the levels in the catalog, now and when they change, and store those that the operator asked for.

        Raises:
            ConfigError: a level in the catalog is unknown.
        """
        stored = {name: value[_LEVEL] for name, value in catalog.settings(FEATURE_KIND).items()}
        try:
            Features(stored)
        except ConfigError as error:
            raise ConfigError(
                f"The catalog was written by a newer version of Kohort: {error}. Start that version."
            ) from error
        self._levels |= stored | self._asked
        changed = {name: level for name, level in self._asked.items() if stored.get(name) != level}
        catalog.watch_settings(FEATURE_KIND, self._on_change)
        if changed:
            catalog.change(features_change(changed), lambda _code: None)

    def _on_change(self, settings: list[Setting]) -> None:
        for setting in settings:
            if setting.value is not None:
                self._levels[setting.name] = setting.value[_LEVEL]

    def level(self, name: str) -> int:
        """The finalised level of a feature."""
        return self._levels[name]

    def newest_level(self, catalog: Catalog, name: str) -> int:
        """The finalised level of a feature, when all changes in progress are durable."""
        setting = catalog.newest_settings(FEATURE_KIND).get(name)
        return self._levels[name] if setting is None else int(setting[_LEVEL])

    def supported(self, handlers: Mapping[ApiKey, Handler]) -> list[Feature]:
        """The features whose APIs are among the handlers."""
        return [feature for feature in FEATURES if feature.is_supported(handlers)]


def check_level(name: str, fields: Mapping[str, object]) -> None:
    """
    Check a stored level. A level above the newest one is that of a newer version of Kohort, which `Features.attach` refuses.

    Raises:
        ConfigError: the value is no level, or is below the oldest one.
    """
    level = fields.get(_LEVEL)
    oldest = next((feature.oldest for feature in FEATURES if feature.name == name), 0)
    if not isinstance(level, int) or isinstance(level, bool) or level < oldest:
        raise ConfigError(f"Feature {name} has no level {level!r}")


def features_change(levels: Mapping[str, int]) -> CatalogChange:
    """The change of the catalog that stores levels by name."""
    return CatalogChange(settings=tuple(Setting(FEATURE_KIND, name, {_LEVEL: level}) for name, level in levels.items()))


def parse_features(texts: Iterable[str]) -> dict[str, int]:
    """
    Parse `NAME=LEVEL` texts.

    Raises:
        ConfigError: a text has another form.
    """
    levels = {}
    for text in texts:
        name, _, level = text.partition("=")
        if not is_number(level, 0, _LEVEL_MAX):
            raise ConfigError(f"A feature is given as NAME=LEVEL, for example {TRANSACTION_VERSION}=1; not {text!r}")
        levels[name.strip()] = int(level)
    return levels
