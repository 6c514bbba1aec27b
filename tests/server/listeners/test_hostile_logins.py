"""
Hostile clients before their authentication: floods of frames and of connections, half-open handshakes, slow clients.

CVE-2022-34917: frames before the authentication allocated what their length said.
"""

import asyncio
import gc
import os
import random
import resource
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kohort.model.limits import HANDSHAKE_BYTES_MAX, PENDING_BYTES_MAX, PENDING_CONNECTIONS_MAX
from kohort.security.sasl.authenticator import Authenticator
from kohort.server.connections.connection import ClientConnection
from kohort.server.listeners.sasl_connection import SaslConnection
from kohort.server.listeners.tls_handshake import TlsHandshake
from kohort.server.listeners.tls_stream import TlsStream
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from tests.conftest import LONG
from tests.security.certificates import HOST, Authority, key_store
from tests.server.clients import Client, Connect, play_at
from tests.server.listeners.test_sasl import PLAIN, authenticate, is_served

FRAMES = 100_000 if LONG else 3_000
BYTES_OF_CONNECTION_MAX = 64 * 1024
"""What an unauthenticated connection takes, as docs/limits.md says, with room for the allocator."""

BOTH = "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
Story = Callable[[Node, Connect], Awaitable[None]]


def play_hostile(
    story: Story, directory: Path, authority: Authority, more: Mapping[str, str] = MappingProxyType({})
) -> None:
    stores = {f"listener.name.ssl.{key}": text for key, text in key_store(authority.store(directory / "s.pem")).items()}
    play_at(story, configs=PLAIN | stores | dict(more), listeners=BOTH)


def frames(chance: random.Random) -> bytes:
    """What one client sends: lengths of all kinds, handshakes, requests, tokens, and noise."""
    handshake = request_encoder(ApiKey.SASL_HANDSHAKE, chance.choice((0, 1)))
    choice = chance.randrange(8)
    match choice:
        case 0:
            return struct.pack(">i", chance.choice((-1, 0, 1, 524_289, 1 << 30, -(1 << 31)))) + chance.randbytes(20)
        case 1:
            return b"".join(handshake(n, "", m.SaslHandshakeRequest(mechanism="PLAIN")) for n in range(20))
        case 2:
            versions = request_encoder(ApiKey.API_VERSIONS, 0)
            return b"".join(versions(n, "", m.ApiVersionsRequest()) for n in range(3))
        case 3:
            token = request_encoder(ApiKey.SASL_AUTHENTICATE, 1)
            shaken = handshake(1, "", m.SaslHandshakeRequest(mechanism="PLAIN"))
            return shaken + token(2, "", m.SaslAuthenticateRequest(auth_bytes=chance.randbytes(chance.randrange(100))))
        case 4:
            return request_encoder(ApiKey.METADATA, 12)(1, "", m.MetadataRequest(topics=()))
        case 5:
            return struct.pack(">i", 524_288) + chance.randbytes(40_000)
        case 6:
            return b"\x16\x03\x01" + struct.pack(">H", chance.randrange(1 << 14)) + chance.randbytes(200)
        case _:
            size = chance.randrange(64)
            return struct.pack(">i", size) + chance.randbytes(size)


async def attack(endpoint: Any, data: bytes) -> None:
    """One hostile client: it sends, and reads up to the end."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(*endpoint)
        try:
            writer.write(data)
            writer.write_eof()
            await reader.read()
        finally:
            writer.transport.abort()


def test_cve_2022_34917_floods_of_frames_before_the_authentication(tmp_path: Path) -> None:
    """Nothing stays behind, and a client beside the flood is served all the time."""
    authority = Authority()
    chance = random.Random(os.environ.get("PYTEST_RANDOMLY_SEED", "flood"))

    async def story(node: Node, connect: Connect) -> None:
        client = await connect(node.bound[1][0])
        assert (await authenticate(client)).error_code == 0
        sent = 0
        while sent < FRAMES:
            attacks = [attack(chance.choice(node.bound[1]), frames(chance)) for _ in range(50)]
            flood = asyncio.gather(*attacks)
            while not flood.done():
                assert await is_served(client)
                await asyncio.sleep(0)
            sent += 50
        while len(node._logins.pending):
            await asyncio.sleep(0.001)
        assert node._logins.pending.bytes == 0
        assert len(node._connections.open) == 1
        assert sum(limits.count for limits in node._connections.limits.values()) == 1

    play_hostile(story, tmp_path, authority)


def test_connections_that_have_ended_leave_no_garbage(tmp_path: Path) -> None:
    """A broker collects garbage rarely: cycles of objects would grow into hundreds of megabytes."""
    authority = Authority()
    kinds = (SaslConnection, TlsHandshake, TlsStream, Authenticator, ClientConnection, ssl.SSLObject)

    def living() -> int:
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    async def session(node: Node, *, is_encrypted: bool) -> None:
        context = authority.client_context() if is_encrypted else None
        streams = await asyncio.open_connection(
            *node.bound[1][is_encrypted], ssl=context, server_hostname=HOST if is_encrypted else None
        )
        client = Client(*streams)
        if not is_encrypted:
            assert (await authenticate(client)).error_code == 0
            assert (await authenticate(client)).error_code == 0
        assert await is_served(client)
        client.writer.transport.abort()

    async def story(node: Node, _connect: Connect) -> None:
        chance = random.Random(7)
        gc.collect()
        gc.disable()
        try:
            before = living()
            for _ in range(4):
                await asyncio.gather(*[attack(chance.choice(node.bound[1]), frames(chance)) for _ in range(50)])
                await session(node, is_encrypted=False)
                await session(node, is_encrypted=True)
            while node._connections.open:
                await asyncio.sleep(0.001)
            assert living() <= before + 4  # the client's ends of TLS
        finally:
            gc.enable()

    sessions = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "600000"}
    play_hostile(story, tmp_path, authority, sessions)


@pytest.mark.parametrize("kind", ["nothing", "half a frame", "half a handshake"])
def test_connections_that_never_log_in_are_bounded(tmp_path: Path, kind: str) -> None:
    """The oldest ones leave, others get in, and each takes a stated number of bytes."""
    authority = Authority()
    beyond = 50
    count = PENDING_CONNECTIONS_MAX + beyond
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 3 * count:
        pytest.skip("the limit of open files is too low")

    async def story(node: Node, connect: Connect) -> None:
        endpoint = node.bound[1][1 if kind == "half a handshake" else 0]
        begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" if kind == "half a handshake" else struct.pack(">i", 500) + b"x"
        before = resident_bytes()
        hostile = []
        for _ in range(count):
            hostile.append(await asyncio.open_connection(*endpoint))
            if kind != "nothing":
                hostile[-1][1].write(begun)
        pending = node._logins.pending
        while pending.evicted < beyond or len(pending) < PENDING_CONNECTIONS_MAX:
            await asyncio.sleep(0.001)
        assert (pending.evicted, len(pending)) == (beyond, PENDING_CONNECTIONS_MAX)
        # Both ends of each connection are in this process.
        assert resident_bytes() - before < count * 2 * BYTES_OF_CONNECTION_MAX
        for reader, _ in hostile[:beyond]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        client = await connect(node.bound[1][0])
        assert (await authenticate(client)).error_code == 0
        assert await is_served(client)
        for _, writer in hostile:
            writer.transport.abort()

    play_hostile(story, tmp_path, authority)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_the_bytes_of_all_connections_that_are_not_authenticated_are_bounded(tmp_path: Path) -> None:
    """The one that holds most leaves."""
    authority = Authority()

    async def story(node: Node, connect: Connect) -> None:
        pending = node._logins.pending
        half = struct.pack(">i", 524_288) + bytes(500_000)
        clients = [await connect(node.bound[1][0]) for _ in range(PENDING_BYTES_MAX // 500_000 + 2)]
        small = await connect(node.bound[1][0])
        small.writer.write(half[:100])
        for client in clients:
            client.writer.write(half)
        while not pending.evicted:
            await asyncio.sleep(0.001)
        assert pending.bytes <= PENDING_BYTES_MAX
        with suppress(ConnectionError):
            await asyncio.wait(
                {asyncio.ensure_future(each.reader.read()) for each in clients}, return_when="FIRST_COMPLETED"
            )
        assert pending.evicted <= 3
        assert any(held == 100 for held in pending._held.values())
        small.writer.write(half[100:])
        for client in clients:
            client.writer.transport.abort()

    play_hostile(story, tmp_path, authority)


def test_a_handshake_of_tls_that_is_too_long_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()

    async def story(node: Node, _connect: Connect) -> None:
        reader, writer = await asyncio.open_connection(*node.bound[1][1])
        # A ClientHello of the greatest length that the library takes, and almost all of it.
        hello = (b"\x01" + (131_390).to_bytes(3, "big") + b"\x03\x03").ljust(HANDSHAKE_BYTES_MAX, b"\0")
        for begin in range(0, len(hello), 16_384):
            part = hello[begin : begin + 16_384]
            writer.write(b"\x16\x03\x03" + len(part).to_bytes(2, "big") + part)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert node._logins.failures == 1
        writer.close()

    play_hostile(story, tmp_path, authority)
    assert "a TLS handshake that is too long" in caplog.text


def test_handshakes_do_not_hold_the_event_loop(tmp_path: Path) -> None:
    """The steps of a handshake run on other threads: while one takes long, requests are answered."""
    authority = Authority()

    async def story(node: Node, connect: Connect) -> None:
        client = await connect(node.bound[1][0])
        assert (await authenticate(client)).error_code == 0
        blocked = asyncio.Event()
        loop = asyncio.get_running_loop()
        release = threading.Event()

        def block() -> None:
            loop.call_soon_threadsafe(blocked.set)
            release.wait()

        for _ in range(2):
            node._logins.elsewhere(block, lambda: None)
        await blocked.wait()
        handshake = asyncio.ensure_future(
            asyncio.open_connection(*node.bound[1][1], ssl=authority.client_context(), server_hostname=HOST)
        )
        while not len(node._logins.pending):
            await asyncio.sleep(0)
        for _ in range(100):
            assert await is_served(client)
        assert not handshake.done()
        release.set()
        _, writer = await handshake
        writer.close()

    play_hostile(story, tmp_path, authority)
