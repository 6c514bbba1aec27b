"""A listener whose clients have access tokens, signed by the keys of a file."""

import os
import time
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.security.sasl.tokens import key_set, private_key, signed
from tests.server.clients import Client, Connect, play_at, served

PREFIX = "listener.name.sasl_plaintext.oauthbearer.sasl"
INVALID = b'{"status":"invalid_token"}'


def configs(keys: Path) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{PREFIX}.oauthbearer.expected.audience": "kafka",
        f"{PREFIX}.oauthbearer.expected.issuer": "https://issuer.test",
        "connection.failed.authentication.delay.ms": "1",
    }


def token(name: str = "one", user: str = "alice", life_s: int = 600) -> str:
    now = int(time.time())
    claims = {"sub": user, "iat": now - 1, "exp": now + life_s, "iss": "https://issuer.test", "aud": "kafka"}
    return signed(claims, private_key(name), kid=name)


async def authenticate(client: Client, access_token: str) -> m.SaslAuthenticateResponse:
    await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    request = m.SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {access_token}\x01\x01".encode())
    answer: m.SaslAuthenticateResponse = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, request)
    return answer


def test_user_is_the_subject_of_the_token(tmp_path: Path) -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect(node.bound[1][0])
        answer = await authenticate(client, token())
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert 590_000 < answer.session_lifetime_ms <= 600_000
        assert (await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))).brokers
        assert [str(connection.principal) for connection in served(node)] == ["User:alice"]
        other = await connect(node.bound[1][0])
        assert (await authenticate(other, token("forged"))).auth_bytes == INVALID
        refused = await other.ask(ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=b"\x01"))
        assert (refused.error_code, refused.error_message) == (58, INVALID.decode())

    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(private_key("one")))
    play_at(story, configs=configs(keys), listeners="SASL_PLAINTEXT://127.0.0.1:0")


def test_new_keys_count_without_a_start(tmp_path: Path) -> None:
    async def story(node: Node, connect: Connect) -> None:
        assert (await authenticate(await connect(node.bound[1][0]), token("two"))).auth_bytes == INVALID
        keys.write_bytes(key_set(private_key("two")))
        os.utime(keys, ns=(1, 1))
        for name, answer in (("two", b""), ("one", INVALID)):
            assert (await authenticate(await connect(node.bound[1][0]), token(name))).auth_bytes == answer

    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(private_key("one")))
    play_at(story, configs=configs(keys), listeners="SASL_PLAINTEXT://127.0.0.1:0")


def test_start_without_keys(tmp_path: Path) -> None:
    async def story(_node: Node, _connect: Connect) -> None:
        pytest.fail("the node must not start")

    with pytest.raises(ConfigError, match="cannot be read"):
        play_at(story, configs=configs(tmp_path / "missing"), listeners="SASL_PLAINTEXT://127.0.0.1:0")
