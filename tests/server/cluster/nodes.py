"""Several nodes on one store, in the loop of the test."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from kohort.broker.cluster import Endpoint
from kohort.broker.configs.definitions import BrokerConfig
from kohort.server.node import Node
from kohort.server.settings import Secret, Settings
from kohort.storage.postgres.connect import Connection, Target, connect
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from tests.server.clients import Client
from tests.storage.database import Database

SECONDS_MAX = 60.0
SMALL = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class Nodes:
    """
    Nodes of one store.

    Attributes:
        failures: what nodes have told their hosts.
    """

    def __init__(self, database: Database, lease_ms: int = 5_000) -> None:
        self._url = database.url
        self.target = Target(database.url, "kohort")
        self.sql: Connection = connect(self.target)
        self.sql.execute(b"UPDATE store SET lease_ms = $1", (lease_ms,))
        self.nodes: dict[int, Node] = {}
        self.failures: list[str] = []
        self._clients: list[Client] = []

    async def start(self, node_id: int, configs: Mapping[str, str] = MappingProxyType({})) -> Node:
        node = self.make(node_id, configs)
        await node.start()
        self.nodes[node_id] = node
        return node

    def make(self, node_id: int, configs: Mapping[str, str] = MappingProxyType({})) -> Node:
        config = BrokerConfig(SMALL | {"node.id": str(node_id), **configs})
        settings = Settings(port=0, store=Secret(self._url), config=config)
        return Node(settings, asyncio.get_running_loop(), on_failure=self.failures.append)

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()

    async def client(self, node_id: int) -> Client:
        """A client of a node, at the address that the node has now."""
        ((endpoint, *_),) = self.nodes[node_id].bound.values()
        return await self.client_at(endpoint)

    async def client_at(self, endpoint: Endpoint) -> Client:
        self._clients.append(Client(*await asyncio.open_connection(*endpoint)))
        return self._clients[-1]

    async def ask(self, node_id: int, key: ApiKey, version: int, request: object) -> Any:
        return await (await self.client(node_id)).ask(key, version, request)

    @property
    def controller(self) -> int:
        """The node that leads the catalog."""
        return next(node_id for node_id, node in self.nodes.items() if node.broker.catalog.is_led)

    def leaders(self, at: int, topic: str) -> list[int]:
        """The leaders of a topic's partitions as a node sees them."""
        catalog = self.nodes[at].broker.catalog
        found = catalog.topic(topic)
        return [] if found is None else [state.leader for state in catalog.states(found)]

    async def create_topic(self, at: int, name: str, partitions: int) -> int:
        topic = m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await self.ask(at, ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        code: int = answer.topics[0].error_code
        return code

    async def produce(self, at: int, topic: str, index: int, *values: bytes) -> tuple[int, int]:
        """The error and the base offset of an append."""
        batch = build_batch([BatchRecord(None, value) for value in values], timestamp_ms=1)
        partition = m.ProduceRequestPartitionProduceData(index=index, records=bytes(batch))
        data = m.ProduceRequestTopicProduceData(name=topic, partition_data=[partition])
        request = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        answer = (await self.ask(at, ApiKey.PRODUCE, 9, request)).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def end_offset(self, at: int, topic: str, index: int) -> tuple[int, int]:
        """The error and the end offset of a partition."""
        partition = m.ListOffsetsPartition(partition_index=index, timestamp=-1)
        asked = m.ListOffsetsTopic(name=topic, partitions=[partition])
        answer = await self.ask(at, ApiKey.LIST_OFFSETS, 7, m.ListOffsetsRequest(topics=[asked]))
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    async def close(self) -> None:
        for node in list(self.nodes.values()):
            await node.stop()
        for client in self._clients:
            client.writer.close()
        self.sql.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    while not condition():
        await asyncio.sleep(0.005)


def play(database: Database, story: Callable[[Nodes], Awaitable[None]]) -> None:
    """Run a story of nodes that share a store."""

    async def run() -> None:
        nodes = Nodes(database)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await story(nodes)
        finally:
            await nodes.close()

    asyncio.run(run())
