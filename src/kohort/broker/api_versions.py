"""
ApiVersions (18), versions 0 to 4: v3 client software, features; v4 features that begin at 0.

The response lists the APIs that have a handler. A feature is listed if its APIs are served, because clients choose their
protocol by it. The server itself answers an unknown version of ApiVersions, with a body of version 0.

Source: KIP-35, KIP-511, KIP-584, KIP-1022; Kafka DefaultApiVersionManager, ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from kohort.broker.ports import Context, Handler
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SOFTWARE_SINCE = 3
_ZERO_FEATURES_SINCE = 4


class Feature(msgspec.Struct, frozen=True):
    """A feature that the cluster has when `api` is served in this version; from 0 on it could be turned off."""

    name: str
    level: int
    api: ApiKey
    api_version: int


FEATURES = (
    Feature("group.version", 1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    Feature("transaction.version", 2, ApiKey.END_TXN, 5),
    Feature("share.version", 1, ApiKey.SHARE_GROUP_HEARTBEAT, 1),
    Feature("streams.version", 1, ApiKey.STREAMS_GROUP_HEARTBEAT, 0),
)


NEWEST_SERVED: dict[ApiKey, int] = {}
"""The newest version of each API that Kohort serves up to an older version than Kafka; docs/unsupported.md names them too."""


def served_versions(api_key: ApiKey) -> tuple[int, int]:
    """The oldest and the newest version of an API that Kohort serves."""
    return api_key.oldest, min(api_key.newest_stable, NEWEST_SERVED.get(api_key, api_key.newest_stable))


class ApiVersions:
    """
    Handler of ApiVersions.

    Args:
        handlers: the registry of handlers; may grow until the first request.
    """

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        self._handlers = handlers

    def api_versions(
        self, request: m.ApiVersionsRequest, context: Context, _reply: Reply[m.ApiVersionsResponse]
    ) -> m.ApiVersionsResponse:
        software = (request.client_software_name, request.client_software_version)
        if context.api_version >= _SOFTWARE_SINCE and not all(map(_SOFTWARE.fullmatch, software)):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        features = [feature for feature in FEATURES if self._has(feature)]
        return m.ApiVersionsResponse(
            api_keys=[
                m.ApiVersionsResponseApiVersion(
                    api_key=key, min_version=key.oldest_advertised, max_version=served_versions(key)[1]
                )
                for key in sorted(self._handlers)
            ],
            supported_features=[
                m.ApiVersionsResponseSupportedFeatureKey(name=feature.name, min_version=0, max_version=feature.level)
                for feature in features
                if context.api_version >= _ZERO_FEATURES_SINCE
            ],
            finalized_features_epoch=0,
            finalized_features=[
                m.ApiVersionsResponseFinalizedFeatureKey(
                    name=feature.name, max_version_level=feature.level, min_version_level=feature.level
                )
                for feature in features
            ],
        )

    def _has(self, feature: Feature) -> bool:
        return feature.api in self._handlers and served_versions(feature.api)[1] >= feature.api_version
