"""
ApiVersions (18), versions 0 to 4: v3 client software, features; v4 features that begin at 0.

What is shown is what the dispatch has handlers for. A feature is shown when its APIs are served, for clients choose their
protocol by it. A request of an unknown version never comes here: the server answers it with a version 0 body.

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


class ApiVersions:
    """`served` is the dispatch's own table: what is added to it is shown."""

    def __init__(self, served: Mapping[ApiKey, tuple[Handler, int, int]]) -> None:
        self._served = served

    def api_versions(
        self, request: m.ApiVersionsRequest, context: Context, _reply: Reply[m.ApiVersionsResponse]
    ) -> m.ApiVersionsResponse:
        software = (request.client_software_name, request.client_software_version)
        if context.api_version >= _SOFTWARE_SINCE and not all(map(_SOFTWARE.fullmatch, software)):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        features = [feature for feature in FEATURES if self._has(feature)]
        return m.ApiVersionsResponse(
            api_keys=[
                m.ApiVersionsResponseApiVersion(api_key=key, min_version=_advertised(key, oldest), max_version=newest)
                for key, (_, oldest, newest) in sorted(self._served.items())
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
        found = self._served.get(feature.api)
        return found is not None and found[2] >= feature.api_version


def _advertised(key: ApiKey, oldest: int) -> int:
    """Produce is shown from 0, though nothing below what is served is answered: librdkafka looks for it."""
    return key.oldest_advertised if oldest == key.oldest else oldest
