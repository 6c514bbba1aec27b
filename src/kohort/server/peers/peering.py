"""Composition: what a node of a cluster of many nodes has in addition to one that is alone."""

from __future__ import annotations

import asyncio
from typing import Final

from kohort.broker.broker import Broker
from kohort.broker.ports import Handler
from kohort.client.security import Security
from kohort.runtime.ports import Defer
from kohort.server.peers.controller import ControllerChannel
from kohort.server.peers.envelopes import Envelopes
from kohort.server.peers.forwarding import Forwarding, WhenCurrent
from kohort.server.peers.markers import RemoteMarkers
from kohort.server.peers.peer import Connecting
from kohort.server.peers.peers import Directory, Peers
from kohort.server.requests.dispatch import Dispatch
from kohort.wire.apis import ApiKey

_IDLE_SHARE: Final = 0.9
"""The share of the time after which a node closes an idle connection; within it the other side uses it again."""


class Peering:
    """
    The ports of a node over the other nodes, and its handlers of their requests.

    Args:
        listener: the name of the inter-broker listener.
        security: see `kohort.server.peers.login.inter_broker_security`.
        when_current: see `kohort.server.peers.forwarding.WhenCurrent`.
    """

    def __init__(
        self,
        broker: Broker,
        directory: Directory,
        listener: str,
        security: Security,
        loop: asyncio.AbstractEventLoop,
        defer: Defer,
        when_current: WhenCurrent,
    ) -> None:
        config, clock, call_later = broker.config, broker.clock, broker.call_later
        idle_ms = config.get_int("connections.max.idle.ms")
        connecting = Connecting(
            loop,
            call_later,
            f"kohort-{directory.node_id}",
            security,
            _IDLE_SHARE * idle_ms / 1_000 if idle_ms >= 0 else float("inf"),
            config.get_int("socket.request.max.bytes"),
        )
        self._broker = broker
        self._directory = directory
        self._listener = listener
        self.peers = Peers(directory, connecting)
        self.markers = RemoteMarkers(directory, broker.local_markers, self.peers, defer)
        self._channel = ControllerChannel(directory, self.peers, clock, call_later)
        self.forwarding = Forwarding(directory, self._channel, call_later, when_current)

    def join(self, dispatch: Dispatch) -> None:
        """Put the ports in place of those within the process, and serve the other nodes."""
        broker = self._broker
        broker.markers = self.markers
        envelopes = Envelopes(self._directory, dispatch, self._listener)
        handlers: dict[ApiKey, Handler] = {ApiKey.ENVELOPE: envelopes.envelope}
        if broker.guard is not None:
            handlers = {api_key: broker.guard(api_key, handler) for api_key, handler in handlers.items()}
        dispatch.join(handlers, self.forwarding.route)

    def refresh(self) -> None:
        """Look at the nodes again: one has come, gone, stopped or moved."""
        self.peers.refresh()

    def close(self) -> None:
        """Ask no node any more."""
        self.peers.close()
