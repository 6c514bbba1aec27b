"""
The entrance of a listener: which connection a client begins with, and whose connection follows.

| protocol | first | then |
|---|---|---|
| PLAINTEXT | `ClientConnection` | |
| SSL | `TlsHandshake` | `ClientConnection` of the certificate's user |

Source: Kafka ChannelBuilders.serverChannelBuilder, DefaultKafkaPrincipalBuilder.
"""

import asyncio
from collections.abc import Callable

from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.model.principals import Principal
from kohort.security.mapping_rules import KEY as MAPPING_RULES
from kohort.security.mapping_rules import MappingRules
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.listeners.pending import PendingConnections


class Logins:
    """
    What the authentications of all listeners share.

    Attributes:
        elsewhere: `elsewhere(work, done)` runs `work` on another thread, then `done` on that of the event loop.
        pending: the connections that are not authenticated yet.
    """

    def __init__(self, elsewhere: Callable[[Callable[[], None], Callable[[], None]], None]) -> None:
        self.elsewhere = elsewhere
        self.pending = PendingConnections()


class Entrance:
    """
    The entrance of one listener of one broker.

    Raises:
        ConfigError: a configuration of the listener's security is missing or wrong.
    """

    def __init__(
        self, config: ListenerConfig, endpoint: ServedEndpoint, shared: ClientConnections, logins: Logins
    ) -> None:
        self.config = config
        self._endpoint = endpoint
        self._shared = shared
        self._logins = logins
        self.connection: Callable[[str], asyncio.Protocol] = self._plain
        """Makes the connection of a client, given its address."""
        if config.protocol.has_tls:
            # Imported late: a start without TLS does without it.
            from kohort.server.listeners.tls_handshake import TlsHandshake
            from kohort.server.listeners.tls_stores import load_stores

            self.stores = load_stores(config)
            rules = MappingRules(config.get_str(MAPPING_RULES) or "")

            def handshake(host: str) -> asyncio.Protocol:
                return TlsHandshake(
                    shared, endpoint, logins.pending, host, self.stores, rules, logins.elsewhere, self._served
                )

            self.connection = handshake

    def _plain(self, host: str) -> ClientConnection:
        return ClientConnection(self._shared, self._endpoint, host)

    def _served(self, host: str, principal: Principal) -> ClientConnection:
        connection = ClientConnection(self._shared, self._endpoint, host)
        connection.principal = principal
        return connection
