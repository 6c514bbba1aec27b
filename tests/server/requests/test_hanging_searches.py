"""A search for a time that hangs, as on a disk that hangs: its client waits, in order, and nobody else."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from kohort.model.limits import LOG_READS_MAX
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import Client, play, with_topic

FOR_A_TIME = m.ListOffsetsRequest(
    replica_id=-1,
    topics=[
        m.ListOffsetsTopic(
            name="t", partitions=[m.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=5)]
        )
    ],
)


class Hang:
    """Keeps all threads of searches busy until it ends."""

    def __init__(self, node: Node) -> None:
        self._ended = threading.Event()
        for _ in range(LOG_READS_MAX):
            node._turns.searches.submit(self._wait)

    def _wait(self) -> None:
        self._ended.wait()

    def end(self) -> None:
        self._ended.set()


async def versions(client: Client) -> Any:
    return await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())


def test_answers_of_a_connection_keep_their_order_and_others_do_not_wait() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client, other = await connect(), await connect()
        await with_topic(client)
        hang = Hang(node)
        first = client.send(ApiKey.LIST_OFFSETS, 5, FOR_A_TIME)
        second = client.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        while not node._broker.searches.running:
            await versions(other)
        hang.end()
        answered, response = await client.receive(ApiKey.LIST_OFFSETS, 5)
        assert (answered, response.topics[0].partitions[0].offset) == (first, -1)
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == second

    play(story)


def test_a_client_that_has_gone_leaves_no_search_that_waits() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        clients = [await connect() for _ in range(3)]
        await with_topic(clients[0])
        hang = Hang(node)
        for client in clients[:2]:
            client.send(ApiKey.LIST_OFFSETS, 5, FOR_A_TIME)
        searches = node._broker.searches
        while (searches.running, searches.waiting) != (1, 1):
            await versions(clients[2])
        for client in clients[:2]:
            client.writer.close()
        while searches.waiting:
            await versions(clients[2])
        hang.end()
        while searches.running or len(node._connections.slices):
            await asyncio.sleep(0)
        assert (await clients[2].ask(ApiKey.LIST_OFFSETS, 5, FOR_A_TIME)).topics[0].partitions[0].error_code == 0

    play(story)
