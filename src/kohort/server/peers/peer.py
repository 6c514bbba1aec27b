"""
A connection to another node on its inter-broker listener: requests out, responses in, no task and no future a request.

A connection begins with ApiVersions and the login. It is made when the first request needs it, and again after a back-off. A
request that is not answered in its time closes the connection, as in Kafka: what the node does with the other requests on it is
not known then either.

Source: Kafka NetworkClient, InterBrokerSendThread, ClusterConnectionStates, SaslClientAuthenticator.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

from kohort.broker.cluster import Endpoint
from kohort.broker.ports import CallLater, Cancel
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, KohortError, WireError
from kohort.model.limits import PEER_BYTES_MAX, PEER_REQUESTS_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.frames import FrameReader
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader

_log: Final = logging.getLogger("kohort.server")

CONNECT_S: Final = 10.0
"""The longest time of a connection's beginning. Source: socket.connection.setup.timeout.ms."""
BACKOFF_MS_MIN: Final = 50
BACKOFF_MS_MAX: Final = 1_000
"""Source: reconnect.backoff.ms and reconnect.backoff.max.ms of Kafka's clients between brokers."""
IN_FLIGHT_MAX: Final = 5
"""Requests of one connection that wait for their responses. Source: max.in.flight.requests.per.connection."""
_API_VERSIONS: Final = 3
"""The first version with names of software; every release that a node may have knows it."""
_SESSION_SHARE: Final = 0.85
"""The share of a session after which the node logs in again. Source: Kafka SaslClientAuthenticator."""
_DOUBLINGS_MAX: Final = 8


class Lost(NamedTuple):
    """
    Why a request has no response.

    Attributes:
        reason: a sentence without its end.
        was_sent: whether the other node may have handled the request.
        is_late: whether its time was over.
    """

    reason: str
    was_sent: bool = False
    is_late: bool = False


Done: TypeAlias = Callable[[Any], None]
"""Called once, now or later, with the response message or with `Lost`."""


class Connecting(NamedTuple):
    """
    How connections to other nodes are made.

    Attributes:
        client_id: `kohort-` and the id of this node.
        security: returns how the inter-broker listener of every node is spoken to; asked for each new connection. Raises
            ConfigError.
        idle_s: how long a connection is used again after its last request.
        frame_bytes_max: the largest response that is read.
    """

    loop: asyncio.AbstractEventLoop
    call_later: CallLater
    client_id: str
    security: Callable[[], Security]
    idle_s: float
    frame_bytes_max: int


class _Request:
    """One request that has no response so far."""

    __slots__ = ("api_key", "cancel", "correlation_id", "done", "frame", "size_bytes", "version")

    def __init__(self, api_key: ApiKey, version: int, correlation_id: int, frame: bytes, done: Done) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.size_bytes = len(frame)
        self.done = done
        self.cancel: Cancel = _nothing

    def end(self, answer: Any) -> None:
        self.cancel()
        self.done(answer)


def _nothing() -> None:
    """There is no time-out to cancel."""


class _Socket(asyncio.Protocol):
    """One socket of a connection. What an old one still tells is not heard any more."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface of asyncio.Transport but are no subclass.
        self._peer.on_connected(self, cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._peer.on_data(self, data)

    def connection_lost(self, _error: Exception | None) -> None:
        self._peer.on_lost(self)

    def pause_writing(self) -> None:
        self._peer.on_writable(self, is_full=True)

    def resume_writing(self) -> None:
        self._peer.on_writable(self, is_full=False)


class Peer:
    """
    One connection to another node; it lives on through several sockets.

    Not thread-safe: everything is on the thread of the event loop.

    Args:
        in_flight_max: requests that wait for their responses. With 1, a lost connection leaves one outcome unknown.
    """

    def __init__(self, name: str, endpoint: Endpoint, connecting: Connecting, in_flight_max: int) -> None:
        self.endpoint = endpoint
        self._name = name
        self._connecting = connecting
        self._loop = connecting.loop
        self._in_flight_max = in_flight_max
        self._waiting: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._size_bytes = 0
        self._correlation_id = 0
        self._security = PLAINTEXT
        self._socket: _Socket | None = None
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(connecting.frame_bytes_max)
        self._versions: dict[int, tuple[int, int]] = {}
        self._opening: asyncio.Task[None] | None = None
        self._cancel_backoff: Cancel | None = None
        self._failures = 0
        self._is_ready = False
        """Whether requests may be sent: ApiVersions and the login are over."""
        self._is_full = False
        self._is_closed = False
        self._session_ms = 0
        self._login_at = math.inf
        """When the next request is behind another login."""
        self._logged_in_at = 0.0
        self._used_at = 0.0

    @property
    def unanswered(self) -> int:
        """Requests without a response so far."""
        return len(self._waiting) + len(self._in_flight)

    def send(self, api_key: ApiKey, version: int, request: Any, done: Done, timeout_ms: int) -> None:
        """
        Send a request; `done` is called once, now or later.

        Args:
            timeout_ms: the longest time until the response, that of the connection's beginning included.
        """
        if self._is_closed:
            done(Lost(f"the connection to {self._name} is closed"))
            return
        sent = self._request(api_key, version, request, done)
        is_large = self.unanswered and self._size_bytes + sent.size_bytes > PEER_BYTES_MAX
        if is_large or self.unanswered >= PEER_REQUESTS_MAX:
            done(Lost(f"too many requests wait for {self._name}"))
            return
        if not self.unanswered and self._loop.time() - self._used_at > self._connecting.idle_s:
            # The other node closes idle connections, too; a request on one would have an unknown outcome.
            self._drop("it was idle")
        self._size_bytes += sent.size_bytes
        sent.cancel = self._connecting.call_later(timeout_ms, partial(self._on_timeout, sent))
        self._waiting.append(sent)
        self._go_on()

    def close(self, reason: str) -> None:
        """Send nothing more. What waits for a response gets none."""
        self._is_closed = True
        if self._cancel_backoff is not None:
            self._cancel_backoff()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self._drop(reason, is_waiting_lost=True)

    # -- requests ----------------------------------------------------------------------------------------------

    def _request(self, api_key: ApiKey, version: int, request: Any, done: Done) -> _Request:
        number = self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
        frame = request_encoder(api_key, version)(number, self._connecting.client_id, request)
        return _Request(api_key, version, number, frame, done)

    def _go_on(self) -> None:
        """Send what may be sent now, and connect first if needed."""
        if not self._is_ready:
            if self._waiting and self._opening is None and self._cancel_backoff is None and not self._is_closed:
                self._opening = self._loop.create_task(self._open())
            return
        if self._waiting and self._loop.time() >= self._login_at and self._used_at > self._logged_in_at:
            if not self._in_flight:
                self._is_ready = False
                self._opening = self._loop.create_task(self._open_again())
            return
        while self._waiting and len(self._in_flight) < self._in_flight_max and not self._is_full:
            request = self._waiting.popleft()
            oldest, newest = self._versions.get(request.api_key, (0, -1))
            if not (oldest <= request.version <= newest or request.api_key.is_between_nodes):
                self._end(request, Lost(f"{self._name} does not serve {request.api_key.api_name} {request.version}"))
                continue
            self._write(request)

    def _write(self, request: _Request) -> None:
        assert self._transport is not None, "a connection that sends has a socket"
        self._in_flight.append(request)
        self._used_at = self._loop.time()
        self._transport.write(request.frame)
        request.frame = b""

    def _end(self, request: _Request, answer: Any) -> None:
        self._size_bytes -= request.size_bytes
        request.end(answer)

    def _on_timeout(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self._end(request, Lost(f"{self._name} could not be asked in time", is_late=True))
        else:
            self._in_flight.remove(request)
            self._end(request, Lost(f"{self._name} does not answer in time", was_sent=True, is_late=True))
            self._drop("a request was not answered in time")
            self._go_on()

    def _drop(self, reason: str, *, is_waiting_lost: bool = False) -> None:
        """Close the socket. What was sent on it gets no response; what waits is sent on the next one, unless it is lost."""
        transport, self._transport, self._socket = self._transport, None, None
        self._is_ready = self._is_full = False
        if transport is not None:
            transport.abort()
        in_flight, self._in_flight = self._in_flight, deque()
        lost = [(request, True) for request in in_flight]
        if is_waiting_lost:
            waiting, self._waiting = self._waiting, deque()
            lost += [(request, False) for request in waiting]
        for request, was_sent in lost:
            self._end(request, Lost(f"no connection to {self._name}: {reason}", was_sent))

    # -- the beginning of a connection -------------------------------------------------------------------------

    async def _open(self) -> None:
        """Connect, ask for the versions and log in."""
        host, port = self.endpoint
        try:
            security = self._security = self._connecting.security()
            async with asyncio.timeout(CONNECT_S):
                context = None
                if security.is_encrypted:
                    context = await self._loop.run_in_executor(None, security.ssl_context)
                await self._loop.create_connection(
                    partial(_Socket, self), host, port, ssl=context, server_hostname=host if context else None
                )
                await self._ask_versions()
                await self._log_in()
        except (OSError, KohortError) as error:
            self._fail(str(error) or type(error).__name__)
        else:
            self._begin()

    async def _open_again(self) -> None:
        """Log in again on the same connection (KIP-368)."""
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._log_in()
        except (OSError, KohortError) as error:
            self._fail(str(error) or type(error).__name__)
        else:
            self._begin()

    def _begin(self) -> None:
        self._opening = None
        self._failures = 0
        self._is_ready = self._transport is not None
        self._go_on()

    def _fail(self, reason: str) -> None:
        """Lose all requests, and connect again after a back-off when there are others."""
        level = logging.DEBUG if self._failures else logging.WARNING
        _log.log(level, "peer.unreachable peer=%r address=%s:%d error=%r", self._name, *self.endpoint, reason)
        self._opening = None
        backoff_ms = min(BACKOFF_MS_MIN << min(self._failures, _DOUBLINGS_MAX), BACKOFF_MS_MAX)
        self._failures += 1
        self._cancel_backoff = self._connecting.call_later(backoff_ms, self._on_backoff)
        self._drop(reason, is_waiting_lost=True)

    def _on_backoff(self) -> None:
        self._cancel_backoff = None
        self._go_on()

    async def _ask_versions(self) -> None:
        request = m.ApiVersionsRequest(client_software_name="kohort-node", client_software_version="0")
        response = await self._exchange(ApiKey.API_VERSIONS, _API_VERSIONS, request)
        if response.error_code:
            raise ConfigError(f"it refuses ApiVersions with the error {response.error_code}")
        self._versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}

    async def _log_in(self) -> None:
        security = self._security
        if security.mechanism is None:
            return
        began_s = self._loop.time()
        handshake = m.SaslHandshakeRequest(mechanism=security.mechanism)
        response = await self._exchange(ApiKey.SASL_HANDSHAKE, 1, handshake)
        if response.error_code:
            raise ConfigError(f"it does not offer {security.mechanism}; it has {', '.join(response.mechanisms)}")
        self._session_ms = 0
        await self._loop.run_in_executor(None, security.authenticate, self._exchange_token)
        self._logged_in_at = self._loop.time()
        has_end = self._session_ms > 0
        self._login_at = began_s + _SESSION_SHARE * self._session_ms / 1_000 if has_end else math.inf

    def _exchange_token(self, auth_bytes: bytes) -> bytes:
        """Exchange messages of SASL from the thread of the login, which derives keys and asks for tokens there."""
        exchange = self._exchange(ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=auth_bytes))
        response = asyncio.run_coroutine_threadsafe(exchange, self._loop).result(CONNECT_S)
        if response.error_code:
            raise ConfigError(f"it refuses the login: {response.error_message or response.error_code}")
        self._session_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    async def _exchange(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """One request of the beginning, before all others."""
        if self._transport is None:
            raise ConfigError("it has closed the connection")
        answered: asyncio.Future[Any] = self._loop.create_future()
        sent = self._request(api_key, version, request, partial(_settle, answered))
        self._size_bytes += sent.size_bytes
        self._write(sent)
        answer = await answered
        if isinstance(answer, Lost):
            raise ConfigError("it has closed the connection")
        return answer

    # -- of the socket -----------------------------------------------------------------------------------------

    def on_connected(self, socket: _Socket, transport: asyncio.Transport) -> None:
        self._frames = FrameReader(self._connecting.frame_bytes_max)
        self._socket, self._transport = socket, transport

    def on_data(self, socket: _Socket, data: bytes) -> None:
        if socket is not self._socket:
            return
        try:
            for frame in self._frames.feed(data):
                self._on_frame(frame)
        except WireError as error:
            self._drop(f"it does not speak Kafka's protocol: {error}")
        self._go_on()

    def _on_frame(self, frame: bytes) -> None:
        if not self._in_flight:
            raise WireError("a response without a request")
        request = self._in_flight[0]
        correlation_id, offset = read_response_header(frame, request.api_key, request.version)
        if correlation_id != request.correlation_id:
            raise WireError(f"a response to {correlation_id} instead of {request.correlation_id}")
        response = response_reader(request.api_key, request.version)(frame, offset)
        self._in_flight.popleft()
        self._end(request, response)

    def on_lost(self, socket: _Socket) -> None:
        if socket is self._socket:
            self._drop("it has closed the connection")
            self._go_on()

    def on_writable(self, socket: _Socket, *, is_full: bool) -> None:
        if socket is self._socket:
            self._is_full = is_full
            self._go_on()


def _settle(answered: asyncio.Future[Any], answer: Any) -> None:
    if not answered.done():
        answered.set_result(answer)
