"""Connections between nodes with TLS and SASL."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kohort.broker.configs.definitions import BrokerConfig
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, ErrorCode
from kohort.server.listeners.addresses import listener_addresses
from kohort.server.peers import peer as module
from kohort.server.peers.login import inter_broker_listener, inter_broker_security
from kohort.server.peers.peer import Connecting, Lost, Peer
from kohort.server.peers.peers import Channel
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.security.certificates import Authority, key_store
from tests.security.sasl.tokens import key_set, private_key
from tests.server.clients import served
from tests.server.listeners.test_access_tokens import token
from tests.server.peers.fake_node import FakeNode
from tests.server.peers.two_nodes import Cluster, create, play

PASSWORD = "of-the-broker"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
CREDENTIALS = f'username="broker" password="{PASSWORD}"'
LISTENERS = {
    "listeners": "CLIENT://127.0.0.1:0,BROKER://localhost:0",
    "advertised.listeners": "CLIENT://127.0.0.1:0,BROKER://localhost:0",
    "inter.broker.listener.name": "BROKER",
}


def configs_of(protocol: str, mechanism: str = "", jaas: str = "", **more: str) -> dict[str, str]:
    found = {**LISTENERS, "listener.security.protocol.map": f"CLIENT:PLAINTEXT,BROKER:{protocol}", **more}
    if mechanism:
        found["sasl.enabled.mechanisms"] = found["sasl.mechanism.inter.broker.protocol"] = mechanism
        if jaas:
            found[f"listener.name.broker.{mechanism.lower()}.sasl.jaas.config"] = jaas
    return found


def tls(directory: Path, **more: str) -> dict[str, str]:
    """Certificates of nodes, and whom they trust."""
    authority = Authority()
    trusted = directory / "trusted.pem"
    trusted.write_text(authority.pem)
    store = authority.store(directory / "store.pem")
    return key_store(store, **{"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}) | more


def case(name: str, directory: Path) -> dict[str, str]:
    if name == "PLAIN":
        jaas = f'{PLAIN} {CREDENTIALS} user_broker="{PASSWORD}";'
        return configs_of("SASL_SSL", "PLAIN", jaas) | tls(directory)
    if name.startswith("SCRAM"):
        return configs_of("SASL_SSL", name, f"{SCRAM} {CREDENTIALS};") | tls(directory)
    if name == "OAUTHBEARER":
        keys, tokens = directory / "keys.json", directory / "token"
        keys.write_bytes(key_set(private_key("one")))
        tokens.write_text(token(user="broker"))
        prefix = "listener.name.broker.oauthbearer.sasl.oauthbearer"
        return configs_of("SASL_PLAINTEXT", "OAUTHBEARER") | {
            f"{prefix}.jwks.endpoint.url": keys.as_uri(),
            f"{prefix}.expected.audience": "kafka",
            f"{prefix}.expected.issuer": "https://issuer.test",
            f"{prefix}.token.endpoint.url": tokens.as_uri(),
        }
    if name == "PLAINTEXT":
        return configs_of("PLAINTEXT")
    return configs_of("SSL") | tls(directory, **{"listener.name.broker.ssl.client.auth": "required"})


USERS = {
    "PLAIN": "User:broker",
    "SCRAM-SHA-256": "User:broker",
    "SCRAM-SHA-512": "User:broker",
    "OAUTHBEARER": "User:broker",
    "SSL": "User:CN=kohort,OU=Test,O=Org",
}


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("name", ["PLAINTEXT", *USERS])
def test_nodes_log_in_at_each_other(name: str, loop: Any, tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        assert [topic.error_code for topic in (await create(client, "a")).topics] == [0]
        assert cluster[1].broker.catalog.topic("a") is not None
        assert [str(each.principal) for each in served(cluster[1].node)] == [USERS.get(name, "User:ANONYMOUS")]

    users = {"broker": PASSWORD} if name.startswith("SCRAM") else {}
    play(story, case(name, tmp_path), users, loop)


def lost(cluster: Cluster) -> "asyncio.Future[Any]":
    """A request of node 2 with little time."""
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peers = cluster[2].peering.peers
    request = m.AllocateProducerIdsRequest(broker_id=2)
    peers.send(1, Channel.CONTROLLER, ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, found.set_result, 10_000)
    return found


def test_a_wrong_password_loses_the_request_before_it_is_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jaas = f'{PLAIN} {CREDENTIALS} user_broker="another";'

    async def story(cluster: Cluster) -> None:
        answer = await lost(cluster)
        assert isinstance(answer, Lost)
        assert not answer.was_sent
        assert "it refuses the login" in answer.reason
        assert PASSWORD not in answer.reason + caplog.text

    delay = {"connection.failed.authentication.delay.ms": "1"}
    play(story, configs_of("SASL_SSL", "PLAIN", jaas) | tls(tmp_path) | delay)


def test_a_node_with_a_certificate_of_others_is_not_asked(tmp_path: Path) -> None:
    configs = configs_of("SSL") | tls(tmp_path)
    (tmp_path / "trusted.pem").write_text(Authority().pem)

    async def story(cluster: Cluster) -> None:
        answer = await lost(cluster)
        assert isinstance(answer, Lost)
        assert "certificate" in answer.reason

    play(story, configs)


def test_a_mechanism_that_the_other_node_does_not_offer_loses_the_request() -> None:
    async def run() -> None:
        node, side, found = await fake_with_login()
        asked = await node.asked.get()
        assert (asked.api_key, asked.request.mechanism) == (ApiKey.SASL_HANDSHAKE, "PLAIN")
        code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        asked.answer(m.SaslHandshakeResponse(error_code=code, mechanisms=["SCRAM-SHA-256"]))
        assert (await found).reason.endswith("it does not offer PLAIN; it has SCRAM-SHA-256")
        side.close("end")
        node.close()

    asyncio.run(run())


async def fake_with_login() -> "tuple[FakeNode, Peer, asyncio.Future[Any]]":
    """A fake node, a connection to it that logs in by PLAIN, and its first request."""
    node = FakeNode()
    endpoint = await node.start()
    loop = asyncio.get_running_loop()

    def call_later(delay_ms: int, action: Any) -> Any:
        return loop.call_later(delay_ms / 1_000, action).cancel

    security = Security(mechanism="PLAIN", username="broker", password=PASSWORD)
    side = Peer("node 2", endpoint, Connecting(loop, call_later, "kohort-1", lambda: security, 60.0, 1 << 20), 5)
    return node, side, ask(side)


def ask(side: Peer) -> "asyncio.Future[Any]":
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    side.send(ApiKey.ALLOCATE_PRODUCER_IDS, 0, m.AllocateProducerIdsRequest(), found.set_result, 30_000)
    return found


async def log_in(node: FakeNode, session_ms: int) -> None:
    (await node.asked.get()).answer(m.SaslHandshakeResponse(mechanisms=["PLAIN"]))
    asked = await node.asked.get()
    assert asked.request.auth_bytes == f"\0broker\0{PASSWORD}".encode()
    asked.answer(m.SaslAuthenticateResponse(session_lifetime_ms=session_ms))


def test_a_session_that_ends_is_begun_anew_between_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it ends at once: each request but the first needs another login, and no login is made for nothing."""
    monkeypatch.setattr(module, "_SESSION_SHARE", 0.0)

    async def run() -> None:
        node, side, found = await fake_with_login()
        await log_in(node, session_ms=1_000)
        for number in range(3):
            asked = await node.asked.get()
            following = ask(side)
            assert side._opening is None  # a login waits for the answers of the requests before it
            asked.answer(m.AllocateProducerIdsResponse(producer_id_start=number))
            assert (await found).producer_id_start == number
            found = following
            await log_in(node, session_ms=1_000)
        assert node.connections == 1
        side.close("end")
        node.close()

    asyncio.run(run())


def test_a_later_login_that_fails_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SESSION_SHARE", 0.0)

    async def run() -> None:
        node, side, first = await fake_with_login()
        await log_in(node, session_ms=1_000)
        (await node.asked.get()).answer(m.AllocateProducerIdsResponse())
        await first
        second = ask(side)
        (await node.asked.get()).answer(m.SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE)))
        assert not (await second).was_sent
        third = ask(side)
        await log_in(node, session_ms=0)
        (await node.asked.get()).answer(m.AllocateProducerIdsResponse(producer_id_start=6))
        assert (await third).producer_id_start == 6
        assert node.connections == 2
        side.close("end")
        node.close()

    asyncio.run(run())


def test_a_node_that_closes_during_the_login_loses_the_request() -> None:
    async def run() -> None:
        node, side, found = await fake_with_login()
        (await node.asked.get()).answer(m.SaslHandshakeResponse(mechanisms=["PLAIN"]))
        (await node.asked.get()).cut()
        answer = await found
        assert (answer.was_sent, answer.reason) == (False, "no connection to node 2: it has closed the connection")
        side.close("end")
        node.close()

    asyncio.run(run())


def test_a_new_connection_has_the_configuration_of_the_moment(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        config = cluster[2].broker.dynamic_configs.brokers[2]
        key = "listener.name.broker.plain.sasl.jaas.config"
        config.dynamic[key] = f'{PLAIN} username="broker" password="wrong";'
        answer = await lost(cluster)
        assert isinstance(answer, Lost)
        del config.dynamic[key]
        assert (await lost(cluster)).error_code == 0

    play(story, case("PLAIN", tmp_path) | {"connection.failed.authentication.delay.ms": "1"})


# -- configurations ----------------------------------------------------------------------------------------------


def settings_of(configs: dict[str, str]) -> tuple[str, Security]:
    config = BrokerConfig(configs)
    address = inter_broker_listener(config, listener_addresses(config, "127.0.0.1", 9092, None, 1))
    return address.name, inter_broker_security(config, address)


def test_the_listener_of_nodes_is_named_or_has_the_protocol_or_is_the_first() -> None:
    two = {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "listener.security.protocol.map": "A:PLAINTEXT,B:SSL",
    }
    assert settings_of({}) == ("PLAINTEXT", PLAINTEXT)
    assert settings_of(two) == ("A", PLAINTEXT)
    assert settings_of(two | {"inter.broker.listener.name": "b"})[0] == "B"
    name, security = settings_of(two | {"security.inter.broker.protocol": "SSL"})
    assert (name, security.is_encrypted, security.verify_hostname) == ("B", True, True)
    assert not settings_of(
        two | {"security.inter.broker.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    )[1].verify_hostname
    with pytest.raises(ConfigError, match=r"security\.inter\.broker\.protocol is SASL_SSL, and"):
        settings_of(two | {"security.inter.broker.protocol": "SASL_SSL"})


SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        (SASL, r"sasl\.mechanism\.inter\.broker\.protocol is GSSAPI, .* set it to PLAIN"),
        (SASL | {"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "SASL needs sasl.username and sasl.password"),
        (SASL | {"sasl.mechanism.inter.broker.protocol": "NONE"}, "sasl.mechanism must be one of PLAIN"),
        (SASL | {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}, "OAUTHBEARER needs one source of its token"),
        (
            {"listeners": "SSL://127.0.0.1:1", "ssl.truststore.type": "JKS", "ssl.truststore.location": "x"},
            "only PEM files are supported",
        ),
    ],
)
def test_what_is_missing_is_said(configs: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settings_of(configs)
