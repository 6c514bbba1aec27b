"""
The brokers of the cluster as clients see them, and DescribeCluster (60), versions 0 to 2: v1 endpoint type, v2 fenced brokers.

There is no controller endpoint. A broker of a cluster of virtual brokers that was stopped is fenced.

Source: KIP-700, KIP-919, KIP-1073; Kafka KafkaApis.handleDescribeCluster, ClusterControlManager, BrokerRegistration.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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

DEFAULT_LISTENER: Final = "PLAINTEXT"

_BROKERS = 1
_CONTROLLERS = 2


class Endpoint(NamedTuple):
    """An address that clients are told."""

    host: str
    port: int


class RegisteredBroker:
    """
    One broker of the cluster.

    Attributes:
        endpoints: the advertised addresses by name of the listener. Set when the listeners are bound.
        is_fenced: whether the broker is stopped: it leads no partition and is in no ISR.
        is_draining: whether it is to stop: its partitions get other leaders. Clients are still told its address.
    """

    def __init__(self, node_id: int, rack: str | None = None) -> None:
        self.node_id = node_id
        self.rack = rack
        self.endpoints: dict[str, Endpoint] = {}
        self.is_fenced = False
        self.is_draining = False


class Cluster:
    """
    The brokers of the cluster, seen from one of them. Views from other brokers share the registrations (`seen_from`).

    Attributes:
        node_id: the broker whose clients ask.
        brokers: all registered brokers by id, in the order of ids.
        cordoned: ids of the brokers whose log directory is cordoned: they get no new partitions (KIP-1066).
        is_shared: whether the other brokers are those of other processes, on the same store.
        known_controller: the broker that leads the catalog, if others may; None for the first one that runs.
    """

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        host: str = "localhost",
        port: int = 9092,
        rack: str | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.is_shared = is_shared
        self.known_controller: int | None = None
        self.brokers: dict[int, RegisteredBroker] = {}
        self.cordoned: set[int] = set()
        self.register(RegisteredBroker(node_id, rack)).endpoints[DEFAULT_LISTENER] = Endpoint(host, port)

    def register(self, broker: RegisteredBroker) -> RegisteredBroker:
        """Add a broker, or bring back one that was unregistered."""
        self.brokers[broker.node_id] = broker
        for node_id in sorted(self.brokers):
            self.brokers[node_id] = self.brokers.pop(node_id)
        return broker

    def seen_from(self, node_id: int) -> Cluster:
        """The same cluster for the clients of one of its brokers."""
        if node_id == self.node_id:
            return self
        view = Cluster(node_id, self.cluster_id)
        view.brokers = self.brokers
        view.cordoned = self.cordoned
        return view

    @property
    def here(self) -> RegisteredBroker:
        """The broker whose clients ask."""
        return self.brokers[self.node_id]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of all registered brokers."""
        return tuple(self.brokers)

    @property
    def first(self) -> int:
        """The id of the first broker, which has the partitions of a cluster of one."""
        return next(iter(self.brokers))

    @property
    def controller(self) -> int:
        """The broker that leads the quorum: the one that leads the catalog, or the first one that runs."""
        if self.known_controller is not None:
            return self.known_controller
        return next((broker.node_id for broker in self.brokers.values() if not broker.is_fenced), self.first)

    def is_active(self, node_id: int) -> bool:
        """Whether a broker is registered, and may lead: it is neither fenced nor to stop."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.is_fenced and not broker.is_draining

    @property
    def active(self) -> list[int]:
        """The brokers that may lead, in the order of ids."""
        return [node_id for node_id in self.brokers if self.is_active(node_id)]

    def is_here(self, node_id: int) -> bool:
        """Whether a broker is one of this process."""
        return not self.is_shared or node_id == self.node_id

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """The address of a running broker on a listener; None if it is stopped, or has no listener of this name."""
        broker = self.brokers.get(node_id)
        return None if broker is None or broker.is_fenced else broker.endpoints.get(listener)

    def live(self, listener: str) -> list[tuple[RegisteredBroker, Endpoint]]:
        """The running brokers with a listener of this name, and their addresses."""
        return [
            (broker, endpoint)
            for broker in self.brokers.values()
            if not broker.is_fenced and (endpoint := broker.endpoints.get(listener)) is not None
        ]

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
            brokers=[
                m.DescribeClusterBroker(
                    broker_id=broker.node_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for broker in self.brokers.values()
                if (request.include_fenced_brokers or not broker.is_fenced)
                and (endpoint := broker.endpoints.get(context.listener)) is not None
            ],
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
