"""
One connection: frames out of whatever chunks arrive, requests to their handlers, replies in the order of the requests.

No task and no thread per request. While a reply is awaited, further requests wait as Kafka has it (see
`dispatch.PIPELINED` for the exception), and the socket is not read, so what a client can make us hold is bounded. A client
that reads slowly is not read from until it has caught up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from kohort.broker.ports import Outcome
from kohort.model.errors import WireError
from kohort.runtime.ready_queue import ReadyQueue
from kohort.server.dispatch import Dispatch, Route
from kohort.wire.frames import FrameReader
from kohort.wire.headers import api_versions_downgrade, read_request_header
from kohort.wire.templates import Memory, TemplateCache

_log = logging.getLogger("kohort.server")

_CLOSE: Final = Outcome.CLOSE_CONNECTION
_NO_RESPONSE: Final = Outcome.NO_RESPONSE
"""A name of this module costs nothing where it is compiled; to ask an enum for its member costs as much as a call."""
IN_WORK_MAX: Final = 1_000
IN_WORK_BYTES_MAX: Final = 4 * 1024 * 1024
"""Requests of one connection that may await their replies at once, and how large they may be together."""
WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Above this many unsent bytes a connection's requests are not read."""


class Call:
    """One request in work; also the context that its handler sees."""

    __slots__ = (
        "answer",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "route",
        "size_bytes",
    )

    def __init__(self, connection: "Connection", route: Route, correlation_id: int, client_id: str) -> None:
        self.connection = connection
        self.route = route
        self.api_version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.answer: bytes | None = None
        """The frame to send, once it is known; empty when there is none to send."""
        self.size_bytes = 0
        """Of the request; 0 until it has its place in the order of replies."""

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        self.connection.parked = self, forget

    def reply(self, response: Any) -> None:
        """Answer the request; called once, in any turn."""
        self.connection.answered(self, response)


class Connections:
    """The connections of a node, and what they share."""

    def __init__(self, dispatch: Dispatch, turn: ReadyQueue, *, frame_bytes_max: int) -> None:
        self.dispatch = dispatch
        self.turn = turn
        self.frame_bytes_max = frame_bytes_max
        self.memory = Memory()
        self.open: set[Connection] = set()
        self.accepted = 0
        """How many there have been."""

    def __call__(self) -> "Connection":
        self.accepted += 1
        return Connection(self)

    def close_idle(self, now: float, idle_seconds_max: float) -> None:
        """
        Close those that have neither sent nor been sent anything for long.

        Called every now and then; a connection only notes that it was used, which costs less than looking at a clock.
        """
        for connection in list(self.open):
            if connection.was_used:
                connection.was_used = False
                connection.used_at = now
            elif now - connection.used_at > idle_seconds_max:
                connection.close()

    def abort_all(self) -> None:
        for connection in list(self.open):
            connection.abort()


class Connection(asyncio.Protocol):
    """The server's side of one socket."""

    def __init__(self, shared: Connections) -> None:
        self._shared = shared
        self._routes = shared.dispatch.routes
        self._frames = FrameReader(shared.frame_bytes_max)
        self._waiting: deque[bytes] = deque()
        """Frames that must wait until the requests in work are answered."""
        self._in_work: deque[Call] = deque()
        self._in_work_bytes = 0
        self._out: list[bytes] = []
        self.parked: tuple[Call, Callable[[], None]] | None = None
        """The last request that wants to be forgotten when the client goes away, and how."""
        self._transport: asyncio.Transport | None = None
        self._remembered = TemplateCache(shared.memory)
        self._is_handling = False
        self._is_flush_due = False
        self._is_slow = False
        self._is_paused = False
        self.client_host = "/0.0.0.0"
        self.was_used = True
        """Since it was last looked at; `used_at` is when that was, by the loop's clock."""
        self.used_at = 0.0

    # -- asyncio -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but name.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        if peer:
            self.client_host = f"/{peer[0]}"
        self._shared.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        # What the client was waiting for goes on and is answered into the void, as in Kafka, unless it chose to be forgotten.
        parked, self.parked = self.parked, None
        if parked is not None and parked[0] in self._in_work:
            parked[1]()
        self._transport = None
        self._remembered.forget()
        self._waiting.clear()
        self._in_work.clear()
        self._out.clear()
        self._shared.open.discard(self)

    def data_received(self, data: bytes) -> None:
        self.was_used = True
        try:
            frames = self._frames.feed(data)
        except WireError as error:
            self._refuse(error)
            return
        if self._is_slow or self._is_handling or self._waiting:
            self._waiting.extend(frames)
            self._pause_if_behind()
        elif self._in_work or len(frames) != 1:
            self._handle(frames)
        else:
            # Nothing else is in work: there is no order to keep and nothing to send along.
            answer = self._request(frames[0])
            if answer and self._transport is not None:
                self._transport.write(answer)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_slow = True
        self._pause_if_behind()

    def resume_writing(self) -> None:
        self._is_slow = False
        self._go_on()

    # -- requests ----------------------------------------------------------------------------------------------

    def _handle(self, frames: list[bytes]) -> None:
        self._is_handling = True
        for index, frame in enumerate(frames):
            if (self._in_work or self._is_slow) and not self._may_overlap(frame):
                self._waiting.extend(frames[index:])
                break
            answer = self._request(frame)
            if self._transport is None:
                break
            if answer:
                self._out.append(answer)
        self._is_handling = False
        self._flush()
        self._pause_if_behind()

    def _may_overlap(self, frame: bytes) -> bool:
        if self._is_slow or len(self._in_work) >= IN_WORK_MAX or self._in_work_bytes >= IN_WORK_BYTES_MAX:
            return False
        first = self._in_work[0].route
        return first.is_pipelined and frame[:2] == first.api_key.to_bytes(2, "big")

    def _request(self, frame: bytes) -> bytes | None:
        """Let a request be handled; the frame to send now, if there is one. A request that fails costs its connection."""
        try:
            api_key, api_version, correlation_id, client_id, body = read_request_header(frame)
            route = self._routes.get((api_key, api_version)) or self._shared.dispatch.route(api_key, api_version)
            if route is None:
                # A newer client asks what we speak in a way we do not know: it learns the versions of ApiVersions itself.
                return api_versions_downgrade(correlation_id)
            route.requests += 1
            call = Call(self, route, correlation_id, client_id)
            read_again = route.read_again
            request = route.read(frame, body) if read_again is None else read_again(frame, body, self._remembered)
            response = route.handler(request, call, call.reply)
            if response is None:
                return self._queued(call, len(frame))
            if response is _CLOSE:
                self.close()
                return None
            answer = b"" if response is _NO_RESPONSE else route.encode(correlation_id, response)
            if not self._in_work:
                return answer
            call.answer = answer
            return self._queued(call, len(frame))
        except WireError as error:
            self._refuse(error)
        except Exception:  # noqa: BLE001 -- the connection loop: a defect costs its connection, never the process
            _log.exception("connection.failed client=%s", self.client_host)
            self.abort()
        return None

    def _queued(self, call: Call, size_bytes: int) -> bytes | None:
        """Give a request its place in the order of replies; its answer, if it has one and is the only one in work."""
        if call.answer is not None and not self._in_work:
            return call.answer
        if self._transport is not None:
            call.size_bytes = size_bytes
            self._in_work.append(call)
            self._in_work_bytes += size_bytes
        return None

    def answered(self, call: Call, response: Any) -> None:
        """A request that had to wait has its answer; it leaves when those before it have left."""
        if self._transport is None:
            return
        if response is _CLOSE:
            self.close()
            return
        call.answer = b"" if response is _NO_RESPONSE else call.route.encode(call.correlation_id, response)
        if not call.size_bytes:
            # Answered before its handler returned: `_request` goes on from here.
            return
        in_work = self._in_work
        if len(in_work) == 1 and not (self._out or self._waiting or self._is_handling):
            # The only one: nothing to wait for, and nothing to gather.
            in_work.clear()
            self._in_work_bytes = 0
            if call.answer:
                self.was_used = True
                self._transport.write(call.answer)
            return
        while in_work and in_work[0].answer is not None:
            answered = in_work.popleft()
            self._in_work_bytes -= answered.size_bytes
            self._out.append(answered.answer or b"")
        if self._is_handling:
            return
        if not in_work and not self._waiting:
            # Nothing else is to come: no need to wait for the end of the turn.
            self._flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._shared.turn.defer(self._go_on)

    # -- going on and holding back -----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Send what is ready, and take the requests that waited for it."""
        self._is_flush_due = False
        if self._transport is None:
            return
        if self._is_handling:
            return
        if self._waiting and not self._is_slow:
            frames = list(self._waiting)
            self._waiting.clear()
            self._handle(frames)
        else:
            self._flush()
        if self._is_paused and not self._waiting and not self._is_slow and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def _pause_if_behind(self) -> None:
        if (self._waiting or self._is_slow) and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self.was_used = True
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # -- ending ------------------------------------------------------------------------------------------------

    def _refuse(self, error: WireError) -> None:
        _log.warning("connection.refused client=%s error=%s", self.client_host, error)
        self.close()

    def close(self) -> None:
        """Send what is ready, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
            self._transport = None
            self._shared.open.discard(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._shared.open.discard(self)
