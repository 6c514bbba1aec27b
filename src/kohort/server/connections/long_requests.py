"""
The work of long requests in slices of time: `kohort.server.requests.slices` takes their steps.
"""

from collections.abc import Generator
from typing import Any, Final

from kohort.broker.ports import NoResponse
from kohort.model.limits import ABANDONED_BYTES_MAX
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.connections.in_flight import InFlightRequest
from kohort.server.requests.slices import Steps
from kohort.wire.release import long_arrays, release

_CLOSE: Final = NoResponse.CLOSE_CONNECTION
_NO_OP: Final = NoResponse.NO_OP


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


def waiting_first(wait: Any, steps: Steps) -> Steps:
    """Steps that wait before they go on: the first one that was taken asked for it."""
    yield wait
    return (yield from steps)


def long_steps(pending: InFlightRequest, frame: bytes, body: int, request: Any) -> Steps:
    """Read, handle and answer a request in steps. Return the answer, a `NoResponse`, or None if it comes later."""
    route = pending.route.long
    is_long = False
    """Reading, handling and encoding begin a step of their own; a short request is answered in its first step."""
    if request is None:
        request = yield from route.read(frame, body, route.elements_max)
        frame = b""
        is_long = True
        yield
    response = route.handler(request, pending, pending)
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
