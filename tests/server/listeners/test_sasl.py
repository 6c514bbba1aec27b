"""Listeners with SASL: sockets, bounds and sessions. `tests/security/sasl` tests the exchanges without sockets."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError, ErrorCode
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from tests.security.certificates import HOST, Authority, key_store
from tests.server.clients import Client, Connect, play_at, served

LISTENER = "SASL_PLAINTEXT://127.0.0.1:0"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="of-the-broker" user_alice="alice-secret" user_bob="bob-secret";'
)
PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}
SESSIONS = PLAIN | {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "600000"}

SaslStory = Callable[[Node, Callable[[], Awaitable[Client]]], Awaitable[None]]


def play_sasl(story: SaslStory, configs: dict[str, str], listener: str = LISTENER) -> None:
    async def at_first(node: Node, connect: Connect) -> None:
        await story(node, lambda: connect(node.bound[1][0]))

    play_at(at_first, configs=configs, listeners=listener)


async def authenticate(
    client: Client, user: str = "alice", password: str = "alice-secret", version: int = 2
) -> m.SaslAuthenticateResponse:
    """Log in by PLAIN."""
    shaken = await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))
    assert shaken.error_code == 0
    token = f"\0{user}\0{password}".encode()
    answer: m.SaslAuthenticateResponse = await client.ask(
        ApiKey.SASL_AUTHENTICATE, version, m.SaslAuthenticateRequest(auth_bytes=token)
    )
    return answer


async def is_served(client: Client) -> bool:
    answer = await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
    return [each.node_id for each in answer.brokers] == [1]


def users(node: Node) -> list[str]:
    return [str(connection.principal) for connection in served(node)]


@pytest.mark.parametrize("asks_versions", [False, True])
def test_a_user_logs_in_and_is_served(asks_versions: bool) -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        if asks_versions:
            versions = await client.ask(
                ApiKey.API_VERSIONS, 3, m.ApiVersionsRequest(client_software_name="c", client_software_version="1")
            )
            assert ApiKey.SASL_AUTHENTICATE in {each.api_key for each in versions.api_keys}
        answer = await authenticate(client)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await is_served(client)
        assert users(node) == ["User:alice"]
        # Neither request begins anything on a session without an end.
        assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))).error_code == 34
        assert await is_served(client)
        assert (node._logins.successes, node._logins.failures, len(node._logins.pending)) == (1, 0, 0)

    play_sasl(story, PLAIN)


def test_requests_behind_the_last_message_of_a_login_are_answered() -> None:
    async def story(_node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.send(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))
        token = b"\0bob\0bob-secret"
        client.send(ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=token))
        client.send(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
        await client.receive(ApiKey.SASL_HANDSHAKE, 1)
        await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 3

    for configs in (PLAIN, SESSIONS):
        play_sasl(story, configs)


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret"), ("broker", "of-the-broker")]
)
def test_a_wrong_password_is_answered_and_the_connection_closed(user: str, password: str) -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        answer = await authenticate(client, user, password)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await client.is_closed()
        assert (node._logins.successes, node._logins.failures, len(node._logins.pending)) == (0, 1, 0)

    play_sasl(story, PLAIN)


def test_a_failing_answer_is_delayed_and_nothing_behind_it_is_read() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        begin = asyncio.get_running_loop().time()
        client.send(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="NONE"))
        client.send(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))
        _, answer = await client.receive(ApiKey.SASL_HANDSHAKE, 1)
        assert asyncio.get_running_loop().time() - begin >= 0.25
        assert (answer.error_code, list(answer.mechanisms)) == (33, ["PLAIN"])
        assert await client.is_closed()
        # A client that leaves during the delay leaves nothing behind.
        other = await connect()
        other.send(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="NONE"))
        while node._logins.failures < 2:
            await asyncio.sleep(0)
        other.writer.close()
        while len(node._logins.pending):
            await asyncio.sleep(0)

    play_sasl(story, PLAIN | {"connection.failed.authentication.delay.ms": "250"})


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0\x0c\0\0\0\1\xff\xff\0\0\0\0\0",
        b"\x7f\xff\0\0\0\0\0\1\xff\xff",
        b"\0\x12\0\3\0\0\0\1\xff",
        b"\0\x12\0\3\0\0\0\1\xff\xff\0\xff\xff\xff",
    ],
)
def test_anything_else_closes_a_connection_without_a_user(frame: bytes) -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(struct.pack(">i", len(frame)) + frame)
        assert await client.is_closed()
        assert len(node._logins.pending) == 0

    play_sasl(story, PLAIN)


@pytest.mark.parametrize("size", [-1, 1_025, 2**31 - 1])
def test_a_frame_that_is_too_large_is_not_read(size: int) -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.writer.write(struct.pack(">i", size))
        assert await client.is_closed()
        assert node._logins.failures == 1
        waiting = await connect()
        waiting.writer.write(struct.pack(">i", 1_024) + bytes(500))
        while node._logins.pending.bytes != 504:
            await asyncio.sleep(0)

    play_sasl(story, PLAIN | {"sasl.server.max.receive.size": "1024"})


def test_a_client_that_says_nothing_more_is_idle() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        silent, half = await connect(), await connect()
        half.writer.write(struct.pack(">i", 100) + b"half")
        assert await silent.is_closed()
        assert await half.is_closed()
        assert (len(node._logins.pending), node._logins.pending.bytes, node._logins.failures) == (0, 0, 0)

    play_sasl(story, PLAIN | {"connections.max.idle.ms": "100"})


def test_users_of_scram_log_in_with_the_credential_of_the_catalog() -> None:
    """Whoever is known by PLAIN only has no credential of SCRAM: the first message is answered, the proof is wrong."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        shaken = await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        assert shaken.error_code == 0
        request = m.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce")
        first = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, request)
        assert first.error_code == 0
        assert first.auth_bytes.startswith(b"r=nonce")
        nonce = first.auth_bytes.split(b",")[0]
        request = m.SaslAuthenticateRequest(auth_bytes=b"c=biws," + nonce + b",p=AAAA")
        last = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, request)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()

    play_sasl(story, PLAIN | {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})


@pytest.mark.parametrize(
    ("host", "mechanisms", "is_warned"),
    [("0.0.0.0", "PLAIN,SCRAM-SHA-256", True), ("0.0.0.0", "SCRAM-SHA-256", False), ("127.0.0.1", "PLAIN", False)],
)
def test_passwords_in_clear_are_warned_of(
    caplog: pytest.LogCaptureFixture, host: str, mechanisms: str, is_warned: bool
) -> None:
    async def nothing(_node: Node, _connect: Callable[[], Awaitable[Client]]) -> None:
        pass

    play_sasl(nothing, PLAIN | {"sasl.enabled.mechanisms": mechanisms}, f"SASL_PLAINTEXT://{host}:0")
    assert ("listener.takes_passwords_in_clear" in caplog.text) is is_warned
    assert "listener.needs_no_authentication" not in caplog.text


def test_sasl_over_tls(tmp_path: Path) -> None:
    authority = Authority()

    async def story(node: Node, connect: Connect) -> None:
        streams = await asyncio.open_connection(*node.bound[1][0], ssl=authority.client_context(), server_hostname=HOST)
        client = Client(*streams)
        assert (await authenticate(client)).error_code == 0
        assert await is_served(client)
        assert users(node) == ["User:alice"]
        client.writer.close()

    configs = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS}
    configs |= key_store(authority.store(tmp_path / "store.pem"))
    play_at(story, configs=configs, listeners="SASL_SSL://127.0.0.1:0")


def test_a_session_is_authenticated_again_between_requests() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        answer = await authenticate(client)
        assert answer.session_lifetime_ms == 600_000
        assert await is_served(client)
        # The handshake is answered behind the requests before it, those behind the login after it.
        client.writer.write(login_between_requests(4))
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 4
        assert (await client.receive(ApiKey.SASL_HANDSHAKE, 1))[1].error_code == 0
        again = (await client.receive(ApiKey.SASL_AUTHENTICATE, 2))[1]
        assert (again.error_code, again.session_lifetime_ms) == (0, 600_000)
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 7
        assert (node._logins.successes, node._logins.repeated_successes) == (1, 1)
        # The second one within a second is refused, and the session goes on.
        early = await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))
        assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)

    play_sasl(story, SESSIONS)


def login_between_requests(first_id: int) -> bytes:
    """A request, a re-authentication, and a request, in one piece."""
    requests = (
        (ApiKey.METADATA, 12, m.MetadataRequest(topics=())),
        (ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN")),
        (ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")),
        (ApiKey.METADATA, 12, m.MetadataRequest(topics=())),
    )
    frames = (
        request_encoder(key, version)(first_id + number, "test", request)
        for number, (key, version, request) in enumerate(requests)
    )
    return b"".join(frames)


def test_a_stream_of_single_bytes_is_a_session_too() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await authenticate(client)
        while not served(node):
            await asyncio.sleep(0)
        writer = client.writer
        for byte in login_between_requests(3):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 3
        assert (await client.receive(ApiKey.SASL_HANDSHAKE, 1))[1].error_code == 0
        assert (await client.receive(ApiKey.SASL_AUTHENTICATE, 2))[1].error_code == 0
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 6

    play_sasl(story, SESSIONS)


def test_requests_during_a_re_authentication_end_the_session() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await authenticate(client)
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))
        request = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        answer = await client.ask(ApiKey.HEARTBEAT, 4, request)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()
        other = await connect()
        await authenticate(other)
        failed = await authenticate(other, password="changed")
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await other.is_closed()
        third = await connect()
        await authenticate(third)
        bob = await authenticate(third, "bob", "bob-secret")
        assert bob.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
        assert await third.is_closed()
        assert node._logins.repeated_failures == 3
        assert len(node._connections.open) == 0

    play_sasl(story, SESSIONS)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_session_that_has_ended_takes_a_handshake_only(version: int) -> None:
    """KAFKA-9241: the end holds for versions of SaslAuthenticate, too, that do not tell the client of it."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        first, second = await connect(), await connect()
        for client in (first, second):
            answer = await authenticate(client, version=version)
            assert answer.session_lifetime_ms == (1 if version else 0)
        now_ms = node._turns.clock.now_ms()
        while node._turns.clock.now_ms() <= now_ms + 1:
            await asyncio.sleep(0.001)
        first.send(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
        assert await first.is_closed()
        assert node._logins.expired == 1
        assert (await authenticate(second, version=version)).error_code == 0

    play_sasl(story, PLAIN | {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "1"})


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({}, r"GSSAPI \(Kerberos\) is not supported"),
        ({"sasl.enabled.mechanisms": "PLANE"}, r"there is no mechanism 'PLANE'"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, r"has PLAIN and no user"),
    ],
)
def test_a_wrong_configuration_ends_the_start(configs: dict[str, str], sentence: str) -> None:
    async def nothing(_node: Node, _connect: Callable[[], Awaitable[Client]]) -> None:
        pass

    with pytest.raises(ConfigError, match=sentence):
        play_sasl(nothing, configs)
