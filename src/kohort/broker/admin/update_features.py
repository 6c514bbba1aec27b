"""
UpdateFeatures (57), versions 0 to 2: v1 upgrade types and validation only; v2 no result of single features.

All features of a request are changed, or none. In version 0, Kafka ignores the permission to downgrade, and so does Kohort.

A level of `transaction.version` is effective at once, one of `group.version` at the next start.

Source: KIP-584, KIP-778; Kafka FeatureControlManager.updateFeatures, ControllerApis.handleUpdateFeatures.
"""

from functools import partial
from typing import Final

from kohort.broker.catalog import Catalog
from kohort.broker.changes import DEFAULT_TIMEOUT_MS, Changes
from kohort.broker.cluster import Cluster
from kohort.broker.features import FEATURES, KRAFT_VERSION, METADATA_VERSION, Features, features_change
from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TYPES: Final = (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
_TYPES_SINCE: Final = 1
_NO_RESULTS_SINCE: Final = 2
_METADATA_UNCHANGED_SINCE: Final = 23
"""The level from which on no `metadata.version` changes the records of Kafka's metadata log."""
_RANGES: Final = {feature.name: (feature.oldest, feature.newest) for feature in FEATURES}
_PREFIX: Final = "The update failed for all features since the following feature had an error: "


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
        if name not in _RANGES:
            return prefix + (f"{controller} does not support this feature." if level else f"Feature {name} not found.")
        oldest, newest = _RANGES[name]
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
    if level >= current or level >= _METADATA_UNCHANGED_SINCE:
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
