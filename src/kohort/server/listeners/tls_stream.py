"""
An encrypted connection after its handshake: a transport for the connection above, a protocol of the socket below.

Source: Kafka SslTransportLayer. The event loop's own transport would do the handshake on its thread, and reserve a quarter of a
megabyte a connection.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final

_READ_BYTES: Final = 256 * 1024


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """
    Args:
        socket: the transport below; this object becomes its protocol.
        tls: after the handshake.
        incoming, outgoing: its encrypted bytes.
    """

    def __init__(
        self, socket: asyncio.Transport, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        super().__init__()
        self._below = socket
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._above: asyncio.Protocol | None = None
        self._is_paused = False
        self._is_closing = False
        socket.set_protocol(self)

    def start(self, above: asyncio.Protocol) -> None:
        """Give the connection above what has arrived, and what will."""
        self._above = above
        above.connection_made(self)
        self._read()

    # -- protocol ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        self._read()

    def _read(self) -> None:
        above = self._above
        while above is not None and not self._is_paused and not self._is_closing:
            try:
                data = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                self._send()
                self.abort()
                return
            if not data:  # the client said that nothing follows
                self.close()
                return
            above.data_received(data)
            above = self._above
        self._send()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # -- transport ---------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:  # the stream has failed, and nothing more can be sent
            self.abort()
            return
        self._send()

    def _send(self) -> None:
        encrypted = self._outgoing.read()
        if encrypted:
            self._below.write(encrypted)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            with suppress(ssl.SSLError):  # it would wait for the client's answer
                self._tls.unwrap()
            self._send()
            self._below.close()

    def abort(self) -> None:
        self._is_closing = True
        self._below.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._below.resume_reading()
        # Not at once: whoever resumes is in the middle of its own work.
        asyncio.get_running_loop().call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._above = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._above is not None
        return self._above
