"""The connections of a node to the others: one for each purpose; what becomes of them when nodes stop, move and come back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kohort.broker.cluster import NO_NODE_ID, Endpoint
from kohort.client.security import PLAINTEXT
from kohort.server.peers.peer import Connecting, Lost
from kohort.server.peers.peers import CatalogDirectory, Channel, Peers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.server.peers.fake_node import FakeNode
from tests.server.peers.test_peer import Timers, ids
from tests.server.peers.two_nodes import View, World


class Asking:
    """Node 1, which asks, and the node 2 that it is to ask at an address of the test."""

    def __init__(self) -> None:
        self.world = World()
        self.nodes: list[FakeNode] = []
        connecting = Connecting(
            asyncio.get_running_loop(), Timers().call_later, "kohort-1", lambda: PLAINTEXT, 60.0, 1 << 20
        )
        self.peers = Peers(View(self.world, 1), connecting)

    async def node(self) -> FakeNode:
        """A node that is node 2 from now on."""
        self.nodes.append(FakeNode())
        self.world.endpoints[2] = await self.nodes[-1].start()
        return self.nodes[-1]

    def ask(self, channel: Channel = Channel.CONTROLLER) -> "asyncio.Future[Any]":
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = m.AllocateProducerIdsRequest(broker_id=1)
        self.peers.send(2, channel, ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, answered.set_result)
        return answered


def play(story: Callable[[Asking], Awaitable[None]]) -> None:
    async def run() -> None:
        asking = Asking()
        try:
            async with asyncio.timeout(30):
                await story(asking)
        finally:
            asking.peers.close()
            for node in asking.nodes:
                node.close()

    asyncio.run(run())


def test_each_purpose_has_a_connection_of_its_own_and_changes_are_asked_for_one_at_a_time() -> None:
    async def story(asking: Asking) -> None:
        node = await asking.node()
        first, second = asking.ask(), asking.ask()
        changing = await node.asked.get()
        markers = [asking.ask(Channel.MARKERS), asking.ask(Channel.MARKERS)]
        others = [await node.asked.get(), await node.asked.get()]
        assert (node.connections, node.asked.empty(), second.done()) == (2, True, False)
        for number, each in enumerate(others):
            each.answer(ids(number))
        assert [(await answer).producer_id_start for answer in markers] == [0, 1]
        changing.answer(ids(7))
        (await node.asked.get()).answer(ids(8))
        assert [(await answer).producer_id_start for answer in (first, second)] == [7, 8]
        assert node.connections == 2

    play(story)


def test_a_node_that_has_moved_is_asked_at_its_new_address() -> None:
    async def story(asking: Asking) -> None:
        before = await asking.node()
        sent = asking.ask()
        await before.asked.get()
        after = await asking.node()
        again = asking.ask()
        assert await sent == Lost("no connection to node 2: the node has another address now", was_sent=True)
        (await after.asked.get()).answer(ids(3))
        assert (await again).producer_id_start == 3
        assert before.asked.empty()

    play(story)


def test_a_node_that_has_stopped_is_asked_again_when_it_has_come_back() -> None:
    async def story(asking: Asking) -> None:
        node = await asking.node()
        sent = asking.ask()
        await node.asked.get()
        asking.peers.refresh()
        assert not sent.done(), "it runs"
        endpoint = asking.world.endpoints.pop(2)
        asking.peers.refresh()
        assert await sent == Lost("no connection to node 2: the node has stopped or moved", was_sent=True)
        assert await asking.ask() == Lost("node 2 does not run")
        asking.world.endpoints[2] = endpoint
        again = asking.ask()
        (await node.asked.get()).answer(ids(4))
        assert (await again).producer_id_start == 4

    play(story)


def test_nothing_is_sent_after_the_end() -> None:
    async def story(asking: Asking) -> None:
        node = await asking.node()
        sent = asking.ask()
        await node.asked.get()
        asking.peers.close()
        assert await sent == Lost("no connection to node 2: this node stops", was_sent=True)
        assert await asking.ask() == Lost("node 2 does not run")
        assert node.connections == 1

    play(story)


def test_the_directory_of_a_node_is_its_catalog() -> None:
    harness = Harness()
    harness.create("t", partitions=2)
    directory = CatalogDirectory(harness.cluster, harness.broker.catalog, "PLAINTEXT")
    assert (directory.node_id, directory.controller) == (1, 1)
    assert [directory.leader("t", index) for index in (-1, 0, 1, 2)] == [NO_NODE_ID, 1, 1, NO_NODE_ID]
    assert directory.leader("other", 0) == NO_NODE_ID
    assert directory.endpoint(1) == Endpoint("localhost", 9092)
    assert directory.endpoint(2) is None
