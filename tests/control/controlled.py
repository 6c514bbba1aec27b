"""A node with its control port in the loop of a test: raw clients of both."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kohort.broker.cluster import Endpoint
from kohort.control.kit import Kit
from kohort.control.server import ControlServer
from kohort.server.node import Node
from tests.server.clients import Client, play_at


class Answer(NamedTuple):
    """The answer of the control port."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Control:
    """A client of the control port: one connection a request."""

    def __init__(self, port: int | None) -> None:
        assert port is not None
        self.port = port

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> Answer:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": str(len(content)), **headers}
        if content:
            sent.setdefault("Content-Type", "application/json")
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)

    async def send(self, request: bytes) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return Answer(int(first.split()[1]), json.loads(body) if body else None, headers)

    async def take(self, method: str, path: str, body: Any = None) -> Any:
        """The body of an answer that is no error."""
        answer = await self.ask(method, path, body)
        assert answer.status < 300, answer
        return answer.body

    async def fault(self, **spec: Any) -> str:
        """Add a fault; its id."""
        return str((await self.take("POST", "/faults", spec))["id"])

    async def hits(self, fault: str) -> int:
        return int((await self.take("GET", f"/faults/{fault}"))["hits"])


class Stage(NamedTuple):
    """What a story has."""

    node: Node
    kit: Kit
    control: Control
    connect: Callable[[], Awaitable[Client]]


def play(
    story: Callable[[Stage], Awaitable[None]],
    *,
    brokers: int = 1,
    virtual_time: bool = False,
    configs: Mapping[str, str] = MappingProxyType({}),
    **settings: str,
) -> None:
    """Run a story against a node with a control port."""

    async def at_control(node: Node, connect: Callable[[Endpoint], Awaitable[Client]]) -> None:
        server = ControlServer(node)
        await server.start("127.0.0.1", 0, None)
        first = next(iter(node.bound.values()))[0]
        try:
            assert server.kit is not None
            await story(Stage(node, server.kit, Control(server.port), lambda: connect(first)))
        finally:
            await server.close()

    play_at(
        at_control,
        brokers,
        virtual_time=virtual_time,
        configs={**configs, **{key.replace("_", "."): value for key, value in settings.items()}},
    )
