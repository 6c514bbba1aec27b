"""
Clients survive the stop of each of three brokers in turn: virtual brokers of one process, and nodes that share a store.

An idempotent producer writes while brokers stop and start; every acknowledged record is read once. Groups of both protocols go
on at the next coordinator with their committed offsets.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from kohort.broker.records.fetch_broker import RACK_AWARE
from kohort.client.cluster import Client
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.conftest import QUICK_REBALANCES
from tests.clients.java_tools import JavaTools
from tests.clients.served_nodes import ServedNodes
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY
from tests.storage.database import Database

BROKERS = (1, 2, 3)
RACKS = ("a", "b", "c")
PARTITIONS = 3
Cluster: TypeAlias = ServedKohort | ServedNodes
ROUND = 300
"""Records that are written around each stop and each start."""


@pytest.fixture(scope="module", params=["virtual", "nodes"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp(request.param)
    properties = QUICK_REBALANCES | {"replica.selector.class": RACK_AWARE}
    if request.param == "virtual":
        with ServedKohort(directory, properties, brokers=len(BROKERS), racks=RACKS) as served:
            yield served
        return
    database = Database().make_store()
    with ServedNodes(directory, properties, database.url, RACKS) as nodes:
        yield nodes
    database.close()


def create(cluster: Cluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, len(BROKERS))])[name].result(PATIENCE_S)
    return name


def roll(cluster: Cluster, between: Callable[[], None]) -> None:
    """Stop and start each broker in turn."""
    for broker in BROKERS:
        cluster.stop_broker(broker)
        between()
        cluster.start_broker(broker)
        between()


class Writer:
    """An idempotent librdkafka producer that counts its records from 0."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._next = 0
        self.acknowledged: set[int] = set()
        self.refused: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 10}
        )

    def write(self) -> None:
        for number in range(self._next, self._next + ROUND):
            self._producer.produce(
                self._topic, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._on
            )
        self._next += ROUND
        self._producer.poll(0)

    def _on(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged.add(int(message.value() or b""))

    def flush(self) -> int:
        """Wait until all records are acknowledged; their number."""
        assert (self._producer.flush(PATIENCE_S), self.refused) == (0, [])
        assert self.acknowledged == set(range(self._next))
        return self._next


ONLY_VIRTUAL = pytest.mark.parametrize("cluster", ["virtual"], indirect=True)
"""For what is about one process: nodes are read from at the leader, and spread leaders by themselves."""
NODES_AT_NIGHT = pytest.mark.parametrize("cluster", ["virtual", pytest.param("nodes", marks=NIGHTLY)], indirect=True)


def committed(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """The committed offsets. A coordinator may have moved where the node that is asked has not heard of it yet."""
    found: list[TopicPartition] = []

    def ask() -> bool:
        try:
            found[:] = consumer.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    wait_until(ask, what="the coordinator")
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_neither_loses_nor_repeats_a_record(cluster: Cluster, protocol: str) -> None:
    topic = create(cluster, f"rolled-{protocol}")
    writer = Writer(cluster, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe([topic])
    read: list[int] = []

    def count_read() -> int:
        read.extend(int(message.value() or b"") for message in consumer.consume(ROUND, 0.1) if message.error() is None)
        return len(read)

    def write_and_read() -> None:
        writer.write()
        had = len(read)
        wait_until(lambda: count_read() >= had + ROUND // 2, what="half of what was written")

    writer.write()
    roll(cluster, write_and_read)
    count = writer.flush()
    wait_until(lambda: count_read() >= count, what=lambda: f"{len(read)} of {count} records")
    assert sorted(read) == list(range(count))
    consumer.commit(asynchronous=False)
    consumer.close()
    again = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "group.protocol": protocol})
    for broker in BROKERS:
        cluster.stop_broker(broker)
        assert sum(place.offset for place in committed(again, topic)) == count
        cluster.start_broker(broker)
    again.close()


@NODES_AT_NIGHT
def test_aiokafka_writes_and_reads_through_a_roll(cluster: Cluster) -> None:
    topic = create(cluster, "rolled-aiokafka")

    async def story() -> list[int]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True, retry_backoff_ms=20)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            retry_backoff_ms=20,
        )
        await producer.start()
        await consumer.start()
        read: list[int] = []
        written = 0
        for broker in BROKERS:
            for change in (cluster.stop_broker, cluster.start_broker):
                await asyncio.to_thread(change, broker)
                for number in range(written, written + 10):
                    await producer.send_and_wait(topic, str(number).encode(), partition=number % PARTITIONS)
                written += 10
        while len(read) < written:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            read.append(int(message.value))
        await consumer.commit()
        await consumer.stop()
        await producer.stop()
        return read

    read = asyncio.run(story())
    assert sorted(read) == list(range(60))


@NODES_AT_NIGHT
def test_kafka_python_writes_and_reads_through_a_roll(cluster: Cluster) -> None:
    topic = create(cluster, "rolled-kafka-python")
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","), acks="all", retries=1000, retry_backoff_ms=20
    )
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap.split(","),
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=20,
    )
    written: list[int] = []
    read: list[int] = []

    def write() -> None:
        sent = [
            producer.send(topic, str(len(written) + number).encode(), partition=number % PARTITIONS)
            for number in range(9)
        ]
        for future in sent:
            future.get(PATIENCE_S)
        written.extend(range(len(written), len(written) + len(sent)))

    def values_read() -> set[int]:
        for messages in consumer.poll(100).values():
            read.extend(int(message.value) for message in messages)
        return set(read)

    write()
    roll(cluster, write)
    # A producer without sequence numbers may repeat a record whose acknowledgement was lost, as with Apache Kafka.
    wait_until(lambda: values_read() == set(written), what="all records")
    consumer.commit()
    consumer.close()
    producer.close()


LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


@NIGHTLY
@ONLY_VIRTUAL
def test_kafkas_tools_move_leaders_and_replicas(cluster: Cluster, java: JavaTools, tmp_path: Path) -> None:
    topic = create(cluster, "moved-by-tools")
    where = ("--bootstrap-server", cluster.bootstrap)
    for broker in BROKERS:
        cluster.stop_broker(broker)
        cluster.start_broker(broker)
    elected = java.run(LEADER_ELECTION, *where, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    described = java.run(TOPICS, *where, "--describe", "--topic", topic)
    found = re.findall(r"Leader: (\d)\s+Replicas: (\d),", described)
    assert len(found) == PARTITIONS
    assert all(leader == preferred for leader, preferred in found), described
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    file = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    assert "Successfully started partition reassignment" in java.run(REASSIGN, *where, *file, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed." in java.run(REASSIGN, *where, *file, "--verify")
    described = java.run(TOPICS, *where, "--describe", "--topic", topic)
    assert re.search(r"Partition: 0\s+Leader: 3\s+Replicas: 3\s+Isr: 3\b", described), described
    quorum = java.run(QUORUM, *where, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", quorum), quorum


def test_transactions_of_librdkafka_are_whole_through_a_roll(cluster: Cluster) -> None:
    topic = create(cluster, "rolled-transactions")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "retry.backoff.ms": 10})
    producer.init_transactions(PATIENCE_S)
    written = 0

    def transact() -> None:
        nonlocal written
        for is_committed in (True, False, True):
            producer.begin_transaction()
            for number in range(written, written + PARTITIONS):
                value = str(number) if is_committed else "aborted"
                producer.produce(topic, value.encode(), partition=number % PARTITIONS)
            if is_committed:
                producer.commit_transaction(PATIENCE_S)
                written += PARTITIONS
            else:
                producer.abort_transaction(PATIENCE_S)

    roll(cluster, transact)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read: list[int] = []

    def count_read() -> int:
        read.extend(int(message.value() or b"") for message in consumer.consume(ROUND, 0.1) if message.error() is None)
        return len(read)

    wait_until(lambda: count_read() >= written, what=lambda: f"{len(read)} of {written} records")
    assert sorted(read) == list(range(written))
    consumer.close()


@ONLY_VIRTUAL
def test_librdkafka_fetches_from_the_replica_in_its_rack(cluster: Cluster) -> None:
    topic = create(cluster, "fetched-nearby")
    writer = Writer(cluster, topic)
    writer.write()
    fetched_from: dict[str, int] = {}
    led_by: set[int] = set()

    def on_statistics(text: str) -> None:
        for index, partition in json.loads(text)["topics"].get(topic, {"partitions": {}})["partitions"].items():
            fetched_from[index] = partition["broker"]
            led_by.add(partition["leader"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "client.rack": "b",
            "statistics.interval.ms": 100,
            "stats_cb": on_statistics,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read: list[int] = []

    def is_near() -> bool:
        read.extend(int(message.value() or b"") for message in consumer.consume(ROUND, 0.1) if message.error() is None)
        return [fetched_from.get(str(index)) for index in range(PARTITIONS)] == [2] * PARTITIONS

    def has_all(count: int) -> bool:
        is_near()
        return len(read) >= count

    wait_until(is_near, what=lambda: f"fetches from {fetched_from}")
    assert led_by >= set(BROKERS)
    cluster.stop_broker(2)
    writer.write()
    count = writer.flush()
    wait_until(lambda: has_all(count), what=lambda: f"{len(read)} of {count} records")
    assert sorted(read) == list(range(count))
    cluster.start_broker(2)
    consumer.close()


@NIGHTLY
def test_a_killed_process_starts_with_all_brokers_and_all_records(cluster: Cluster) -> None:
    topic = create(cluster, "killed")
    writer = Writer(cluster, topic)
    writer.write()
    count = writer.flush()
    cluster.stop_broker(2)
    before = leaders(cluster, topic)
    cluster.kill()
    cluster.start()
    wait_until(
        lambda: all(isr == len(BROKERS) for *_, isr in leaders(cluster, topic).values()),
        what="the broker that was stopped",
    )
    after = leaders(cluster, topic)
    elections = 2 if isinstance(cluster, ServedKohort) else 1
    assert all(after[index][1] >= before[index][1] + elections for index in before)
    writer.write()
    assert writer.flush() == count + ROUND
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read: list[int] = []

    def count_read() -> int:
        read.extend(int(message.value() or b"") for message in consumer.consume(ROUND, 0.1) if message.error() is None)
        return len(read)

    wait_until(lambda: count_read() >= count + ROUND, what=lambda: f"{len(read)} records")
    assert sorted(read) == list(range(count + ROUND))
    consumer.close()


def leaders(cluster: Cluster, topic: str) -> dict[int, tuple[int, int, int]]:
    """By partition: leader, leader epoch and the number of in-sync replicas."""
    with Client(cluster.bootstrap) as client:
        request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)])
        (found,) = client.send(ApiKey.METADATA, request).topics
    return {
        partition.partition_index: (partition.leader_id, partition.leader_epoch, len(partition.isr_nodes))
        for partition in found.partitions
    }
