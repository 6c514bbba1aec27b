"""Limits of connections: in all, of one address, per second; and sockets that are closed in one direction."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ConfigError
from kohort.server.connections.connection_limits import (
    WINDOW_SECONDS,
    WINDOWS,
    ConnectionLimits,
    ConnectionRate,
    Descriptors,
)
from kohort.server.listeners.listener import ACCEPTED_AT_ONCE
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from tests.server.clients import Client, play, play_at
from tests.server.clients import Connect as ConnectTo

MAX = "max.connections"
PER_IP = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"
RATE = "max.connection.creation.rate"
HERE, THERE = "127.0.0.1", "127.0.0.2"

# fmt: off
ADMITTED = [  # Source: Kafka ConnectionQuotas.inc: configuration, connections that arrive by host, which of them enter
    ({},                                             [HERE] * 3,                 [True] * 3),
    ({PER_IP: "2"},                                  [HERE, HERE, HERE, THERE],  [True, True, False, True]),
    ({PER_IP: "1", OVERRIDES: f"{THERE}:2"},         [HERE, HERE] + [THERE] * 3, [True, False, True, True, False]),
    ({PER_IP: "0", OVERRIDES: f"{THERE}:1"},         [HERE, THERE, THERE],       [False, True, False]),
    ({PER_IP: "2", OVERRIDES: f"{HERE}:0"},          [HERE, THERE],              [False, True]),
    ({PER_IP: "1", OVERRIDES: "localhost:2"},        [HERE, HERE, HERE],         [True, True, False]),
    ({PER_IP: "1", OVERRIDES: "::1:2,[::2]:3"},      ["::1", "::1", "::2"],      [True, True, True]),
    ({OVERRIDES: f"{HERE}:-1,{THERE}:+1"},           [HERE, THERE],              [False, True]),
    ({OVERRIDES: f" {HERE} : 1 , {THERE}:1,"},       [HERE, HERE, THERE],        [True, False, True]),
]
REFUSED = {  # overrides, and what the message names
    "127.0.0.1":          "'127.0.0.1'",
    "127.0.0.1:":         "'127.0.0.1:'",
    ":5":                 "':5'",
    "127.0.0.1:2147483648": "'127.0.0.1:2147483648'",
    f"127.0.0.1:{'9' * 5_000}": "'127.0.0.1:999",
    "127.0.0.1:two":      "'127.0.0.1:two'",
    "no.such.host.invalid:1": "'no.such.host.invalid'",
}
ROOM = [  # max.connections, descriptors, open connections, room, excess
    ("2147483647", 10,   9,  True,  0),
    ("2147483647", 10,   10, False, 0),
    ("3",          10,   2,  True,  0),
    ("3",          10,   3,  False, 0),
    ("3",          2,    2,  False, 0),
    ("0",          10,   0,  False, 0),
]
THROTTLED = [  # connections a second that are allowed, seconds of the arrivals, the pause after the last of them
    (1,  [0.0] * 10,           0.0),   # a rate is taken over at least ten windows
    (1,  [0.0] * 11,           1.0),   # 11 / 10 s: a tenth too many, which takes ten times a tenth of a second
    (10, [0.0] * 101,          0.1),
    (10, [0.0] * 100 + [9.0],  0.1),
    (10, [0.0] * 100 + [11.0], 0.0),   # the oldest window is gone
    (2,  [0.0] * 30,           WINDOW_SECONDS),  # never longer than a window
    (0,  [0.0],                WINDOW_SECONDS),
]
# fmt: on


@pytest.mark.parametrize(("configs", "hosts", "entered"), ADMITTED)
def test_connections_of_one_address(configs: dict[str, str], hosts: list[str], entered: list[bool]) -> None:
    limits = ConnectionLimits(BrokerConfig(configs), Descriptors(100))
    assert [limits.enter(host) for host in hosts] == entered
    assert (limits.count, limits.rejected) == (entered.count(True), entered.count(False))
    for host, is_in in zip(hosts, entered, strict=True):
        if is_in:
            limits.leave(host)
    assert limits.count == 0
    assert not limits._by_host, "an address without connections takes no memory"


@pytest.mark.parametrize("text", REFUSED)
def test_overrides_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[text]):
        ConnectionLimits(BrokerConfig({OVERRIDES: text}), Descriptors(100))


def test_no_address_at_all_may_connect() -> None:
    """Source: Kafka KafkaConfig: zero without overrides is refused."""
    with pytest.raises(ConfigError, match=r"only if max\.connections\.per\.ip\.overrides"):
        ConnectionLimits(BrokerConfig({PER_IP: "0"}), Descriptors(100))


@pytest.mark.parametrize(("count_max", "descriptors", "count", "has_room", "excess"), ROOM)
def test_connections_in_all(count_max: str, descriptors: int, count: int, has_room: bool, excess: int) -> None:
    limits = ConnectionLimits(BrokerConfig({MAX: count_max}), Descriptors(descriptors))
    for _ in range(count):
        assert limits.enter(HERE)
    assert (limits.has_room, limits.excess) == (has_room, excess)


def test_a_limit_that_is_changed_at_run_time_holds_at_once(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig({MAX: "5"})
    limits = ConnectionLimits(config, Descriptors(100))
    tells: list[int] = []
    limits.descriptors.when_room.append(lambda: tells.append(limits.count_max))
    config.set_dynamic({MAX: "7", OVERRIDES: "127.0.0.1:2"}, {})
    assert (limits.count_max, limits.host_max("127.0.0.1"), tells) == (7, 2, [7])
    config.set_dynamic({OVERRIDES: "nobody.invalid:2"}, {})
    assert "config.not_applied" in caplog.text
    assert (limits.count_max, limits.host_max("127.0.0.1")) == (7, 2)


@pytest.mark.parametrize(("per_second", "arrivals", "pause"), THROTTLED)
def test_new_connections_a_second(per_second: int, arrivals: list[float], pause: float) -> None:
    """Source: Kafka Rate.measure, QuotaUtils.boundedThrottleTime with quota.window.num 11 of a second each."""
    now = [0.0]
    rate = ConnectionRate(lambda: now[0])
    pauses = []
    for now[0] in arrivals:
        pauses.append(rate.record(per_second))
    assert pauses[-1] == pytest.approx(pause)
    assert len(rate._windows) <= WINDOWS + 1


Connect = Callable[[], Awaitable[Client]]


async def is_served(client: Client) -> bool:
    answer: m.ApiVersionsResponse = await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
    return answer.error_code == 0


def test_a_connection_too_many_of_an_address_is_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node, connect: Connect) -> None:
        first, second = await connect(), await connect()
        assert await is_served(first)
        assert await is_served(second)
        assert await (await connect()).is_closed()
        second.writer.close()
        while node._connections.limits[1].count > 1:
            await asyncio.sleep(0)
        assert await is_served(await connect())
        assert await is_served(first)

    with caplog.at_level(logging.INFO, "kohort.server"):
        play(story, max_connections_per_ip="2")
    assert "connection.rejected client=127.0.0.1 limit=2" in caplog.text


def test_a_connection_beyond_the_limit_waits_until_another_one_leaves() -> None:
    async def story(node: Node, connect: Connect) -> None:
        first, second = await connect(), await connect()
        assert await is_served(first)
        second.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        for _ in range(20):
            assert await is_served(first)
        assert node._connections.limits[1].count == 1
        first.writer.close()
        assert (await second.receive(ApiKey.API_VERSIONS, 0))[1].error_code == 0

    play(story, max_connections="1")


def test_a_limit_that_is_raised_lets_the_next_one_in_and_a_lowered_one_closes_those_unused_longest() -> None:
    """Source: Kafka Processor.closeExcessConnections: the least recently used connections are closed."""

    async def story(node: Node, connect: Connect) -> None:
        connections = node._connections
        clients = [await connect() for _ in range(3)]
        assert await is_served(clients[0])
        clients[1].send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        connections.limits[1].configure(BrokerConfig({MAX: "3"}))
        assert (await clients[1].receive(ApiKey.API_VERSIONS, 0))[1].error_code == 0
        assert await is_served(clients[2])
        connections.close_idle(1_000.0, 600)
        assert await is_served(clients[0])
        assert await is_served(clients[2])
        connections.close_idle(1_001.0, 600)
        connections.limits[1].configure(BrokerConfig({MAX: "2"}))
        connections.close_idle(1_002.0, 600)
        assert await clients[1].is_closed()
        assert await is_served(clients[0])
        assert await is_served(clients[2])

    play(story, max_connections="1")


def test_new_connections_wait_while_there_are_too_many_a_second() -> None:
    """The eleventh connection makes the next one wait; the rate of a single connection a second is over ten seconds."""

    async def story(node: Node, connect: Connect) -> None:
        clients = [await connect() for _ in range(12)]
        for client in clients[:11]:
            assert await is_served(client)
        clients[11].send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        for _ in range(20):
            assert await is_served(clients[0])
        assert node._connections.accepted == 11

    play(story, max_connection_creation_rate="1")


HALF_CLOSED = {
    "after a request that is answered at once": True,
    "after half a request": False,
    "before any request": False,
}


@pytest.mark.parametrize("when", HALF_CLOSED)
def test_a_client_that_ends_its_side_is_disconnected(when: str) -> None:
    """Source: Kafka Selector closes a channel when it reads its end; a request before that was answered meanwhile."""

    async def story(node: Node, connect: Connect) -> None:
        client = await connect()
        frame = request_encoder(ApiKey.API_VERSIONS, 0)(1, "test", m.ApiVersionsRequest())
        if when != "before any request":
            client.writer.write(frame if HALF_CLOSED[when] else frame[:-3])
        client.writer.write_eof()
        if HALF_CLOSED[when]:
            assert (await client.receive(ApiKey.API_VERSIONS, 0))[1].error_code == 0
        assert await client.is_closed()
        while node._connections.limits[1].count:
            await asyncio.sleep(0)

    play(story)


def test_a_client_that_ends_its_side_gives_back_its_waiting_fetch() -> None:
    async def story(node: Node, connect: Connect) -> None:
        client = await connect()
        wanted = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.ask(ApiKey.CREATE_TOPICS, 5, m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = m.FetchRequestFetchTopic(topic="t", partitions=[partition])
        client.send(
            ApiKey.FETCH, 12, m.FetchRequest(topics=[topic], max_bytes=1 << 20, min_bytes=1, max_wait_ms=2**31 - 1)
        )
        while not node._broker.fetches.delayed:
            await asyncio.sleep(0)
        client.writer.write_eof()
        assert await client.is_closed()
        assert node._broker.fetches.delayed == 0
        assert node._connections.limits[1].count == 0

    play(story)


def test_a_reset_before_the_first_byte_is_no_connection() -> None:
    async def story(node: Node, connect: Connect) -> None:
        with socket.create_connection(node.bound[1][0]) as reset:
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert await is_served(await connect())
        while node._connections.limits[1].count > 1:
            await asyncio.sleep(0)
        assert dict(node._connections.limits[1]._by_host) == {HERE: 1}

    play(story)


def test_many_clients_in_the_queue_are_accepted_together() -> None:
    """A client behind 200 others, each of which takes a turn's time, waited for 400 turns."""

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        first = await connect()
        address = first.writer.get_extra_info("peername")
        before = node._connections.accepted
        clients = [socket.create_connection(address) for _ in range(16 * ACCEPTED_AT_ONCE)]
        turns = 0
        while node._connections.accepted < before + len(clients):
            await asyncio.sleep(0)
            turns += 1
        assert turns < len(clients) // 2
        for client in clients:
            client.close()

    play(story)


# Virtual brokers: each has limits of its own


async def set_own(client: Client, node_id: int, key: str, value: str) -> None:
    change = m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=4, resource_name=str(node_id), configs=[change]
    )
    answer = await client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, m.IncrementalAlterConfigsRequest(resources=[resource])
    )
    assert [each.error_code for each in answer.responses] == [0]


def test_a_broker_limits_the_connections_of_its_own_clients() -> None:
    async def story(node: Node, connect: ConnectTo) -> None:
        first, second = (node.bound[node_id][0] for node_id in (1, 2))
        client = await connect(second)
        await set_own(client, 2, PER_IP, "1")
        assert await (await connect(second)).is_closed()
        for _ in range(2):
            assert await is_served(await connect(first))
        assert await is_served(client)
        limits = node._connections.limits
        assert [(limits[n].count, limits[n].rejected) for n in (1, 2)] == [(2, 0), (1, 1)]

    play_at(story, brokers=2)


def test_a_lowered_limit_closes_connections_of_its_broker_only() -> None:
    async def story(node: Node, connect: ConnectTo) -> None:
        first, second = (node.bound[node_id][0] for node_id in (1, 2))
        others = [await connect(first) for _ in range(2)]
        own = [await connect(second) for _ in range(2)]
        for client in (*others, *own):
            assert await is_served(client)
        node._connections.close_idle(900.0, 600)
        node._connections.close_idle(901.0, 600)
        # The connections of the other broker are those that were unused longest.
        for client in own:
            assert await is_served(client)
        await set_own(own[0], 2, MAX, "1")
        node._connections.close_idle(1_000.0, 600)
        while node._connections.limits[2].count > 1:
            await asyncio.sleep(0)
        for client in others:
            assert await is_served(client)
        assert node._connections.limits[1].count == 2

    play_at(story, brokers=2)


def test_brokers_share_the_descriptors_of_the_process() -> None:
    descriptors = Descriptors(2)
    one, two = (ConnectionLimits(BrokerConfig({}), descriptors) for _ in range(2))
    assert one.enter(HERE)
    assert (one.has_room, two.has_room) == (True, True)
    assert two.enter(HERE)
    assert (one.has_room, two.has_room) == (False, False)
    one.leave(HERE)
    assert (one.has_room, two.has_room) == (True, True)
