"""Tokens of OAUTHBEARER: where they come from, how a login sends them, and that no error shows one."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kohort.client.sasl import oauthbearer
from kohort.client.security import Security
from kohort.model.errors import ConfigError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
ASKED = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CLIENT = {
    "sasl.oauthbearer.client.credentials.client.id": "the id",
    "sasl.oauthbearer.client.credentials.client.secret": "the:secret&",
}


def jwt(subject: str, life_s: float = 3_600) -> str:
    parts = ({"alg": "none"}, {"sub": subject, "exp": time.time() + life_s})
    texts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*texts, ""))


class Provider(ThreadingHTTPServer):
    """An endpoint that answers with what a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, str, str, str]] = []
        """Method, path, authorization and body of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"

    def gives(self, token: str) -> None:
        self.body = json.dumps({"access_token": token, "token_type": "Bearer"}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.command, self.path, self.headers["Authorization"] or "", body))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def sent(configs: dict[str, str]) -> bytes:
    """The first message of a login."""
    messages: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        messages.append(message)
        return b""

    Security.parse(ASKED | configs).authenticate(exchange)
    (message,) = messages
    return message


def test_a_token_as_it_is() -> None:
    assert sent({"sasl.oauthbearer.token": "a.b.c"}) == b"n,,\x01auth=Bearer a.b.c\x01\x01"


def test_a_token_of_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    configs = {ENDPOINT: file.as_uri()}
    for token in (jwt("a"), jwt("b")):
        file.write_text(f"{token}\n")
        assert sent(configs) == f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_an_unsigned_token_has_a_subject_and_an_end() -> None:
    message = sent({"sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="alice";'}).decode()
    header, payload, signature = message.removeprefix("n,,\x01auth=Bearer ").removesuffix("\x01\x01").split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (claims["sub"], signature) == ("alice", "")
    assert claims["exp"] - claims["iat"] == 3_600


def test_extensions_of_a_login() -> None:
    options = 'extension_traceId="1 2" extension_cluster="c" username="ignored"'
    message = sent({"sasl.oauthbearer.token": "t", "sasl.jaas.config": f"{MODULE} {options};"})
    assert message == b"n,,\x01auth=Bearer t\x01cluster=c\x01traceId=1 2\x01\x01"


@pytest.mark.parametrize(
    ("more", "user", "body"),
    [
        ({}, "the id:the:secret&", "grant_type=client_credentials"),
        ({"sasl.oauthbearer.scope": "a b"}, "the id:the:secret&", "grant_type=client_credentials&scope=a+b"),
        ({"sasl.oauthbearer.header.urlencode": "true"}, "the+id:the%3Asecret%26", "grant_type=client_credentials"),
    ],
)
def test_an_endpoint_is_asked_for_a_token(provider: Provider, more: dict[str, str], user: str, body: str) -> None:
    token = jwt("alice")
    provider.gives(token)
    assert sent({ENDPOINT: provider.url + "?q=1"} | CLIENT | more) == f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
    assert provider.asked == [("POST", "/token?q=1", authorization, body)]


def test_the_options_of_a_login_module_name_the_client_too(provider: Provider) -> None:
    provider.gives(jwt("alice"))
    sent({ENDPOINT: provider.url, "sasl.jaas.config": f'{MODULE} clientId="i" clientSecret="s" scope="x";'})
    ((_, _, authorization, body),) = provider.asked
    assert (authorization, body) == ("Basic aTpz", "grant_type=client_credentials&scope=x")


def test_a_token_of_an_endpoint_is_used_again_while_it_is_fresh(provider: Provider) -> None:
    configs = {ENDPOINT: provider.url, "sasl.oauthbearer.scope": "again"} | CLIENT
    provider.gives(jwt("alice"))
    assert sent(configs) == sent(configs)
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "token", [jwt("alice", -1), "opaque", "a.b.c", "a.W10.c"], ids=["over", "opaque", "no JSON", "no claims"]
)
def test_a_token_whose_end_is_not_known_or_over_is_not_used_again(provider: Provider, token: str) -> None:
    configs = {ENDPOINT: provider.url, "sasl.oauthbearer.scope": token} | CLIENT
    for requests in (1, 2):
        provider.gives(token)
        sent(configs)
        assert len(provider.asked) == requests


def test_a_token_that_a_broker_refuses_is_not_used_again(provider: Provider) -> None:
    security = Security.parse(ASKED | {ENDPOINT: provider.url, "sasl.oauthbearer.scope": "refused"} | CLIENT)

    def refuse(_message: bytes) -> bytes:
        raise ConfigError("refused")

    for requests in (1, 2):
        provider.gives(jwt("alice"))
        with pytest.raises(ConfigError, match="refused"):
            security.authenticate(refuse)
        assert len(provider.asked) == requests


def test_the_reason_of_a_refusal_is_asked_for() -> None:
    sent_messages: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        sent_messages.append(message)
        if message == b"\x01":
            raise ConfigError('{"status":"invalid_token"}')
        return b'{"status":"invalid_token"}'

    with pytest.raises(ConfigError, match="invalid_token"):
        oauthbearer("t", {}, exchange)
    assert sent_messages[1:] == [b"\x01"]
    with pytest.raises(ConfigError, match="does not follow the OAUTHBEARER protocol"):
        oauthbearer("t", {}, lambda _: b"x")


# fmt: off
ANSWERS: list[tuple[int, bytes, dict[str, str], str]] = [
    (401, b'{"error":"hidden"}',              {},                                "the status 401"),
    (500, b"hidden",                          {},                                "the status 500"),
    (302, b"hidden",                          {"Location": "file:///etc/hosts"}, "the status 302"),
    (307, b"hidden",                          {"Location": "/hidden"},           "the status 307"),
    (200, b"",                                {},                                "has no token"),
    (200, b"hidden",                          {},                                "has no token"),
    (200, b"[" * 100_000,                     {},                                "has no token"),
    (200, b'["hidden"]',                      {},                                "has no token"),
    (200, b'{"token":"hidden"}',              {},                                "has no token"),
    (200, b'{"access_token":5}',              {},                                "has no token"),
    (200, b'{"access_token":""}',             {},                                "has no token"),
    (200, b'{"access_token":"hid\\nden"}',    {},                                "has no token"),
    (200, b'{"access_token":"hidden\\u0001"}', {},                               "has no token"),
    (200, b'{"access_token":"' + b"x" * (1 << 20) + b'"}', {},                   "has no token"),
]
# fmt: on


@pytest.mark.parametrize(("status", "body", "headers", "text"), ANSWERS)
def test_an_endpoint_without_a_token_is_a_sentence_without_its_text(
    provider: Provider, status: int, body: bytes, headers: dict[str, str], text: str
) -> None:
    provider.status, provider.body, provider.headers = status, body, headers
    with pytest.raises(ConfigError, match=text) as refused:
        sent({ENDPOINT: f"{provider.url}?key=hidden"} | CLIENT)
    assert f"{provider.url} " in str(refused.value)
    for secret in ("hid", "secret", "aGU"):
        assert secret not in str(refused.value)
    assert len(provider.asked) == 1


def test_an_endpoint_that_nobody_serves() -> None:
    with Provider() as server:
        url = server.url
    with pytest.raises(ConfigError, match="gives no token: ConnectionRefusedError"):
        sent({ENDPOINT: url} | CLIENT)


def test_a_file_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere cannot be read: No such file"):
        sent({ENDPOINT: (tmp_path / "nowhere").as_uri()})
    file = tmp_path / "token"
    for content in (b"", b"two words", b"\xff", b"a\x01b"):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="has no token"):
            sent({ENDPOINT: file.as_uri()})


# fmt: off
REFUSED: list[tuple[dict[str, str], str]] = [
    ({}, "needs one source of its token"),
    ({"sasl.oauthbearer.token": "t", ENDPOINT: "file:///t"}, "needs one source of its token"),
    ({"sasl.oauthbearer.token": "hidden\x01"}, "is not a token"),
    ({ENDPOINT: "http://x/t"}, "needs sasl.oauthbearer.client.credentials.client.id"),
    ({ENDPOINT: "ftp://x/t"} | CLIENT, "must be an URL"),
    ({ENDPOINT: "http:///t"} | CLIENT, "must be an URL"),
    ({ENDPOINT: "http://u:hidden@x/t"} | CLIENT, "must be an URL"),
    ({ENDPOINT: "http://x:99999/t"} | CLIENT, "must be an URL"),
    ({ENDPOINT: "http://[x/t"} | CLIENT, "must be an URL"),
    ({ENDPOINT: "file:"}, "must be an URL"),
    ({"sasl.oauthbearer.token": "t", "sasl.login.callback.handler.class": "com.x.Y"}, "can only be one of Kafka's own"),
    ({"sasl.oauthbearer.token": "t", "sasl.jaas.config": f'{MODULE} extension_auth="x";'}, "is not an extension"),
    ({"sasl.oauthbearer.token": "t", "sasl.jaas.config": f'{MODULE} extension_a1="x";'}, "is not an extension"),
    ({"sasl.oauthbearer.token": "t", "sasl.jaas.config": f'{MODULE} extension_a="";'}, "is not an extension"),
    ({"sasl.jaas.config": f'{MODULE} password="hidden"'}, "not terminated by semi-colon"),
]
# fmt: on


@pytest.mark.parametrize(("configs", "text"), REFUSED)
def test_settings_that_make_no_login(configs: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        Security.parse(ASKED | configs)
    assert "hidden" not in str(refused.value)


def test_no_secret_is_shown() -> None:
    shown = repr(Security.parse(ASKED | {ENDPOINT: "http://x/t"} | CLIENT))
    assert "the:secret" not in shown
    assert "the id" in shown
    assert "hidden" not in repr(Security.parse(ASKED | {"sasl.oauthbearer.token": "hidden"}))


@pytest.mark.parametrize("name", ["OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"])
def test_kafkas_own_handlers_may_be_named(name: str) -> None:
    handler = {"sasl.login.callback.handler.class": f"org.apache.kafka.common.security.oauthbearer.{name}"}
    assert sent({"sasl.oauthbearer.token": "t"} | handler).startswith(b"n,,\x01auth=Bearer t")
