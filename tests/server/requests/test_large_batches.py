"""Large batches over a socket: the event loop goes on, and order, disconnection and the stop are as for small ones."""

import asyncio
import gc
import struct
import time
from collections.abc import Awaitable, Callable
from functools import cache

import pytest

from kohort.model.limits import ABANDONED_BYTES_MAX
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import read_header, write_crc
from kohort.wire.compression import Codec, decompress
from kohort.wire.scanning.room import Room
from tests.broker.harness import batch, produce_request
from tests.server.clients import Client, play, with_topic

STEP_SECONDS_MAX = 0.02
"""Processor time of the loop's thread between two of its turns, on a machine that is not slow; see `seconds_at_once`."""


@cache
def large() -> bytes:
    return batch(bytes(24 << 20), compression=Codec.GZIP)


@cache
def too_large() -> bytes:
    return batch(bytes(130 << 20), compression=Codec.ZSTD)


def seconds_at_once(records: bytes) -> float:
    """The processor time of the decompression in one step, on this machine: a slow one takes longer for a part, too."""
    began = time.thread_time()
    decompress(memoryview(records)[HEADER_BYTES:], read_header(records).codec, 1 << 30)
    return time.thread_time() - began


def cut(records: bytes) -> bytes:
    """The batch without its last bytes, with the right length and checksum."""
    shorter = bytearray(records[:-100])
    shorter[8:12] = struct.pack(">i", len(shorter) - 12)
    write_crc(shorter)
    return bytes(shorter)


def send(client: Client, records: bytes, *, acks: int = -1) -> int:
    return client.send(ApiKey.PRODUCE, 9, produce_request("t", {0: records}, acks=acks))


async def receive(client: Client) -> tuple[int, int, int]:
    correlation_id, response = await client.receive(ApiKey.PRODUCE, 9)
    answer = response.responses[0].partition_responses[0]
    return correlation_id, answer.error_code, answer.base_offset


async def end_offset(client: Client) -> int:
    """The end offset of the log, by a further record."""
    number = send(client, batch(b"end"))
    correlation_id, code, offset = await receive(client)
    assert (correlation_id, code) == (number, 0)
    return offset


def test_the_loop_goes_on_and_the_replies_of_a_connection_keep_their_order() -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        one, other = await connect(), await connect()
        await with_topic(other)
        expected = [send(one, records) for records in (batch(b"a"), large(), batch(b"b"), large(), batch(b"c"))]
        worst, turns, last = 0.0, 0, time.thread_time()
        replies = [await receive(one)]
        while len(replies) < len(expected):
            waiting = asyncio.ensure_future(receive(one))
            while not waiting.done():
                await asyncio.sleep(0)
                now = time.thread_time()
                worst, last, turns = max(worst, now - last), now, turns + 1
            replies.append(waiting.result())
        assert replies == [(number, 0, place) for place, number in enumerate(expected)]
        assert turns > 20
        assert worst < max(STEP_SECONDS_MAX, seconds_at_once(large()) / 4)
        assert await end_offset(other) == len(expected)

    play(story)


def test_a_short_request_is_answered_while_a_large_batch_is_decompressed() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        one, other = await connect(), await connect()
        await with_topic(other)
        number = send(one, too_large())
        slices = node._connections.slices
        while not len(slices):
            await asyncio.sleep(0)
        answered = 0
        while len(slices):
            await other.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
            answered += 1
        assert answered > 3
        assert (await receive(one))[:2] == (number, -1)

    play(story)


@pytest.mark.parametrize("acks", [0, 1])
def test_the_batch_of_a_client_that_disconnects_is_appended(acks: int) -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        one, other = await connect(), await connect()
        await with_topic(other)
        send(one, large(), acks=acks)
        await one.writer.drain()
        while not len(node._connections.slices):
            await asyncio.sleep(0)
        one.writer.close()
        while len(node._connections.slices):
            await asyncio.sleep(0)
        assert await end_offset(other) == 1
        assert node._connections.abandoned_bytes == 0

    play(story)


@pytest.mark.parametrize("made", [too_large, lambda: cut(large())], ids=["too large", "damaged"])
def test_batches_that_cannot_be_decompressed_share_one_room(made: Callable[[], bytes]) -> None:
    """33 kB would cost 128 MiB until a rare collection of garbage, each time that they are sent."""

    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        gc.disable()
        try:
            before = rooms()
            for _number in range(4):
                send(client, made())
                assert (await receive(client))[1] != 0
            assert rooms() - before <= 1
        finally:
            gc.enable()

    play(story)


def rooms() -> int:
    """The rooms that take memory now."""
    return sum(isinstance(each, Room) for each in gc.get_objects())


def test_the_abandoned_batches_are_bounded() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        one, other = await connect(), await connect()
        await with_topic(other)
        node._connections.abandoned_bytes = ABANDONED_BYTES_MAX
        send(one, large())
        await one.writer.drain()
        while not len(node._connections.slices):
            await asyncio.sleep(0)
        one.writer.close()
        while len(node._connections.slices):
            await asyncio.sleep(0)
        assert await end_offset(other) == 0
        assert node._connections.abandoned_bytes == ABANDONED_BYTES_MAX
        number = send(other, large())
        assert await receive(other) == (number, 0, 1)

    play(story)


def test_a_stop_finishes_the_batches_that_have_begun_and_drops_what_comes_later() -> None:
    stopped: list[tuple[Node, int]] = []

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        one, other = await connect(), await connect()
        await with_topic(other)
        number = send(one, large())
        while not len(node._connections.slices):
            await asyncio.sleep(0)
        partition = node._broker.partitions.find("t", 0)
        assert partition is not None
        await node.stop()
        assert partition.log.end_offset == 1
        assert await receive(one) == (number, 0, 0)
        stopped.append((node, number))

    play(story)
    assert len(stopped[0][0]._connections.slices) == 0
