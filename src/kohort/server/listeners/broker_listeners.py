"""
The listeners of one broker: opened, closed with the connections of its clients, and opened again at the same addresses.

They change while the broker runs, with its configuration: listeners come and go, and the stores of TLS are read again, also
when their files change.

Source: KIP-226; Kafka SocketServer, DynamicListenerConfig.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kohort.broker.cluster import Endpoint, RegisteredBroker
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import (
    LISTENERS,
    PROTOCOLS,
    ListenerConfig,
    has_listener_keys,
    listener_prefix,
    protocol_map,
)
from kohort.model.errors import ConfigError
from kohort.security.http_access import is_loopback
from kohort.security.protocols import SecurityProtocol
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection_limits import ConnectionLimits, ListenerLimits
from kohort.server.listeners.addresses import ListenerAddress, configured_addresses
from kohort.server.listeners.changes import check_changes, check_new, reloaded_stores
from kohort.server.listeners.entrance import Entrance
from kohort.server.listeners.listener import Listener, bind
from kohort.server.listeners.logins import Logins
from kohort.server.requests.dispatch import Dispatch

if TYPE_CHECKING:
    from kohort.server.listeners.tls_stores import TlsStores

STORE_CHECK_SECONDS = 5.0
"""Between two looks at the files of stores."""
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_IN_CLEAR: Final = frozenset({"PLAIN", "OAUTHBEARER"})
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")

_log = logging.getLogger("kohort.server")


class _OpenListener(msgspec.Struct):
    """A listener with its address and its entrance."""

    address: ListenerAddress
    entrance: Entrance
    listener: Listener


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
        self._addresses = {address.name: address for address in addresses}
        self._dispatch = dispatch
        self._connections = connections
        self._logins = logins
        self._limits = limits
        self._throttle_ms = throttle_ms
        self._may_be_open = may_be_open
        self._open: dict[str, _OpenListener] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._store_check: asyncio.TimerHandle | None = None
        config.watch(self._on_change)

    def use_addresses(self, former: "BrokerListeners") -> None:
        """Bind where other listeners were bound."""
        self._addresses = dict(former._addresses)

    # -- start and stop ----------------------------------------------------------------------------------------

    def bind(self) -> list[Endpoint]:
        """
        Bind the sockets, and return their addresses. Free ports are kept for later calls.

        A listener that cannot be opened with the values that were set at run time is opened without them, or left out, with an
        entry in the log.

        Raises:
            ConfigError: an address is not available, everyone could use it, or a configuration of its security is wrong; no
                socket is open.
        """
        self._broker.endpoints.clear()
        try:
            for address in self._addresses.values():
                try:
                    self._bind(address, self._config)
                except ConfigError as error:
                    if not self._is_dynamic(address.name):
                        raise
                    _log.error("listener.set_aside listener=%s error=%r", address.name, str(error))
                    self._bind_as_started(address)
            if not self._open:
                raise ConfigError("no listener can be opened; see the log")
        except ConfigError:
            for each in self._open.values():
                each.listener.abort()
            self._open.clear()
            raise
        return [Endpoint(*each.listener.address) for each in self._open.values()]

    def _is_dynamic(self, name: str) -> bool:
        """Whether a listener has, or is there by, values that were set at run time."""
        dynamic = self._config.dynamic
        return LISTENERS in dynamic or any(key.startswith(listener_prefix(name)) for key in dynamic)

    def _bind_as_started(self, address: ListenerAddress) -> None:
        try:
            self._bind(address, self._config.with_dynamic({}, self._config.dynamic_defaults))
        except ConfigError as error:
            _log.error("listener.not_opened listener=%s error=%r", address.name, str(error))

    def _bind(self, address: ListenerAddress, config: BrokerConfig) -> _OpenListener:
        """Bind a listener. Raises: ConfigError: as `bind`; nothing is open then."""
        entrance = self._entrance(config, address)
        try:
            listening = bind(address.host, address.port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address.host}:{address.port}: {error.strerror or error}; choose another address "
                "with --host and --port, or with listeners (port 0 takes a free port)"
            ) from error
        listener = Listener(self._loop, listening, entrance.endpoint.limits, entrance.connection, self._throttle_ms)
        host, port = listener.address
        try:
            self._check_open(entrance.config, host, port)
        except ConfigError:
            listener.abort()
            raise
        opened = self._open[address.name] = _OpenListener(address, entrance, listener)
        self._addresses[address.name] = msgspec.structs.replace(address, port=port)
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
        return opened

    def _entrance(self, config: BrokerConfig, address: ListenerAddress) -> Entrance:
        of_listener = ListenerConfig(config, address.name, address.protocol)
        limits = ListenerLimits(self._limits)
        limits.configure(of_listener)
        endpoint = ServedEndpoint(self._broker.node_id, address.name, self._dispatch, limits)
        return Entrance(of_listener, endpoint, self._connections, self._logins)

    def _check_open(self, config: ListenerConfig, host: str, port: int) -> None:
        """
        Refuse to serve everyone who can reach the machine, unless the operator wants that.

        Raises:
            ConfigError: clients of other machines would need no authentication.
        """
        if is_loopback(host):
            return
        if not config.is_open:
            if config.protocol is SecurityProtocol.SASL_PLAINTEXT and _IN_CLEAR & {*config.get_list(_MECHANISMS)}:
                _log.warning(
                    "listener.takes_passwords_in_clear listener=%s host=%s port=%d hint=%r",
                    *(config.name, host, port),
                    "whoever sees the packets has the passwords of PLAIN and the tokens of OAUTHBEARER: use SASL_SSL, or SCRAM",
                )
            return
        if not self._may_be_open:
            raise ConfigError(
                f"{config.name} would listen on {host}:{port}, where everyone who reaches this machine may do everything: "
                f"it is a {config.protocol} listener that needs no authentication. Use SASL or client certificates, listen "
                "on 127.0.0.1, or give --allow-anonymous"
            )
        _log.warning(
            "listener.needs_no_authentication listener=%s protocol=%s host=%s port=%d hint=%r",
            *(config.name, config.protocol, host, port),
            "everyone who reaches this address is served: see docs/howto/secure.md",
        )

    def start(self) -> None:
        for each in self._open.values():
            each.listener.start()
        self._watch_stores()

    async def close(self) -> None:
        """Stop accepting; clients in the queues are refused."""
        if self._store_check is not None:
            self._store_check.cancel()
        opened, self._open = self._open, {}
        for each in opened.values():
            await each.listener.close()
        await asyncio.gather(*self._closing)

    def disconnect(self, listener: str | None = None) -> None:
        """Close the connections of this broker's clients, or those of one listener."""
        for connection in list(self._connections.open):
            endpoint = connection.endpoint
            if endpoint.node_id == self._broker.node_id and listener in (None, endpoint.listener):
                connection.close()

    # -- changes at run time -----------------------------------------------------------------------------------

    def check(self, new: BrokerConfig) -> None:
        """
        Check a configuration that the broker would have.

        Raises:
            ConfigError: the listeners cannot change so while the broker runs; with Kafka's message where it has one.
        """
        if not self._open:
            return
        kept = {name: each.entrance for name, each in self._open.items()}
        addresses = {each.name: each for each in self._new_addresses(new)}
        check_changes(kept, self._broker.endpoints, addresses, new)
        for address in addresses.values():
            if address.name not in kept:
                check_new(address.name, address.host)
                host = address.host or "0.0.0.0"
                self._check_open(
                    self._entrance(new, address).config, "127.0.0.1" if host == "localhost" else host, address.port
                )

    def _new_addresses(self, config: BrokerConfig) -> list[ListenerAddress]:
        """The addresses of a configuration; without `listeners` of this broker's own, those of the start."""
        if LISTENERS in config.dynamic:
            return configured_addresses(config)
        protocols = protocol_map(config.get_str(PROTOCOLS) or "")
        for name in self._open:
            if name not in protocols:
                raise ConfigError(f"No security protocol defined for listener {name}")
        return [msgspec.structs.replace(self._addresses[name], protocol=protocols[name]) for name in self._open]

    def _on_change(self, names: frozenset[str]) -> None:
        """Apply a change that `check` has accepted."""
        if not self._open or not has_listener_keys(names):
            return
        try:
            addresses = {each.name: each for each in self._new_addresses(self._config)}
        except ConfigError as error:
            _log.error("config.not_applied error=%r", str(error))
            return
        for name in list(self._open):
            if name not in addresses:
                self._close_one(name)
        for name, each in self._open.items():
            each.entrance.endpoint.limits.configure(ListenerConfig(self._config, name))
        self._use(self._changed_stores())
        for name, address in addresses.items():
            if name not in self._open:
                self._open_one(address)
        if self._store_check is None:
            self._watch_stores()

    def _open_one(self, address: ListenerAddress) -> None:
        try:
            opened = self._bind(address, self._config)
        except ConfigError as error:
            _log.error("listener.not_opened listener=%s error=%r", address.name, str(error))
            return
        opened.listener.start()
        host, port = opened.listener.address
        _log.info("listener.opened listener=%s host=%s port=%d", address.name, host, port)

    def _close_one(self, name: str) -> None:
        closed = self._open.pop(name)
        self._addresses.pop(name, None)
        self._broker.endpoints.pop(name, None)
        self.disconnect(name)
        task = self._loop.create_task(closed.listener.close(), name="kohort-close-listener")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        _log.info("listener.closed listener=%s", name)

    # -- stores ------------------------------------------------------------------------------------------------

    def _watch_stores(self) -> None:
        """Look at the files of the stores from time to time, on another thread."""
        if any(each.entrance.stores is not None for each in self._open.values()):
            self._store_check = self._loop.call_later(STORE_CHECK_SECONDS, self._look_at_stores)

    def _look_at_stores(self) -> None:
        found: list[tuple[str, TlsStores | ConfigError]] = []

        def done() -> None:
            self._use(found)
            if self._open:
                self._watch_stores()

        self._logins.elsewhere(lambda: found.extend(self._changed_stores()), done)

    def _changed_stores(self) -> list[tuple[str, "TlsStores | ConfigError"]]:
        """By listener: new stores where a configuration or a file has changed, or why they cannot be used. Blocks for files."""
        found: list[tuple[str, TlsStores | ConfigError]] = []
        for name, each in list(self._open.items()):
            if each.entrance.stores is None:
                continue
            try:
                stores = reloaded_stores(
                    each.entrance, ListenerConfig(self._config, name, each.entrance.config.protocol)
                )
            except ConfigError as error:
                found.append((name, error))
            else:
                if stores is not None:
                    found.append((name, stores))
        return found

    def _use(self, changed: Sequence[tuple[str, "TlsStores | ConfigError"]]) -> None:
        """Use new stores for new connections; keep the former ones where the new ones cannot be used."""
        for name, stores in changed:
            opened = self._open.get(name)
            if opened is None or opened.entrance.stores is None:
                continue
            if isinstance(stores, ConfigError):
                opened.entrance.stores.ignore_changes()
                _log.error(
                    "stores.not_reloaded listener=%s error=%r hint=%r",
                    *(name, str(stores), "the former stores are used further"),
                )
            else:
                opened.entrance.stores = stores
                _log.info("stores.reloaded listener=%s subject=%r", name, stores.subject)


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
