"""
Listeners that change while the broker runs: by AlterConfigs, and when the files of their stores change.

The rows of `REFUSED` and `ACCEPTED` were asked of Apache Kafka 4.4.0, save where a docstring says otherwise.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kohort.broker.cluster import Endpoint
from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ErrorCode
from kohort.server.listeners import broker_listeners
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.testing.ports import free_ports
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.security.certificates import HOST, Authority, key_store, pair
from tests.server.clients import Client, Connect, play_at, with_topic

MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,NEW:PLAINTEXT,OTHER:SSL,LOGIN:SASL_PLAINTEXT"
STORE = "listener.name.ssl.ssl.keystore."
AUTHORITY = Authority()
Names = tuple[str, ...]


class Fixture:
    """A node with a plain and an encrypted listener, and the client that changes them."""

    def __init__(self, node: Node, connect: Connect, client: Client, directory: Path) -> None:
        self.node = node
        self.connect = connect
        self.client = client
        self.directory = directory

    def store(self, *names: str, name: str = "srv", password: str | None = None) -> str:
        """A new key store for these hosts."""
        path = self.directory / f"{len(list(self.directory.iterdir()))}.pem"
        return str(AUTHORITY.store(path, *names, common_name=name, password=password))

    @property
    def listeners(self) -> str:
        plain, encrypted = (endpoint.port for endpoint in self.node.bound[1])
        return f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"

    async def alter(self, *changes: tuple[str, str | None], broker: str = "1") -> tuple[int, str]:
        configs = [
            m.IncrementalAlterConfigsRequestAlterableConfig(
                name=name, config_operation=0 if value is not None else 1, value=value
            )
            for name, value in changes
        ]
        resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=4, resource_name=broker, configs=configs
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = (await self.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
        return answer.error_code, answer.error_message or ""

    async def subject(self) -> str:
        """The name in the certificate that a new client sees."""
        endpoint = self.node.bound[1][1]
        _, writer = await asyncio.open_connection(*endpoint, ssl=AUTHORITY.client_context(), server_hostname=HOST)
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return dict(pairs[0] for pairs in certificate["subject"])["commonName"]  # type: ignore[no-any-return]


def play(story: Callable[[Fixture], Awaitable[None]], directory: Path, **configs: str) -> None:
    started = AUTHORITY.store(directory / "started.pem", common_name="srv")

    async def at_first(node: Node, connect: Connect) -> None:
        await story(Fixture(node, connect, await connect(node.bound[1][0]), directory))

    stores = {f"listener.name.ssl.{key}": value for key, value in key_store(started).items()}
    play_at(
        at_first,
        configs=stores | {"listener.security.protocol.map": MAP} | configs,
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
    )


def test_new_connections_get_new_stores(tmp_path: Path) -> None:
    async def story(fixture: Fixture) -> None:
        assert await fixture.subject() == "srv"
        open_before = await asyncio.open_connection(
            *fixture.node.bound[1][1], ssl=AUTHORITY.client_context(), server_hostname=HOST
        )
        assert await fixture.alter((f"{STORE}location", fixture.store(name="SRV"))) == (0, "")
        assert await fixture.subject() == "SRV"
        before = Client(*open_before)
        assert (await before.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        before.writer.close()
        assert await fixture.alter((f"{STORE}location", None)) == (0, "")
        assert await fixture.subject() == "srv"

    play(story, tmp_path)


def test_the_names_of_a_new_store_are_those_of_the_former_one(tmp_path: Path) -> None:
    async def story(fixture: Fixture) -> None:
        location = f"{STORE}location"
        code, message = await fixture.alter((location, fixture.store(name="other")))
        assert code == ErrorCode.INVALID_REQUEST
        assert "Keystore DistinguishedName does not match: " in message
        assert message.startswith(
            "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update of SSLFactory "
            "failed: "
        )
        assert await fixture.alter((location, fixture.store(HOST, "b.example"))) == (0, "")
        code, message = await fixture.alter((location, fixture.store(HOST)))
        assert code == ErrorCode.INVALID_REQUEST
        assert "Keystore SubjectAltNames do not match: " in message
        assert await fixture.alter((location, fixture.store("b.example", HOST, "c.example"))) == (0, "")

    play(story, tmp_path)

    async def allowed(fixture: Fixture) -> None:
        assert await fixture.alter((f"{STORE}location", fixture.store("d.example", HOST, name="other"))) == (0, "")
        assert await fixture.subject() == "other"

    play(allowed, tmp_path, **{"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"})


def test_stores_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    async def story(fixture: Fixture) -> None:
        encrypted, trust = fixture.store(password="secret"), fixture.store()
        for changes, sentence in (
            ([(f"{STORE}location", encrypted)], f"Failed to load PEM SSL keystore {encrypted}"),
            ([(f"{STORE}location", "/absent")], "Failed to load PEM SSL keystore /absent"),
            ([(f"{STORE}type", "JKS")], "is JKS; Kohort reads PEM"),
            ([(f"{STORE}certificate.chain", "c")], "chain is specified, but private key is not"),
            (
                [
                    ("listener.name.ssl.ssl.truststore.type", "PEM"),
                    ("listener.name.ssl.ssl.truststore.location", trust),
                ],
                "Cannot add SSL truststore to an existing listener",
            ),
            ([("ssl.keystore.location", trust)], "can be dynamically updated only per-listener"),
        ):
            code, message = await fixture.alter(*changes)
            assert (code, sentence in message) == (ErrorCode.INVALID_REQUEST, True), message
        assert await fixture.subject() == "srv"
        assert fixture.node._broker.dynamic_configs.newest("1") == {}

    play(story, tmp_path)


def test_listeners_come_and_go(tmp_path: Path) -> None:
    async def story(fixture: Fixture) -> None:
        (port,) = free_ports(1)
        code, _ = await fixture.alter(("listeners", f"{fixture.listeners},NEW://127.0.0.1:{port}"))
        assert code == 0
        client = await fixture.connect(Endpoint("127.0.0.1", port))
        # Clients are told the addresses of the listener that they have reached.
        told = await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
        assert [each.port for each in told.brokers] == []
        code, _ = await fixture.alter(("listeners", fixture.listeners))
        assert code == 0
        assert await client.is_closed()
        with pytest.raises(OSError, match=r"[Rr]efused|Connect call failed"):
            await fixture.connect(Endpoint("127.0.0.1", port))
        assert (await fixture.client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0

    plain = "PLAINTEXT://b.example:1,SSL://b.example:2"
    play(story, tmp_path, **{"advertised.listeners": plain})


def test_a_virtual_broker_has_listeners_of_its_own(tmp_path: Path) -> None:
    """Also after it was stopped and started."""
    store = AUTHORITY.store(tmp_path / "started.pem", common_name="srv")

    async def story(node: Node, connect: Connect) -> None:
        (port,) = free_ports(1)
        second = node.bound[2]
        fixture = Fixture(node, connect, await connect(second[0]), tmp_path)
        own = f"PLAINTEXT://127.0.0.1:{second[0].port},SSL://127.0.0.1:{second[1].port},OTHER://127.0.0.1:{port}"
        changes = {"listeners": own} | {f"listener.name.other.{key}": text for key, text in key_store(store).items()}
        assert await fixture.alter(*changes.items(), broker="2") == (0, "")
        for _ in range(2):
            for endpoint in (second[1], Endpoint("127.0.0.1", port)):
                streams = await asyncio.open_connection(*endpoint, ssl=AUTHORITY.client_context(), server_hostname=HOST)
                client = Client(*streams)
                told = await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
                ports = {each.node_id: each.port for each in told.brokers}
                assert ports == ({1: node.bound[1][1].port, 2: endpoint.port} if endpoint.port != port else {2: port})
                client.writer.close()
            await node.brokers.stop(2)
            with pytest.raises(OSError, match=r"[Rr]efused|Connect call failed"):
                await connect(Endpoint("127.0.0.1", port))
            await node.brokers.start(2)
        assert await Fixture(node, connect, await connect(node.bound[1][0]), tmp_path).subject() == "srv"

    stores = {f"listener.name.ssl.{key}": value for key, value in key_store(store).items()}
    play_at(
        story,
        2,
        configs=stores | {"listener.security.protocol.map": MAP},
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
    )


def test_a_new_listener_has_the_keys_of_the_same_request(tmp_path: Path) -> None:
    async def story(fixture: Fixture) -> None:
        (port,) = free_ports(1)
        code, _ = await fixture.alter(
            ("listeners", f"{fixture.listeners},OTHER://127.0.0.1:{port}"),
            ("listener.name.other.ssl.keystore.type", "PEM"),
            ("listener.name.other.ssl.keystore.location", fixture.store()),
            ("listener.name.other.ssl.client.auth", "none"),
        )
        assert code == 0
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=AUTHORITY.client_context(), server_hostname=HOST)
        client = Client(*streams)
        told = await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
        assert [each.port for each in told.brokers] == [port]
        client.writer.close()
        # It is advertised now, as its address was not given apart: it stays.
        code, message = await fixture.alter(("listeners", fixture.listeners))
        assert (code, "advertised.listeners listener names must be equal" in message) == (42, True)

    play(story, tmp_path)


def test_changes_of_listeners_that_are_refused(tmp_path: Path) -> None:
    """Kafka accepts a listener without a key store, and values of an open listener, which have no effect there."""

    async def story(fixture: Fixture) -> None:
        (port,) = free_ports(1)
        plain, encrypted = fixture.listeners.split(",")
        existing = "Configs cannot be updated dynamically for existing listener ListenerName(SSL), restart broker"
        for changes, sentence in (
            (
                [("listeners", f"{plain},{encrypted},FOO://127.0.0.1:{port}")],
                "No security protocol defined for listener FOO",
            ),
            ([("listeners", plain)], "advertised.listeners listener names must be equal to or a subset"),
            (
                [("listeners", f"{plain},{encrypted},NEW://127.0.0.1:{fixture.node.bound[1][0].port}")],
                "is needed twice",
            ),
            ([("listeners", f"{plain},{encrypted},NEW:/x")], "write NAME://HOST:PORT"),
            ([("listeners", f"{plain},{encrypted},OTHER://127.0.0.1:{port}")], "no key store"),
            ([("listeners", f"{plain},{encrypted},LOGIN://127.0.0.1:{port}")], "GSSAPI (Kerberos) is not supported"),
            ([("listeners", f"{plain},{encrypted},NEW://0.0.0.0:{port}")], "--allow-anonymous"),
            (
                [("listeners", f"{plain},{encrypted},NEW://b.example:{port}")],
                "Host names can be given at the start only",
            ),
            (
                [("listener.security.protocol.map", MAP.replace("SSL:SSL", "SSL:PLAINTEXT", 1))],
                "Security protocol cannot be updated for existing listener ListenerName(SSL)",
            ),
            (
                [("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")],
                "No security protocol defined for listener SSL",
            ),
            ([("listener.security.protocol.map", "SSL:FOO")], "'SSL:FOO'"),
            ([("advertised.listeners", plain)], "Cannot update these configs dynamically: [advertised.listeners]"),
            ([("listener.name.ssl.ssl.client.auth", "required")], existing),
            ([("listener.name.ssl.ssl.principal.mapping.rules", "DEFAULT")], existing),
        ):
            code, message = await fixture.alter(*changes)
            assert (code, sentence in message) == (ErrorCode.INVALID_REQUEST, True), (changes, message)
        assert fixture.node._broker.dynamic_configs.newest("1") == {}
        for name, value in (
            ("listener.name.ssl.max.connections", "5"),
            ("listener.name.absent.ssl.client.auth", "required"),
            ("listener.security.protocol.map", f"{MAP},MORE:SSL"),
            ("listeners", fixture.listeners),
        ):
            assert await fixture.alter((name, value)) == (0, "")

    play(story, tmp_path)


def test_kafka_13835_a_change_of_the_broker_reads_changed_files(tmp_path: Path) -> None:
    """Also one of another key. The files are looked at on their own as well, but later."""

    async def story(fixture: Fixture) -> None:
        (tmp_path / "started.pem").write_text("".join(pair(AUTHORITY.issue(common_name="SRV"))))
        assert await fixture.alter(("listener.name.ssl.max.connections", "1000")) == (0, "")
        assert await fixture.subject() == "SRV"

    play(story, tmp_path)


@pytest.mark.parametrize(
    "name", ["listener.name.login.plain.sasl.jaas.config", "listener.name.ssl.scram-sha-256.sasl.jaas.config"]
)
@pytest.mark.parametrize("module", ["com.sun.security.auth.module.JndiLoginModule", "x.y.Z"])
def test_cve_2025_27819_cve_2025_27818_cve_2023_25194_no_login_module_comes_from_a_client(
    tmp_path: Path, name: str, module: str
) -> None:
    async def story(fixture: Fixture) -> None:
        (port,) = free_ports(1)
        code, message = await fixture.alter(
            ("listeners", f"{fixture.listeners},LOGIN://127.0.0.1:{port}"),
            ("listener.name.login.sasl.enabled.mechanisms", "PLAIN"),
            (name, f'{module} required user.provider.url="ldap://b.example" secret="of-the-test";'),
        )
        assert code == ErrorCode.INVALID_REQUEST
        assert "of-the-test" not in message
        assert fixture.node._broker.dynamic_configs.newest("1") == {}

    play(story, tmp_path)


def test_a_store_whose_file_changes_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka waits for AlterConfigs. A file that cannot be used is named once, and the former store is used."""
    monkeypatch.setattr(broker_listeners, "STORE_CHECK_SECONDS", 0.005)

    async def story(fixture: Fixture) -> None:
        file = tmp_path / "started.pem"
        replace(file, "SRV")
        while await fixture.subject() != "SRV":
            pass
        replace(file, "other")
        while "stores.not_reloaded" not in caplog.text:
            await asyncio.sleep(0)
        assert await fixture.subject() == "SRV"
        file.unlink()
        replace(file, "srv")
        while await fixture.subject() != "srv":
            pass
        assert caplog.text.count("Keystore DistinguishedName does not match") == 1

    def replace(file: Path, name: str) -> None:
        new = tmp_path / "new.pem"
        new.write_text("".join(pair(AUTHORITY.issue(common_name=name))))
        new.replace(file)

    with caplog.at_level(logging.ERROR):
        play(story, tmp_path)


def test_listeners_of_a_restart_are_those_of_the_last_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be used is set aside: a stored value never keeps a broker from starting."""
    ports = free_ports(2)
    store = AUTHORITY.store(tmp_path / "store.pem", common_name="srv")
    configs = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}",
        "listener.security.protocol.map": MAP,
    }

    async def start() -> Node:
        settings = Settings(data_dir=tmp_path / "data", config=BrokerConfig(configs))
        node = Node(settings, asyncio.get_running_loop())
        await node.start()
        return node

    async def run() -> None:
        node = await start()
        client = Client(*await asyncio.open_connection("127.0.0.1", ports[0]))
        await with_topic(client)
        fixture = Fixture(node, None, client, tmp_path)  # type: ignore[arg-type]
        both = f"{configs['listeners']},OTHER://127.0.0.1:{ports[1]}"
        code, message = await fixture.alter(
            ("listeners", both),
            ("listener.name.other.ssl.keystore.type", "PEM"),
            ("listener.name.other.ssl.keystore.location", str(store)),
        )
        assert (code, message) == (0, "")
        client.writer.close()
        await node.stop()
        node = await start()
        assert [endpoint.port for endpoint in node.bound[1]] == list(ports)
        await node.stop()
        store.unlink()
        node = await start()
        assert [endpoint.port for endpoint in node.bound[1]] == [ports[0]]
        await node.stop()

    asyncio.run(run())
    assert "listener.set_aside listener=OTHER" in caplog.text
    assert "listener.not_opened listener=OTHER" in caplog.text


def test_the_connections_of_one_listener_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Source: Kafka ConnectionQuotas.waitForConnectionSlot; KIP-612."""
    key = "listener.name.plaintext.max.connections"

    async def story(fixture: Fixture) -> None:
        plain = fixture.node.bound[1][0]
        assert await fixture.alter((key, "2")) == (0, "")
        second, third = await fixture.connect(plain), await fixture.connect(plain)
        assert (await second.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        third.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        assert await fixture.subject() == "srv"
        assert fixture.node._connections.limits[1].count >= 2
        assert "listener.paused connections=2 limit=2" in caplog.text
        second.writer.close()
        assert (await third.receive(ApiKey.API_VERSIONS, 0))[1].error_code == 0
        fourth = await fixture.connect(plain)
        fourth.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        assert await fixture.alter((key, "1")) == (0, "")
        assert await fixture.alter((key, None)) == (0, "")
        assert (await fourth.receive(ApiKey.API_VERSIONS, 0))[1].error_code == 0
        assert (await third.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        assert (await fixture.alter((key, "many")))[0] == ErrorCode.INVALID_REQUEST

    play(story, tmp_path)
