"""Two nodes in one event loop, each over a memory of its own; who leads what is a value of the test."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.cluster import NO_NODE_ID, Endpoint
from kohort.broker.configs.definitions import BrokerConfig
from kohort.server.listeners.addresses import listener_addresses
from kohort.server.node import Node
from kohort.server.peers.login import inter_broker_listener, inter_broker_security
from kohort.server.peers.peering import Peering
from kohort.server.requests.dispatch import Dispatch
from kohort.server.settings import Passwords, Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import SECONDS_MAX, Client


class World:
    """The cluster as both nodes see it."""

    def __init__(self) -> None:
        self.controller = 1
        self.leaders: dict[str, int] = {}
        """By topic: the leader of all of its partitions."""
        self.endpoints: dict[int, Endpoint] = {}


class View:
    """The `Directory` of one node."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self.node_id = node_id

    @property
    def controller(self) -> int:
        return self._world.controller

    def leader(self, topic: str, _index: int, /) -> int:
        return self._world.leaders.get(topic, NO_NODE_ID)

    def endpoint(self, node_id: int, /) -> Endpoint | None:
        return self._world.endpoints.get(node_id)


class Joined:
    """One node of the two."""

    def __init__(self, world: World, node_id: int, configs: Mapping[str, str], users: Mapping[str, str]) -> None:
        config = BrokerConfig({"node.id": str(node_id), "group.initial.rebalance.delay.ms": "0", **configs})
        loop = asyncio.get_running_loop()
        self.node_id = node_id
        self.node = Node(Settings(port=0, config=config, users=Passwords(users)), loop)
        address = inter_broker_listener(config, listener_addresses(config, "127.0.0.1", 0, None, 1))
        self.listener = address.name
        """At which the nodes ask each other."""
        self.behind: list[Callable[[], None]] = []
        """What waits until the node's view is current, if it `is_behind`."""
        self.is_behind = False
        self.peering = Peering(
            self.broker,
            View(world, node_id),
            self.listener,
            partial(inter_broker_security, self.broker.dynamic_configs.brokers[node_id], address),
            loop,
            self.node._turns.defer,
            self._current,
        )
        self.peering.join(self.dispatch)

    @property
    def broker(self) -> Broker:
        return self.node._broker

    @property
    def dispatch(self) -> Dispatch:
        return self.node._dispatches[self.node_id]

    def _current(self, done: Callable[[], None]) -> None:
        if self.is_behind:
            self.behind.append(done)
        else:
            done()


class Cluster:
    """Two nodes, 1 and 2, and clients of both."""

    def __init__(self, world: World, nodes: Mapping[int, Joined]) -> None:
        self.world = world
        self.nodes = nodes
        self._clients: list[Client] = []

    def __getitem__(self, node_id: int) -> Joined:
        return self.nodes[node_id]

    async def connect(self, node_id: int, number: int = 0) -> Client:
        """A client of a node's listener."""
        endpoint = self.nodes[node_id].node.bound[node_id][number]
        self._clients.append(Client(*await asyncio.open_connection(*endpoint)))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


Story = Callable[[Cluster], Awaitable[None]]


def play(
    story: Story,
    configs: Mapping[str, str] = MappingProxyType({}),
    users: Mapping[str, str] = MappingProxyType({}),
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run a story with two nodes. Node 1 is the controller."""

    async def run() -> None:
        world = World()
        cluster = Cluster(world, {node_id: Joined(world, node_id, configs, users) for node_id in (1, 2)})
        for node_id, joined in cluster.nodes.items():
            await joined.node.start()
            world.endpoints[node_id] = joined.broker.cluster.here.endpoints[joined.listener]
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await story(cluster)
        finally:
            cluster.close()
            for joined in cluster.nodes.values():
                joined.peering.close()
                await joined.node.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def creation(*names: str, partitions: int = 1) -> m.CreateTopicsRequest:
    """A request that creates topics."""
    topics = [
        m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name in names
    ]
    return m.CreateTopicsRequest(topics=topics, timeout_ms=5_000)


async def create(client: Client, *names: str) -> Any:
    """Create topics and return the answer."""
    return await client.ask(ApiKey.CREATE_TOPICS, 7, creation(*names))
