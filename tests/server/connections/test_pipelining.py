"""Which requests of one connection are handled while earlier ones wait for their replies, and in which order replies leave."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.apis.api_table import served_versions
from kohort.broker.configs.definitions import BrokerConfig
from kohort.runtime.ready_queue import ReadyQueue
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.connections.connection_limits import ConnectionLimits, Descriptors, ListenerLimits
from kohort.server.requests.dispatch import Dispatch
from kohort.server.requests.slices import Slices
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from kohort.wire.encoders import request_encoder

VERSIONS = served_versions(DEFAULT_RELEASE)
OVERLAPPING = {ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT}
"""Their effects happen in the order of arrival, only their replies wait for the disk. Kafka handles one request at a time."""


class Socket(asyncio.Transport):
    """The server's end of a connection: notes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def replies(self) -> list[int]:
        """The correlation ids of all replies, in order."""
        found, rest = [], self.sent
        while rest:
            size, correlation_id = struct.unpack_from(">ii", rest)
            found.append(correlation_id)
            rest = rest[4 + size :]
        return found


class Server:
    """One connection whose requests are handled when their handler is called, and answered by hand."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.waiting: dict[int, Callable[[], None]] = {}
        due: list[Callable[[], None]] = []
        self._due = due
        handlers = {key: self._handle(key) for key in VERSIONS}
        self.socket = Socket()
        limits = ConnectionLimits(BrokerConfig({}), Descriptors(10))
        dispatch = Dispatch(handlers, VERSIONS)
        connections = ClientConnections(
            {1: dispatch}, ReadyQueue(due.append), Slices(due.append), {1: limits}, frame_bytes_max=1 << 20
        )
        self.connection = ClientConnection(
            connections, ServedEndpoint(1, "PLAINTEXT", dispatch, ListenerLimits(limits)), "127.0.0.1"
        )
        self.connection.connection_made(self.socket)

    def _handle(self, key: ApiKey) -> Callable[[Any, Any, Callable[[Any], None]], None]:
        response = getattr(m, f"{key.api_name}Response")()

        def handler(_request: Any, call: Any, reply: Callable[[Any], None]) -> None:
            self.handled.append(call.correlation_id)
            self.waiting[call.correlation_id] = lambda: reply(response)

        return handler

    def send(self, *requests: tuple[ApiKey, int]) -> None:
        """Frames of several requests, given by API and correlation id, in one chunk."""
        self.connection.data_received(b"".join(frame(key, correlation_id) for key, correlation_id in requests))

    def answer(self, correlation_id: int) -> None:
        self.waiting.pop(correlation_id)()
        while self._due:
            self._due.pop(0)()


def frame(key: ApiKey, correlation_id: int) -> bytes:
    request = getattr(m, f"{key.api_name}Request")()
    return request_encoder(key, VERSIONS[key][1])(correlation_id, "test", request)


@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: key.api_name)
@pytest.mark.parametrize("in_one_chunk", [True, False])
def test_a_request_is_handled_before_the_last_was_answered_only_if_no_client_can_see_it(
    key: ApiKey, in_one_chunk: bool
) -> None:
    server = Server()
    requests = [(key, 1), (key, 2), (key, 3)]
    if in_one_chunk:
        server.send(*requests)
    else:
        for request in requests:
            server.send(request)
    assert server.handled == ([1, 2, 3] if key in OVERLAPPING else [1])
    for correlation_id in (1, 2, 3):
        server.answer(correlation_id)
    assert server.handled == [1, 2, 3]
    assert server.socket.replies() == [1, 2, 3]


@pytest.mark.parametrize("key", sorted(OVERLAPPING), ids=lambda key: key.api_name)
def test_replies_leave_in_the_order_of_the_requests(key: ApiKey) -> None:
    server = Server()
    server.send((key, 1), (key, 2), (key, 3))
    server.answer(3)
    server.answer(2)
    assert server.socket.replies() == []
    server.answer(1)
    assert server.socket.replies() == [1, 2, 3]


@pytest.mark.parametrize("first", sorted(OVERLAPPING), ids=lambda key: key.api_name)
@pytest.mark.parametrize(
    "second", [*sorted(OVERLAPPING), ApiKey.OFFSET_FETCH, ApiKey.FETCH], ids=lambda key: key.api_name
)
def test_a_request_of_another_api_waits_for_all_before_it(first: ApiKey, second: ApiKey) -> None:
    """A client that reads what it has just written sees it."""
    if first is second:
        return
    server = Server()
    server.send((first, 1), (first, 2), (second, 3), (first, 4))
    assert server.handled == [1, 2]
    server.answer(2)
    assert server.handled == [1, 2]
    server.answer(1)
    assert server.handled == [1, 2, 3]
    server.answer(3)
    assert server.handled == [1, 2, 3, 4]
    server.answer(4)
    assert server.socket.replies() == [1, 2, 3, 4]
