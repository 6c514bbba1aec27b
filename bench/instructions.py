"""
Instructions of the processor for one request, counted by callgrind: steady on a noisy machine, where times are not.

    make instructions                                       # counts of the compiled build
    make instructions INSTRUCTIONS="--out before.json"
    make instructions INSTRUCTIONS="--against before.json"  # and their ratio
    make instructions INSTRUCTIONS="--secured --against before.json"  # of a user, with 1 000 access rules
    make instructions INSTRUCTIONS="--observed --against before.json"  # while the testing kit counts every request

A node with its store in memory gets the frames of a client without a socket, on one thread. Each way is warmed
up, then counted over `REQUESTS` requests. Two counts of one build mostly differ by less than a thousandth;
those of a heartbeat differed by 1.5 percent once. The kernel and waits are not counted.
"""

import argparse
import asyncio
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.broker.configs.definitions import BrokerConfig
from kohort.control.kit import Kit
from kohort.control.requests.faults import FaultSpec
from kohort.model.principals import ANONYMOUS, Principal
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from kohort.server.connections.client_connections import ServedEndpoint
from kohort.server.connections.connection import ClientConnection
from kohort.server.connections.connection_limits import ListenerLimits
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader

WARM_UP: Final = 200
REQUESTS: Final = 200
TOPIC: Final = "t"
PARTITIONS: Final = 100
SESSION_MS: Final = 300_000
TIMESTAMP_MS: Final = 1_700_000_000_000
RULES: Final = 1_000
ADMIN, USER = Principal("admin"), Principal("alice")
_ERROR: Final = re.compile(r"error_code=(?!0\b)")
_SOURCE: Final = Path(__file__).with_suffix(".c")
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
_NAME: Final = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.MULTILINE)


class Transport(asyncio.Transport):
    """Keeps what the connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.waiter: asyncio.Future[None] | None = None
        """Done with the next write."""

    def write(self, data: Any) -> None:
        self.written.append(data)
        if self.waiter is not None:
            self.waiter.set_result(None)
            self.waiter = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.write(b"")

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class Frame(NamedTuple):
    """A request, encoded before the counting begins."""

    key: ApiKey
    version: int
    data: bytes


class Way(NamedTuple):
    """
    One thing that is counted.

    Attributes:
        frames: the requests of one time, by its number.
    """

    name: str
    frames: Callable[[int], list[Frame]]


def frame(key: ApiKey, version: int, request: object) -> Frame:
    return Frame(key, version, request_encoder(key, version)(1, "bench", request))


class Client:
    """A connection without a socket, of an authenticated user."""

    def __init__(self, node: Node, principal: Principal = ANONYMOUS) -> None:
        (node_id,) = node._dispatches
        limits = ListenerLimits(node._connections.limits[node_id])
        endpoint = ServedEndpoint(node_id, "PLAINTEXT", node._dispatches[node_id], limits)
        self._connection = ClientConnection(node._connections, endpoint, "127.0.0.1")
        self._connection.principal = principal
        self._transport = Transport()
        self._connection.connection_made(self._transport)

    async def answer(self, data: bytes) -> bytes:
        """
        Send a frame and return the answer to it.

        Raises:
            ConnectionError: the connection was closed.
        """
        self._connection.data_received(data)
        written = self._transport.written
        if not written:
            # A loop that looked again and again would be counted.
            self._transport.waiter = waiter = asyncio.get_running_loop().create_future()
            await waiter
        answer = written.pop()
        if not answer:
            raise ConnectionError("the node has closed the connection")
        return answer

    async def ask(self, one: Frame) -> Any:
        answer = (await self.answer(one.data))[4:]
        body = read_response_header(answer, one.key, one.version)[1]
        return response_reader(one.key, one.version)(answer, body)

    async def succeeds(self, one: Frame) -> bool:
        """Send a request; whether its response has no error code."""
        return not _ERROR.search(repr(await self.ask(one)))


def commit(group: str, offset: int, partitions: int, member: str = "", generation: int = -1) -> Frame:
    partition = m.OffsetCommitRequestPartition
    topic = m.OffsetCommitRequestTopic(
        name=TOPIC,
        partitions=[
            partition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in range(partitions)
        ],
    )
    request = m.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
    )
    return frame(ApiKey.OFFSET_COMMIT, 9, request)


def batch(**producer: Any) -> bytes:
    return bytes(build_batch([BatchRecord(key=None, value=b"v" * 100)], timestamp_ms=TIMESTAMP_MS, **producer))


def produce(batch: bytes, transactional_id: str | None = None) -> Frame:
    data = m.ProduceRequestPartitionProduceData(index=0, records=batch)
    topic = m.ProduceRequestTopicProduceData(name=TOPIC, partition_data=[data])
    request = m.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic])
    return frame(ApiKey.PRODUCE, 9, request)


async def ready(client: Client, key_type: int, key: str) -> None:
    find = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while not await client.succeeds(frame(ApiKey.FIND_COORDINATOR, 4, find)):
        await asyncio.sleep(0)


def join_frame(group: str, member: str, metadata: bytes) -> Frame:
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return frame(ApiKey.JOIN_GROUP, 5, request)


async def join(client: Client, group: str) -> tuple[str, int]:
    refused = await client.ask(join_frame(group, "", b""))
    joined = await client.ask(join_frame(group, refused.member_id, b""))
    assert not joined.error_code, joined
    assignment = m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    sync = m.SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    synced = await client.ask(frame(ApiKey.SYNC_GROUP, 3, sync))
    assert not synced.error_code, synced
    return joined.member_id, joined.generation_id


async def ways(client: Client) -> list[Way]:
    """Everything that is counted, in a state where its requests succeed."""
    topic = m.CreateTopicsRequestCreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await client.ask(frame(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)))
    await ready(client, 0, "g")
    await ready(client, 1, "x")
    member, generation = await join(client, "g")
    beat = frame(ApiKey.HEARTBEAT, 4, m.HeartbeatRequest(group_id="g", generation_id=generation, member_id=member))
    consumer = m.ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    joined = await client.ask(frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer))
    assert not joined.error_code, joined
    again = m.ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", member_epoch=joined.member_epoch, rebalance_timeout_ms=-1
    )
    begin = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer = await client.ask(frame(ApiKey.INIT_PRODUCER_ID, 4, begin))
    assert not producer.error_code, producer
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[m.FetchRequestFetchTopic(topic=TOPIC, partitions=[partition])],
    )
    await client.ask(produce(batch()))
    generations = count(generation + 1)

    def rejoin(number: int) -> list[Frame]:
        """The only member joins again: a rebalance of one member, from JoinGroup to its SyncGroup."""
        sync = m.SyncGroupRequest(
            group_id="g",
            generation_id=next(generations),
            member_id=member,
            assignments=[m.SyncGroupRequestAssignment(member_id=member, assignment=b"a")],
        )
        return [join_frame("g", member, bytes([number % 2])), frame(ApiKey.SYNC_GROUP, 3, sync)]

    def transact(number: int) -> list[Frame]:
        """AddPartitionsToTxn, Produce and EndTxn of a transaction of the first version, with its marker."""
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        sent = batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=number,
            transactional=True,
        )
        end = m.EndTxnRequest(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        return [
            frame(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add),
            produce(sent, "x"),
            frame(ApiKey.END_TXN, 4, end),
        ]

    return [
        Way("Heartbeat", lambda _number: [beat]),
        Way("ConsumerGroupHeartbeat", lambda _number: [frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, again)]),
        Way("OffsetCommit, 1 partition", lambda number: [commit("s", number, 1)]),
        Way("OffsetCommit, 100 partitions", lambda number: [commit("s", number, 100)]),
        Way("OffsetCommit, 1 partition, 10 groups", lambda number: [commit(f"s{number % 10}", number, 1)]),
        Way("JoinGroup and SyncGroup", rejoin),
        Way("Produce, 1 record", lambda _number: [produce(batch())]),
        Way("Fetch, records at hand", lambda _number: [frame(ApiKey.FETCH, 12, fetch)]),
        Way("Transaction", transact),
    ]


async def add_rules(client: Client, count: int = RULES) -> None:
    """Rules that let the user do everything that is counted, among rules of other names and users."""
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    literal, prefixed, allow = 3, 4, 3
    rules = [
        (topic, TOPIC, literal, USER.name),
        (group, "*", literal, USER.name),
        (ResourceType.TRANSACTIONAL_ID, "*", literal, USER.name),
        (ResourceType.CLUSTER, CLUSTER_NAME, literal, USER.name),
    ]
    rules += [(topic, f"{TOPIC}{number}-", prefixed, USER.name) for number in range(count // 2)]
    rules += [(group, f"group-{number}", literal, f"user-{number}") for number in range(count - len(rules))]
    creations = [
        m.CreateAclsRequestAclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host="*",
            operation=Operation.ALL,
            permission_type=allow,
        )
        for kind, name, pattern, user in rules
    ]
    answer = await client.ask(frame(ApiKey.CREATE_ACLS, 3, m.CreateAclsRequest(creations=creations)))
    assert not any(result.error_code for result in answer.results), answer


class Time:
    """The time of the process, which stands still once it is stopped: no timer is counted on a slow machine."""

    def __init__(self) -> None:
        self._monotonic_ns, self._monotonic = time.monotonic_ns, time.monotonic
        self._stopped_ns, self._stopped_s = 0, 0.0
        time.monotonic_ns, time.monotonic = self._now_ns, self._now_s

    def _now_ns(self) -> int:
        return self._stopped_ns or self._monotonic_ns()

    def _now_s(self) -> float:
        return self._stopped_s or self._monotonic()

    def stop(self) -> None:
        self._stopped_ns = self._monotonic_ns()
        self._stopped_s = self._stopped_ns / 1e9

    def go_on(self) -> None:
        self._stopped_ns, self._stopped_s = 0, 0.0


class NotCounted:
    """Stands in for the library where callgrind is missing: the requests are sent, and must succeed."""

    def begin_count(self) -> None:
        pass

    def end_count(self, name: bytes) -> None:
        print(name.decode())


async def _count(library: ctypes.CDLL | NotCounted, *, is_secured: bool, is_observed: bool) -> None:
    now = Time()
    one_partition = dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), "1")
    secured = {"authorizer.class.name": CLASS_NAME, "super.users": str(ADMIN)} if is_secured else {}
    # The cleaner works beside requests, and is no part of any.
    undisturbed = {"group.initial.rebalance.delay.ms": "0", "log.cleaner.enable": "false"}
    config = BrokerConfig(undisturbed | one_partition | secured)
    node = Node(Settings(port=0, config=config), asyncio.get_running_loop())
    await node.start()
    client = Client(node)
    if is_secured:
        await add_rules(Client(node, ADMIN))
        client = Client(node, USER)
    counted = await ways(client)
    if is_observed:
        Kit(node, asyncio.get_running_loop()).add_fault(FaultSpec(observe=True, always=True))
    now.stop()
    for way in counted:
        steps = [way.frames(number) for number in range(WARM_UP + REQUESTS + 1)]
        last = steps.pop()
        for frames in steps[:WARM_UP]:
            for one in frames:
                await client.answer(one.data)
        library.begin_count()
        for frames in steps[WARM_UP:]:
            for one in frames:
                await client.answer(one.data)
        library.end_count(way.name.encode())
        if not all([await client.succeeds(one) for one in last]):
            raise RuntimeError(f"{way.name}: the last request failed, so the counted ones may have failed, too")


def counted(*options: str, module: str = "bench.instructions", requests: int = REQUESTS) -> dict[str, int]:
    """
    Run a module under callgrind, in a process of its own: instructions of a request by name.

    Args:
        requests: how many requests the module counts together.

    Raises:
        FileNotFoundError: valgrind or a C compiler is missing.
        subprocess.CalledProcessError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="instructions-") as work:
        library = Path(work, "instructions.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
        command = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={work}/counts",
        ]
        subprocess.run(
            [
                *(*command, sys.executable, "-m", module, "--within", str(library)),
                *options,
            ],
            check=True,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        return dict(_read(Path(work), requests))


def _read(work: Path, requests: int) -> Iterator[tuple[str, int]]:
    for path in sorted(work.glob("counts.*"), key=lambda path: int(path.suffix[1:])):
        text = path.read_text()
        name, total = _NAME.search(text), _TOTAL.search(text)
        if name and total:
            yield name[1], int(total[1]) // requests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the counts, as JSON")
    parser.add_argument("--against", type=Path, metavar="FILE", help="show the ratio to these counts")
    parser.add_argument("--secured", action="store_true", help="ask the authorizer, with 1 000 access rules")
    parser.add_argument("--observed", action="store_true", help="with one fault of the testing kit that only counts")
    parser.add_argument("--dry", action="store_true", help="send the requests without counting")
    parser.add_argument("--within", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.dry or arguments.within:
        library = NotCounted() if arguments.dry else ctypes.CDLL(arguments.within)
        asyncio.run(_count(library, is_secured=arguments.secured, is_observed=arguments.observed))
        return 0
    if shutil.which("valgrind") is None or shutil.which("cc") is None:
        print(
            "make instructions needs valgrind and a C compiler. Debian: apt-get install valgrind gcc", file=sys.stderr
        )
        return 2
    chosen = {"--secured": arguments.secured, "--observed": arguments.observed}
    counts = counted(*[option for option, is_on in chosen.items() if is_on])
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    for name, instructions in counts.items():
        ratio = f"{instructions / before[name]:8.3f}" if name in before else ""
        print(f"{name:40} {instructions:12,}{ratio}")
    if arguments.out:
        arguments.out.write_text(json.dumps(counts, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
