"""The listeners of one broker: opened, closed with the connections of its clients, and opened again at the same addresses."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kohort.broker.cluster import Endpoint, RegisteredBroker
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.model.errors import ConfigError
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection_limits import ConnectionLimits
from kohort.server.listeners.addresses import ListenerAddress
from kohort.server.listeners.entrance import Entrance
from kohort.server.listeners.listener import Listener, bind
from kohort.server.listeners.logins import Logins
from kohort.server.requests.dispatch import Dispatch

_ALL_ADDRESSES: Final = ("0.0.0.0", "::")

_log = logging.getLogger("kohort.server")


class BrokerListeners:
    """
    Args:
        broker: gets the addresses that clients are told.
        config: of this broker.
        addresses: of this broker.
        logins: what the authentications of the process share.
        limits: of this broker.
        throttle_ms: as for `Listener`.
        may_be_open: whether clients of other machines may be served without authentication.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: RegisteredBroker,
        config: BrokerConfig,
        addresses: Sequence[ListenerAddress],
        dispatch: Dispatch,
        connections: ClientConnections,
        logins: Logins,
        limits: ConnectionLimits,
        throttle_ms: Callable[[str], int],
        *,
        may_be_open: bool = False,
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._config = config
        self._addresses = list(addresses)
        self._dispatch = dispatch
        self._connections = connections
        self._logins = logins
        self._entrances: dict[str, Entrance] = {}
        self._limits = limits
        self._throttle_ms = throttle_ms
        self._may_be_open = may_be_open
        self._open: list[Listener] = []

    def bind(self) -> list[Endpoint]:
        """
        Bind the sockets, and return their addresses. Free ports are kept for later calls.

        Raises:
            ConfigError: an address is not available, or everyone could use it; no socket is open.
        """
        try:
            return self._bind()
        except ConfigError:
            for listener in self._open:
                listener.abort()
            self._open.clear()
            raise

    def _bind(self) -> list[Endpoint]:
        self._broker.endpoints.clear()
        for address in self._addresses:
            endpoint = ServedEndpoint(self._broker.node_id, address.name, self._dispatch, self._limits)
            config = ListenerConfig(self._config, address.name, address.protocol)
            self._entrances[address.name] = Entrance(config, endpoint, self._connections, self._logins)
        bound = []
        for number, address in enumerate(self._addresses):
            try:
                listening = bind(address.host, address.port)
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {address.host}:{address.port}: {error.strerror or error}; choose another address "
                    "with --host and --port, or with listeners (port 0 takes a free port)"
                ) from error
            entrance = self._entrances[address.name]
            listener = Listener(self._loop, listening, self._limits, entrance.connection, self._throttle_ms)
            self._open.append(listener)
            host, port = listener.address
            self._check_open(address, host, port)
            bound.append(Endpoint(host, port))
            self._addresses[number] = msgspec.structs.replace(address, port=port)
            if address.is_advertised:
                told = address.advertised or (_loopback(listening) or host, port)
                self._broker.endpoints[address.name] = Endpoint(told[0], told[1] or port)
                if address.advertised is None and host in _ALL_ADDRESSES:
                    _log.warning(
                        "listener.advertises_loopback listener=%s host=%s port=%d advertised=%s hint=%r",
                        *(address.name, host, port, told[0]),
                        "clients on other machines are told an address that they cannot reach: set the one that they can reach "
                        "by --advertised HOST:PORT, or by advertised.listeners",
                    )
        return bound

    def _check_open(self, address: ListenerAddress, host: str, port: int) -> None:
        """
        Refuse to serve everyone who can reach the machine, unless the operator wants that.

        Raises:
            ConfigError: clients of other machines would need no authentication.
        """
        config = ListenerConfig(self._config, address.name, address.protocol)
        if is_loopback(host) or not config.is_open:
            return
        if not self._may_be_open:
            raise ConfigError(
                f"{address.name} would listen on {host}:{port}, where everyone who reaches this machine may do everything: "
                f"it is a {address.protocol} listener that needs no authentication. Use SASL or client certificates, listen "
                "on 127.0.0.1, or give --allow-anonymous"
            )
        _log.warning(
            "listener.needs_no_authentication listener=%s protocol=%s host=%s port=%d hint=%r",
            *(address.name, address.protocol, host, port),
            "everyone who reaches this address is served: see docs/howto/secure.md",
        )

    def start(self) -> None:
        for listener in self._open:
            listener.start()

    async def close(self) -> None:
        """Stop accepting; clients in the queues are refused."""
        listeners, self._open = self._open, []
        for listener in listeners:
            await listener.close()

    def disconnect(self) -> None:
        """Close the connections of this broker's clients."""
        for connection in list(self._connections.open):
            if connection.endpoint.node_id == self._broker.node_id:
                connection.close()


def is_loopback(host: str) -> bool:
    """Whether only clients on this machine reach an address."""
    return host == "::1" or host.startswith(("127.", "::ffff:127."))


def _loopback(bound: socket.socket) -> str | None:
    """
    The host that clients are told if the broker listens on all addresses: the loopback address; None if it does not.

    Apache Kafka refuses to start. Clients on the same machine, or behind a forwarded port, reach this one.
    """
    host = bound.getsockname()[0]
    if host not in _ALL_ADDRESSES:
        return None
    if bound.family == socket.AF_INET:
        return "127.0.0.1"
    return "::1" if bound.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) else "localhost"
