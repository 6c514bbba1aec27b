"""
ListConfigResources (74), versions 0 and 1: names of resources with configurations; v0 client metrics only, v1 all types.

Source: KIP-1142; Kafka KafkaApis.handleListConfigResources.
"""

from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND
from kohort.broker.configs.resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

_TYPES = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
"""In Kafka's order."""


class ListConfigResources:
    """Handler of ListConfigResources. A group is listed if it was ever configured."""

    def __init__(self, catalog: Catalog, cluster: Cluster) -> None:
        self._catalog = catalog
        self._cluster = cluster

    def list_config_resources(
        self, request: m.ListConfigResourcesRequest, context: Context, _reply: Reply[m.ListConfigResourcesResponse]
    ) -> m.ListConfigResourcesResponse:
        wanted = {CLIENT_METRICS} if context.api_version == 0 else set(request.resource_types or _TYPES)
        if not wanted <= set(_TYPES):
            return m.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return m.ListConfigResourcesResponse(
            config_resources=[
                m.ListConfigResourcesResponseConfigResource(resource_name=name, resource_type=kind)
                for kind in _TYPES
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
