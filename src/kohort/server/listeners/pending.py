"""
Connections that are not authenticated yet: what all of them together may hold, and what each of them is to the process.

Such a connection is an object of its own; a `ClientConnection` takes its place when its user is known. Beyond the bounds the
oldest one, or the one that holds most, is disconnected, so a flood cannot keep new clients out.

Source: Kafka has the bounds of single frames only (`sasl.server.max.receive.size`).
"""

import asyncio
import logging
from typing import Final, cast

from kohort.model.limits import PENDING_BYTES_MAX, PENDING_CONNECTIONS_MAX
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint

_log: Final = logging.getLogger("kohort.server")


class PendingConnections:
    """
    Attributes:
        bytes: of frames and handshakes that are not complete.
        evicted: connections that were disconnected because there were too many, or too many bytes.
    """

    def __init__(self, count_max: int = PENDING_CONNECTIONS_MAX, bytes_max: int = PENDING_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._held: dict[PendingConnection, int] = {}
        """The bytes of each connection; the oldest comes first."""
        self.bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, connection: "PendingConnection") -> None:
        self._held[connection] = 0
        if len(self._held) > self._count_max:
            self._evict(next(iter(self._held)))

    def hold(self, connection: "PendingConnection", held_bytes: int) -> None:
        """Count the bytes that a connection holds now."""
        before = self._held.get(connection)
        if before is None:
            return
        self.bytes += held_bytes - before
        self._held[connection] = held_bytes
        if self.bytes > self._bytes_max:
            self._evict(max(self._held, key=self._held.__getitem__))

    def remove(self, connection: "PendingConnection") -> None:
        self.bytes -= self._held.pop(connection, 0)

    def _evict(self, connection: "PendingConnection") -> None:
        self.evicted += 1
        _log.warning(
            "connection.evicted client=%s unauthenticated=%d bytes=%d",
            *(connection.client_host, len(self._held), self.bytes),
            extra={"client": connection.client_host},
        )
        self.remove(connection)
        connection.abort()


class PendingConnection(asyncio.Protocol):
    """
    A connection up to its authentication; to the process it is an `OpenConnection`.

    Attributes:
        endpoint, was_used, used_at, unsent_bytes: as of `ClientSocket`.
    """

    def __init__(
        self, shared: ClientConnections, endpoint: ServedEndpoint, pending: PendingConnections, host: str
    ) -> None:
        self._shared = shared
        self._pending = pending
        self._host = host
        self._transport: asyncio.Transport | None = None
        """None after the connection was closed or handed over."""
        self._socket: asyncio.Transport | None = None
        """The transport until the socket is closed, or the connection handed over."""
        self.client_host = f"/{host}"
        self.endpoint = endpoint
        self.was_used = True
        self.used_at = 0.0
        self.unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface of asyncio.Transport but are no subclass.
        self._transport = self._socket = cast("asyncio.Transport", transport)
        self._shared.open.add(self)
        self._pending.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._leave()
        self.endpoint.limits.leave(self._host)

    def _leave(self) -> None:
        """Stop to be this connection: its socket was closed, or another object takes its place."""
        self._transport = self._socket = None
        self._pending.remove(self)
        self._shared.open.discard(self)
        self._shared.closing.pop(self, None)

    def refuse(self, why: str) -> None:
        """Close the connection, and log why."""
        _log.warning("connection.refused client=%s error=%r", self.client_host, why, extra={"client": self.client_host})
        self.close()

    # -- as the process sees it ----------------------------------------------------------------------------------

    @property
    def has_begun_requests(self) -> bool:
        return False

    def check_progress(self) -> None:
        """Nothing is sent that a client could leave."""

    def drain(self) -> None:
        self.close()

    def close(self) -> None:
        """Send what was written, then close; abort if the client does not take it in `CLOSING_SECONDS_MAX`."""
        if self._transport is not None:
            self._shared.open.discard(self)
            self._shared.closing[self] = 0.0
            self._transport.close()
            self._transport = None

    def close_idle(self) -> None:
        self.abort()

    def abort_stalled(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()
            self._transport = None
            self._shared.open.discard(self)
