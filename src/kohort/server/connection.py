"""
Client connections: frames from arriving chunks, requests to their handlers, replies in the order of the requests.

There is no task and no thread per request. As in Kafka, a connection has one request in flight (`dispatch.PIPELINED` has the
exceptions). Requests behind it wait and the socket is not read meanwhile, so the memory of a connection is bounded. A client
that does not read its replies is not read from until it has caught up. A long request is worked on in slices (`slices.py`).

Source: Kafka SocketServer, Processor, KafkaChannel.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from kohort.broker.ports import NoResponse
from kohort.model.context import ClientInformation
from kohort.model.errors import WireError
from kohort.model.limits import (
    ABANDONED_BYTES_MAX,
    CLOSING_SECONDS_MAX,
    COUNTED_BYTES_MIN,
    FETCH_BYTES_ALWAYS,
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    STALLED_SECONDS_MAX,
    UNSENT_BYTES_MAX,
    WRITE_BUFFER_BYTES,
)
from kohort.runtime.ready_queue import ReadyQueue
from kohort.server.connection_limits import ConnectionLimits
from kohort.server.dispatch import Dispatch, Route
from kohort.server.metrics.latency import TIMED_AT_FIRST, TIMED_EVERY
from kohort.server.slices import Slices, Steps
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FrameReader
from kohort.wire.guards import LongMessage
from kohort.wire.headers import api_versions_downgrade, read_request_header
from kohort.wire.release import long_arrays, release
from kohort.wire.templates import Memory, TemplateCache

_log = logging.getLogger("kohort.server")

_CLOSE: Final = NoResponse.CLOSE_CONNECTION
_NO_OP: Final = NoResponse.NO_OP
"""Module names are free in compiled code; reading an enum's member costs as much as a call."""
NOT_TIMED: Final = 0.0
PARKED: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""APIs whose requests wait for other members of their group."""


UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
SOFTWARE_LENGTH_MAX: Final = 100
CallLater: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


def loop_call_later(seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
    """Call a function later, on the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, function)


class InFlightRequest:
    """
    One request between its arrival and its reply; also the `kohort.model.context.RequestContext` of its handler.

    Attributes:
        answer: the frame to send once it is known; empty if there is none to send.
        chain: the works that its handler left for later turns, with the function that takes the result of each.
        is_long: whether the answer is encoded in steps.
        began_at: the time of its start, in seconds; `NOT_TIMED` for most requests.
        size_bytes: of the request; 0 until the request has its place in the order of replies.
    """

    __slots__ = (
        "answer",
        "api_version",
        "began_at",
        "chain",
        "client_id",
        "connection",
        "correlation_id",
        "is_long",
        "route",
        "size_bytes",
    )

    def __init__(
        self, connection: "ClientConnection", route: Route, correlation_id: int, client_id: str, began_at: float
    ) -> None:
        self.connection = connection
        self.route = route
        self.api_version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.answer: bytes | None = None
        self.chain: deque[tuple[Steps, Callable[[Any], None]]] | None = None
        self.is_long = False
        self.began_at = began_at
        self.size_bytes = 0

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.endpoint.listener

    def when_disconnected(self, forget: Callable[[], None], /) -> None:
        self.connection.forget = forget

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        self.connection.parked = self, forget

    @property
    def client(self) -> ClientInformation:
        return self.connection.client

    def identify(self, software_name: str, software_version: str, /) -> None:
        self.connection.identify(software_name, software_version)

    def throttle(self, throttle_ms: int, /) -> None:
        self.connection.throttle(throttle_ms)

    def go_on(self, steps: Steps, reply: Callable[[Any], None], /) -> None:
        if self.chain is None:
            self.chain = deque()
            self.connection.begin_chain(self)
        self.chain.append((steps, reply))

    def record_latency(self) -> None:
        if self.began_at != NOT_TIMED:
            self.route.record_latency(perf_counter() - self.began_at)

    def reply(self, response: Any) -> None:
        """Answer the request; called once, possibly in a later turn."""
        self.connection.on_response(self, response)


class ServedEndpoint(NamedTuple):
    """One listener of one broker."""

    node_id: int
    listener: str
    dispatch: Dispatch


class ClientConnections:
    """
    The connections of all brokers of a process, and the objects that they share.

    Attributes:
        dispatches: of the brokers.
        limits: how many connections there may be, and how many there are.
        accepted: how many connections have been accepted so far.
        closing: closed connections whose client has not taken the last replies, with the time of the check that found them so.
        slow: the connections whose client has not taken more than `COUNTED_BYTES_MIN` of replies.
        unsent_bytes: the replies of these connections, as of the last look at each.
        unsent_bytes_max: the bound of `unsent_bytes`.
        abandoned_bytes: the requests that are worked on although their client has disconnected.
        throttled: connections that are not read for a time because of a quota.
        call_later: `call_later(seconds, function)` of the event loop.
        is_draining: whether the node is stopping, so that no further request is taken.
    """

    def __init__(
        self,
        dispatches: Sequence[Dispatch],
        ready_queue: ReadyQueue,
        slices: Slices,
        limits: ConnectionLimits,
        *,
        frame_bytes_max: int,
        call_later: CallLater = loop_call_later,
    ) -> None:
        self.limits = limits
        self.dispatches = dispatches
        self.slices = slices
        self.ready_queue = ready_queue
        self.frame_bytes_max = frame_bytes_max
        self.memory = Memory()
        self.open: set[ClientConnection] = set()
        self.closing: dict[ClientConnection, float] = {}
        self.slow: set[ClientConnection] = set()
        self.unsent_bytes = 0
        self.unsent_bytes_max = UNSENT_BYTES_MAX
        self.abandoned_bytes = 0
        self.throttled = 0
        self.call_later = call_later
        self.is_draining = False
        self.accepted = 0

    @property
    def routes(self) -> list[Route]:
        """The routes in use so far, of all brokers."""
        return [route for dispatch in self.dispatches for route in list(dispatch.routes.values())]

    def accept(self, endpoint: ServedEndpoint, host: str) -> "ClientConnection":
        """Make the protocol of a connection from an address, which was accepted at an endpoint."""
        self.accepted += 1
        return ClientConnection(self, endpoint, host)

    def fetch_bytes_left(self) -> int:
        """How many bytes of records the next Fetch response may have, so that clients that do not read share one bound."""
        return max(self.unsent_bytes_max - self.unsent_bytes, FETCH_BYTES_ALWAYS)

    def is_overfull(self) -> bool:
        """Whether unsent replies take twice their bound, also after a new look at all of them."""
        if self.unsent_bytes > 2 * self.unsent_bytes_max:
            for connection in list(self.slow):
                connection.check_progress()
        return self.unsent_bytes > 2 * self.unsent_bytes_max

    def close_idle(self, now: float, idle_seconds_max: float) -> None:
        """
        Close the connections that were idle for longer than `idle_seconds_max` at the time `now`.

        Called periodically. A connection only sets a flag when it is used, which is cheaper than reading the clock. The replies
        of an idle connection that its client has not taken are dropped, as in Kafka.
        """
        for connection in list(self.slow):
            connection.check_progress()
        for connection in list(self.open):
            if connection.was_used:
                connection.was_used = False
                connection.used_at = now
            elif now - connection.used_at > idle_seconds_max:
                connection.close_idle()
        if self.limits.excess:
            self._close_excess()
        self._abort_stalled(now)
        for connection, since in list(self.closing.items()):
            if not since:
                self.closing[connection] = now
            elif now - since > CLOSING_SECONDS_MAX:
                connection.abort()

    def _close_excess(self) -> None:
        """Close connections beyond a limit that was lowered, those first that were unused longest."""
        excess = self.limits.excess - len(self.closing)
        for connection in sorted(self.open, key=lambda each: each.used_at)[: max(excess, 0)]:
            connection.close_idle()

    def _abort_stalled(self, now: float) -> None:
        """Make room for replies: abort connections whose clients do not read, those with the most unsent bytes first."""
        for connection in sorted(self.slow, key=lambda each: each.unsent_bytes, reverse=True):
            if self.unsent_bytes <= self.unsent_bytes_max:
                return
            if now - connection.used_at > STALLED_SECONDS_MAX:
                connection.abort_stalled()

    def drain(self) -> None:
        """Take no further requests, before the node stops. Requests that have begun are answered."""
        self.is_draining = True
        for connection in self.open:
            connection.drain()

    @property
    def has_begun_requests(self) -> bool:
        """Whether requests have begun that end by themselves: requests that wait for other members of a group do not count."""
        return any(connection.has_begun_requests for connection in self.open)

    def abort_all(self) -> None:
        for connection in [*self.open, *self.closing]:
            connection.abort()


class LongRequest:
    """The work of one request of a connection, in slices: up to its answer, or only the encoding of its answer."""

    __slots__ = ("is_encoding", "pending")

    def __init__(self, pending: InFlightRequest, *, is_encoding: bool = False) -> None:
        self.pending = pending
        self.is_encoding = is_encoding

    def is_wanted(self) -> bool:
        return self.pending.connection.is_open

    def done(self, result: Any, error: Exception | None, /) -> None:
        self.pending.connection.on_long(self.pending, result, error, is_encoding=self.is_encoding)


class ChainedWork:
    """
    The works that the handler of a request left for later turns, one after the other.

    As in Kafka, they go on if the client disconnects, up to a bound for all such requests.
    """

    __slots__ = ("_pending", "_shared", "_size_bytes")

    def __init__(self, shared: ClientConnections, pending: InFlightRequest) -> None:
        self._shared = shared
        self._pending = pending
        self._size_bytes = 0

    def is_wanted(self) -> bool:
        if self._pending.connection.is_open or self._size_bytes:
            return True
        size_bytes = max(self._pending.size_bytes, 1)
        if self._shared.abandoned_bytes + size_bytes > ABANDONED_BYTES_MAX:
            return False
        self._size_bytes = size_bytes
        self._shared.abandoned_bytes += size_bytes
        return True

    def steps(self) -> Steps:
        pending = self._pending
        try:
            while pending.chain:
                steps, reply = pending.chain[0]
                result = yield from steps
                if result is not None:
                    reply(result)
                pending.chain.popleft()
        finally:
            self._shared.abandoned_bytes -= self._size_bytes
            for steps, _ in pending.chain or ():
                steps.close()
            pending.chain = None

    def done(self, _result: Any, error: Exception | None, /) -> None:
        self._pending.connection.end_chain(error)


def _long_steps(pending: InFlightRequest, frame: bytes, body: int, request: Any) -> Generator[None, None, Any]:
    """Read, handle and answer a request in steps. Return the answer, a `NoResponse`, or None if it comes later."""
    route = pending.route.long
    is_long = False
    """Reading, handling and encoding begin a step of their own; a short request is answered in its first step."""
    if request is None:
        request = yield from route.read(frame, body, route.elements_max)
        frame = b""
        is_long = True
        yield
    response = route.handler(request, pending, pending.reply)
    if isinstance(response, Generator):
        response = yield from response
    if response is None or response is _CLOSE or response is _NO_OP:
        return response
    if not is_long:
        return (yield from route.encode(pending.correlation_id, response))
    yield
    answer = yield from route.encode(pending.correlation_id, response)
    arrays = [*long_arrays(request, route.request_schema), *long_arrays(response, route.response_schema)]
    request = response = None
    yield from release(arrays)
    return answer


class ClientConnection(asyncio.Protocol):
    """
    The server's side of one client's socket.

    Attributes:
        endpoint: where the client connected.
        forget: called when the connection ends; None if nothing is to be forgotten.
        parked: the last request that is to be forgotten if the client disconnects, and the function that forgets it.
        was_used: since the last idle check.
        used_at: time of the last idle check that found the connection used, by the loop's clock.
        unsent_bytes: replies that the client has not taken, as of the last look; 0 unless they are counted.
    """

    def __init__(self, shared: ClientConnections, endpoint: ServedEndpoint, host: str) -> None:
        self._shared = shared
        self.endpoint = endpoint
        self._routes = endpoint.dispatch.routes
        self._frames = FrameReader(shared.frame_bytes_max)
        self._waiting: deque[bytes] = deque()
        """Frames that wait until the requests in flight are answered."""
        self._in_flight: deque[InFlightRequest] = deque()
        self._in_flight_bytes = 0
        self._long_works = 0
        """Works in slices whose handler has not finished. The requests behind them wait."""
        self._out: list[bytes] = []
        self.parked: tuple[InFlightRequest, Callable[[], None]] | None = None
        self._transport: asyncio.Transport | None = None
        """None after the connection was closed, even if replies are still to be sent."""
        self._socket: asyncio.Transport | None = None
        """The transport until the socket is closed."""
        self._templates = TemplateCache(shared.memory)
        self._is_handling = False
        self._is_flush_scheduled = False
        self._is_slow = False
        self._throttle: asyncio.TimerHandle | None = None
        self._is_held = False
        """Whether requests wait: the client is slow, or throttled."""
        self._is_paused = False
        self.client_host = f"/{host}"
        self._software = UNKNOWN_SOFTWARE
        self.forget: Callable[[], None] | None = None
        self.was_used = True
        self.used_at = 0.0
        self.unsent_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def client(self) -> ClientInformation:
        peer = None if self._socket is None else self._socket.get_extra_info("peername")
        return ClientInformation(*self._software, port=peer[1] if peer else 0)

    def identify(self, software_name: str, software_version: str) -> None:
        """Note the client's library; the few that there are share one object."""
        software = sys.intern(software_name[:SOFTWARE_LENGTH_MAX]), sys.intern(software_version[:SOFTWARE_LENGTH_MAX])
        self._software = software

    # -- asyncio -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface of asyncio.Transport but are no subclass.
        self._transport = self._socket = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._shared.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        # As in Kafka, waiting requests go on without a client, except those that registered `when_abandoned`.
        parked, self.parked = self.parked, None
        if parked is not None and parked[0] in self._in_flight:
            parked[1]()
        if self.forget is not None:
            self.forget()
            self.forget = None
        self._transport = self._socket = None
        self._drop_throttle()
        self._set_unsent(0)
        self._templates.forget()
        self._waiting.clear()
        self._in_flight.clear()
        self._long_works = 0
        self._out.clear()
        self._shared.open.discard(self)
        self._shared.closing.pop(self, None)
        self._shared.limits.leave(self.client_host[1:])

    def data_received(self, data: bytes) -> None:
        self.was_used = True
        try:
            frames = self._frames.feed(data)
        except WireError as error:
            self._refuse(error)
            return
        if self._is_held or self._is_handling or self._waiting:
            self._waiting.extend(frames)
            self._pause_if_behind()
        elif self._in_flight or len(frames) != 1:
            self._handle(frames)
        else:
            # Nothing else is in flight: there is no order to keep, and nothing to send in the same write.
            answer = self._handle_one(frames[0])
            if answer and self._transport is not None:
                self._transport.write(answer)
                if len(answer) > COUNTED_BYTES_MIN:
                    self._count_unsent()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_slow = self._is_held = True
        if self._socket is not None:
            self._set_unsent(self._socket.get_write_buffer_size())
        if self._shared.unsent_bytes > 2 * self._shared.unsent_bytes_max:
            self.abort_stalled()
        self._pause_if_behind()

    def resume_writing(self) -> None:
        self._is_slow = False
        self._is_held = self._throttle is not None
        self._set_unsent(0)
        self._continue()

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

    # -- requests ----------------------------------------------------------------------------------------------

    def _handle(self, frames: list[bytes]) -> None:
        self._is_handling = True
        out_bytes = 0
        for index, frame in enumerate(frames):
            if (self._in_flight or self._is_held) and not self._may_overlap(frame):
                self._waiting.extend(frames[index:])
                break
            answer = self._handle_one(frame)
            if self._transport is None:
                break
            if answer:
                self._out.append(answer)
                out_bytes += len(answer)
                if out_bytes > WRITE_BUFFER_BYTES:
                    # A slow client gets no further large answer.
                    self._flush()
                    out_bytes = 0
        self._is_handling = False
        self._flush()
        self._pause_if_behind()

    def _may_overlap(self, frame: bytes) -> bool:
        if (
            self._is_held
            or self._long_works
            or len(self._in_flight) >= IN_FLIGHT_MAX
            or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX
        ):
            return False
        first = self._in_flight[0].route
        return first.is_pipelined and frame[:2] == first.api_key.to_bytes(2, "big")

    def _handle_one(self, frame: bytes) -> bytes | None:
        """
        Handle a request and return the frame to send now, if there is one.

        A malformed request closes the connection; an exception of a handler aborts it.
        """
        pending: InFlightRequest | None = None
        body = 0
        try:
            api_key, api_version, correlation_id, client_id, body = read_request_header(frame)
            route = self._routes.get((api_key, api_version)) or self.endpoint.dispatch.route(api_key, api_version)
            if route is None:
                # A newer client sent an unknown version of ApiVersions: the answer has the served versions of ApiVersions.
                return api_versions_downgrade(correlation_id)
            requests = route.requests = route.requests + 1
            began_at = perf_counter() if requests <= TIMED_AT_FIRST or not requests % TIMED_EVERY else NOT_TIMED
            pending = InFlightRequest(self, route, correlation_id, client_id, began_at)
            read_repeated = route.read_repeated
            request = route.read(frame, body) if read_repeated is None else read_repeated(frame, body, self._templates)
            if route.is_gradual:
                return self._begin_long(pending, frame, body, request)
            response = route.handler(request, pending, pending.reply)
            if response is None:
                return self._enqueue(pending, len(frame))
            if response is _CLOSE:
                self.close()
                return None
            answer = b"" if response is _NO_OP else route.encode(correlation_id, response)
            pending.record_latency()
            if not self._in_flight:
                return answer
            pending.answer = answer
            return self._enqueue(pending, len(frame))
        except LongMessage:
            assert pending is not None, "a route's reader has raised"
            return self._begin_long(pending, frame, body, None)
        except Exception as error:  # noqa: BLE001 -- the connection loop: a defect aborts its connection, never the process
            self._fail(error)
        return None

    def _enqueue(self, pending: InFlightRequest, size_bytes: int) -> bytes | None:
        """Append a request to the order of replies. Return its answer if it has one and nothing else is in flight."""
        if pending.answer is not None and not self._in_flight:
            return pending.answer
        if self._transport is not None:
            pending.size_bytes = size_bytes
            self._in_flight.append(pending)
            self._in_flight_bytes += size_bytes
        return None

    def on_response(self, pending: InFlightRequest, response: Any) -> None:
        """Take the response of a request that waited. It is sent when the replies before it have been sent."""
        if self._transport is None:
            return
        if response is _CLOSE:
            self.close()
            return
        if pending.is_long and response is not _NO_OP:
            self._encode_long(pending, response)
            return
        pending.answer = b"" if response is _NO_OP else pending.route.encode(pending.correlation_id, response)
        pending.record_latency()
        if not pending.size_bytes:
            # Answered before its handler returned: `_handle_one` sends the answer.
            return
        in_flight = self._in_flight
        if len(in_flight) == 1 and not (self._out or self._waiting or self._is_handling):
            # The only request: nothing to wait for, and nothing to send in the same write.
            in_flight.clear()
            self._in_flight_bytes = 0
            if pending.answer:
                self.was_used = True
                self._transport.write(pending.answer)
                if len(pending.answer) > COUNTED_BYTES_MIN:
                    self._count_unsent()
            return
        self._release()

    def _release(self) -> None:
        """Send the answers that no earlier request holds back, and go on with the requests that waited for them."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].answer is not None:
            first = in_flight.popleft()
            self._in_flight_bytes -= first.size_bytes
            self._out.append(first.answer or b"")
        if self._is_handling:
            return
        if not in_flight and not self._waiting:
            # No further reply can follow in this turn.
            self._flush()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._shared.ready_queue.defer(self._continue)

    # -- long requests -----------------------------------------------------------------------------------------

    def _begin_long(self, pending: InFlightRequest, frame: bytes, body: int, request: Any) -> bytes | None:
        """
        Take the first step of a long request; `Slices` takes the others. Return the frame to send now, if there is one.

        Args:
            request: None if it is to be read in steps too.
        """
        pending.is_long = True
        steps = _long_steps(pending, frame, body, request)
        try:
            next(steps)
        except StopIteration as end:
            return self._first_result(pending, end.value, len(frame))
        except Exception as error:  # noqa: BLE001 -- as in `_handle_one`
            self._fail(error)
            return None
        self._long_works += 1
        self._enqueue(pending, len(frame))
        self._shared.slices.add(LongRequest(pending), steps)
        return None

    def _first_result(self, pending: InFlightRequest, result: Any, size_bytes: int) -> bytes | None:
        """Take the result of a long request that needed one step only."""
        if result is _CLOSE:
            self.close()
            return None
        if result is not None:
            pending.answer = b"" if result is _NO_OP else result
            pending.record_latency()
        return self._enqueue(pending, size_bytes)

    def on_long(
        self, pending: InFlightRequest, result: Any, error: Exception | None, *, is_encoding: bool = False
    ) -> None:
        """Take the answer of a long request, a `NoResponse`, or None if its handler replies later."""
        if not is_encoding:
            self._long_works -= 1
        if self._transport is None:
            return
        if error is not None:
            self._fail(error)
        elif result is _CLOSE:
            self.close()
        else:
            if result is not None:
                pending.answer = b"" if result is _NO_OP else result
                pending.record_latency()
            self._release()

    def begin_chain(self, pending: InFlightRequest) -> None:
        """Work in later turns for a request; the requests behind it wait."""
        self._long_works += 1
        work = ChainedWork(self._shared, pending)
        self._shared.slices.add(work, work.steps())

    def end_chain(self, error: Exception | None) -> None:
        self._long_works -= 1
        if self._transport is None:
            return
        if error is not None:
            self._fail(error)
        else:
            self._release()

    def _encode_long(self, pending: InFlightRequest, response: Any) -> None:
        steps = pending.route.long.encode(pending.correlation_id, response)
        try:
            next(steps)
        except StopIteration as end:
            pending.answer = end.value
            pending.record_latency()
            if pending.size_bytes:
                self._release()
        except Exception as error:  # noqa: BLE001 -- as in `_handle_one`
            self._fail(error)
        else:
            self._shared.slices.add(LongRequest(pending, is_encoding=True), steps)

    # -- flow control ------------------------------------------------------------------------------------------

    def _continue(self) -> None:
        """Send the replies that are ready and handle the requests that waited for them."""
        self._is_flush_scheduled = False
        if self._transport is None:
            return
        if self._is_handling:
            return
        if self._waiting and not self._is_held:
            frames = list(self._waiting)
            self._waiting.clear()
            self._handle(frames)
        else:
            self._flush()
        if self._is_paused and not self._waiting and not self._is_held and self._transport is not None:
            if self._shared.is_draining:
                return
            self._is_paused = False
            self._transport.resume_reading()

    def throttle(self, throttle_ms: int) -> None:
        """
        Handle no further request for a time. Replies are sent, also the one that tells the client of it.

        Source: KIP-219; Kafka ThrottledChannel, KafkaChannel.handleChannelMuteEvent.
        """
        if self._transport is None:
            return
        if self._throttle is None:
            self._shared.throttled += 1
        else:
            self._throttle.cancel()
        self._throttle = self._shared.call_later(throttle_ms / 1_000, self._end_throttle)
        self._is_held = True
        self._pause_if_behind()

    def _end_throttle(self) -> None:
        self._drop_throttle()
        self._continue()

    def _drop_throttle(self) -> None:
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
            self._shared.throttled -= 1
            self._is_held = self._is_slow

    def _pause_if_behind(self) -> None:
        if (self._waiting or self._is_held) and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self.was_used = True
            answer = out[0] if len(out) == 1 else b"".join(out)
            self._transport.write(answer)
            if len(answer) > COUNTED_BYTES_MIN:
                self._count_unsent()

    def drain(self) -> None:
        """Take no further requests, not even those that have arrived and wait."""
        self._waiting.clear()
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    @property
    def has_begun_requests(self) -> bool:
        return bool(self._out) or any(pending.route.api_key not in PARKED for pending in self._in_flight)

    # -- ending ------------------------------------------------------------------------------------------------

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
