"""
The other nodes of the cluster, by id: where they are, and a connection to each for each purpose.

A node handles one request of a connection at a time, so a change that waits must not hold up the markers of transactions: as in
Kafka, each sender has connections of its own.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Protocol

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import NO_NODE_ID, Cluster, Endpoint
from kohort.server.peers.peer import IN_FLIGHT_MAX, Connecting, Done, Lost, Peer
from kohort.wire.apis import ApiKey

REQUEST_MS: Final = 30_000
"""Source: request.timeout.ms of Kafka's brokers."""


class Directory(Protocol):
    """Which node does what, as this node sees the cluster at the moment."""

    @property
    def node_id(self) -> int:
        """The id of this node."""

    @property
    def controller(self) -> int:
        """The node that changes the catalog; `NO_NODE_ID` while none is known."""

    def leader(self, topic: str, index: int, /) -> int:
        """The leader of a partition; `NO_NODE_ID` if it has none, or there is no such partition."""

    def endpoint(self, node_id: int, /) -> Endpoint | None:
        """The address of a running node on its inter-broker listener."""


class CatalogDirectory:
    """
    The `Directory` of a node with a catalog.

    Args:
        listener: the name of the inter-broker listener.
    """

    def __init__(self, cluster: Cluster, catalog: Catalog, listener: str) -> None:
        self._cluster = cluster
        self._catalog = catalog
        self._listener = listener
        self.node_id = cluster.node_id

    @property
    def controller(self) -> int:
        return self._cluster.controller

    def leader(self, topic: str, index: int, /) -> int:
        found = self._catalog.topic(topic)
        if found is None or not 0 <= index < found.partition_count:
            return NO_NODE_ID
        return self._catalog.state(found, index).leader

    def endpoint(self, node_id: int, /) -> Endpoint | None:
        return self._cluster.endpoint(node_id, self._listener)


class Channel(Enum):
    """The purposes that have a connection of their own to each node."""

    CONTROLLER = "changes"
    MARKERS = "markers"
    VERIFICATION = "verification"
    SHARES = "share states"
    OFFSETS = "offsets"
    RECORDS = "records"


class Peers:
    """The connections of this node to the others."""

    def __init__(self, directory: Directory, connecting: Connecting) -> None:
        self._directory = directory
        self._connecting = connecting
        self._peers: dict[tuple[int, Channel], Peer] = {}
        self._is_closed = False

    def send(
        self,
        node_id: int,
        channel: Channel,
        api_key: ApiKey,
        version: int,
        request: Any,
        done: Done,
        timeout_ms: int = REQUEST_MS,
    ) -> None:
        """As `Peer.send`, to a node."""
        endpoint = None if self._is_closed else self._directory.endpoint(node_id)
        if endpoint is None:
            done(Lost(f"node {node_id} does not run"))
            return
        peer = self._peers.get((node_id, channel))
        if peer is None or peer.endpoint != endpoint:
            if peer is not None:
                peer.close("the node has another address now")
            # One change at a time, so that a lost connection leaves one outcome unknown.
            in_flight_max = 1 if channel is Channel.CONTROLLER else IN_FLIGHT_MAX
            peer = Peer(f"node {node_id}", endpoint, self._connecting, in_flight_max)
            self._peers[node_id, channel] = peer
        peer.send(api_key, version, request, done, timeout_ms)

    def refresh(self) -> None:
        """Close the connections to nodes that do not run any more, or have another address: nobody will answer there."""
        for (node_id, channel), peer in list(self._peers.items()):
            if self._directory.endpoint(node_id) != peer.endpoint:
                del self._peers[node_id, channel]
                peer.close("the node has stopped or moved")

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close("this node stops")
        self._peers.clear()
