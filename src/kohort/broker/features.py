"""
Features of the cluster (KIP-584): what is supported, and the finalised levels, by which clients choose their protocol. And
UpdateFeatures (57), versions 0 to 2: v1 upgrade types and validation only; v2 no result of single features.

A feature is supported if the APIs that it stands for are served. Its finalised level is the newest one of the broker's release,
until UpdateFeatures or the operator (`--feature`, at a start) changes it; a changed level is a setting in the catalog. Level 0
turns a feature off; clients are not told of it.

`metadata.version`, `kraft.version` and `eligible.leader.replicas.version` are the levels that the release has, because tools
and clients read them. They change nothing here: there is no metadata log, and each partition has one replica.

All features of a request are changed, or none. In version 0, Kafka ignores the permission to downgrade, and so does Kohort.
Levels of `transaction.version` and `share.version` are effective at once, one of `group.version` at the next start.

Source: KIP-584, KIP-778, KIP-890, KIP-932, KIP-1022, KIP-1191; Kafka FeatureVersion, MetadataVersion,
FeatureControlManager.updateFeatures, ControllerApis.handleUpdateFeatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Self

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.changes import DEFAULT_TIMEOUT_MS, Changes
from kohort.broker.catalog.view import CatalogChange, Setting
from kohort.broker.cluster import Cluster
from kohort.broker.ports import Context, Handler
from kohort.machine.shard import Reply
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.numbers import is_number
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, RELEASES, ApiKey, short_name

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

_ABSENT: Final = frozenset({"streams.version"})
"""Features that Apache Kafka has and Kohort has not. The operator may ask for their level 0."""
FEATURE_KIND: Final = "feature"
_LEVEL: Final = "level"
_LEVEL_MAX: Final = (1 << 15) - 1


class Feature(msgspec.Struct, frozen=True):
    """
    A feature with levels from `oldest` to `newest`. It is supported if `api` is served.

    Attributes:
        newest: of the newest release.
        api: None if the feature stands for no API.
        newest_in: the newest level of each release that has not `newest`.
    """

    name: str
    oldest: int
    newest: int
    api: ApiKey | None = None
    newest_in: Mapping[str, int] = msgspec.field(default_factory=dict)

    def is_supported(self, handlers: Mapping[ApiKey, Handler]) -> bool:
        return self.api is None or self.api in handlers

    def of(self, release: str) -> Self:
        """The feature as a release has it."""
        return msgspec.structs.replace(self, newest=self.newest_in.get(release, self.newest))


FEATURES: Final = (
    Feature(GROUP_VERSION, 0, 1, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    Feature(KRAFT_VERSION, 0, 1),
    Feature(METADATA_VERSION, 7, 33, newest_in={"4.2.1": 29}),
    Feature(TRANSACTION_VERSION, 0, 2, ApiKey.END_TXN),
    Feature(SHARE_VERSION, 0, 2, ApiKey.READ_SHARE_GROUP_STATE, newest_in={"4.2.1": 1}),
    Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1),
)
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TYPES: Final = (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
_TYPES_SINCE: Final = 1
_NO_RESULTS_SINCE: Final = 2
_METADATA_UNCHANGED: Final = frozenset((24, 25, 26, 27, 28, 29, 31))
"""The levels of `metadata.version` that have the records of Kafka's metadata log of the level before."""
_PREFIX: Final = "The update failed for all features since the following feature had an error: "


class Features:
    """
    The features of one cluster.

    Args:
        levels: the finalised levels that the operator asks for, by name. They replace those in the catalog.
        release: the release of Apache Kafka that the broker is like.

    Attributes:
        known: the features of the release, by name.

    Raises:
        ConfigError: a feature or a level is unknown.
    """

    def __init__(self, levels: Mapping[str, int] | None = None, *, release: str = DEFAULT_RELEASE) -> None:
        self._release = release
        self.known = known = {feature.name: feature.of(release) for feature in FEATURES}
        levels = {name: level for name, level in (levels or {}).items() if level or name not in _ABSENT}
        for name, level in levels.items():
            if name not in known:
                raise ConfigError(f"Feature {name!r} is unknown; there are {', '.join(known)}")
            feature = known[name]
            if not feature.oldest <= level <= feature.newest:
                raise ConfigError(f"Feature {name} has the levels {feature.oldest} to {feature.newest}, not {level}")
        self._asked = dict(levels)
        self._levels = {feature.name: feature.newest for feature in known.values()} | self._asked

    def attach(self, catalog: Catalog) -> None:
        """
        Take the levels in the catalog, now and when they change, and store those that the operator asked for.

        Raises:
            ConfigError: a level in the catalog is unknown.
        """
        stored = {name: value[_LEVEL] for name, value in catalog.settings(FEATURE_KIND).items()}
        try:
            Features(stored, release=self._release)
        except ConfigError as error:
            raise ConfigError(_later_level(stored, error)) from error
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
        return [feature for feature in self.known.values() if feature.is_supported(handlers)]


def _later_level(stored: Mapping[str, int], error: ConfigError) -> str:
    """The refusal of stored levels that the release lacks."""
    for release in RELEASES:
        with suppress(ConfigError):
            Features(stored, release=release)
            return f"The catalog was written with a later release: {error}. Start with --kafka {short_name(release)}"
    return f"The catalog was written by a newer version of Kohort: {error}. Start that version."


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


class UpdateFeatures:
    """Handler of UpdateFeatures."""

    def __init__(self, catalog: Catalog, features: Features, cluster: Cluster, changes: Changes) -> None:
        self._catalog = catalog
        self._features = features
        self._cluster = cluster
        self._changes = changes

    def update_features(
        self, request: m.UpdateFeaturesRequest, context: Context, reply: Reply[m.UpdateFeaturesResponse]
    ) -> m.UpdateFeaturesResponse | None:
        has_types = context.api_version >= _TYPES_SINCE
        levels: dict[str, int] = {}
        try:
            for update in request.feature_updates:
                name, level = update.feature, update.max_version_level
                self._check(name, level, update.upgrade_type if has_types else _UPGRADE)
                levels[name] = level
        except CoordinatorError as error:
            return m.UpdateFeaturesResponse(error_code=error.code, error_message=f"{_PREFIX}{error.message}")
        changed = {name: level for name, level in levels.items() if level != self._level(name)}
        if has_types and request.validate_only:
            changed = {}
        # Kafka ignores the timeout of the request. Source: a 4.2.1.
        response = partial(_response, request, context)
        return self._changes.make(features_change(changed), DEFAULT_TIMEOUT_MS, response, reply)

    def _level(self, name: str) -> int:
        return self._features.newest_level(self._catalog, name)

    def _check(self, name: str, level: int, upgrade_type: int) -> None:
        """
        Raises:
            CoordinatorError: INVALID_UPDATE_VERSION, with Kafka's message.
        """
        message = self._refusal(name, level, upgrade_type)
        if message is None and name == METADATA_VERSION:
            message = _metadata_refusal(self._level(name), level, upgrade_type)
        if message is not None:
            raise CoordinatorError(ErrorCode.INVALID_UPDATE_VERSION, message)

    def _refusal(self, name: str, level: int, upgrade_type: int) -> str | None:
        prefix = f"Invalid update version {level} for feature {name}. "
        controller = f"Local controller {self._cluster.node_id}"
        if upgrade_type not in _TYPES:
            return prefix + "The controller does not support the given upgrade type."
        if level < 0:
            return prefix + "A feature version cannot be less than 0."
        if name not in self._features.known:
            return prefix + (f"{controller} does not support this feature." if level else f"Feature {name} not found.")
        oldest, newest = self._features.known[name].oldest, self._features.known[name].newest
        if not oldest <= level <= newest:
            return prefix + f"{controller} only supports versions {oldest}-{newest}"
        current = self._level(name)
        if level < current and upgrade_type == _UPGRADE:
            return (
                f"{prefix}Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level > current and upgrade_type != _UPGRADE:
            return prefix + "Can't downgrade to a newer version."
        if level < current and name == KRAFT_VERSION:
            return prefix + "Can't downgrade the version of this feature."
        return None


def _metadata_refusal(current: int, level: int, upgrade_type: int) -> str | None:
    if _METADATA_UNCHANGED.issuperset(range(level + 1, current + 1)):
        return None
    prefix = f"Unsupported metadata.version downgrade from {current} to {level}. "
    if upgrade_type == _UNSAFE_DOWNGRADE:
        return prefix + "Unsafe metadata downgrade is not supported in this version."
    return prefix + "Refusing to perform the requested downgrade because it might delete metadata information."


def _response(request: m.UpdateFeaturesRequest, context: Context, code: ErrorCode) -> m.UpdateFeaturesResponse:
    """The answer; Kafka's message of a feature that was updated is the name of its error code."""
    results = [
        m.UpdateFeaturesResponseUpdatableFeatureResult(feature=update.feature, error_message="NONE")
        for update in request.feature_updates
        if code is ErrorCode.NONE and context.api_version < _NO_RESULTS_SINCE
    ]
    return m.UpdateFeaturesResponse(error_code=code, error_message=None, results=results)
