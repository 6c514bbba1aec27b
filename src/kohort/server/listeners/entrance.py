"""
The entrance of a listener: which connection a client begins with, and whose connection follows.

| protocol | first | then |
|---|---|---|
| PLAINTEXT | `ClientConnection` | |
| SSL | `TlsHandshake` | `ClientConnection` of the certificate's user |
| SASL_PLAINTEXT | `SaslConnection` | `ClientConnection` of the authenticated user |
| SASL_SSL | `TlsHandshake` | `SaslConnection`, then as above |

Source: Kafka ChannelBuilders.serverChannelBuilder, DefaultKafkaPrincipalBuilder.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.model.principals import ANONYMOUS, Principal
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.listeners.logins import Logins

if TYPE_CHECKING:
    from kohort.server.listeners.tls_stores import TlsStores

Follows: TypeAlias = Callable[[str, Principal], asyncio.Protocol]
"""Makes the connection of a client at an address, of the user of its certificate."""


class Entrance:
    """
    The entrance of one listener of one broker.

    Attributes:
        endpoint: the listener, as its connections know it.
        stores: for new connections; None without TLS.

    Raises:
        ConfigError: a configuration of the listener's security is missing or wrong.
    """

    def __init__(
        self, config: ListenerConfig, endpoint: ServedEndpoint, shared: ClientConnections, logins: Logins
    ) -> None:
        self.config = config
        self.stores: TlsStores | None = None
        self.endpoint = endpoint
        self._shared = shared
        self._logins = logins
        follows: Follows = self._of_certificate if config.protocol.has_tls else self._of_user
        if config.protocol.has_sasl:
            follows = self._sasl_connections()
        self.connection: Callable[[str], asyncio.Protocol] = lambda host: follows(host, ANONYMOUS)
        """Makes the connection of a client, given its address."""
        if config.protocol.has_tls:
            self.connection = self._handshakes(follows)

    def _handshakes(self, follows: Follows) -> Callable[[str], asyncio.Protocol]:
        # Imported late: a start without TLS does without it.
        from kohort.security.mapping_rules import KEY as MAPPING_RULES
        from kohort.security.mapping_rules import MappingRules
        from kohort.server.listeners.tls_handshake import TlsHandshake
        from kohort.server.listeners.tls_stores import load_stores

        self.stores = load_stores(self.config)
        rules = MappingRules(self.config.get_str(MAPPING_RULES) or "")
        if self.config.protocol.has_sasl:
            # The certificate opens the door only.
            rules = MappingRules("DEFAULT")

        def handshake(host: str) -> asyncio.Protocol:
            stores = self.stores
            assert stores is not None, "the listener has TLS"
            return TlsHandshake(self._shared, self.endpoint, self._logins, host, stores, rules, follows)

        return handshake

    def _sasl_connections(self) -> Follows:
        from kohort.broker.configs.sasl_configs import sasl_config
        from kohort.security.sasl.listener import SaslListener
        from kohort.server.listeners.sasl_connection import SaslConnection
        from kohort.server.listeners.signing_keys import open_keys

        config = sasl_config(self.config, has_passwords=self._logins.has_users, open_keys=open_keys)
        self.sasl = SaslListener(config, self._logins.credentials, self._logins.scram_users)
        self._logins.prepare(config.mechanisms)

        def connection(host: str, _of_certificate: Principal) -> asyncio.Protocol:
            return SaslConnection(self._shared, self.endpoint, self._logins, host, self.sasl)

        return connection

    def _of_certificate(self, host: str, principal: Principal) -> ClientConnection:
        self._logins.count_success(is_first=True)
        return self._of_user(host, principal)

    def _of_user(self, host: str, principal: Principal) -> ClientConnection:
        connection = ClientConnection(self._shared, self.endpoint, host)
        connection.principal = principal
        return connection
