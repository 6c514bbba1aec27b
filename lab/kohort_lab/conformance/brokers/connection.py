"""
One connection to a broker, with any number of outstanding requests.

A broker answers the requests of a connection in their order, so each frame belongs to the oldest outstanding request. The
result of a request is an `Arrival`: an answer, or the end of the connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from kohort.model.errors import ErrorCode, WireError
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FRAME_BYTES_MAX
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader

CLOSED = "closed"
"""The trouble of a request whose connection was closed."""


class Arrival:
    """
    The result of one request, with its time.

    Attributes:
        response: the message; None without one.
        version: of the response; 0 if the broker does not serve the requested version of ApiVersions.
        trouble: why there is no response: "closed", or the error in the bytes.
    """

    __slots__ = ("at_s", "response", "trouble", "version")

    def __init__(self, version: int, response: Any = None, trouble: str | None = None) -> None:
        self.version = version
        self.response = response
        self.trouble = trouble
        self.at_s = asyncio.get_running_loop().time()


class Expected:
    """An outstanding request. `answered` is done when its arrival is known."""

    __slots__ = ("answered", "api", "correlation_id", "version")

    def __init__(self, api: ApiKey | None, version: int, correlation_id: int) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.answered: asyncio.Future[Arrival] = asyncio.get_running_loop().create_future()


class TargetConnection(asyncio.Protocol):
    """One connection to a broker under comparison. `open` makes one."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._owed: deque[Expected] = deque()
        self._buffer = bytearray()
        self._correlation_id = 0
        self.is_closed = False
        self.closed_s = 0.0

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect. Raises OSError if there is no listener."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def send(self, api: ApiKey | None, version: int, frame: Callable[[int], bytes], *, owed: bool = True) -> Expected:
        """
        Send the frame that `frame` returns for a correlation id. If the connection is closed, the arrival says so.

        Args:
            owed: whether the broker sends an answer.
        """
        self._correlation_id += 1
        expected = Expected(api, version, self._correlation_id)
        content = frame(self._correlation_id)
        if self.is_closed or self._transport is None:
            expected.answered.set_result(Arrival(version, trouble=CLOSED))
            return expected
        if owed:
            self._owed.append(expected)
        self._transport.write(content)
        return expected

    async def ask(self, api: ApiKey, version: int, frame: Callable[[int], bytes], timeout_s: float) -> Any:
        """Send one request and return its response. Raises WireError without one, and TimeoutError."""
        arrival = await asyncio.wait_for(self.send(api, version, frame).answered, timeout_s)
        if arrival.trouble is not None:
            raise WireError(f"{api.api_name} v{version}: {arrival.trouble}")
        return arrival.response

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _exc: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 0 <= size <= FRAME_BYTES_MAX:
                self.close()
                return
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._deliver(frame)

    def _deliver(self, frame: bytes) -> None:
        if not self._owed:
            return
        expected = self._owed.popleft()
        if not expected.answered.done():
            expected.answered.set_result(_arrival(expected, frame))

    def _end(self) -> None:
        if not self.is_closed:
            self.closed_s = asyncio.get_running_loop().time()
        self.is_closed = True
        while self._owed:
            expected = self._owed.popleft()
            if not expected.answered.done():
                expected.answered.set_result(Arrival(expected.version, trouble=CLOSED))


def _arrival(expected: Expected, frame: bytes) -> Arrival:
    api, version = expected.api, expected.version
    if api is None:
        return Arrival(version, trouble="answered " + frame.hex())
    if api is ApiKey.API_VERSIONS and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        version = 0
    try:
        correlation_id, offset = read_response_header(frame, api, version)
        if correlation_id != expected.correlation_id:
            return Arrival(version, trouble=f"answered request {correlation_id} instead of {expected.correlation_id}")
        return Arrival(version, response_reader(api, version)(frame, offset))
    except WireError as exc:
        return Arrival(version, trouble=f"undecodable: {exc}")
