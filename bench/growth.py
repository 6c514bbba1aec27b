"""
Growth: instructions of the processor for one request, with ever more groups, members, partitions, topics, connections, access
rules and transactional ids around it.

    make growth                                    # the table of docs/benchmarks.md
    make growth GROWTH="--only groups --times"     # one dimension; microseconds of the processor instead of instructions

A node with its store in memory gets the frames of clients without sockets, as in `bench.instructions`. Each dimension has three
sizes, each ten times the one before. At each size the same requests are sent, by up to `SAMPLE` clients in turns, each of which
has sent its request before: what is counted is what a request costs whose client goes on. `--times` takes the shortest of
`ROUNDS` rounds instead of one count, so memory that no longer fits into the caches of the processor shows as well.

A bound of `STEP_MAX` for each step is checked: the exit code is 1 if a request costs more.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench.instructions import (
    ADMIN,
    SESSION_MS,
    TOPIC,
    USER,
    Client,
    Frame,
    NotCounted,
    Time,
    add_rules,
    batch,
    commit,
    counted,
    frame,
    join,
    join_frame,
    produce,
    ready,
)
from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.broker.configs.definitions import BrokerConfig
from kohort.server.node import Node, configure_garbage_collector
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

STEP_MAX: Final = 1.3
"""How much more a request may cost at ten times the size."""
SAMPLE: Final = 50
COUNTED: Final = 200
"""Requests that are counted together."""
ROUNDS: Final = 15
ASSIGNMENTS: Final = 4
ASSIGNMENT_SECONDS: Final = 1.1
"""A little more than `group.consumer.assignment.interval.ms`: a group that many members join gets its assignment once."""

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "connections.max.idle.ms": "-1",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "transactional.id.expiration.ms": "3600000",
    "log.cleaner.enable": "false",
}
"""Nothing ends while it is being prepared: callgrind is slow. The cleaner works beside requests, and is no part of any."""

Requests = dict[str, list[tuple[Client, Frame]]]
"""By name: the requests of a sample of clients."""


class Counter(Protocol):
    def begin_count(self) -> None: ...

    def end_count(self, name: bytes) -> object: ...


class Dimension(NamedTuple):
    """
    What grows.

    Attributes:
        sizes: how many of it there are, in rising order.
        prepare: makes so many on a node, and returns the requests that are counted.
    """

    name: str
    sizes: tuple[int, int, int]
    prepare: Callable[[Node, int], Awaitable[Requests]]
    is_secured: bool = False


def _spread(count: int) -> range:
    """Numbers of a sample, over all of them."""
    return range(0, count, max(count // SAMPLE, 1))


async def _create(client: Client, topics: int = 1, partitions: int = 1) -> None:
    for number in range(topics):
        name = f"{TOPIC}{number}" if number else TOPIC
        topic = m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        assert await client.succeeds(
            frame(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        )


def _heartbeat(group: str, member: str, generation: int) -> Frame:
    return frame(ApiKey.HEARTBEAT, 4, m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member))


def _fetch_offset(group: str) -> Frame:
    topic = m.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    asked = m.OffsetFetchRequestGroup(group_id=group, member_id=None, member_epoch=-1, topics=[topic])
    return frame(ApiKey.OFFSET_FETCH, 9, m.OffsetFetchRequest(groups=[asked], require_stable=False))


def _fetch(topic: str = TOPIC, partition: int = 0) -> Frame:
    wanted = m.FetchRequestFetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1000)
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[m.FetchRequestFetchTopic(topic=topic, partitions=[wanted])],
    )
    return frame(ApiKey.FETCH, 12, request)


def _metadata(topic: str) -> Frame:
    return frame(ApiKey.METADATA, 12, m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)]))


async def _joined(client: Client, group: str, member: str, topics: list[str]) -> int:
    """Join a group of consumers (KIP-848); the member's epoch."""
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )
    answer = await client.ask(frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request))
    assert not answer.error_code, answer
    return int(answer.member_epoch)


def _consumer_heartbeat(group: str, member: str, epoch: int) -> Frame:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rebalance_timeout_ms=-1
    )
    return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


async def _settled(client: Client, group: str, member: str, epoch: int) -> int:
    """Send heartbeats until the member has nothing to do for now; its epoch."""
    request = partial(m.ConsumerGroupHeartbeatRequest, group_id=group, member_id=member, rebalance_timeout_ms=-1)
    owned: list[m.ConsumerGroupHeartbeatRequestTopicPartitions] | None = None
    while True:
        answer = await client.ask(
            frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request(member_epoch=epoch, topic_partitions=owned))
        )
        assert not answer.error_code, answer
        is_settled = answer.member_epoch == epoch and answer.assignment is None
        epoch = int(answer.member_epoch)
        if is_settled:
            return epoch
        owned = None
        if answer.assignment is not None:
            owned = [
                m.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=it.topic_id, partitions=it.partitions)
                for it in answer.assignment.topic_partitions
            ]


# -- what grows ---------------------------------------------------------------------------------------------------------


async def _groups(node: Node, count: int) -> Requests:
    """Groups of one member, which has a connection of its own and commits one partition."""
    first = Client(node)
    await _create(first)
    found: Requests = {name: [] for name in ("Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch")}
    sample = set(_spread(count))
    for number in range(count):
        client, name = Client(node), f"g{number}"
        await ready(client, 0, name)
        member, generation = await join(client, name)
        epoch = await _joined(client, f"c{number}", "m", [TOPIC])
        assert await client.succeeds(commit(f"s{number}", 0, 1))
        if number in sample:
            epoch = await _settled(client, f"c{number}", "m", epoch)
            found["Heartbeat"].append((client, _heartbeat(name, member, generation)))
            found["ConsumerGroupHeartbeat"].append((client, _consumer_heartbeat(f"c{number}", "m", epoch)))
            found["OffsetCommit"].append((client, commit(f"s{number}", 1, 1)))
            found["OffsetFetch"].append((client, _fetch_offset(f"s{number}")))
    return found


async def _members(node: Node, count: int) -> Requests:
    """One group of each protocol with many members, each with a connection of its own."""
    clients = [Client(node) for _ in range(count)]
    await _create(clients[0], partitions=100)
    await ready(clients[0], 0, "g")
    member, _ = await join(clients[0], "g")
    members = [(clients[0], member)]
    for client in clients[1:]:
        refused = await client.ask(join_frame("g", "", b""))
        members.append((client, refused.member_id))
    joining = [asyncio.ensure_future(client.ask(join_frame("g", it, b""))) for client, it in members[1:]]
    await asyncio.sleep(0)
    answer = await members[0][0].ask(join_frame("g", member, b""))
    assert all([not (await it).error_code for it in joining])
    generation = answer.generation_id
    everyone = [m.SyncGroupRequestAssignment(member_id=it, assignment=b"a") for _, it in members]
    leader = next(client for client, it in members if it == answer.leader)
    sync = m.SyncGroupRequest(group_id="g", generation_id=generation, member_id=answer.leader, assignments=everyone)
    assert await leader.succeeds(frame(ApiKey.SYNC_GROUP, 3, sync))
    epochs = [await _joined(client, "c", f"m{number}", [TOPIC]) for number, client in enumerate(clients)]
    for _ in range(ASSIGNMENTS):
        await asyncio.sleep(ASSIGNMENT_SECONDS)
        epochs = [await _settled(client, "c", f"m{number}", epochs[number]) for number, client in enumerate(clients)]
    assert len(set(epochs)) == 1, "the group has not settled"
    sample = _spread(count)
    return {
        "Heartbeat": [(members[it][0], _heartbeat("g", members[it][1], generation)) for it in sample],
        "ConsumerGroupHeartbeat": [(clients[it], _consumer_heartbeat("c", f"m{it}", epochs[it])) for it in sample],
        "OffsetCommit": [(members[it][0], commit("g", 1, 1, members[it][1], generation)) for it in sample],
    }


async def _partitions(node: Node, count: int) -> Requests:
    """One topic, and one consumer of all of its partitions."""
    client = Client(node)
    await _create(client, partitions=count)
    return await _of_one_consumer(client)


async def _topics(node: Node, count: int) -> Requests:
    """Topics of one partition, and one consumer of one of them."""
    client = Client(node)
    await _create(client, topics=count)
    return await _of_one_consumer(client) | {"Metadata": [(client, _metadata(TOPIC))]}


async def _of_one_consumer(client: Client) -> Requests:
    """The requests of a client that consumes the first topic, and writes to it."""
    await ready(client, 0, "s")
    epoch = await _settled(client, "c", "m", await _joined(client, "c", "m", [TOPIC]))
    return {
        "ConsumerGroupHeartbeat": [(client, _consumer_heartbeat("c", "m", epoch))],
        "OffsetCommit": [(client, commit("s", 1, 1))],
        "Produce": [(client, produce(batch()))],
        "Fetch": [(client, _fetch())],
    }


async def _connections(node: Node, count: int) -> Requests:
    """Connections, each of which has been used; those of the sample commit for a group each."""
    clients = [Client(node) for _ in range(count)]
    await _create(clients[0])
    await ready(clients[0], 0, "g")
    member, generation = await join(clients[0], "g")
    for client in clients:
        await client.ask(_metadata(TOPIC))
    sample = [clients[number] for number in _spread(count)]
    return {
        "Heartbeat": [(client, _heartbeat("g", member, generation)) for client in sample],
        "OffsetCommit": [(client, commit(f"s{number}", 1, 1)) for number, client in enumerate(sample)],
        "Produce": [(client, produce(batch())) for client in sample],
        "Fetch": [(client, _fetch()) for client in sample],
    }


async def _rules(node: Node, count: int) -> Requests:
    """Access rules, half of them for the user who asks."""
    admin, client = Client(node, ADMIN), Client(node, USER)
    await add_rules(admin, count)
    await _create(admin)
    await ready(client, 0, "g")
    member, generation = await join(client, "g")
    return {
        "Heartbeat": [(client, _heartbeat("g", member, generation))],
        "OffsetCommit": [(client, commit("s", 1, 1))],
        "Produce": [(client, produce(batch()))],
        "Fetch": [(client, _fetch())],
    }


async def _transactional_ids(node: Node, count: int) -> Requests:
    """Transactional ids whose producers have begun, without a transaction."""
    clients = [Client(node) for _ in range(count)]
    await _create(clients[0])
    found: Requests = {"AddPartitionsToTxn": []}
    sample = set(_spread(count))
    for number, client in enumerate(clients):
        name = f"x{number}"
        await ready(client, 1, name)
        begin = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        producer = await client.ask(frame(ApiKey.INIT_PRODUCER_ID, 4, begin))
        assert not producer.error_code, producer
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        if number in sample:
            found["AddPartitionsToTxn"].append((client, frame(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)))
    return found


DIMENSIONS: Final = (
    Dimension("groups", (20, 200, 2_000), _groups),
    Dimension("members of a group", (10, 100, 1_000), _members),
    Dimension("partitions of a topic", (90, 900, 9_000), _partitions),
    Dimension("topics", (10, 100, 1_000), _topics),
    Dimension("connections", (20, 200, 2_000), _connections),
    Dimension("access rules", (50, 500, 5_000), _rules, is_secured=True),
    Dimension("transactional ids", (20, 200, 2_000), _transactional_ids),
)


# -- counting -----------------------------------------------------------------------------------------------------------


class Times(NotCounted):
    """Microseconds of the processor for one request, the shortest of all rounds; by name."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._began_ns = 0

    def begin_count(self) -> None:
        self._began_ns = time.thread_time_ns()

    def end_count(self, name: bytes) -> None:
        each_us = (time.thread_time_ns() - self._began_ns) / 1e3 / COUNTED
        self.found[name.decode()] = min(self.found.get(name.decode(), each_us), each_us)


async def _send(requests: list[tuple[Client, Frame]], count: int) -> None:
    for number in range(count):
        client, one = requests[number % len(requests)]
        await client.answer(one.data)


async def _count(dimension: Dimension, size: int, now: Time, counter: Counter, rounds: int) -> None:
    one_partition = dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), "1")
    secured = {"authorizer.class.name": CLASS_NAME, "super.users": str(ADMIN)} if dimension.is_secured else {}
    config = BrokerConfig(SETTINGS | one_partition | secured)
    node = Node(Settings(port=0, config=config), asyncio.get_running_loop())
    await node.start()
    requests = await dimension.prepare(node, size)
    now.stop()
    gc.collect()
    for name, of_clients in requests.items():
        await _send(of_clients, 2 * len(of_clients) + COUNTED)
        for _ in range(rounds):
            counter.begin_count()
            await _send(of_clients, COUNTED)
            counter.end_count(f"{dimension.name}|{name}|{size}".encode())
        assert all([await client.succeeds(one) for client, one in of_clients]), name
    now.go_on()
    await node.stop()


async def _count_all(only: str | None, counter: Counter, rounds: int) -> None:
    now = Time()
    configure_garbage_collector()
    for dimension in DIMENSIONS:
        if only in (None, dimension.name):
            for size in dimension.sizes:
                await _count(dimension, size, now, counter, rounds)


def table(counts: dict[str, float]) -> list[str]:
    """The rows of docs/benchmarks.md: a request in one dimension each, and the larger of its two steps."""
    rows: dict[tuple[str, str], dict[int, float]] = {}
    for key, value in counts.items():
        dimension, name, size = key.split("|")
        rows.setdefault((dimension, name), {})[int(size)] = value
    return [
        f"| {dimension} | {' / '.join(f'{size:,}' for size in sorted(found))} | {name} "
        f"| {' / '.join(f'{found[size]:.1f}' for size in sorted(found))} | {step(found):.2f} |"
        for (dimension, name), found in rows.items()
    ]


def step(found: dict[int, float]) -> float:
    """The largest ratio of a size to the one before."""
    values = [found[size] for size in sorted(found)]
    return max((later / before for before, later in pairwise(values)), default=1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[it.name for it in DIMENSIONS], help="one dimension")
    parser.add_argument("--times", action="store_true", help="microseconds of the processor instead of instructions")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the figures, as JSON")
    parser.add_argument("--within", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.within:
        asyncio.run(_count_all(arguments.only, ctypes.CDLL(arguments.within), 1))
        return 0
    if arguments.times:
        times = Times()
        asyncio.run(_count_all(arguments.only, times, ROUNDS))
        counts = times.found
    elif shutil.which("valgrind") is None or shutil.which("cc") is None:
        print("Counting needs valgrind and a C compiler. Debian: apt-get install valgrind gcc", file=sys.stderr)
        return 2
    else:
        options = ["--only", arguments.only] if arguments.only else []
        found = counted(*options, module="bench.growth", requests=COUNTED)
        counts = {name: instructions / 1_000 for name, instructions in found.items()}
    print("\n".join(table(counts)))
    if arguments.out:
        arguments.out.write_text(json.dumps(counts, indent=2) + "\n")
    return int(any(float(row.split("|")[-2]) > STEP_MAX for row in table(counts)))


if __name__ == "__main__":
    sys.exit(main())
