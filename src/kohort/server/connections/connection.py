"""
Client connections: frames from arriving chunks, requests to their handlers, replies in the order of the requests.

There is no task and no thread per request. As in Kafka, a connection has one request in flight (`broker.api_table` has the
exceptions). Requests behind it wait and the socket is not read meanwhile, so the memory of a connection is bounded. A client
that does not read its replies is not read from until it has caught up. A long request is worked on in slices (`slices.py`).

Source: Kafka SocketServer, Processor, KafkaChannel.
"""

import asyncio
import sys
from collections import deque
from time import perf_counter
from typing import Any, Final

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.ports import NoResponse
from kohort.model.context import ClientInformation
from kohort.model.errors import WireError
from kohort.model.limits import COUNTED_BYTES_MIN, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, WRITE_BUFFER_BYTES
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.in_flight import NOT_TIMED, AnsweringConnection, InFlightRequest
from kohort.server.connections.long_requests import ChainedWork, LongRequest, long_steps, waiting_first
from kohort.server.metrics.latency import TIMED_AT_FIRST, TIMED_EVERY
from kohort.server.requests.dispatch import Route
from kohort.wire.frames import FrameReader, read_int32
from kohort.wire.generated.guards import LongMessage
from kohort.wire.headers import read_request_header
from kohort.wire.templates import KnownFrame, TemplateCache, TemplateMatch

_CLOSE: Final = NoResponse.CLOSE_CONNECTION
_NO_OP: Final = NoResponse.NO_OP
"""Module names are free in compiled code; reading an enum's member costs as much as a call."""
UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
SOFTWARE_LENGTH_MAX: Final = 100


class ClientConnection(AnsweringConnection):
    """The server's side of one connection."""

    def __init__(self, shared: ClientConnections, endpoint: ServedEndpoint, host: str) -> None:
        super().__init__(shared, endpoint, host)
        self._routes = endpoint.dispatch.routes
        self._frames = FrameReader(shared.frame_bytes_max)
        self._waiting: deque[bytes] = deque()
        """Frames that wait until the requests in flight are answered."""
        self._in_flight: list[InFlightRequest] = []
        """The requests without an answer so far, oldest first. They are few, and compiled code uses a list directly."""
        self._in_flight_bytes = 0
        self._long_works = 0
        """Works in slices whose handler has not finished. The requests behind them wait."""
        self._templates = TemplateCache(shared.memory)
        self._is_handling = False
        self._is_flush_scheduled = False
        self._throttle: asyncio.TimerHandle | None = None
        self._is_held = False
        """Whether requests wait: the client is slow, or throttled."""
        self._is_full = False
        """Whether the requests of all connections take too much memory for this one to be read."""
        self._is_paused = False
        self.held_bytes = 0
        """The bytes that `HeldRequests` counts of this connection."""
        self._software = UNKNOWN_SOFTWARE

    @property
    def client(self) -> ClientInformation:
        peer = None if self._socket is None else self._socket.get_extra_info("peername")
        return ClientInformation(*self._software, port=peer[1] if peer else 0)

    def identify(self, software_name: str, software_version: str) -> None:
        """Note the client's library; the few that there are share one object."""
        software = sys.intern(software_name[:SOFTWARE_LENGTH_MAX]), sys.intern(software_version[:SOFTWARE_LENGTH_MAX])
        self._software = software

    @property
    def is_paused(self) -> bool:
        """Whether the socket is not read because of requests that wait, or of answers that the client does not take."""
        return self._is_paused

    @property
    def in_flight(self) -> list[InFlightRequest]:
        """A copy of the requests without an answer so far, oldest first."""
        return list(self._in_flight)

    # -- asyncio -----------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        # As in Kafka, waiting requests go on without a client, except those that registered `when_abandoned`.
        parked, self.parked = self.parked, None
        if parked is not None and parked[0] in self._in_flight:
            parked[1]()
        forgetting, self.forgetting = self.forgetting, None
        for forget in list(forgetting.values()) if forgetting else ():
            forget()
        super().connection_lost(exc)
        self._drop_throttle()
        self._templates.forget()
        self._shared.held.count(self, 0)
        self._waiting.clear()
        self._in_flight.clear()
        self._long_works = 0

    def data_received(self, data: bytes) -> None:
        self.was_used = True
        if not self._in_flight and not self._is_held and self._frames.is_between and not self.held_bytes:
            known = self._templates.known(data)
            if known is not None and not self._waiting and not self._is_handling:
                match = known.match(data)
                if match is not None:
                    self._send_alone(self._handle_known(known, match, data))
                    return
        try:
            frames = self._frames.feed(data)
        except WireError as error:
            self._refuse(error)
            return
        except MemoryError as error:
            self._fail(error)
            return
        if not frames or self.held_bytes:
            self._count_held()
        if self._is_held or self._is_handling or self._waiting:
            self._waiting.extend(frames)
            self._count_held()
            self._pause_if_behind()
        elif self._in_flight or len(frames) != 1:
            self._handle(frames)
        else:
            self._send_alone(self._handle_one(frames[0]))

    def _send_alone(self, answer: bytes | None) -> None:
        """Send an answer while nothing else is in flight: there is no order to keep, and nothing to send in the same write."""
        if answer and self._transport is not None:
            self._transport.write(answer)
            if len(answer) > COUNTED_BYTES_MIN:
                self._count_unsent()

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

    # -- requests ----------------------------------------------------------------------------------------------

    def _handle(self, frames: list[bytes]) -> None:
        self._is_handling = True
        out_bytes = 0
        for index, frame in enumerate(frames):
            if (self._in_flight or self._is_held) and not self._may_overlap(frame):
                self._waiting.extend(frames[index:])
                self._count_held()
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
                return self.endpoint.dispatch.api_versions_downgrade(correlation_id)
            pending = self._begin(route, correlation_id, client_id)
            read_repeated = route.read_repeated
            if read_repeated is None:
                request = route.read(frame, body)
            else:
                request = read_repeated(frame, body, self._templates)
                if isinstance(request, TemplateMatch) and not route.is_gradual:
                    self._templates.know(frame, body, route, client_id, request)
            if route.is_gradual:
                return self._begin_long(pending, frame, body, request)
            return self._answer(pending, request, len(frame))
        except LongMessage:
            assert pending is not None, "a route's reader has raised"
            return self._begin_long(pending, frame, body, None)
        except Exception as error:  # noqa: BLE001 -- the connection loop: a defect aborts its connection, never the process
            self._fail(error)
        return None

    def _handle_known(self, known: KnownFrame, match: TemplateMatch, data: bytes) -> bytes | None:
        """As `_handle_one`, for a request that this connection has sent before: its frame is neither cut nor read."""
        try:
            route: Route = known.route
            pending = self._begin(route, read_int32(data, 8), known.client_id)
            request = match if route.read_repeated is not None else match.unfold()
            return self._answer(pending, request, len(data) - 4)
        except Exception as error:  # noqa: BLE001 -- as in `_handle_one`
            self._fail(error)
        return None

    def _begin(self, route: Route, correlation_id: int, client_id: str) -> InFlightRequest:
        requests = route.requests = route.requests + 1
        began_at = perf_counter() if requests <= TIMED_AT_FIRST or not requests % TIMED_EVERY else NOT_TIMED
        return InFlightRequest(self, route, correlation_id, client_id, began_at)

    def _answer(self, pending: InFlightRequest, request: Any, size_bytes: int) -> bytes | None:
        """Let the handler of a request answer it."""
        route = pending.route
        response = route.handler(request, pending, pending)
        if response is None:
            return self._enqueue(pending, size_bytes)
        if response is _CLOSE:
            self.close()
            return None
        answer = b"" if response is _NO_OP else route.encode(pending.correlation_id, response)
        pending.record_latency()
        if not self._in_flight:
            return answer
        pending.answer = answer
        return self._enqueue(pending, size_bytes)

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
            first = in_flight.pop(0)
            self._in_flight_bytes -= first.size_bytes
            self._out.append(first.answer or b"")
        if self.held_bytes:
            self._count_held()
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
        steps = long_steps(pending, frame, body, request)
        try:
            wait = next(steps)
        except StopIteration as end:
            return self._first_result(pending, end.value, len(frame))
        except Exception as error:  # noqa: BLE001 -- as in `_handle_one`
            self._fail(error)
            return None
        self._long_works += 1
        self._enqueue(pending, len(frame))
        self._count_held()
        self._shared.slices.add(LongRequest(pending), steps if wait is None else waiting_first(wait, steps))
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
        if self.held_bytes:
            self._count_held()
        self._read_on()

    def _read_on(self) -> None:
        """Read the socket again, unless there is a reason not to."""
        if not self._is_paused or self._waiting or self._is_held or self._is_full or self._transport is None:
            return
        if not self._shared.is_draining:
            self._is_paused = False
            self._transport.resume_reading()

    # -- the memory of requests, see `HeldRequests` ------------------------------------------------------------

    def _count_held(self) -> None:
        held_bytes = self._frames.buffered_bytes + sum(map(len, self._waiting))
        if self._long_works:
            held_bytes += self._in_flight_bytes
        if held_bytes <= COUNTED_BYTES_MIN:
            held_bytes = 0
        if (held_bytes or self.held_bytes) and self._transport is not None:
            self._shared.held.count(self, held_bytes)

    @property
    def missing_bytes(self) -> int:
        """How many bytes of a frame are still to come."""
        return self._frames.missing_bytes

    @property
    def is_worked_on(self) -> bool:
        """Whether a long request is worked on: it ends by itself."""
        return self._long_works > 0

    def set_full(self, *, is_full: bool) -> None:
        """Do not read the socket while the requests of all connections take too much memory."""
        self._is_full = is_full
        if is_full:
            self._pause_if_behind()
        else:
            self._read_on()

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
        is_behind = self._waiting or self._is_held or self._is_full
        if is_behind and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def drain(self) -> None:
        """Take no further requests, not even those that have arrived and wait."""
        self._waiting.clear()
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    @property
    def has_begun_requests(self) -> bool:
        return bool(self._out) or any(
            not API_TABLE[pending.route.api_key].waits_for_group for pending in self._in_flight
        )
