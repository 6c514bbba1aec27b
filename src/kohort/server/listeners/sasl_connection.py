"""
A connection up to its SASL authentication, and in front of a connection whose session ends.

The authenticator decides; this class has the socket, the clock and the threads. A client whose session has no end gets a
`ClientConnection` with the socket, and this object is gone. Otherwise it stays between the two: it looks at the beginning of
each frame, and holds the stream while the client authenticates itself again. A SaslHandshake takes the way of all requests, so
that those before it are answered first; its handler begins the re-authentication (`sessions.py`).

Source: Kafka SaslServerAuthenticator, KafkaChannel; KIP-152, KIP-368.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kohort.model.errors import WireError
from kohort.model.limits import HELD_LOGIN_BYTES_MAX
from kohort.model.text import printable
from kohort.security.sasl.authenticator import Authenticator, Step
from kohort.security.sasl.listener import SaslListener
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.listeners.logins import Logins
from kohort.server.listeners.pending import PendingConnection

_log: Final = logging.getLogger("kohort.server")

_SIZE: Final = 4
_HANDSHAKE: Final = b"\x00\x11"
_HEAD: Final = _SIZE + len(_HANDSHAKE)
"""The bytes of a frame that tell whether it is a SaslHandshake."""


class SaslConnection(PendingConnection):
    """
    Args:
        sasl: of the listener.
        logins: the clock, the threads, and the counts.
    """

    def __init__(
        self, shared: ClientConnections, endpoint: ServedEndpoint, logins: Logins, host: str, sasl: SaslListener
    ) -> None:
        super().__init__(shared, endpoint, logins.pending, host)
        self._logins = logins
        self._config = sasl.config
        self._client = _Client(shared, endpoint, host)
        self._authenticator = Authenticator(sasl, self._client.answer_versions)
        self._buffer = bytearray()
        """The bytes that have arrived and are not taken."""
        self._is_held = False
        """Whether nothing is taken: a thread works, a failing answer is delayed, or a re-authentication is to begin."""
        self._delay: asyncio.TimerHandle | None = None
        self._served: ClientConnection | None = None
        """The connection that serves the client, once it is authenticated."""
        self._is_serving = False
        """Whether frames go to `_served`."""
        self._left = 0
        """The bytes of a frame for `_served` that have not arrived."""
        self._handshake = b""
        """The SaslHandshake that begins a re-authentication."""

    # -- protocol ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.was_used = True
        if self._served is not None:
            self._served.was_used = True
        if self._is_serving and not self._is_held:
            self._serve(data)
            return
        self._buffer += data
        if self._is_held and len(self._buffer) > HELD_LOGIN_BYTES_MAX:
            self._end(Step(closes=True, refusal="requests during a re-authentication"))
        self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._delay is not None:
            self._delay.cancel()
        self._is_held = True
        self._buffer.clear()
        if self._served is None:
            super().connection_lost(exc)
            return
        self._transport = None
        # Each refers to the other, and garbage collections are rare.
        self._served.begin_again = None
        self._served.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._is_serving and self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._is_serving and self._served is not None:
            self._served.resume_writing()

    # -- authentication ----------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Give the authenticator the frames that have arrived."""
        while self._transport is not None and not self._is_held and not self._is_serving:
            if len(self._buffer) < _SIZE:
                break
            size = int.from_bytes(self._buffer[:_SIZE], "big", signed=True)
            if not 0 <= size <= self._config.frame_bytes_max:
                self._follow(self._authenticator.refuse_size())
                return
            if len(self._buffer) < _SIZE + size:
                break
            frame = bytes(self._buffer[_SIZE : _SIZE + size])
            del self._buffer[: _SIZE + size]
            self._follow(self._authenticator.receive(frame, self._logins.now_ms()))
        self._pending.hold(self, len(self._buffer))

    def _follow(self, step: Step) -> None:
        transport = self._transport
        if transport is None:
            return
        if step.work is not None:
            self._work(step.work)
        elif step.closes:
            self._end(step)
        else:
            if step.answer:
                transport.write(step.answer)
            if step.principal is not None:
                self._complete(step, transport)

    def _work(self, work: Callable[[], Any]) -> None:
        """Run work on another thread; nothing is read meanwhile."""
        self._hold()
        results: list[Any] = []

        def done() -> None:
            self._release()
            self._follow(self._authenticator.resume(results[0], self._logins.now_ms()))
            self._take()

        self._logins.elsewhere(lambda: results.append(work()), done)

    def _end(self, step: Step) -> None:
        """Close the connection, after the delay of a failed authentication if there is one."""
        self._hold()
        self._buffer.clear()
        self._logins.count_failure(is_first=self._served is None)
        _log.warning(
            "authentication.failed client=%s listener=%s error=%r",
            *(self.client_host, self.endpoint.listener, printable(step.refusal)),
            extra={"client": self.client_host},
        )
        if step.delay_ms:
            self._delay = self._shared.call_later(step.delay_ms / 1_000, partial(self._send_last, step.answer))
        else:
            self._send_last(step.answer)

    def _send_last(self, answer: bytes) -> None:
        self._delay = None
        if self._transport is None:
            return
        if answer:
            self._transport.write(answer)
        if self._served is not None:
            self._served.close()
        else:
            self.close()

    def _complete(self, step: Step, transport: asyncio.Transport) -> None:
        """Serve the client, whose user is known now."""
        is_again = self._served is not None
        served = self._served = self._client.connection()
        assert step.principal is not None, "the authentication is complete"
        served.principal = step.principal
        self._logins.count_success(is_first=not is_again)
        self._is_serving = True
        rest = bytes(self._buffer)
        self._buffer.clear()
        if not is_again:
            self._leave()
            served.connection_made(transport)
        if step.session_ends_at_ms is None:
            served.begin_again = None
            transport.set_protocol(served)
            if rest:
                served.data_received(rest)
            return
        served.begin_again = self._begin_again
        self._transport = transport
        if rest:
            self._serve(rest)

    def _hold(self) -> None:
        if not self._is_held and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()

    def _release(self) -> None:
        self._is_held = False
        if self._transport is not None and (self._served is None or not self._served.is_paused):
            self._transport.resume_reading()

    # -- a session that ends -----------------------------------------------------------------------------------

    def _serve(self, data: bytes) -> None:
        """Give the served connection what a session may send, up to the next SaslHandshake."""
        served = self._served
        assert served is not None, "the authentication is complete"
        if self._buffer:
            data = bytes(self._buffer) + data
            self._buffer.clear()
        position = min(self._left, len(data))
        self._left -= position
        step: Step | None = None
        while not self._left and position < len(data):
            head = data[position : position + _HEAD]
            size = int.from_bytes(head[:_SIZE], "big", signed=True)
            if len(head) < _SIZE or len(head) < _HEAD <= _SIZE + size:
                break
            end = position + _SIZE + max(size, 0)
            if head[_SIZE:] == _HANDSHAKE and size <= self._config.frame_bytes_max:
                if end > len(data):
                    break
                self._handshake = data[position + _SIZE : end]
                position = end
                self._hold()
                break
            step = self._authenticator.receive(head[_SIZE:], self._logins.now_ms())
            if not step.passes:
                break
            step = None
            self._left = max(end - len(data), 0)
            position = min(end, len(data))
        self._buffer += data[position:]
        if position:
            served.data_received(data[:position])
        if step is not None:
            self._hold()
            self._logins.expired += 1
            _log.info("session.ended client=%s", self.client_host, extra={"client": self.client_host})
            served.close()

    def _begin_again(self) -> bool:
        """
        Begin a re-authentication; called by the handler of SaslHandshake, when all requests before it are answered.

        Returns:
            whether it has begun; if not, the handshake is answered like one that nobody asked for.
        """
        step = self._authenticator.receive(self._handshake, self._logins.now_ms())
        # Not at once: the answers to the requests before it leave at the end of this turn.
        asyncio.get_running_loop().call_soon(self._go_on, None if step.passes else step)
        return not step.passes

    def _go_on(self, step: Step | None) -> None:
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._release()
        if step is None:
            if rest:
                self._serve(rest)
            return
        self._is_serving = False
        self._buffer += rest
        self._follow(step)
        self._take()


class _Client:
    """
    Makes the connection that serves a client later; before its authentication it answers ApiVersions.

    An object of its own, so that the authenticator does not refer to the `SaslConnection`, which refers to it: garbage
    collections are rare, and unauthenticated clients could make many such pairs.
    """

    def __init__(self, shared: ClientConnections, endpoint: ServedEndpoint, host: str) -> None:
        self._shared = shared
        self._endpoint = endpoint
        self._host = host
        self._connection: ClientConnection | None = None

    def connection(self) -> ClientConnection:
        if self._connection is None:
            self._connection = ClientConnection(self._shared, self._endpoint, self._host)
        return self._connection

    def answer_versions(self, frame: bytes) -> bytes:
        """The answer of the API layer to ApiVersions. Raises: WireError: the request is malformed."""
        answer = self.connection().answer_alone(frame)
        if not answer:
            raise WireError("ApiVersions cannot be answered")
        return answer
