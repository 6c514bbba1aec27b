"""
A connection during its TLS handshake. Each step of it runs on another thread: signatures take up to some milliseconds.

Source: Kafka SslTransportLayer.handshake, DefaultKafkaPrincipalBuilder.applySslPrincipalMapper.
"""

import asyncio
import ssl
from collections.abc import Callable

from kohort.model.errors import WireError
from kohort.model.limits import HANDSHAKE_BYTES_MAX
from kohort.model.principals import ANONYMOUS, Principal
from kohort.security.distinguished_names import subject_of
from kohort.security.mapping_rules import MappingRules
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.listeners.logins import Logins
from kohort.server.listeners.pending import PendingConnection
from kohort.server.listeners.tls_stores import TlsStores
from kohort.server.listeners.tls_stream import TlsStream


class TlsHandshake(PendingConnection):
    """
    Args:
        logins: the threads, and the counts.
        next_connection: makes the connection that follows, of the user of the client's certificate.
    """

    def __init__(
        self,
        shared: ClientConnections,
        endpoint: ServedEndpoint,
        logins: Logins,
        host: str,
        stores: TlsStores,
        rules: MappingRules,
        next_connection: Callable[[str, Principal], asyncio.Protocol],
    ) -> None:
        super().__init__(shared, endpoint, logins.pending, host)
        self._logins = logins
        self._stores = stores
        self._rules = rules
        self._next_connection = next_connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = stores.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._received_bytes = 0
        self._is_working = False
        self._is_complete = False
        self._error = ""
        """Why the handshake failed. Not the exception: it would keep this object in memory until the garbage collection."""

    def data_received(self, data: bytes) -> None:
        self.was_used = True
        self._received_bytes += len(data)
        self._pending.hold(self, self._received_bytes)
        if self._transport is None:
            return
        if self._received_bytes > HANDSHAKE_BYTES_MAX:
            self._fail("a TLS handshake that is too long")
            return
        self._incoming.write(data)
        if not self._is_working:
            self._is_working = True
            self._transport.pause_reading()
            self._logins.elsewhere(self._take_step, self._on_step)

    def _take_step(self) -> None:
        """Go on with the handshake as far as the received bytes go. Runs on another thread, which alone uses the TLS object."""
        try:
            self._tls.do_handshake()
            self._is_complete = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, OSError, ValueError) as error:
            self._error = str(getattr(error, "reason", None) or error) or type(error).__name__

    def _on_step(self) -> None:
        self._is_working = False
        transport = self._transport
        if transport is None:
            return
        answer = self._outgoing.read()
        if answer:
            transport.write(answer)
        if self._error:
            self._fail(f"the TLS handshake failed: {self._error}")
        elif self._is_complete:
            self._finish(transport)
        else:
            transport.resume_reading()

    def _finish(self, transport: asyncio.Transport) -> None:
        if not self._stores.suites.allow(self._tls.cipher()):
            self._fail("the client has no cipher suite of ssl.cipher.suites")
            return
        principal = self._principal()
        if principal is None:
            self._fail("no rule of ssl.principal.mapping.rules applies to the name in the client's certificate")
            return
        self._leave()
        stream = TlsStream(transport, self._tls, self._incoming, self._outgoing)
        transport.resume_reading()
        stream.start(self._next_connection(self._host, principal))

    def _fail(self, why: str) -> None:
        self._logins.count_failure(is_first=True)
        self.refuse(why)

    def _principal(self) -> Principal | None:
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        try:
            user = self._rules.user_of(subject_of(certificate))
        except WireError:
            return None
        return None if user is None else Principal(user)
