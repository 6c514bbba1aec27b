"""
The registrations of nodes: settings of the catalog, and the brokers of the cluster that each node makes of them.

Source: KIP-631; Kafka RegisterBrokerRecord, ClusterControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import Setting
from kohort.broker.cluster import Cluster, Endpoint, RegisteredBroker
from kohort.storage.shared import NodeRow, Registration

NODE_KIND: Final = "node"
"""The kind of the catalog's setting; its name is the id of the node."""


class RegisteredNode(msgspec.Struct, frozen=True):
    """
    A node as the controller has registered it.

    Attributes:
        is_fenced: its lease has ended: it leads nothing.
        is_draining: it is to stop, or an operator wants it to lead nothing.
    """

    incarnation: UUID
    registration: Registration
    is_fenced: bool = False
    is_draining: bool = False

    def setting(self, node_id: int) -> Setting:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return Setting(NODE_KIND, str(node_id), value)


def registered(row: NodeRow) -> RegisteredNode:
    """A node that has joined."""
    return RegisteredNode(row.incarnation, row.registration, is_draining=row.is_drained)


class Registrations:
    """The brokers of a shared cluster, as the durable catalog has them. The own addresses come from the listeners."""

    def __init__(self, catalog: Catalog, cluster: Cluster) -> None:
        self._cluster = cluster
        self.nodes: dict[int, RegisteredNode] = {}
        catalog.watch_settings(NODE_KIND, self._on_change)

    def _on_change(self, settings: Sequence[Setting]) -> None:
        for setting in settings:
            node_id = int(setting.name)
            if setting.value is None:
                self.nodes.pop(node_id, None)
                if node_id != self._cluster.node_id:
                    self._cluster.brokers.pop(node_id, None)
                continue
            node = self.nodes[node_id] = msgspec.convert(setting.value, RegisteredNode)
            broker = self._cluster.brokers.get(node_id)
            if broker is None:
                broker = self._cluster.register(RegisteredBroker(node_id))
            broker.is_fenced, broker.is_draining = node.is_fenced, node.is_draining
            if node_id != self._cluster.node_id:
                broker.rack = node.registration.rack
                broker.endpoints = {name: Endpoint(*address) for name, address in node.registration.endpoints.items()}
