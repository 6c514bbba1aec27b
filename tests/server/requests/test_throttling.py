"""Throttled connections (KIP-219): the reply tells the time and leaves at once, and the next request waits for its end."""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.runtime.ready_queue import ReadyQueue
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.connections.connection_limits import ConnectionLimits, Descriptors, ListenerLimits
from kohort.server.requests.dispatch import Dispatch
from kohort.server.requests.slices import Slices
from kohort.server.requests.throttling import throttle_for
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import response_reader
from tests.broker.harness import Harness, batch, produce_request
from tests.broker.quotas.test_client_quotas import alter
from tests.server.connections.test_pipelining import Socket


class ReadSocket(Socket):
    """A socket that knows whether it is read."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Timer:
    """A call that the test makes; a `TimerHandle`."""

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self.seconds = seconds
        self.function = function
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Client:
    """One connection to a broker in virtual time."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.harness.create("t")
        node, broker = self.harness.node, self.harness.broker
        self.timers: list[Timer] = []
        self.dispatch = Dispatch(broker.handlers, broker.versions)
        broker.quotas.on_change = self._apply
        self.socket = ReadSocket()
        limits = ConnectionLimits(BrokerConfig({}), Descriptors(10))
        self.limits = ListenerLimits(limits)
        self.connections = ClientConnections(
            {1: self.dispatch},
            ReadyQueue(node.call_soon),
            Slices(node.call_soon),
            {1: limits},
            frame_bytes_max=1 << 20,
            call_later=self._call_later,
        )
        self.connection = ClientConnection(
            self.connections, ServedEndpoint(1, "PLAINTEXT", self.dispatch, self.limits), "127.0.0.1"
        )
        self.connection.connection_made(cast("asyncio.BaseTransport", self.socket))

    def _apply(self) -> None:
        self.dispatch.throttle_by(partial(throttle_for, self.harness.broker.quotas))

    def _call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        timer = Timer(seconds, function)
        self.timers.append(timer)
        return cast("asyncio.TimerHandle", timer)

    def send(self, *requests: tuple[ApiKey, Any], first: int = 1) -> None:
        frames = [
            request_encoder(key, _version(key))(number, "test", request)
            for number, (key, request) in enumerate(requests, first)
        ]
        self.connection.data_received(b"".join(frames))
        self.harness.node.settle()

    def wait(self) -> None:
        """Let the throttle time end."""
        timer = self.timers.pop()
        assert not timer.is_cancelled
        self.harness.node.advance(int(timer.seconds * 1_000))
        timer.function()
        self.harness.node.settle()

    def answer(self, key: ApiKey, number: int) -> Any:
        """The reply of this number, from 0 on."""
        rest = self.socket.sent
        for _ in range(number):
            rest = rest[4 + struct.unpack_from(">i", rest)[0] :]
        frame = rest[4 : 4 + struct.unpack_from(">i", rest)[0]]
        return response_reader(key, _version(key))(frame, 4 + key.response_header_version(_version(key)))


def _version(key: ApiKey) -> int:
    return 12 if key is ApiKey.PRODUCE else key.newest_stable


PRODUCE = ApiKey.PRODUCE, produce_request("t", {0: batch(b"x" * 1_000)})
METADATA = ApiKey.METADATA, m.MetadataRequest(topics=None)


def test_the_reply_leaves_at_once_and_the_next_request_waits() -> None:
    client = Client()
    alter(client.harness, {"client-id": "test"}, producer_byte_rate=50)
    client.send(PRODUCE, METADATA)
    assert client.socket.replies() == [1]
    throttle_ms = client.answer(ApiKey.PRODUCE, 0).throttle_time_ms
    size = len(batch(b"x" * 1_000))
    assert throttle_ms == round((size / 10 - 50) / 50 * 10_000)
    assert client.timers[-1].seconds == throttle_ms / 1_000
    assert (client.socket.is_read, client.connections.throttled) == (False, 1)
    client.send(METADATA, first=3)
    assert client.socket.replies() == [1]
    client.wait()
    assert client.socket.replies() == [1, 2, 3]
    assert (client.socket.is_read, client.connections.throttled) == (True, 0)


def test_a_connection_that_is_closed_meanwhile_leaves_no_timer() -> None:
    client = Client()
    alter(client.harness, {"client-id": "test"}, producer_byte_rate=50)
    client.send(PRODUCE)
    client.connection.connection_lost(None)
    assert (client.timers[-1].is_cancelled, client.connections.throttled) == (True, 0)


def test_a_producer_without_replies_is_throttled_too() -> None:
    client = Client()
    alter(client.harness, {"client-id": "test"}, producer_byte_rate=50)
    silent = ApiKey.PRODUCE, produce_request("t", {0: batch(b"x" * 1_000)}, acks=0)
    client.send(silent, METADATA)
    assert client.socket.replies() == []
    client.wait()
    assert client.socket.replies() == [2]


def test_producers_with_a_quota_have_one_request_in_flight() -> None:
    client = Client()
    alter(client.harness, {"client-id": "other"}, producer_byte_rate=50)
    client.harness.hold()
    client.send(PRODUCE, PRODUCE)
    partition = client.harness.broker.partitions.find("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 1
    client.harness.let_go()
    assert client.socket.replies() == [1, 2]


@pytest.mark.parametrize("request_of", [METADATA, (ApiKey.HEARTBEAT, m.HeartbeatRequest(group_id="g", member_id="m"))])
def test_the_time_of_requests_is_limited_for_every_api(request_of: tuple[ApiKey, Any]) -> None:
    client = Client()
    client.harness.broker.serve(ApiKey.HEARTBEAT, lambda *_: m.HeartbeatResponse(error_code=25))
    client.dispatch = Dispatch(client.harness.broker.handlers, client.harness.broker.versions)
    client.connection = ClientConnection(
        client.connections, ServedEndpoint(1, "PLAINTEXT", client.dispatch, client.limits), "127.0.0.1"
    )
    client.connection.connection_made(cast("asyncio.BaseTransport", client.socket))
    alter(client.harness, {"user": None}, request_percentage=1e-9)
    client.send(request_of)
    answer = client.answer(request_of[0], 0)
    assert answer.throttle_time_ms == 1_000  # at most a window
    client.wait()


def test_markers_of_brokers_are_not_throttled() -> None:
    client = Client()
    alter(client.harness, {"user": None}, request_percentage=1e-9)
    client.send((ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest()), METADATA)
    assert client.socket.replies() == [1, 2]


def test_a_long_request_is_measured_in_its_steps() -> None:
    client = Client()
    alter(client.harness, {"user": None}, request_percentage=1e-9)
    topics = [m.MetadataRequestTopic(name=f"none-{number}") for number in range(1_500)]
    client.send((ApiKey.METADATA, m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)), METADATA)
    assert client.socket.replies() == [1]
    assert client.answer(ApiKey.METADATA, 0).throttle_time_ms == 1_000
    client.wait()
    assert client.socket.replies() == [1, 2]


def test_without_a_quota_no_handler_is_wrapped() -> None:
    client = Client()
    client.send(PRODUCE, METADATA)
    routes = list(client.dispatch.routes.values())
    plain = [(route.handler, route.is_pipelined, route.read_repeated is None) for route in routes]
    alter(client.harness, {"client-id": "a"}, producer_byte_rate=1)
    assert [route.handler is handler for route, (handler, _, _) in zip(routes, plain, strict=True)] == [False, True]
    alter(client.harness, {"client-id": "a"}, producer_byte_rate=None, request_percentage=1)
    assert [route.handler is handler for route, (handler, _, _) in zip(routes, plain, strict=True)] == [False, False]
    alter(client.harness, {"client-id": "a"}, request_percentage=None)
    assert [route.handler is handler for route, (handler, _, _) in zip(routes, plain, strict=True)] == [True, True]
    assert [(route.is_pipelined, route.read_repeated is None) for route in routes] == [each[1:] for each in plain]
