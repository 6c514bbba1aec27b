"""Transactions through a node: coordinator, partition leaders, markers and readers together."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ErrorCode
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.conftest import LONG
from tests.server.clients import SECONDS_MAX, Client

PARTITIONS = 4
ROUNDS = 20

Story = Callable[[Callable[[], Awaitable[Client]]], Awaitable[None]]


def play(story: Story, data_dir: Path | None) -> None:
    """Run a story against a node with a topic `t`, in memory or on disk."""

    async def run() -> None:
        # A slow disk may take longer to end a transaction than clients are made to wait.
        config = BrokerConfig({"add.partitions.to.txn.retry.backoff.max.ms": "60000"})
        settings = Settings(port=0, data_dir=data_dir, config=config)
        node = Node(settings, asyncio.get_running_loop())
        host, port = await node.start()
        clients: list[Client] = []

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection(host, port)))
            return clients[-1]

        try:
            async with asyncio.timeout(SECONDS_MAX):
                client = await connect()
                topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
                await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
                await story(connect)
        finally:
            await node.stop()
            for client in clients:
                client.writer.close()

    asyncio.run(run())


@pytest.fixture(params=["memory", "disk"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == "disk" else None


async def new_producer(client: Client, transactional_id: str) -> tuple[int, int]:
    find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    while (await client.ask(ApiKey.FIND_COORDINATOR, 4, find)).coordinators[0].error_code:
        pass
    request = m.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    while (answer := await client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)).error_code in _NOT_YET:
        pass
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def data(producer: tuple[int, int], sequence: int = 0) -> bytes:
    producer_id, epoch = producer
    return batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)


def codes(response: m.ProduceResponse) -> set[int]:
    return {partition.error_code for topic in response.responses for partition in topic.partition_responses}


async def end(client: Client, transactional_id: str, producer: tuple[int, int], *, committed: bool) -> tuple[int, int]:
    request = m.EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    answer = await client.ask(ApiKey.END_TXN, 5, request)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def test_transactions_of_version_2_follow_one_another_without_a_pause(data_dir: Path | None) -> None:
    """
    The first batches of a transaction arrive while the markers of the one before are written: their partitions are added, and
    none of them is refused for a verification from before the marker. All answers are those of a first attempt.
    """

    async def story(connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        producer = await new_producer(client, "tx")
        for number in range(ROUNDS):
            records: dict[int, bytes | None] = {index: data(producer) for index in range(PARTITIONS)}
            request = produce_request("t", records, transactional_id="tx")
            assert codes(await client.ask(ApiKey.PRODUCE, 12, request)) == {0}
            producer = await end(client, "tx", producer, committed=number % 3 > 0)

    play(story, data_dir)


def test_batches_in_flight_are_appended_in_order(data_dir: Path | None) -> None:
    """A producer sends several requests of a new transaction to a partition before the first one is answered."""

    async def story(connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        producer = await new_producer(client, "tx")
        for number in range(ROUNDS):
            for sequence in range(5):
                request = produce_request("t", {0: data(producer, sequence)}, transactional_id="tx")
                client.send(ApiKey.PRODUCE, 12, request)
            answers = [(await client.receive(ApiKey.PRODUCE, 12))[1] for _ in range(5)]
            assert [codes(answer) for answer in answers] == [{0}] * 5
            producer = await end(client, "tx", producer, committed=number % 3 > 0)

    play(story, data_dir)


def test_a_partition_is_verified_while_another_one_is_added(data_dir: Path | None) -> None:
    """KAFKA-14904: an append of the coordinator for one partition does not make the verification of another one fail."""

    async def story(connect: Callable[[], Awaitable[Client]]) -> None:
        client, leader = await connect(), await connect()
        producer = await new_producer(client, "tx")
        for number in range(ROUNDS):
            for index in range(PARTITIONS - 1):
                topics = [m.AddPartitionsToTxnTopic(name="t", partitions=[index])]
                request = m.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id="tx",
                    v3_and_below_producer_id=producer[0],
                    v3_and_below_producer_epoch=producer[1],
                    v3_and_below_topics=topics,
                )
                answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
                assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
                topics = [m.AddPartitionsToTxnTopic(name="t", partitions=[index + 1])]
                added = m.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id="tx",
                    v3_and_below_producer_id=producer[0],
                    v3_and_below_producer_epoch=producer[1],
                    v3_and_below_topics=topics,
                )
                client.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
                written = produce_request("t", {index: data(producer)}, transactional_id="tx")
                assert codes(await leader.ask(ApiKey.PRODUCE, 11, written)) == {0}
                await client.receive(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
            producer = await end(client, "tx", producer, committed=number % 3 > 0)

    play(story, data_dir)


STEPS = 2000 if LONG else 150
IDS = ("tx-a", "tx-b", "tx-c")


async def last_offsets(client: Client, isolation_level: int) -> list[int]:
    partitions = [
        m.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
        for index in range(PARTITIONS)
    ]
    topic = m.ListOffsetsTopic(name="t", partitions=partitions)
    request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic], timeout_ms=1000)
    answer = await client.ask(ApiKey.LIST_OFFSETS, 8, request)
    return [found.offset for found in sorted(answer.topics[0].partitions, key=lambda found: found.partition_index)]


def test_no_transaction_is_left_open(data_dir: Path | None, rng: Random) -> None:
    """
    Batches of several producers race with the ends of their transactions and with their successors, on their own connections:
    some come late, some have an old epoch, some belong to no transaction. Nothing that was appended may stay undecided.
    """

    async def story(connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        writers = {name: await connect() for name in IDS}
        unanswered = dict.fromkeys(IDS, 0)
        producers = {name: await new_producer(client, name) for name in IDS}
        sequences: dict[tuple[str, int, int], int] = {}
        appended = 0

        async def receive(name: str) -> None:
            nonlocal appended
            while unanswered[name]:
                unanswered[name] -= 1
                appended += codes((await writers[name].receive(ApiKey.PRODUCE, 12))[1]) == {0}

        for _ in range(STEPS):
            name = rng.choice(IDS)
            producer_id, epoch = producers[name]
            match rng.choices(["write", "end", "begin", "receive"], [10, 3, 1, 4])[0]:
                case "write":
                    index = rng.randrange(PARTITIONS)
                    place = (name, epoch, index)
                    sequence = sequences.get(place, 0)
                    sequences[place] = sequence + 1
                    late = rng.random() < 0.1
                    records = data((producer_id, max(epoch - late, 0)), sequence)
                    request = produce_request("t", {index: records}, transactional_id=name)
                    writers[name].send(ApiKey.PRODUCE, 12, request)
                    unanswered[name] += 1
                case "end":
                    end_txn = m.EndTxnRequest(
                        transactional_id=name,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        committed=rng.random() < 0.5,
                    )
                    answer = await client.ask(ApiKey.END_TXN, 5, end_txn)
                    if answer.error_code == 0:
                        producers[name] = answer.producer_id, answer.producer_epoch
                case "begin":
                    producers[name] = await new_producer(client, name)
                case _:
                    await receive(name)
        for name in IDS:
            await receive(name)
            await new_producer(client, name)
        assert appended > STEPS / 10
        assert await last_offsets(client, 1) == await last_offsets(client, 0)

    play(story, data_dir)
