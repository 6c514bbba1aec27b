"""Listeners with TLS: stores, client certificates, versions and suites, and what a client sees."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import ANONYMOUS
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.security.certificates import HOST, Authority, key_store, pair, trust_store
from tests.server.clients import Client, Connect, play_at, served

LISTENER = "SSL://127.0.0.1:0"
NO_PEER = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


TlsConnect = Callable[..., Awaitable[Client]]


def play_tls(
    story: Callable[[Node, TlsConnect], Awaitable[None]], configs: dict[str, str], listener: str = LISTENER
) -> None:
    """Run a story against a node; its clients connect with a TLS context to the first listener."""

    async def at_first(node: Node, _connect: Connect) -> None:
        clients: list[Client] = []

        async def connect(context: ssl.SSLContext) -> Client:
            endpoint = node.bound[1][0]
            streams = await asyncio.open_connection(*endpoint, ssl=context, server_hostname=HOST)
            clients.append(Client(*streams))
            return clients[-1]

        try:
            await story(node, connect)
        finally:
            for client in clients:
                client.writer.close()
                with suppress(*NO_PEER):
                    await client.writer.wait_closed()

    play_at(at_first, configs=configs, listeners=listener)


async def versions(client: Client) -> int:
    response = await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
    return int(response.error_code)


def users(node: Node) -> list[str]:
    return [str(connection.principal) for connection in served(node)]


async def is_refused(connect: TlsConnect, context: ssl.SSLContext) -> bool:
    """Whether no request is answered: a client of TLS 1.3 learns of it when it reads."""
    try:
        client = await connect(context)
        await versions(client)
    except NO_PEER:
        return True
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_are_answered_over_tls(authority: Authority, tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def story(node: Node, connect: TlsConnect) -> None:
        context = authority.client_context()
        context.minimum_version = context.maximum_version = version
        client = await connect(context)
        assert await versions(client) == 0
        assert users(node) == [f"User:{ANONYMOUS}"]
        brokers = (await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))).brokers
        assert [(each.host, each.port) for each in brokers] == [tuple(node.bound[1][0])]
        # Large frames of both directions, in many records of TLS.
        names = [f"{'t' * 200}-{number}" for number in range(4_000)]
        request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name) for name in names])
        request = m.MetadataRequest(topics=request.topics, allow_auto_topic_creation=False)
        answer = await client.ask(ApiKey.METADATA, 12, request)
        assert sorted(topic.name for topic in answer.topics) == sorted(names)

    play_tls(story, key_store(authority.store(tmp_path / "store.pem")))


@pytest.mark.parametrize("password", [None, "a password"])
def test_an_inline_key_is_taken_like_a_file(authority: Authority, password: str | None) -> None:
    key, chain = pair(authority.issue(), password)
    configs = {
        "ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.key": key,
        "listener.name.ssl.ssl.keystore.certificate.chain": chain,
    }
    if password is not None:
        configs["listener.name.ssl.ssl.key.password"] = password

    async def story(_node: Node, connect: TlsConnect) -> None:
        assert await versions(await connect(authority.client_context())) == 0

    play_tls(story, configs)


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", "CN=Alice,OU=Test,O=Org"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=Bob.*$/bob/,DEFAULT", "CN=Alice,OU=Test,O=Org"),
        ("RULE:^CN=Bob.*$/bob/", None),
    ],
)
def test_the_principal_is_the_mapped_name_of_the_certificate(
    authority: Authority, tmp_path: Path, rules: str, user: str | None
) -> None:
    async def story(node: Node, connect: TlsConnect) -> None:
        context = authority.client_context(authority.issue(common_name="Alice"))
        if user is None:
            assert await is_refused(connect, context)
            return
        assert await versions(await connect(context)) == 0
        assert users(node) == [f"User:{user}"]

    configs = key_store(authority.store(tmp_path / "store.pem")) | trust_store(authority)
    play_tls(story, configs | {"ssl.principal.mapping.rules": rules})


@pytest.mark.parametrize(
    ("client_auth", "certificate", "is_served"),
    [
        ("none", None, True),
        ("none", "other", True),
        ("requested", None, True),
        ("requested", "own", True),
        ("requested", "other", False),
        ("required", None, False),
        ("required", "own", True),
        ("required", "other", False),
    ],
)
def test_client_authentication(
    authority: Authority, tmp_path: Path, client_auth: str, certificate: str | None, is_served: bool
) -> None:
    """A certificate of another authority is refused where one is requested, too."""
    leaves = {"own": authority.issue(common_name="a"), "other": Authority().issue(common_name="a"), None: None}

    async def story(node: Node, connect: TlsConnect) -> None:
        assert await is_refused(connect, authority.client_context(leaves[certificate])) is not is_served
        if is_served:
            has_name = client_auth != "none" and certificate == "own"
            assert users(node) == ["User:CN=a,OU=Test,O=Org" if has_name else f"User:{ANONYMOUS}"]

    play_tls(story, key_store(authority.store(tmp_path / "store.pem")) | trust_store(authority, client_auth))


def test_any_certificate_of_the_trust_store_is_an_anchor(authority: Authority, tmp_path: Path) -> None:
    """A certificate that is trusted by itself: its authority is not in the store."""
    leaf = Authority().issue(common_name="a")
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": leaf.cert_chain_pems[0].bytes().decode()}

    async def story(node: Node, connect: TlsConnect) -> None:
        assert await versions(await connect(authority.client_context(leaf))) == 0
        assert users(node) == ["User:CN=a,OU=Test,O=Org"]

    configs = key_store(authority.store(tmp_path / "store.pem"), **{"ssl.client.auth": "required"})
    play_tls(story, configs | store)


@pytest.mark.parametrize(
    ("configs", "client", "is_served"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, (ssl.TLSVersion.TLSv1_2, None), False),
        ({"ssl.enabled.protocols": "TLSv1.2"}, (ssl.TLSVersion.TLSv1_3, None), False),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, (ssl.TLSVersion.TLSv1_2, None), False),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, (ssl.TLSVersion.TLSv1_3, None), True),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, (ssl.TLSVersion.TLSv1_3, None), False),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, (ssl.TLSVersion.TLSv1_3, None), False),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384"),
            False,
        ),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
            True,
        ),
    ],
)
def test_versions_and_suites(
    authority: Authority,
    tmp_path: Path,
    configs: dict[str, str],
    client: tuple[ssl.TLSVersion, str | None],
    is_served: bool,
) -> None:
    """The library prefers TLS_AES_256_GCM_SHA384: a connection with another suite than the allowed ones is closed."""
    version, cipher = client

    async def story(_node: Node, connect: TlsConnect) -> None:
        context = authority.client_context()
        context.minimum_version = context.maximum_version = version
        if cipher is not None:
            context.set_ciphers(cipher)
        assert await is_refused(connect, context) is not is_served

    play_tls(story, key_store(authority.store(tmp_path / "store.pem")) | configs)


WRONG: list[tuple[dict[str, str], str]] = [
    ({}, r"listener SSL has SSL and no key store"),
    ({"ssl.keystore.location": "/a.jks"}, r"is JKS; Kohort reads PEM.*keytool -importkeystore -srckeystore /a\.jks"),
    ({"ssl.keystore.location": "/a", "ssl.keystore.type": "PKCS12"}, r"openssl pkcs12 -in /a -out /a\.pem"),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/absent"},
        r"Failed to load PEM SSL keystore /absent: No such",
    ),
    ({"ssl.keystore.key": "k"}, r"SSL private key can be specified only for PEM, but key store type is JKS"),
    ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k"}, r"private key is specified, but certificate chain is not"),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "c"},
        r"chain is specified, but private key is not",
    ),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
        r"Failed to load PEM SSL keystore of ssl\.keystore\.key: 0 private keys",
    ),
]


@pytest.mark.parametrize(("configs", "sentence"), WRONG)
def test_a_wrong_store_ends_the_start(configs: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        play_tls(nothing, configs)


async def nothing(_node: Node, _connect: TlsConnect) -> None:
    pass


def test_stores_that_cannot_be_used_together_end_the_start(authority: Authority, tmp_path: Path) -> None:
    plain = authority.store(tmp_path / "plain.pem")
    encrypted = authority.store(tmp_path / "encrypted.pem", password="secret-of-the-key")
    legacy, other = tmp_path / "legacy.pem", tmp_path / "other.pem"
    leaf = authority.issue()
    key, chain = pair(leaf)
    legacy.write_text(key.replace("PRIVATE KEY", "EC PRIVATE KEY") + chain)
    other.write_text(key + pair(authority.issue())[1])
    cases: list[tuple[dict[str, str], str]] = [
        (key_store(encrypted), r"the private key is encrypted; set ssl\.key\.password"),
        (key_store(encrypted, **{"ssl.key.password": "wrong"}), r"ssl\.key\.password does not decrypt"),
        (key_store(plain, **{"ssl.keystore.password": "p"}), r"SSL key store password cannot be specified with PEM"),
        (key_store(legacy), r"EC PRIVATE KEY instead of a PKCS#8 key; convert it with: openssl pkcs8 -topk8"),
        (key_store(other), r"key values mismatch"),
        (key_store(plain, **{"ssl.client.auth": "required"}), r"ssl\.client\.auth=required and no trust store"),
        (key_store(plain, **{"ssl.truststore.location": "/t.jks"}), r"ssl\.truststore\.type is JKS"),
        (key_store(plain, **{"ssl.truststore.password": "p"}), r"trust store password is specified"),
        (
            key_store(plain, **{"ssl.truststore.type": "PEM", "ssl.truststore.location": "/absent"}),
            r"truststore /absent",
        ),
        (key_store(plain, **trust_store(authority), **{"ssl.truststore.location": "/t"}), r"Both SSL trust store"),
        (key_store(plain, **{"ssl.enabled.protocols": "SSLv3"}), r"ssl\.enabled\.protocols has SSLv3"),
        (key_store(plain, **{"ssl.cipher.suites": "TLS_NONE"}), r"ssl\.cipher\.suites has TLS_NONE"),
        (
            key_store(plain, **{"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"}),
            r"no suite of ssl\.cipher\.suites belongs to a version",
        ),
        (key_store(plain, **{"ssl.principal.mapping.rules": "RULE:a/b"}), r"invalid rule 'RULE:a/b'"),
    ]
    for configs, sentence in cases:
        with pytest.raises(ConfigError, match=sentence) as raised:
            play_tls(nothing, configs)
        assert "secret-of-the-key" not in str(raised.value)
        assert "wrong" not in str(raised.value)


def test_a_client_that_speaks_no_tls_is_refused(authority: Authority, tmp_path: Path) -> None:
    async def story(node: Node, connect: TlsConnect) -> None:
        reader, writer = await asyncio.open_connection(*node.bound[1][0])
        plain = Client(reader, writer)
        plain.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        # An alert of TLS, or nothing, and the end.
        assert len(await reader.read()) <= 7
        writer.close()
        assert await versions(await connect(authority.client_context())) == 0

    play_tls(story, key_store(authority.store(tmp_path / "store.pem")))


def test_a_second_listener_without_tls_is_served_beside_it(authority: Authority, tmp_path: Path) -> None:
    async def story(node: Node, connect: TlsConnect) -> None:
        plain = Client(*await asyncio.open_connection(*node.bound[1][1]))
        told: Any = await plain.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
        assert [each.port for each in told.brokers] == [node.bound[1][1].port]
        told = await (await connect(authority.client_context())).ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
        assert [each.port for each in told.brokers] == [node.bound[1][0].port]
        plain.writer.close()

    listeners = f"{LISTENER},PLAINTEXT://127.0.0.1:0"
    play_tls(story, key_store(authority.store(tmp_path / "store.pem")), listeners)


def test_a_node_stops_although_handshakes_are_not_complete(authority: Authority, tmp_path: Path) -> None:
    async def story(node: Node, connect: TlsConnect) -> None:
        half_open = [await asyncio.open_connection(*node.bound[1][0]) for _ in range(3)]
        for _, writer in half_open[1:]:
            writer.write(b"\x16\x03\x01")
        assert await versions(await connect(authority.client_context())) == 0
        await node.stop()
        for reader, writer in half_open:
            assert await reader.read() == b""
            writer.close()

    play_tls(story, key_store(authority.store(tmp_path / "store.pem")))
