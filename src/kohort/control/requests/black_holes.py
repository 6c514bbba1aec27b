"""Connections in a black hole: the answers to what they have asked before stay in the broker, too."""

from __future__ import annotations

from kohort.control.requests.faults import Fault
from kohort.control.requests.filters import Call, call_of
from kohort.server.connections.connection import ClientConnection
from kohort.server.node import Node


class BlackHoles:
    """The connections that faults have muted."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._muted: dict[str, dict[ClientConnection, list[Call]]] = {}
        """By the id of the fault: what the connections wait for."""

    def open(self, fault: Fault) -> None:
        """
        Mute the connections whose requests in flight match.

        A fault that is about groups or topics, or has a trigger, does not say which of them it is about: their contents are
        forgotten.
        """
        if not fault.matcher.is_about_clients or not fault.is_constant:
            return
        asked = {each: calls for muted in self._muted.values() for each, calls in muted.items()}
        for connection in self._node.connections:
            if isinstance(connection, ClientConnection):
                calls = [call_of(each, connection.endpoint.node_id) for each in connection.in_flight]
                asked.setdefault(connection, calls)
        self._muted[fault.id] = {
            each: calls for each, calls in asked.items() if any(map(fault.matcher.may_match, calls))
        }
        for connection in self._muted[fault.id]:
            connection.mute()

    def close(self, fault_id: str) -> None:
        """Let the connections of a fault hear their answers, unless another fault has muted them, too."""
        others = {connection for each, muted in self._muted.items() if each != fault_id for connection in muted}
        for connection in self._muted.pop(fault_id, ()):
            if connection not in others:
                connection.unmute()

    def clear(self) -> None:
        """Forget everything: the connections have ended."""
        self._muted.clear()
