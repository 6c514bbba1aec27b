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

from kohort.model.limits import HELD_LOGIN_BYTES_MAX
from kohort.model.principals import Principal
from kohort.model.text import printable
from kohort.security.sasl.authenticator import Authenticator, Step
from kohort.security.sasl.listener import SaslListener
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.connections.in_flight import NOT_TIMED, InFlightRequest
from kohort.server.listeners.login_requests import LoginRequest, taken
from kohort.server.listeners.logins import Logins
from kohort.server.listeners.pending import PendingConnection
from kohort.wire.apis import ApiKey
from kohort.wire.headers import read_request_header

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
        self._asked: LoginRequest | None = None
        """The request that the testing kit has; nothing is taken meanwhile."""
        self._delay: asyncio.TimerHandle | None = None
        self._throttle: asyncio.TimerHandle | None = None
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
        if (self._is_held or self._asked is not None) and len(self._buffer) > HELD_LOGIN_BYTES_MAX:
            self._end(Step(closes=True, refusal="requests during a re-authentication"))
        self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._delay is not None:
            self._delay.cancel()
        self._drop_throttle()
        asked, self._asked = self._asked, None
        if asked is not None and asked.forget is not None:
            asked.forget()
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
        while self._transport is not None and not (self._is_held or self._is_serving or self._asked is not None):
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
            self._receive(frame)
        self._pending.hold(self, len(self._buffer))

    def _receive(self, frame: bytes) -> None:
        """Give a frame to the authenticator, through the testing kit if that has something to do with it."""
        found = None if self._authenticator.is_bare else taken(self, frame)
        if found is None:
            self.authenticate(frame, self._follow)
            return
        self._asked, intercept, request = found
        self._asked.ask(intercept, request)

    def authenticate(self, frame: bytes, take: Callable[[Step], None]) -> None:
        """Give a frame to the authenticator, and its step to a function, possibly in a later turn."""
        step = self._authenticator.receive(frame, self._logins.now_ms())
        if step.work is None:
            take(step)
        else:
            self._work(step.work, take)

    def _follow(self, step: Step) -> None:
        transport = self._transport
        if transport is None:
            return
        if step.closes or step.passes:
            # It passes only if the clock went back during a re-authentication.
            self._end(step)
        else:
            if step.answer:
                transport.write(step.answer)
            if step.principal is not None:
                self._complete(step, transport)

    def _work(self, work: Callable[[], Any], take: Callable[[Step], None]) -> None:
        """Run work on another thread; nothing is read meanwhile."""
        self._hold()
        results: list[Any] = []

        def done() -> None:
            self._release()
            take(self._authenticator.resume(results[0], self._logins.now_ms()))
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
        self.send(answer)
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

    # -- requests that the testing kit has, see `LoginConnection` ------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def principal(self) -> Principal | None:
        return None if self._served is None else self._served.principal

    @property
    def port(self) -> int:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return int(peer[1]) if peer else 0

    def send(self, part: bytes) -> None:
        if part and self._transport is not None:
            self._transport.write(part)

    def on_answer(self, request: LoginRequest, answer: bytes | None) -> None:
        """Take the answer to a request; None if the connection is closed instead."""
        if self._asked is None:
            return
        self._asked = None
        step = request.step
        if answer is None and (step is None or not step.closes):
            self._send_last(b"")
        elif step is not None:
            self._follow(step._replace(answer=answer or b""))
        elif request.is_refused:
            self._end(Step(answer or b"", closes=True, refusal="a fault of the testing kit"))
        else:
            self.send(answer or b"")
        if request.throttle_ms:
            self._be_throttled(request.throttle_ms)
        self._take()

    def _be_throttled(self, throttle_ms: int) -> None:
        if self._is_serving and self._served is not None:
            self._served.throttle(throttle_ms)
        elif self._transport is not None:
            self._hold()
            self._shared.throttled += 1
            self._throttle = self._shared.call_later(throttle_ms / 1_000, self._end_throttle)

    def _end_throttle(self) -> None:
        self._drop_throttle()
        self._release()
        self._take()

    def _drop_throttle(self) -> None:
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
            self._shared.throttled -= 1

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
        begins = not self._authenticator.passes(self._handshake, self._logins.now_ms())
        # Not at once: the answers to the requests before it leave at the end of this turn.
        asyncio.get_running_loop().call_soon(self._go_on, begins)
        return begins

    def _go_on(self, begins: bool) -> None:
        self._release()
        if begins:
            self._is_serving = False
            self._receive(self._handshake)
            self._take()
        elif self._buffer:
            self._serve(b"")


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
        dispatch = self._endpoint.dispatch
        _, version, correlation_id, client_id, body = read_request_header(frame)
        route = dispatch.route(ApiKey.API_VERSIONS, version)
        if route is None:
            return dispatch.api_versions_downgrade(correlation_id)
        route.requests += 1
        context = InFlightRequest(self.connection(), route, correlation_id, client_id, NOT_TIMED)
        return route.encode(correlation_id, route.plain_handler(route.read(frame, body), context, context))
