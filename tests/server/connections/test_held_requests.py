"""The memory of requests that have arrived in part: bounded for all connections together, and nobody waits for ever."""

import asyncio
import math
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest

from kohort.model.limits import COUNTED_BYTES_MIN, HELD_BYTES_MAX, STALLED_SECONDS_MAX
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from tests.server.clients import Client, play, served, with_topic

MIB = 1 << 20
CHUNK = 256 * 1024
"""What asyncio reads at once."""
Connect = Callable[[], Awaitable[Client]]


def sync(size: int) -> bytes:
    """A request of some size, which is answered at once."""
    member = m.SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))
    request = m.SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[member],
    )
    return request_encoder(ApiKey.SYNC_GROUP, 5)(1, "test", request)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def answered(client: Client) -> bool:
    """Whether the request was handled: its group has no such member."""
    _, response = await client.receive(ApiKey.SYNC_GROUP, 5)
    assert response.error_code == 25
    return True


def has_arrived(node: Node, sent: int) -> bool:
    return node._connections.held.bytes == sent - 4


def bounded(node: Node, bytes_max: int = MIB) -> None:
    node._connections.held.bytes_max = bytes_max


def test_unfinished_frames_of_many_connections_take_a_bounded_sum_and_all_are_answered_in_the_end() -> None:
    async def story(node: Node, connect: Connect) -> None:
        held, count = node._connections.held, 12
        clients = [await connect() for _ in range(count)]
        await with_topic(clients[0])
        bounded(node)
        frame = sync(MIB)
        for client in clients:
            client.writer.write(frame[:-1])
        # The others are not read: one frame is, up to its last byte.
        await until(lambda: any(each.missing_bytes == 1 for each in served(node)))
        assert MIB < held.bytes <= 2 * MIB + count * CHUNK
        small = await connect()
        assert (await small.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        # The end of one of those that wait is no end for the others.
        ended = min((each for each in served(node) if each._is_full), key=lambda each: each.missing_bytes)
        address = ended.client.port
        ended.abort()
        clients = [each for each in clients if each.writer.get_extra_info("sockname")[1] != address]
        for client in clients:
            client.writer.write(frame[-1:])
        for client in clients:
            assert await answered(client)
        assert held.bytes == 0

    play(story)


def test_a_frame_with_fewer_missing_bytes_goes_before_a_large_one() -> None:
    async def story(node: Node, connect: Connect) -> None:
        large, client = await connect(), await connect()
        await with_topic(client)
        bounded(node)
        large.writer.write(sync(4 * MIB)[: 2 * MIB])
        await until(lambda: node._connections.held.bytes == 2 * MIB - 4)
        client.writer.write(sync(MIB))
        assert await answered(client)
        large.writer.write(sync(4 * MIB)[2 * MIB :])
        assert await answered(large), "alone again, it goes on"

    play(story)


def test_a_frame_above_the_bound_is_read_if_it_is_alone() -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect()
        await with_topic(client)
        bounded(node)
        client.writer.write(sync(8 * MIB))
        assert await answered(client)
        assert node._connections.held.bytes == 0

    play(story)


def test_clients_that_stop_in_a_frame_are_disconnected_if_others_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node, connect: Connect) -> None:
        held = node._connections.held
        client, *stopped = [await connect() for _ in range(4)]
        await with_topic(client)
        bounded(node, MIB // 8)
        for each in stopped:
            each.writer.write(struct.pack(">i", 90 * MIB) + bytes(MIB))
        # Two of them are held back, one is to go on.
        await until(lambda: held._first is not None and held._first.held_bytes == MIB)
        now = 1_000.0
        for seconds in 0.0, STALLED_SECONDS_MAX:
            node._connections.close_idle(now + seconds, math.inf)
        assert len(served(node)) == 4, "they have their time"
        node._connections.close_idle(now + STALLED_SECONDS_MAX + 1, math.inf)
        await until(lambda: len(served(node)) == 3)
        client.writer.write(sync(MIB))
        assert await answered(client)

    play(story)
    assert "connection.stalled" in caplog.text


def test_a_client_that_goes_on_is_not_disconnected() -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect()
        await with_topic(client)
        bounded(node)
        frame, now = sync(4 * MIB), 1_000.0
        sent = 2 * MIB
        client.writer.write(frame[:sent])
        while sent < len(frame):
            await until(partial(has_arrived, node, sent))
            node._connections.close_idle(now, math.inf)
            now += STALLED_SECONDS_MAX + 1
            client.writer.write(frame[sent : sent + 4 * COUNTED_BYTES_MIN])
            sent += 4 * COUNTED_BYTES_MIN
        assert await answered(client)

    play(story)


def test_frames_behind_a_request_count_until_it_is_answered() -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect()
        await with_topic(client)
        wanted = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
        topic = m.FetchRequestFetchTopic(topic="t", partitions=[wanted])
        fetch = m.FetchRequest(max_wait_ms=200, min_bytes=1, max_bytes=MIB, topics=[topic])
        client.send(ApiKey.FETCH, 12, fetch)
        client.writer.write(sync(MIB))
        await until(lambda: node._connections.held.bytes > MIB)
        _, response = await client.receive(ApiKey.FETCH, 12)
        assert response.responses[0].partitions[0].error_code == 0
        assert await answered(client)
        assert node._connections.held.bytes == 0

    play(story)


def test_connections_that_end_at_any_time_leave_nothing_behind(rng: Random) -> None:
    async def story(node: Node, connect: Connect) -> None:
        held, frame = node._connections.held, sync(MIB // 2)
        await with_topic(await connect())
        bounded(node)
        clients = [await connect() for _ in range(8)]
        for client in clients:
            client.writer.write(frame[: rng.randrange(len(frame))] if rng.random() < 0.5 else frame)
        for client in clients:
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
            if rng.random() < 0.7:
                client.writer.transport.abort()
            else:
                client.writer.close()
        await until(lambda: not held.bytes and len(served(node)) == 1)
        assert not held._seen
        assert not held._paused

    play(story)


@pytest.mark.parametrize(("configured", "bytes_max"), [("-1", HELD_BYTES_MAX), ("1000000", 1_000_000)])
def test_the_bound_is_kafkas_configuration(configured: str, bytes_max: int) -> None:
    async def story(node: Node, _connect: Connect) -> None:
        assert node._connections.held.bytes_max == bytes_max

    play(story, queued_max_request_bytes=configured)
