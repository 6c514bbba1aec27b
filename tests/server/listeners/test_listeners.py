"""Listeners with names, on both IP versions, and the listeners, connections and control socket of virtual brokers."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.cluster import Endpoint
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.model.errors import ConfigError
from kohort.security.protocols import SecurityProtocol
from kohort.server.control import control_directory, control_path, send_command
from kohort.server.listeners.addresses import ListenerAddress, listener_addresses
from kohort.server.listeners.listener import bind
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import SECONDS_MAX, Client, Connect, play_at

TWO = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"

# fmt: off
ADDRESSES = [  # listeners, advertised.listeners; name, host, port and advertised address of each listener
    ("PLAINTEXT://localhost:9092", None, [ListenerAddress("PLAINTEXT", "localhost", 9092)]),
    ("INSIDE://:9092,OUTSIDE://[::1]:9094", None,
     [ListenerAddress("INSIDE", "", 9092), ListenerAddress("OUTSIDE", "::1", 9094)]),
    ("inside://[::]:9092,CONTROLLER://:9093", "INSIDE://[2001:db8::1]:443",
     [ListenerAddress("INSIDE", "::", 9092, ("2001:db8::1", 443))]),
    ("inside://127.0.0.1:9092,OUTSIDE://[::1]:9092", None,
     [ListenerAddress("INSIDE", "127.0.0.1", 9092), ListenerAddress("OUTSIDE", "::1", 9092)]),
    ("INSIDE://:9092,OUTSIDE://0.0.0.0:9094", "OUTSIDE://b.example:9094",
     [ListenerAddress("INSIDE", "", 9092, None, False), ListenerAddress("OUTSIDE", "0.0.0.0", 9094, ("b.example", 9094))]),
]
# fmt: on


def parse(listeners: str, advertised: str | None = None, brokers: int = 1, **more: str) -> list[ListenerAddress]:
    explicit = {"listeners": listeners, "listener.security.protocol.map": f"{TWO},PLAINTEXT:PLAINTEXT,SSL:SSL"}
    explicit["controller.listener.names"] = "CONTROLLER"
    if advertised is not None:
        explicit["advertised.listeners"] = advertised
    return listener_addresses(BrokerConfig(explicit | more), "127.0.0.1", 9092, None, brokers)


@pytest.mark.parametrize(("listeners", "advertised", "found"), ADDRESSES)
def test_addresses_of_listeners(listeners: str, advertised: str | None, found: list[ListenerAddress]) -> None:
    assert parse(listeners, advertised) == found


@pytest.mark.parametrize(
    ("listeners", "advertised", "brokers", "sentence"),
    [
        ("localhost:9092", None, 1, r"write NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:65536", None, 1, r"write NAME://HOST:PORT"),
        ("INSIDE://:9092,INSIDE://:9093", None, 1, r"two addresses of INSIDE"),
        ("ELSEWHERE://:9092", None, 1, r"add ELSEWHERE:PLAINTEXT to listener\.security\.protocol\.map"),
        ("CONTROLLER://:9093", None, 1, r"names no listener for clients"),
        ("INSIDE://:9092", "OUTSIDE://b.example:9092", 1, r"add it to listeners"),
        ("INSIDE://:9092", "INSIDE://0.0.0.0:9092", 1, r"give a host name"),
        ("INSIDE://:9092,OUTSIDE://:9092", None, 1, r"port 9092 is needed twice"),
        ("INSIDE://:9092,OUTSIDE://:9094", None, 3, r"port 9094 is needed twice"),
        ("INSIDE://:65534", None, 3, r"need ports above 65535"),
        ("INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.2:9092", None, 1, r"port 9092 is needed twice"),
    ],
)
def test_wrong_listeners_are_refused_with_a_sentence(
    listeners: str, advertised: str | None, brokers: int, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse(listeners, advertised, brokers)


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        (
            "listener.security.protocol.map",
            "INSIDE:TLS",
            r"one of the protocols PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ("listener.security.protocol.map", "INSIDE", r"has 'INSIDE'; write NAME:PROTOCOL"),
        ("inter.broker.listener.name", "OUTSIDE", r"defined in advertised\.listeners.*configured listeners are INSIDE"),
        ("early.start.listeners", "OUTSIDE", r"early\.start\.listeners contains listener OUTSIDE"),
        ("principal.builder.class", "a.B", r"principal\.builder\.class: Java classes cannot be loaded"),
        ("ssl.engine.factory.class", "a.B", r"ssl\.engine\.factory\.class: Java classes cannot be loaded"),
        ("connection.failed.authentication.delay.ms", "600000", r"less than connections\.max\.idle\.ms=600000"),
    ],
)
def test_configurations_that_contradict_the_listeners_are_refused(key: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse("INSIDE://:9092", None, 1, **{key: text})
    both = {"inter.broker.listener.name": "INSIDE", "security.inter.broker.protocol": "PLAINTEXT"}
    with pytest.raises(ConfigError, match="Only one of"):
        parse("INSIDE://:9092", None, 1, **both)


def test_a_listener_has_its_own_values_over_those_for_all() -> None:
    config = BrokerConfig(
        {
            "ssl.client.auth": "required",
            "listener.name.inside.ssl.client.auth": "none",
            "listener.name.inside.plain.connections.max.reauth.ms": "7",
            "listener.name.inside.connections.max.reauth.ms": "8",
            "listener.name.INSIDE.ssl.protocol": "upper case is not the prefix",
        }
    )
    inside = ListenerConfig(config, "INSIDE", SecurityProtocol.SSL)
    assert (inside.client_auth, inside.is_open) == ("none", True)
    assert not ListenerConfig(config, "OUTSIDE", SecurityProtocol.SSL).is_open
    assert ListenerConfig(config, "OUTSIDE", SecurityProtocol.SASL_SSL).client_auth == "none"
    key = "connections.max.reauth.ms"
    assert [inside.of_mechanism(name).get_int(key) for name in ("PLAIN", "SCRAM-SHA-256")] == [7, 8]
    assert (inside.get_int(key), ListenerConfig(config, "OUTSIDE").get_int(key)) == (8, 0)
    config.set_dynamic({"listener.name.inside.connections.max.reauth.ms": "9"}, {})
    assert inside.get_int(key) == 9
    assert inside.get_str("ssl.protocol") == "TLSv1.3"
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        BrokerConfig({"listener.name.inside.connections.max.reauth.ms": "long"})


def test_brokers_have_successive_ports() -> None:
    (address,) = parse("INSIDE://:9092", "INSIDE://b.example:443")
    assert (address.of_broker(2).port, address.of_broker(2).advertised) == (9094, ("b.example", 445))
    assert ListenerAddress("PLAINTEXT", "", 0).of_broker(2).port == 0


async def told(client: Client) -> list[tuple[int, str, int]]:
    response = await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))
    return [(broker.node_id, broker.host, broker.port) for broker in response.brokers]


needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@needs_ipv6
def test_clients_are_told_the_addresses_of_their_listener() -> None:
    async def story(node: Node, connect: Connect) -> None:
        inside, outside = node.bound[1]
        assert await told(await connect(inside)) == [(1, "127.0.0.1", inside.port)]
        seen = await connect(outside)
        assert await told(seen) == [(1, "b.example", 9999)]
        cluster = await seen.ask(ApiKey.DESCRIBE_CLUSTER, 1, m.DescribeClusterRequest(endpoint_type=1))
        assert [(broker.host, broker.port) for broker in cluster.brokers] == [("b.example", 9999)]

    play_at(
        story,
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://[::1]:0",
        advertised_listeners="INSIDE://127.0.0.1:0,OUTSIDE://b.example:9999",
        listener_security_protocol_map=TWO,
    )


@needs_ipv6
@pytest.mark.parametrize("host", ["", "[::]"])
def test_all_addresses_are_those_of_both_ip_versions(caplog: pytest.LogCaptureFixture, host: str) -> None:
    async def story(node: Node, connect: Connect) -> None:
        ((_, port),) = node.bound[1]
        for own in ("127.0.0.1", "::1"):
            assert await told(await connect(Endpoint(own, port))) == [(1, "localhost", port)]

    play_at(story, listeners=f"PLAINTEXT://{host}:0", allow_anonymous=True)
    assert "listener.advertises_loopback listener=PLAINTEXT host=:: port=" in caplog.text


@needs_ipv6
def test_metrics_are_served_on_both_ip_versions() -> None:
    async def story() -> None:
        settings = Settings(host="::", port=0, metrics_port=0, config=BrokerConfig(), allow_anonymous=True)
        node = Node(settings, asyncio.get_running_loop())
        await node.start()
        try:
            for own in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(own, node.metrics_port)
                writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
                assert b"200" in await reader.readline()
                writer.close()
        finally:
            await node.stop()

    asyncio.run(story())


def test_a_loopback_address_for_all_clients_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka refuses to start."""

    async def story(node: Node, connect: Connect) -> None:
        ((_, port),) = node.bound[1]
        assert await told(await connect(Endpoint("127.0.0.1", port))) == [(1, "127.0.0.1", port)]

    play_at(story, listeners="PLAINTEXT://0.0.0.0:0", allow_anonymous=True)
    first, line = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert first.startswith("listener.needs_no_authentication listener=PLAINTEXT protocol=PLAINTEXT host=0.0.0.0 port=")
    assert line.startswith("listener.advertises_loopback listener=PLAINTEXT host=0.0.0.0 port=")
    assert " advertised=127.0.0.1 hint='clients on other machines are told an address that they cannot reach" in line
    caplog.clear()
    elsewhere = "PLAINTEXT://b.example:1"
    play_at(story_of_nothing, listeners="PLAINTEXT://0.0.0.0:0", advertised_listeners=elsewhere, allow_anonymous=True)
    assert "advertises_loopback" not in caplog.text
    caplog.clear()
    play_at(story_of_nothing, listeners="PLAINTEXT://127.0.0.1:0")
    assert caplog.text == ""


def test_a_listener_of_all_machines_without_authentication_needs_an_option() -> None:
    with pytest.raises(
        ConfigError, match=r"INSIDE would listen on 0\.0\.0\.0:\d+.*PLAINTEXT listener.*--allow-anonymous"
    ):
        play_at(story_of_nothing, listeners="INSIDE://0.0.0.0:0", listener_security_protocol_map=TWO)


async def story_of_nothing(_node: Node, _connect: Connect) -> None:
    pass


def test_a_system_with_one_ip_version_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bind("", 0) as bound:
        assert bound.family == socket.AF_INET
    assert "listener.one_ip_version host='0.0.0.0' hint='the system has no sockets for both; " in caplog.text


def test_a_stopped_broker_closes_its_connections_and_listens_again_at_the_same_address() -> None:
    async def story(node: Node, connect: Connect) -> None:
        addresses = {node_id: bound[0] for node_id, bound in node.bound.items()}
        first, second = await connect(addresses[1]), await connect(addresses[2])
        assert [node_id for node_id, _, _ in await told(first)] == [1, 2, 3]
        await node.brokers.stop(2)
        assert await second.reader.read() == b""
        with pytest.raises(OSError, match=r"[Rr]efused|Connect call failed"):
            await connect(addresses[2])
        assert [node_id for node_id, _, _ in await told(first)] == [1, 3]
        await node.brokers.start(2)
        assert await told(await connect(addresses[2])) == await told(first)

    play_at(story, brokers=3)


def test_commands_to_wrong_brokers_are_refused() -> None:
    async def story(node: Node, _connect: Connect) -> None:
        path = node.control_path
        assert path is not None

        async def send(name: str, node_id: int) -> None:
            await asyncio.to_thread(send_command, path, name, node_id, SECONDS_MAX)

        with pytest.raises(ConfigError, match="broker 2 runs already"):
            await send("start", 2)
        await send("stop", 2)
        with pytest.raises(ConfigError, match="broker 2 is stopped already"):
            await send("stop", 2)
        with pytest.raises(ConfigError, match="there is no broker 4; the brokers of this process are 1, 2, 3"):
            await send("stop", 4)
        with pytest.raises(ConfigError, match="there are the commands stop, start"):
            await send("kill", 1)

    play_at(story, brokers=3)


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[1]\n", b'{"stop": "2"}\n', b"x" * 10_000 + b"\n"])
def test_the_control_socket_takes_anything(line: bytes) -> None:
    async def story(node: Node, _connect: Connect) -> None:
        reader, writer = await asyncio.open_unix_connection(node.control_path)
        writer.write(line)
        writer.write_eof()
        answer = await reader.read()
        assert answer == b"" or answer.startswith(b'{"error":"')
        writer.close()
        assert node.control_path is not None
        assert node.control_path.stat().st_mode & 0o077 == 0

    play_at(story, brokers=2)


def test_one_broker_has_no_control_socket() -> None:
    async def story(node: Node, _connect: Connect) -> None:
        assert node.control_path is None

    play_at(story)
    with pytest.raises(ConfigError, match="no process takes commands"):
        send_command(control_path("nobody"), "stop", 1, 1.0)


def test_the_directory_of_control_sockets_belongs_to_one_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directory = control_directory()
    assert directory.stat().st_mode & 0o777 == 0o700
    directory.chmod(0o755)
    with pytest.raises(ConfigError, match="may be used by other users"):
        control_directory()


def test_the_state_of_stopped_brokers_is_served_by_the_others() -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect(node.bound[1][0])
        topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=3, replication_factor=3)
        await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        await node.brokers.stop(3)
        request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])
        (found,) = (await client.ask(ApiKey.METADATA, 12, request)).topics
        leaders: list[Any] = [partition.leader_id for partition in found.partitions]
        assert set(leaders) == {1, 2}
        assert all(partition.offline_replicas == (3,) for partition in found.partitions)

    play_at(story, brokers=3)
