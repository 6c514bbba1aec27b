"""What a connection does with frames: good ones, bad ones, many at once, and a client that does not read."""

import asyncio
import logging
import resource
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from kohort.broker.apis.api_table import served_versions
from kohort.model.limits import COUNTED_BYTES_MIN, SECTION_TAGS_MAX
from kohort.server.connections.client_socket import ClientSocket
from kohort.server.listeners.listener import connections_max
from kohort.server.node import Node, idle_check_seconds
from kohort.storage.segments.file_handles import open_files_max
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from kohort.wire.encoders import request_encoder
from tests.broker.harness import batch, produce_request
from tests.server.clients import Client, commit, play, served, with_topic

NEWEST_API_VERSIONS = served_versions(DEFAULT_RELEASE)[ApiKey.API_VERSIONS][1]
TAGGED = b"\0\x02g\0\0\0\0\x02m\0\x91\x4e" + b"\x64\x00" * (SECTION_TAGS_MAX + 1)
"""The body of a Heartbeat, behind the tagged fields of the header."""


# fmt: off
HOSTILE = {  # Source: Kafka closes the connection without an answer on each (reference, section 7)
    "an API that does not exist":         struct.pack(">ihhih", 10, 9_999, 0, 1, -1),
    "a controller's API":                 struct.pack(">ihhih", 10, 52, 0, 1, -1),
    "a version that does not exist":      struct.pack(">ihhih", 10, 12, 99, 1, -1),
    "a negative version":                 struct.pack(">ihhih", 10, 12, -1, 1, -1),
    "an empty frame":                     struct.pack(">i", 0),
    "a negative size":                    struct.pack(">i", -1),
    "a size beyond socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "half a header":                      struct.pack(">ihh", 4, 12, 0),
    "no body":                            struct.pack(">ihhih", 10, 12, 0, 1, -1),
    "an array of 2^31 - 1":               struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "an array of 2^32 - 2 in a compact form": struct.pack(">ihhihB5s", 16, 3, 9, 1, -1, 0, b"\xff\xff\xff\xff\x0f"),
    "too many tagged fields":             struct.pack(">ihhih", 10 + len(TAGGED), 12, 4, 1, -1) + TAGGED,
    "another protocol":                   b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
}
# fmt: on


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_the_protocol_closes_its_connection_and_nothing_else(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        bystander, hostile = await connect(), await connect()
        hostile.writer.write(HOSTILE[name])
        assert await hostile.is_closed()
        assert (await bystander.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0

    with caplog.at_level(logging.WARNING, "kohort.server"):
        play(story)
    assert "connection.refused" in caplog.text
    assert "Traceback" not in caplog.text


def test_an_unknown_version_of_api_versions_is_told_the_known_ones() -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(struct.pack(">ihhih", 11, 18, 99, 7, -1) + b"\x00")
        frame = await client.frame()
        assert struct.unpack(">ihihhh", frame) == (7, 35, 1, 18, 0, NEWEST_API_VERSIONS)
        assert (
            await client.ask(
                ApiKey.API_VERSIONS, 4, m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
            )
        ).error_code == 0

    play(story)


def test_a_negative_version_of_api_versions_is_told_the_known_ones() -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(struct.pack(">ihhih", 10, 18, -1, 7, -1))
        assert struct.unpack(">ihihhh", await client.frame()) == (7, 35, 1, 18, 0, NEWEST_API_VERSIONS)

    play(story)


def test_requests_of_one_connection_are_answered_in_order_however_they_arrive() -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        expected = []
        for number in range(300):
            expected.append((ApiKey.OFFSET_COMMIT, 9, client.send(ApiKey.OFFSET_COMMIT, 9, commit(number))))
            if number % 7 == 0:
                fetch = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=None)])
                expected.append((ApiKey.OFFSET_FETCH, 8, client.send(ApiKey.OFFSET_FETCH, 8, fetch)))
        newest = -1
        for key, version, correlation_id in expected:
            answered, response = await client.receive(key, version)
            assert answered == correlation_id
            if key is ApiKey.OFFSET_COMMIT:
                assert response.topics[0].partitions[0].error_code == 0
                newest += 1
            else:
                seen = response.groups[0].topics[0].partitions[0].committed_offset
                assert seen == newest, "a fetch behind a commit on the same connection sees it"

    play(story)


def test_a_parked_join_holds_back_what_follows_it_on_its_connection() -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        first, second = await connect(), await connect()
        await with_topic(first)

        def join() -> m.JoinGroupRequest:
            protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
            return m.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=600_000,
                rebalance_timeout_ms=600_000,
                protocol_type="consumer",
                protocols=[protocol],
            )

        member_id = (await first.ask(ApiKey.JOIN_GROUP, 3, join())).member_id
        parked = second.send(ApiKey.JOIN_GROUP, 3, join())
        behind = second.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        assert (await first.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        assert not second.reader._buffer  # type: ignore[attr-defined]
        # The first member leaves: then the second is alone and answered.
        await first.ask(ApiKey.LEAVE_GROUP, 0, m.LeaveGroupRequest(group_id="g", member_id=member_id))
        answered, _joined = await second.receive(ApiKey.JOIN_GROUP, 3)
        assert answered == parked
        assert (await second.receive(ApiKey.API_VERSIONS, 0))[0] == behind

    play(story)


def test_a_fetch_whose_client_has_gone_is_forgotten() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        wanted = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
        client, other = await connect(), await connect()
        await client.ask(ApiKey.CREATE_TOPICS, 5, m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = m.FetchRequestFetchTopic(topic="t", partitions=[partition])
        request = m.FetchRequest(topics=[topic], max_bytes=1 << 20, min_bytes=1, max_wait_ms=2**31 - 1)
        client.send(ApiKey.FETCH, 12, request)
        other.send(ApiKey.FETCH, 12, request)
        fetches = node._broker.fetches
        while fetches.delayed < 2:
            await asyncio.sleep(0)
        client.writer.close()
        while fetches.delayed > 1:
            await asyncio.sleep(0)

    play(story)


@pytest.mark.parametrize("is_abrupt", [False, True], ids=["closed", "reset"])
def test_a_lost_connection_gives_back_what_was_remembered_of_it(is_abrupt: bool) -> None:
    """All connections together may remember so much; what one that is gone had would be taken from the others for ever."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        memory = node._connections.memory
        staying = await connect()
        await with_topic(staying)
        await staying.ask(ApiKey.OFFSET_COMMIT, 9, commit(1))
        left = memory.bytes_left
        leaving = await connect()
        for offset in range(5):
            await leaving.ask(ApiKey.OFFSET_COMMIT, 9, commit(offset))
        assert memory.bytes_left < left
        if is_abrupt:
            leaving.writer.transport.abort()
        else:
            leaving.writer.close()
        while len(node._connections.open) > 1:
            await asyncio.sleep(0)
        assert memory.bytes_left == left

    play(story)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        frame = request_encoder(ApiKey.API_VERSIONS, 0)(1, "test", m.ApiVersionsRequest())
        (connection,) = served(node)
        assert isinstance(connection._transport, asyncio.Transport)
        sent = 0
        # Each answer is larger than its request by far: the socket's buffers fill, then the server stops reading.
        while not connection._is_slow or connection._transport.is_reading():
            if client.writer.transport.get_write_buffer_size() == 0:
                assert sent < 1_000_000, "the server took everything from a client that reads nothing"
                client.writer.write(frame * 1_000)
                sent += 1_000
            await asyncio.sleep(0)
        assert connection._transport.get_write_buffer_size() < 4_000_000
        assert len(connection._waiting) * len(frame) < 4_000_000
        other = await connect()
        assert (await other.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        for _ in range(2_000):
            assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == 1

    play(story)


def test_requests_that_come_at_once_are_answered_as_far_as_their_client_takes_the_replies() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = served(node)
        assert isinstance(connection._transport, asyncio.Transport)
        connection.data_received(request_encoder(ApiKey.API_VERSIONS, 0)(1, "test", m.ApiVersionsRequest()) * 50_000)
        assert connection._waiting
        assert connection._transport.get_write_buffer_size() < 4_000_000

    play(story)


READERS = 40
RECORDS_BYTES = 4 << 20


def test_forty_clients_that_never_read_share_one_bound() -> None:
    """Each asks for all records, several times. Later ones get less; those that take nothing are disconnected for room."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        produced = await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {0: batch(bytes(1 << 19))}))
        assert produced.responses[0].partition_responses[0].error_code == 0
        for _ in range(7):
            await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {0: batch(bytes(1 << 19))}))
        connections = node._connections
        connections.unsent_bytes_max = 2 * RECORDS_BYTES
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
        request = m.FetchRequest(
            topics=[m.FetchRequestFetchTopic(topic="t", partitions=[partition])], max_bytes=64 << 20, min_bytes=1
        )
        readers = [await connect() for _ in range(READERS)]
        for reader in readers:
            reader.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(8):
                reader.send(ApiKey.FETCH, 12, request)
        (requests,) = connections.dispatches.values()
        while sum(route.requests for route in requests.routes.values() if route.api_key is ApiKey.FETCH) < READERS:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert connections.slow
        assert connections.unsent_bytes <= connections.unsent_bytes_max + READERS * (2 << 20)
        assert (await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        connections.unsent_bytes_max = connections.unsent_bytes
        got = await client.ask(ApiKey.FETCH, 12, request)
        assert len(got.responses[0].partitions[0].records) <= 1 << 20, "less than it asked for, and than there is"
        # Nobody takes anything: after a moment there is room again, and the client that reads has lost nothing.
        connections.unsent_bytes_max = 1 << 20
        is_above = connections.unsent_bytes > connections.unsent_bytes_max
        for now in (1_000.0, 1_001.0, 1_020.0):
            connections.close_idle(now, 600)
        while connections.unsent_bytes > connections.unsent_bytes_max:
            await asyncio.sleep(0)
        assert is_above
        assert len(connections.open) < READERS + 1
        got = await client.ask(ApiKey.FETCH, 12, request)
        assert len(got.responses[0].partitions[0].records) > 1 << 19

    play(story)


def test_clients_that_each_leave_one_answer_share_the_bound() -> None:
    """An answer below `WRITE_BUFFER_BYTES` does not make a client slow, but thousands of clients may ask for one."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {0: batch(bytes(900_000))}))
        connections = node._connections
        connections.unsent_bytes_max = 8 << 20
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = m.FetchRequestFetchTopic(topic="t", partitions=[partition])
        request = m.FetchRequest(topics=[topic], max_bytes=1 << 20, min_bytes=1)
        frame = request_encoder(ApiKey.FETCH, 12)(1, "test", request)
        loop = asyncio.get_running_loop()
        readers = []
        for number in range(READERS):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.setblocking(False)
            await loop.sock_connect(reader, client.writer.get_extra_info("peername"))
            # The system takes some answers; how many, is its affair.
            await loop.sock_sendall(reader, frame * (1 + number % 8))
            readers.append(reader)
        (dispatch,) = connections.dispatches.values()
        fetches = 0
        while fetches < READERS or fetches != sum(route.requests for route in dispatch.routes.values()):
            fetches = sum(route.requests for route in dispatch.routes.values())
            for _ in range(10):
                await asyncio.sleep(0)
        sockets = [each._socket for each in connections.open if isinstance(each, ClientSocket)]
        held = sum(each.get_write_buffer_size() for each in sockets if each is not None)
        assert held > READERS * COUNTED_BYTES_MIN, "the answers of some clients wait"
        assert (
            held - READERS * COUNTED_BYTES_MIN
            <= connections.unsent_bytes
            <= 2 * connections.unsent_bytes_max + (2 << 20)
        )
        assert (await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        for reader in readers:
            reader.close()
        while len(connections.open) > 1:
            await asyncio.sleep(0)
        assert connections.unsent_bytes == 0

    play(story)


def test_a_connection_that_is_closed_is_aborted_when_its_client_does_not_take_the_replies() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        frame = request_encoder(ApiKey.API_VERSIONS, 0)(1, "test", m.ApiVersionsRequest())
        connections = node._connections
        while not connections.open:
            await asyncio.sleep(0)
        (connection,) = connections.open
        assert isinstance(connection, ClientSocket)
        while not connection._is_slow:
            client.writer.write(frame * 1_000)
            await asyncio.sleep(0)
        connection.close()
        for now in (1_000.0, 1_009.0):
            connections.close_idle(now, 600)
            assert connection in connections.closing
        connections.close_idle(1_011.0, 600)
        while connections.closing:
            await asyncio.sleep(0)
        assert not connections.unsent_bytes

    play(story)


def test_an_idle_connection_with_replies_that_nobody_takes_is_aborted() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        frame = request_encoder(ApiKey.API_VERSIONS, 0)(1, "test", m.ApiVersionsRequest())
        connections = node._connections
        while not connections.slow:
            client.writer.write(frame * 1_000)
            await asyncio.sleep(0)
        connections.close_idle(1_000.0, 600)
        connections.close_idle(1_599.0, 600)
        assert connections.open
        connections.close_idle(1_601.0, 600)
        while connections.unsent_bytes:
            await asyncio.sleep(0)
        assert not connections.open
        assert not connections.closing

    play(story)


@pytest.mark.parametrize("idle_ms", [4_000, 600_000, 60_000, 200])
def test_idle_connections_are_closed_at_most_a_twentieth_late(idle_ms: int) -> None:
    """Kafka closes after 4.2 seconds with `connections.max.idle.ms=4000`. A use is noted at a check, and so is its age."""
    assert 2 * idle_check_seconds(idle_ms / 1000) <= idle_ms / 1000 / 20


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        idle, busy = await connect(), await connect()
        await idle.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        await busy.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        close_idle = node._connections.close_idle
        close_idle(1_000.0, 600)
        await busy.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        close_idle(1_600.0, 600)
        assert len(node._connections.open) == 2, "not idle for longer than the limit"
        close_idle(1_600.1, 600)
        assert await idle.is_closed()
        assert (await busy.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0

    play(story)


def test_chunks_do_not_matter() -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        frame = request_encoder(ApiKey.API_VERSIONS, 0)(5, "test", m.ApiVersionsRequest())
        for byte in frame + frame:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == 5
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == 5

    play(story)


def test_a_client_beyond_the_limit_is_accepted_when_another_one_leaves() -> None:
    """Its connection waits in the listener's queue, and takes no descriptor of the broker."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        node._connections.limits[1].count_max = 2
        first, second, third = [await connect() for _ in range(3)]
        for client in (first, second):
            assert (await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        third.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        for _ in range(20):
            assert (await first.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        assert node._connections.limits[1].count == 2
        second.writer.close()
        assert (await third.receive(ApiKey.API_VERSIONS, 0))[1].error_code == 0
        assert node._connections.limits[1].count == 2

    play(story)


def test_connections_leave_descriptors_for_segment_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft in (64, 128, 1_024, 20_000, 1 << 20, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections_max() >= 4
        if soft >= 128:
            assert soft == resource.RLIM_INFINITY or connections_max() + open_files_max() < soft
