"""Composition: what a node of a cluster of many nodes has in addition to one that is alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from kohort.broker.broker import Broker
from kohort.broker.ports import Handler
from kohort.broker.shares.persister import RepeatingPersister
from kohort.broker.transactions.verification import LocalVerification, OptionalVerification
from kohort.client.security import Security
from kohort.machine.ports import LatestOffsets, Markers, Persister, Verification
from kohort.model.ids import SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.runtime.ports import Defer
from kohort.server.peers.auto_creation import AutoCreation
from kohort.server.peers.controller import ControllerChannel
from kohort.server.peers.envelopes import Envelopes
from kohort.server.peers.forwarding import Forwarding, WhenCurrent
from kohort.server.peers.markers import RemoteMarkers
from kohort.server.peers.offsets import RemoteLatestOffsets
from kohort.server.peers.peer import Connecting
from kohort.server.peers.peers import Directory, Peers
from kohort.server.peers.produce import RemoteProduce
from kohort.server.peers.producer_ids import ProducerIdBlocks
from kohort.server.peers.shares import RemotePersister
from kohort.server.peers.verification import RemoteVerification
from kohort.server.requests.dispatch import Dispatch
from kohort.wire.apis import ApiKey

_IDLE_SHARE: Final = 0.9
"""The share of the time after which a node closes an idle connection; within it the other side uses it again."""


class Peering:
    """
    The ports of a node over the other nodes, and its handlers of their requests. It is made right after the broker, whose own
    ports it replaces.

    Args:
        listener: the name of the inter-broker listener.
        security: returns the security of new connections; see `kohort.server.peers.login.inter_broker_security`.
        when_current: see `kohort.server.peers.forwarding.WhenCurrent`.

    Raises:
        ConfigError: the nodes cannot be asked with these configurations.
    """

    def __init__(
        self,
        broker: Broker,
        directory: Directory,
        listener: str,
        security: Callable[[], Security],
        loop: asyncio.AbstractEventLoop,
        defer: Defer,
        when_current: WhenCurrent,
    ) -> None:
        config, clock, call_later = broker.config, broker.clock, broker.call_later
        security()  # to fail at the start
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
        channel = ControllerChannel(directory, self.peers, clock, call_later)
        self.forwarding = Forwarding(directory, channel, call_later, when_current)
        self.markers: Markers = RemoteMarkers(directory, broker.local_markers, self.peers, defer)
        self.latest_offsets: LatestOffsets = RemoteLatestOffsets(directory, broker.latest_offsets, self.peers, defer)
        self.producer_ids = ProducerIdBlocks(directory, channel, broker.producer_ids, listener)
        broker.markers = self.markers
        broker.latest_offsets = self.latest_offsets
        broker.producer_ids.reserve = self.producer_ids.reserve
        broker.creation.elsewhere = AutoCreation(directory, self.forwarding, defer).create
        broker.produce_at = RemoteProduce(directory, broker.produce, self.peers)
        count = broker.creation.internal_partition_count
        self.verification: Verification = RemoteVerification(
            directory, LocalVerification(broker.coordinators), partial(count, TRANSACTION_STATE), self.peers, defer
        )
        broker.verification = OptionalVerification(self.verification, config)
        self.persister: Persister = RemotePersister(
            directory, lambda: broker.coordinators.persister, partial(count, SHARE_GROUP_STATE), self.peers, defer
        )
        broker.persister = RepeatingPersister(lambda: self.persister, broker.catalog, broker.creation, call_later)

    def join(self, dispatch: Dispatch) -> None:
        """Serve the other nodes, and send them what this one does not handle."""
        broker, directory = self._broker, self._directory
        envelopes = Envelopes(directory, dispatch, self._listener)
        handlers: dict[ApiKey, Handler] = {
            ApiKey.ENVELOPE: envelopes.envelope,
            ApiKey.ALLOCATE_PRODUCER_IDS: self.producer_ids.allocate_producer_ids,
        }
        if broker.guard is not None:
            handlers = {api_key: broker.guard(api_key, handler) for api_key, handler in handlers.items()}
        self.forwarding.here = dispatch.here
        dispatch.join(handlers, self.forwarding.route)

    def refresh(self) -> None:
        """Look at the nodes again: one has come, gone, stopped or moved."""
        self.peers.refresh()

    def close(self) -> None:
        """Ask no node any more."""
        self.peers.close()
