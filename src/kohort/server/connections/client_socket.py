"""
The socket of one client: replies that leave, replies that the client does not take, and the end of the connection.

Source: Kafka KafkaChannel, Selector.
"""

import asyncio
import logging
from typing import Final, cast

from kohort.model.addresses import java_text
from kohort.model.errors import WireError
from kohort.model.limits import COUNTED_BYTES_MIN, WRITE_BUFFER_BYTES
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.muted import Muted

_log: Final = logging.getLogger("kohort.server")


class ClientSocket(asyncio.Protocol):
    """
    The part of a connection that knows no requests.

    Attributes:
        endpoint: where the client connected.
        was_used: since the last idle check.
        used_at: time of the last idle check that found the connection used, by the loop's clock.
        unsent_bytes: replies that the client has not taken, as of the last look; 0 unless they are counted.
    """

    def __init__(self, shared: ClientConnections, endpoint: ServedEndpoint, host: str) -> None:
        self._shared = shared
        self.endpoint = endpoint
        self._host = host
        self.client_host = f"/{java_text(host)}"
        self._out: list[bytes] = []
        """Replies that are ready and leave in one write."""
        self._transport: asyncio.Transport | None = None
        """None after the connection was closed, even if replies are still to be sent."""
        self._socket: asyncio.Transport | None = None
        """The transport until the socket is closed."""
        self._is_slow = False
        self.was_used = True
        self.used_at = 0.0
        self.unsent_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface of asyncio.Transport but are no subclass.
        self._socket = transport = cast("asyncio.Transport", transport)
        self._transport = self._shared.guarded(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._shared.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._transport = self._socket = None
        self._set_unsent(0)
        self._out.clear()
        self._shared.open.discard(self)
        self._shared.closing.pop(self, None)
        self.endpoint.limits.leave(self._host)

    def eof_received(self) -> bool:
        return False

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self.was_used = True
            answer = out[0] if len(out) == 1 else b"".join(out)
            self._transport.write(answer)
            if len(answer) > COUNTED_BYTES_MIN:
                self._count_unsent()

    def send(self, part: bytes) -> None:
        """Send bytes beside the replies: a part of a reply, for tests of clients."""
        if part:
            self._out.append(part)
            self._flush()

    def mute(self) -> None:
        """Keep all bytes for the client until `unmute`, for tests of clients."""
        if self._transport is not None and not isinstance(self._transport, Muted):
            self._transport = Muted(self._transport)

    def unmute(self) -> None:
        """End `mute`."""
        if isinstance(self._transport, Muted):
            self._transport = self._transport.release()

    # -- requests, see `connection.py` --------------------------------------------------------------------------

    @property
    def has_begun_requests(self) -> bool:
        raise NotImplementedError

    def drain(self) -> None:
        raise NotImplementedError

    # -- replies that the client does not take -----------------------------------------------------------------

    def _set_unsent(self, unsent_bytes: int) -> None:
        shared = self._shared
        shared.unsent_bytes += unsent_bytes - self.unsent_bytes
        self.unsent_bytes = unsent_bytes
        if unsent_bytes:
            shared.slow.add(self)
        else:
            shared.slow.discard(self)

    def _count_unsent(self) -> None:
        """Count a large answer that the client has not taken, although the client is not slow yet: there may be many."""
        if self._is_slow or self._socket is None:
            return
        unsent_bytes = self._socket.get_write_buffer_size()
        self._set_unsent(unsent_bytes if unsent_bytes > COUNTED_BYTES_MIN else 0)
        if self.unsent_bytes and self._shared.is_overfull():
            self.abort_stalled()

    def check_progress(self) -> None:
        """Note how much a slow client has taken since the last check; a client that takes something is not idle."""
        if self._socket is not None:
            unsent_bytes = self._socket.get_write_buffer_size()
            self.was_used |= unsent_bytes != self.unsent_bytes
            self._set_unsent(unsent_bytes)

    # -- the end -----------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        if isinstance(error, WireError):
            self._refuse(error)
            return
        _log.error("connection.failed client=%s", self.client_host, extra={"client": self.client_host}, exc_info=error)
        self.abort()

    def _refuse(self, error: WireError) -> None:
        _log.warning(
            "connection.refused client=%s error=%s", self.client_host, error, extra={"client": self.client_host}
        )
        self.close()

    def close(self) -> None:
        """Send the replies that are ready, then close; abort if the client does not take them in `CLOSING_SECONDS_MAX`."""
        self._flush()
        if self._transport is not None:
            self._shared.open.discard(self)
            self._shared.closing[self] = 0.0
            self._transport.close()
            self._transport = None

    def close_idle(self) -> None:
        if self._is_slow:
            self.abort_stalled()
        else:
            self.close()

    def abort_stalled(self) -> None:
        """Abort a connection whose client does not take its replies."""
        _log.warning(
            "connection.stalled client=%s unsent_bytes=%d",
            self.client_host,
            self.unsent_bytes,
            extra={"client": self.client_host},
        )
        self.abort()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()
            self._transport = None
            self._shared.open.discard(self)
