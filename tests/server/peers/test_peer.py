"""A connection to another node: order, time-outs, lost connections, back-off, bounds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort.broker.cluster import Endpoint
from kohort.client.security import PLAINTEXT
from kohort.server.peers import peer as module
from kohort.server.peers.peer import Connecting, Lost, Peer
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from tests.server.peers.fake_node import FakeNode, versions

IDS = ApiKey.ALLOCATE_PRODUCER_IDS
LONG_MS = 60_000


class Timers:
    """`CallLater` of the loop, with the delays that were asked for."""

    def __init__(self) -> None:
        self.delays: list[int] = []
        self.unused = 0

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> Callable[[], None]:
        self.delays.append(delay_ms)
        self.unused += 1

        def run() -> None:
            self.unused -= 1
            action()

        handle = asyncio.get_running_loop().call_later(delay_ms / 1_000, run)

        def cancel() -> None:
            if not handle.cancelled() and handle.when() > asyncio.get_running_loop().time():
                self.unused -= 1
            handle.cancel()

        return cancel


class Side:
    """The asking side of one connection, and the node that it asks."""

    def __init__(self, node: FakeNode, endpoint: Endpoint, *, in_flight_max: int = 5, idle_s: float = 60.0) -> None:
        self.node = node
        self.timers = Timers()
        connecting = Connecting(
            asyncio.get_running_loop(), self.timers.call_later, "kohort-7", lambda: PLAINTEXT, idle_s, 1 << 20
        )
        self.peer = Peer("node 2", endpoint, connecting, in_flight_max)

    def ask(self, broker_id: int = 1, timeout_ms: int = LONG_MS) -> "asyncio.Future[Any]":
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = m.AllocateProducerIdsRequest(broker_id=broker_id)
        self.peer.send(IDS, 0, request, answered.set_result, timeout_ms)
        return answered


def ids(start: int) -> m.AllocateProducerIdsResponse:
    return m.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=1)


def play(story: Callable[[FakeNode, Endpoint], Awaitable[None]]) -> None:
    async def run() -> None:
        node = FakeNode()
        endpoint = await node.start()
        try:
            async with asyncio.timeout(30):
                await story(node, endpoint)
        finally:
            node.close()

    asyncio.run(run())


def test_requests_are_pipelined_and_answered_in_order() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint, in_flight_max=2)
        answers = [side.ask(number) for number in range(3)]
        first, second = await node.asked.get(), await node.asked.get()
        assert (first.request.broker_id, second.request.broker_id) == (0, 1)
        assert {first.client_id, second.client_id} == {"kohort-7"}
        assert node.asked.empty()
        first.answer(ids(10))
        second.answer(ids(11))
        (await node.asked.get()).answer(ids(12))
        assert [(await answer).producer_id_start for answer in answers] == [10, 11, 12]
        assert (node.connections, side.peer.unanswered, side.timers.unused) == (1, 0, 0)
        side.peer.close("end")

    play(story)


def test_a_lost_connection_tells_what_was_sent_and_sends_the_rest_on_the_next_one() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint, in_flight_max=1)
        sent, waiting = side.ask(1), side.ask(2)
        (await node.asked.get()).cut()
        lost = await sent
        assert isinstance(lost, Lost)
        assert (lost.was_sent, lost.is_late) == (True, False)
        again = await node.asked.get()
        assert again.request.broker_id == 2
        again.answer(ids(5))
        assert (await waiting).producer_id_start == 5
        assert node.connections == 2
        side.peer.close("end")

    play(story)


def test_a_request_that_is_late_closes_the_connection() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint, in_flight_max=1)
        first = side.ask(0)  # on a busy machine a connection begins later than the others wait
        (await node.asked.get()).answer(ids(0))
        await first
        late = side.ask(1, timeout_ms=20)
        never_sent = side.ask(2, timeout_ms=10)
        hanging = await node.asked.get()
        assert await never_sent == Lost("node 2 could not be asked in time", was_sent=False, is_late=True)
        lost = await late
        assert (lost.was_sent, lost.is_late) == (True, True)
        next_one = side.ask(3)
        asked = await node.asked.get()
        hanging.answer(ids(1))  # on the old connection, where nobody listens
        asked.answer(ids(2))
        assert (await next_one).producer_id_start == 2
        side.peer.close("end")

    play(story)


def test_a_node_that_cannot_be_reached_is_tried_again_after_a_growing_pause() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        node.close()
        side = Side(node, endpoint)
        for _ in range(3):
            lost = await side.ask()
            assert isinstance(lost, Lost)
            assert not lost.was_sent
        assert [delay for delay in side.timers.delays if delay != LONG_MS] == [50, 100, 200]
        other = FakeNode()
        await other.start(endpoint.port)
        answer = side.ask()
        (await other.asked.get()).answer(ids(3))
        assert (await answer).producer_id_start == 3
        side.peer.close("end")
        other.close()

    play(story)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\2hi",
        response_encoder(IDS, 0)(99, m.AllocateProducerIdsResponse()),
        b"\0\0\0\5\0\0\0\2\0",
    ],
    ids=["size", "header", "correlation", "body"],
)
def test_a_node_that_does_not_speak_the_protocol_gets_another_connection(data: bytes) -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint, in_flight_max=1)
        answer, after = side.ask(), side.ask()
        (await node.asked.get()).send(data)
        assert (await answer).was_sent
        (await node.asked.get()).answer(ids(4))
        assert (await after).producer_id_start == 4
        side.peer.close("end")

    play(story)


def test_a_response_that_nobody_asked_for_closes_the_connection() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint)
        answer = side.ask()
        asked = await node.asked.get()
        asked.answer(ids(1))
        asked.answer(ids(1))
        assert (await answer).producer_id_start == 1
        while side.peer._transport is not None:
            await asyncio.sleep(0)
        side.peer.close("end")

    play(story)


def test_an_api_that_the_node_does_not_serve_is_not_sent() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        node.answers_versions = False
        side = Side(node, endpoint)
        refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        side.peer.send(ApiKey.WRITE_TXN_MARKERS, 2, m.WriteTxnMarkersRequest(), refused.set_result, LONG_MS)
        asked = await node.asked.get()
        assert (asked.api_key, asked.request.client_software_name) == (ApiKey.API_VERSIONS, "kohort-node")
        asked.answer(m.ApiVersionsResponse(api_keys=[]))
        assert await refused == Lost("node 2 does not serve WriteTxnMarkers 2")
        answer = side.ask()
        (await node.asked.get()).answer(ids(2))
        assert (await answer).producer_id_start == 2
        side.peer.close("end")

    play(story)


def test_a_node_that_hangs_at_the_beginning_loses_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.05)

    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        node.answers_versions = False
        side = Side(node, endpoint)
        answer = side.ask()
        await node.asked.get()
        assert not (await answer).was_sent
        side.peer.close("end")

    play(story)


def test_an_idle_connection_is_not_used_again() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint, idle_s=-1.0)
        for number in range(2):
            answers = [side.ask(), side.ask()]
            for answer in answers:
                (await node.asked.get()).answer(ids(number))
                assert (await answer).producer_id_start == number
        assert node.connections == 2
        side.peer.close("end")

    play(story)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PEER_REQUESTS_MAX", 3)

    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint, in_flight_max=1)
        answers = [side.ask(number) for number in range(4)]
        assert await answers[3] == Lost("too many requests wait for node 2")
        (await node.asked.get()).answer(ids(0))
        await answers[0]
        side.ask(9)
        side.peer.close("it stops")
        ends = [await answer for answer in answers[1:3]]
        assert [end.was_sent for end in ends] == [True, False]
        assert await side.ask() == Lost("the connection to node 2 is closed")
        assert (side.peer.unanswered, side.peer._size_bytes, side.timers.unused) == (0, 0, 0)

    play(story)


def test_the_bytes_that_wait_are_bounded_but_for_a_single_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PEER_BYTES_MAX", 10)

    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint)
        first = side.ask()
        assert isinstance(await side.ask(), Lost)
        (await node.asked.get()).answer(ids(1))
        assert (await first).producer_id_start == 1
        second = side.ask()
        (await node.asked.get()).answer(ids(2))
        assert (await second).producer_id_start == 2
        side.peer.close("end")

    play(story)


def test_close_while_connecting_leaves_nothing() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        node.answers_versions = False
        side = Side(node, endpoint)
        answer = side.ask()
        asked = await node.asked.get()
        side.peer.close("it stops")
        assert (await answer).reason == "no connection to node 2: it stops"
        asked.answer(versions())
        assert side.peer._transport is None

    play(story)


def test_close_before_the_connection_is_there_leaves_none() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        closed = Side(node, endpoint)
        answer = closed.ask()
        await asyncio.sleep(0)  # the task of the connection begins
        closed.peer.close("it stops")
        assert isinstance(await answer, Lost)
        other = Side(node, endpoint)
        served = other.ask()
        (await node.asked.get()).answer(ids(1))
        await served
        assert (closed.peer._transport, closed.peer._is_ready) == (None, False)
        other.peer.close("end")

    play(story)


def test_what_an_old_socket_tells_is_not_heard() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint)
        first = side.ask()
        asked = await node.asked.get()
        old = side.peer._socket
        assert old is not None
        asked.cut()
        assert isinstance(await first, Lost)
        second = side.ask()
        asked = await node.asked.get()
        old.data_received(b"\xff\xff\xff\xff")
        old.pause_writing()
        old.connection_lost(None)
        third = side.ask()
        asked.answer(ids(2))
        (await node.asked.get()).answer(ids(3))
        assert [(await answer).producer_id_start for answer in (second, third)] == [2, 3]
        assert node.connections == 2
        side.peer.close("end")

    play(story)


def test_a_full_socket_is_waited_for() -> None:
    async def story(node: FakeNode, endpoint: Endpoint) -> None:
        side = Side(node, endpoint)
        first = side.ask(1)
        asked = await node.asked.get()
        socket = side.peer._socket
        assert socket is not None
        socket.pause_writing()
        second = side.ask(2)
        asked.answer(ids(1))
        await first
        assert (len(side.peer._waiting), len(side.peer._in_flight)) == (1, 0)
        socket.resume_writing()
        (await node.asked.get()).answer(ids(2))
        assert (await second).producer_id_start == 2
        side.peer.close("end")

    play(story)
