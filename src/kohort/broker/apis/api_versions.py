"""
ApiVersions (18), versions 0 to 5: v3 client software, features; v4 features that begin at 0; v5 the broker that the client
expects. If it is another one, the client has to begin anew with its bootstrap addresses.

The response lists the APIs of the broker's release that have a handler. Those of client telemetry are listed only while there
is a subscription: clients that find them ask for theirs. A feature is listed if its APIs are served, because clients choose
their protocol by it. The server itself answers an unknown version of ApiVersions, with a body of version 0.

Source: KIP-35, KIP-511, KIP-584, KIP-1022, KIP-1242; Kafka KafkaApis.handleApiVersionsRequest, DefaultApiVersionManager,
ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import NO_NODE_ID, Cluster
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.features import Features
from kohort.broker.ports import Context, Handler
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SOFTWARE_SINCE = 3
_ZERO_FEATURES_SINCE = 4
_NO_BROKER = (None, NO_NODE_ID)


class ApiVersions:
    """
    Handler of ApiVersions.

    Args:
        handlers: the registry of handlers; may grow until the first request.
        versions: the oldest and the newest version of each API that the broker serves.
        cluster: seen from the broker that answers.
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        versions: Mapping[ApiKey, tuple[int, int]],
        features: Features,
        catalog: Catalog,
        cluster: Cluster,
    ) -> None:
        self._handlers = handlers
        self._versions = versions
        self._features = features
        self._catalog = catalog
        self._cluster = cluster

    def api_versions(
        self, request: m.ApiVersionsRequest, context: Context, _reply: Reply[m.ApiVersionsResponse]
    ) -> m.ApiVersionsResponse:
        software = (request.client_software_name, request.client_software_version)
        expected = (request.cluster_id, request.node_id)
        if (expected[0] is None) != (expected[1] == NO_NODE_ID):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if context.api_version >= _SOFTWARE_SINCE:
            if not all(map(_SOFTWARE.fullmatch, software)):
                return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.identify(*software)
        if expected not in (_NO_BROKER, (self._cluster.cluster_id, self._cluster.node_id)):
            return m.ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        features = self._features.supported(self._handlers)
        has_client_metrics = bool(self._catalog.settings(CLIENT_METRICS_KIND))
        levels = {feature.name: self._features.level(feature.name) for feature in features}
        return m.ApiVersionsResponse(
            api_keys=[
                m.ApiVersionsResponseApiVersion(
                    api_key=key, min_version=key.oldest_advertised, max_version=self._versions[key][1]
                )
                for key in sorted(self._handlers)
                if has_client_metrics or not API_TABLE[key].needs_client_metrics
            ],
            supported_features=[
                m.ApiVersionsResponseSupportedFeatureKey(
                    name=feature.name, min_version=feature.oldest, max_version=feature.newest
                )
                for feature in features
                if context.api_version >= _ZERO_FEATURES_SINCE or feature.oldest
            ],
            finalized_features_epoch=self._catalog.version,
            finalized_features=[
                m.ApiVersionsResponseFinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in levels.items()
                if level
            ],
        )
