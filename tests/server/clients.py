"""Raw clients of a node that runs in the loop of the test."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kohort.broker.cluster import Endpoint
from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.ids import uuid_text
from kohort.server.connections.connection import ClientConnection
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader

SECONDS_MAX = 60.0


class Client:
    """A raw connection: frames out, frames in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    def send(self, key: ApiKey, version: int, request: object) -> int:
        """Send a request without waiting; its correlation id."""
        self._correlation_id += 1
        self.writer.write(request_encoder(key, version)(self._correlation_id, "test", request))
        return self._correlation_id

    async def frame(self) -> bytes:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(size)

    async def receive(self, key: ApiKey, version: int) -> tuple[int, Any]:
        frame = await self.frame()
        correlation_id, body = read_response_header(frame, key, version)
        return correlation_id, response_reader(key, version)(frame, body)

    async def ask(self, key: ApiKey, version: int, request: object) -> Any:
        correlation_id = self.send(key, version, request)
        answered, response = await self.receive(key, version)
        assert answered == correlation_id
        return response

    async def is_closed(self) -> bool:
        """Whether the other side closes without another byte."""
        return await self.reader.read(1) == b""


Connect = Callable[[Endpoint], Awaitable[Client]]
Story = Callable[[Node, Callable[[], Awaitable[Client]]], Awaitable[None]]


def play_at(
    story: Callable[[Node, Connect], Awaitable[None]],
    brokers: int = 1,
    *,
    allow_anonymous: bool = False,
    virtual_time: bool = False,
    configs: Mapping[str, str] = MappingProxyType({}),
    **settings: str,
) -> None:
    """Run a story against a node in memory, in one loop with it. Its clients choose the endpoint."""
    explicit = {"group.initial.rebalance.delay.ms": "0", **configs} | {
        key.replace("_", "."): value for key, value in settings.items()
    }

    async def run() -> None:
        chosen = Settings(
            port=0,
            brokers=brokers,
            config=BrokerConfig(explicit),
            allow_anonymous=allow_anonymous,
            virtual_time=virtual_time,
        )
        node = Node(chosen, asyncio.get_running_loop())
        await node.start()
        clients: list[Client] = []

        async def connect(endpoint: Endpoint) -> Client:
            clients.append(Client(*await asyncio.open_connection(*endpoint)))
            return clients[-1]

        try:
            async with asyncio.timeout(SECONDS_MAX):
                await story(node, connect)
        finally:
            await node.stop()
            for client in clients:
                client.writer.close()

    asyncio.run(run())


def play(story: Story, **settings: str) -> None:
    """As `play_at`, with one broker and one listener."""

    async def at_first(node: Node, connect: Connect) -> None:
        ((endpoint, *_),) = node.bound.values()
        await story(node, partial(connect, endpoint))

    play_at(at_first, 1, allow_anonymous=False, virtual_time=False, configs={}, **settings)


def served(node: Node) -> list[ClientConnection]:
    """The node's ends of the open connections."""
    return [each for each in node._connections.open if isinstance(each, ClientConnection)]


async def with_topic(client: Client) -> None:
    topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    while True:
        found = await client.ask(ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(coordinator_keys=["g"]))
        if found.coordinators[0].error_code == 0:
            return


async def with_coordinators(client: Client) -> None:
    """Wait until the group `g` and the transactional id `t` have their coordinators."""
    for key_type, key in ((0, "g"), (1, "t")):
        find = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while (await client.ask(ApiKey.FIND_COORDINATOR, 4, find)).coordinators[0].error_code:
            pass


async def with_share_coordinator(client: Client) -> None:
    """Wait until a share partition of the group `g` has its coordinator. The topic of the share coordinator exists then."""
    key = f"g:{uuid_text(UUID(int=1))}:0"
    find = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    while (await client.ask(ApiKey.FIND_COORDINATOR, 6, find)).coordinators[0].error_code:
        pass


def commit(offset: int) -> m.OffsetCommitRequest:
    partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = m.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
