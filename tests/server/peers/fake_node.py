"""A node that answers as a test says: what it is asked is kept until the test answers, or cuts the connection."""

import asyncio
from typing import Any

from kohort.broker.cluster import Endpoint
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey, versions_in
from kohort.wire.encoders import response_encoder
from kohort.wire.frames import FrameReader
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader


class Asked:
    """One request that has arrived."""

    def __init__(self, node: "FakeNode", writer: asyncio.StreamWriter, frame: bytes) -> None:
        key, self.version, self.correlation_id, self.client_id, body = read_request_header(frame)
        self.api_key = ApiKey(key)
        self.request = request_reader(key, self.version)(frame, body)
        self._node = node
        self._writer = writer

    def answer(self, response: Any) -> None:
        self._writer.write(response_encoder(self.api_key, self.version)(self.correlation_id, response))

    def cut(self) -> None:
        """Close the connection without an answer."""
        self._writer.transport.abort()

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self._writer.write(data)


class FakeNode:
    """A listener; ApiVersions is answered unless the test takes it."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        self.connections = 0
        self.answers_versions = True
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return Endpoint(*self._server.sockets[0].getsockname()[:2])

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        frames = FrameReader()
        while data := await reader.read(1 << 16):
            for frame in frames.feed(data):
                asked = Asked(self, writer, frame)
                if asked.api_key is ApiKey.API_VERSIONS and self.answers_versions:
                    asked.answer(versions())
                else:
                    self.asked.put_nowait(asked)


def versions() -> m.ApiVersionsResponse:
    """What a node serves."""
    return m.ApiVersionsResponse(
        api_keys=[
            m.ApiVersionsResponseApiVersion(api_key=int(api), min_version=found.oldest, max_version=found.newest_stable)
            for api, found in versions_in("4.4.0").items()
        ]
    )
