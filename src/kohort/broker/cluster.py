"""
The cluster as clients see it, and DescribeCluster (60), versions 0 to 2: v1 endpoint type, v2 fenced brokers.

There is no controller endpoint, and no broker is ever fenced.

Source: KIP-700, KIP-919, KIP-1073; Kafka KafkaApis.handleDescribeCluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

NO_NODE_ID = -1
NO_AUTHORIZED_OPERATIONS = -(1 << 31)
"""The request did not ask for the authorized operations."""

TOPIC_OPERATIONS = 3576
"""All operations on a topic as a bit field: Kafka's answer without an authorizer."""
CLUSTER_OPERATIONS = 8096

_BROKERS = 1
_CONTROLLERS = 2


@dataclass
class Cluster:
    """The node and its cluster. Host and port are set when the listener is bound."""

    node_id: int
    cluster_id: str
    host: str = "localhost"
    port: int = 9092
    rack: str | None = None

    @property
    def nodes(self) -> tuple[int, ...]:
        return (self.node_id,)

    def describe_cluster(
        self,
        request: m.DescribeClusterRequest,
        context: Context,
        _reply: Reply[m.DescribeClusterResponse],
    ) -> m.DescribeClusterResponse:
        if request.endpoint_type != _BROKERS:
            return _refuse_endpoint(request.endpoint_type, context.api_version)
        return m.DescribeClusterResponse(
            cluster_id=self.cluster_id,
            controller_id=self.node_id,
            brokers=(m.DescribeClusterBroker(broker_id=self.node_id, host=self.host, port=self.port, rack=self.rack),),
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else NO_AUTHORIZED_OPERATIONS,
            endpoint_type=_BROKERS,
        )


def _refuse_endpoint(endpoint_type: int, api_version: int) -> m.DescribeClusterResponse:
    """Refuse an endpoint type. Version 0 has no endpoint type, so the error is INVALID_REQUEST there."""
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    if api_version < 1:
        code = ErrorCode.INVALID_REQUEST
    return m.DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=_BROKERS)
