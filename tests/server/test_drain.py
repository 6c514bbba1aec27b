"""The stop of a node: requests that have begun are answered, members that wait for their group are told, and it is bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ErrorCode
from kohort.server import node as node_module
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.faulty_files import FaultyFiles
from tests.broker.harness import batch, produce_request
from tests.server.clients import Client, commit, served, with_topic

SECONDS_MAX = 60.0
FLUSHER = "kohort-flusher"
LARGE = bytes(400 << 10)
"""A batch that the flusher's thread makes durable: small ones are flushed by the event loop's own."""

Connect = Callable[[], Awaitable[Client]]


def play(story: Callable[[Node, Connect], Awaitable[None]], data_dir: Path | None = None) -> None:
    """Run a story against a node; the story stops the node."""

    async def run() -> None:
        config = BrokerConfig({"group.initial.rebalance.delay.ms": "60000"})
        node = Node(Settings(port=0, data_dir=data_dir, config=config), asyncio.get_running_loop())
        host, port = await node.start()
        clients: list[Client] = []

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection(host, port)))
            return clients[-1]

        async with asyncio.timeout(SECONDS_MAX):
            await with_topic(await connect())
            await story(node, connect)
        for client in clients:
            client.writer.close()

    asyncio.run(run())


def fetch() -> m.FetchRequest:
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = m.FetchRequestFetchTopic(topic="t", partitions=[partition])
    return m.FetchRequest(topics=[topic], max_bytes=1 << 20, min_bytes=1 << 20, max_wait_ms=2**31 - 1)


def join() -> m.JoinGroupRequest:
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_waiting_requests_are_answered_and_members_are_told() -> None:
    async def story(node: Node, connect: Connect) -> None:
        reader, member = await connect(), await connect()
        reader.send(ApiKey.FETCH, 12, fetch())
        # The group waits a minute for more members.
        member.send(ApiKey.JOIN_GROUP, 3, join())
        while not node._broker.fetches.delayed or not any(each._in_flight for each in served(node)):
            await asyncio.sleep(0)
        behind = reader.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        await asyncio.sleep(0)
        began_at = asyncio.get_running_loop().time()
        await node.stop()
        assert asyncio.get_running_loop().time() - began_at < node_module.DRAIN_SECONDS_MAX
        _, fetched = await reader.receive(ApiKey.FETCH, 12)
        assert fetched.error_code == fetched.responses[0].partitions[0].error_code == 0
        assert behind
        assert await reader.is_closed(), "a request that has not begun is not answered"
        _, joined = await member.receive(ApiKey.JOIN_GROUP, 3)
        assert joined.error_code == ErrorCode.NOT_COORDINATOR
        assert await member.is_closed()

    play(story)


def test_writes_that_wait_for_the_disk_are_acknowledged(tmp_path: Path) -> None:
    async def story(node: Node, connect: Connect) -> None:
        producer, committer = await connect(), await connect()
        with FaultyFiles(tmp_path / "data") as files:
            files.hold(FLUSHER)
            producer.send(ApiKey.PRODUCE, 9, produce_request("t", {0: batch(LARGE)}))
            await asyncio.to_thread(files.await_held)
            committer.send(ApiKey.OFFSET_COMMIT, 9, commit(7))
            while sum(len(each._in_flight) for each in served(node)) < 2:
                await asyncio.sleep(0)
            stopping = asyncio.create_task(node.stop())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not stopping.done()
            files.release(FLUSHER)
            await stopping
        _, produced = await producer.receive(ApiKey.PRODUCE, 9)
        answer = produced.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
        _, committed = await committer.receive(ApiKey.OFFSET_COMMIT, 9)
        assert committed.topics[0].partitions[0].error_code == 0
        assert await producer.is_closed()
        assert await committer.is_closed()

    play(story, tmp_path / "data")


def test_a_client_that_goes_on_sending_does_not_hold_up_the_stop() -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect()
        sent = 0

        async def write() -> None:
            nonlocal sent
            while not client.writer.transport.is_closing():
                client.send(ApiKey.OFFSET_COMMIT, 9, commit(sent))
                sent += 1
                await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        while sent < 100:
            await asyncio.sleep(0)
        began_at = asyncio.get_running_loop().time()
        await node.stop()
        assert asyncio.get_running_loop().time() - began_at < node_module.DRAIN_SECONDS_MAX
        writing.cancel()
        answered = 0
        while not client.reader.at_eof():
            try:
                _, committed = await client.receive(ApiKey.OFFSET_COMMIT, 9)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            assert committed.topics[0].partitions[0].error_code == 0
            answered += 1
        assert 0 < answered <= sent

    play(story)
