"""The rows of the listeners that do not speak Kafka's protocol: no request of theirs costs more in one step."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from kohort import scrape
from kohort.broker.apis.api_table import LISTENER_TABLE, Cost, Listener
from kohort.scrape import ScrapeListener
from kohort.server.control import LINE_BYTES_MAX, Control
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch
from tests.server.clients import Client, play, with_coordinators, with_topic
from tests.server.requests.work import Memory, WorkOfTurns

PARTITIONS = 2_000
TEXT_BYTES = 20 << 20
Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def assert_within(cost: Cost, connect: Open, request: bytes) -> bytes:
    """Send a request, and compare what it costs with a row. Return the answer."""
    reader, writer = await connect()
    # A look at the clock ends a step.
    with patch.object(scrape, "perf_counter", count().__next__), WorkOfTurns() as work:
        writer.write(request)
        answer = await reader.read()
    writer.close()
    assert work.units <= cost.step, request[:20]
    reader, writer = await connect()
    with Memory() as memory:
        writer.write(request)
        await reader.read()
        assert memory.peak() <= cost.memory
    writer.close()
    return answer


async def scraped(listener: ScrapeListener, cost: Cost) -> bytes:
    server = await listener.start(host="127.0.0.1", port=0)
    connect = partial(asyncio.open_connection, *server.sockets[0].getsockname(), limit=1 << 20)
    head = b"GET /metrics HTTP/1.1\r\n"
    most = b"a: b\r\n" * ((cost.request_bytes - len(head) - 2) // 6)
    try:
        for request in head[:-2] + b"x" * (2 * cost.request_bytes), b"\r" * cost.request_bytes * 2:
            await assert_within(cost, connect, request)
        return await assert_within(cost, connect, head + most + b"\r\n")
    finally:
        server.close()


def test_the_metrics_of_a_broker() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        await with_coordinators(client)
        topic = m.CreateTopicsRequestCreatableTopic(name="many", num_partitions=PARTITIONS, replication_factor=1)
        await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        for first in range(0, PARTITIONS, 500):
            partitions = [
                m.ProduceRequestPartitionProduceData(index=number, records=batch(b"x"))
                for number in range(first, first + 500)
            ]
            data = m.ProduceRequestTopicProduceData(name="many", partition_data=partitions)
            await client.ask(ApiKey.PRODUCE, 9, m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]))
        # Modules are imported with the first scrape, and pytest rewrites them: the package has a plug-in of pytest.
        list(node._metric_steps())
        answer = await scraped(ScrapeListener(node._metric_steps), LISTENER_TABLE[Listener.METRICS])
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b'topic="many"') >= PARTITIONS

    play(story)


def test_the_metrics_of_the_pipeline() -> None:
    """They are made on another thread; the listener hands them out."""
    text = b"#" * TEXT_BYTES

    async def make_text(_is_gzip: bool) -> bytes:
        return text

    answer = asyncio.run(scraped(ScrapeListener(make_text=make_text), LISTENER_TABLE[Listener.EXPORTER]))
    assert answer.endswith(text)


@pytest.mark.parametrize("line", [b'{"stop": 1}', b"[" * LINE_BYTES_MAX, b'{"a":1,' * 500 + b'"b":1}', b"1" * 4_000])
def test_commands(line: bytes, tmp_path: Path) -> None:
    async def stop(_node_id: int) -> None:
        pass

    async def story() -> None:
        control = Control(tmp_path / "control.sock", {"stop": stop})
        await control.start()
        connect = partial(asyncio.open_unix_connection, control.path)
        await assert_within(LISTENER_TABLE[Listener.CONTROL], connect, line + b"\n")
        await control.close()

    asyncio.run(story())
