"""An offset that one client commits is the same for every other, with its metadata and its leader epoch."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition
from kafka.errors import OffsetMetadataTooLargeError
from kafka.structs import OffsetAndMetadata

from tests.clients.conftest import Broker
from tests.clients.java_tools import CONSUMER_GROUPS, JavaTools
from tests.clients.kohort_command import kohort_json
from tests.clients.waiting import PATIENCE_S

OFFSET = 7
METADATA = "checked ✓"
METADATA_BYTES_MAX = 4_096
"""Configuration `offset.metadata.max.bytes`, whose default Kohort shares."""

Committed = tuple[int, str | None]
"""Offset and metadata; None where the client does not show it (confluent-kafka reads beyond the end of what it was sent)."""


def commit_with_librdkafka(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offset = ConfluentTopicPartition(topic, 0, OFFSET, METADATA, 0)
    (committed,) = consumer.commit(offsets=[offset], asynchronous=False)
    assert committed.error is None
    consumer.close()


def commit_with_librdkafka_admin(bootstrap: str, group: str, topic: str) -> None:
    request = ConsumerGroupTopicPartitions(group, [ConfluentTopicPartition(topic, 0, OFFSET, METADATA, 0)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_consumer_group_offsets([request])[group].result(PATIENCE_S)


def commit_with_aiokafka(bootstrap: str, group: str, topic: str) -> None:
    async def commit() -> None:
        partition = AiokafkaTopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False) as consumer:
            consumer.assign([partition])
            await consumer.commit({partition: (OFFSET, METADATA)})

    asyncio.run(asyncio.wait_for(commit(), PATIENCE_S))


def commit_with_kafka_python(bootstrap: str, group: str, topic: str) -> None:
    partition = KafkaPythonTopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(OFFSET, METADATA, 0)})
    consumer.close()


def read_with_librdkafka(bootstrap: str, group: str, topic: str) -> Committed:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (committed,) = consumer.committed([ConfluentTopicPartition(topic, 0)], PATIENCE_S)
    consumer.close()
    return committed.offset, None


def read_with_librdkafka_admin(bootstrap: str, group: str, topic: str) -> Committed:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(PATIENCE_S)
    (committed,) = listed.topic_partitions
    assert (committed.topic, committed.partition, committed.error) == (topic, 0, None)
    return committed.offset, None


def read_with_aiokafka(bootstrap: str, group: str, topic: str) -> Committed:
    async def read() -> Committed:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        listed = await admin.list_consumer_group_offsets(group)
        await admin.close()
        committed = listed[AiokafkaTopicPartition(topic, 0)]
        return committed.offset, committed.metadata

    return asyncio.run(asyncio.wait_for(read(), PATIENCE_S))


def read_with_kafka_python(bootstrap: str, group: str, topic: str) -> Committed:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    committed = admin.list_group_offsets({group: None})[group][KafkaPythonTopicPartition(topic, 0)]
    admin.close()
    return committed.offset, committed.metadata


def read_with_kohort(bootstrap: str, group: str, topic: str) -> Committed:
    (row,) = kohort_json("offsets", group, bootstrap=bootstrap)
    assert (row["group"], row["topic"], row["partition"]) == (group, topic, 0)
    return row["offset"], row["metadata"]


TERMINATED = METADATA + "\0"
"""confluent-kafka sends the byte that ends the text in C."""

COMMITS = {
    "librdkafka": (commit_with_librdkafka, TERMINATED),
    "librdkafka-admin": (commit_with_librdkafka_admin, TERMINATED),
    "aiokafka": (commit_with_aiokafka, METADATA),
    "kafka-python": (commit_with_kafka_python, METADATA),
}
READS = (
    read_with_librdkafka,
    read_with_librdkafka_admin,
    read_with_aiokafka,
    read_with_kafka_python,
    read_with_kohort,
)


@pytest.mark.parametrize("client", COMMITS)
def test_a_committed_offset_is_the_same_for_every_client(
    broker: Broker, make_topic: Callable[..., str], group: str, client: str
) -> None:
    topic = make_topic()
    commit, metadata = COMMITS[client]
    commit(broker.bootstrap, group, topic)
    read = {reader.__name__: reader(broker.bootstrap, group, topic) for reader in READS}
    assert {offset for offset, _ in read.values()} == {OFFSET}
    assert {text for _, text in read.values() if text is not None} == {metadata}


def test_a_leader_epoch_is_kept_and_its_absence_is_minus_one(
    broker: Broker, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    offsets = [ConfluentTopicPartition(topic, 0, 5, "", 3), ConfluentTopicPartition(topic, 1, 6)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result(PATIENCE_S)
    rows = kohort_json("offsets", group, bootstrap=broker.bootstrap)
    assert [(row["partition"], row["offset"], row["leader_epoch"]) for row in rows] == [(0, 5, 3), (1, 6, -1)]


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_metadata_may_be_as_long_as_configured(
    broker: Broker, make_topic: Callable[..., str], group: str, excess: int
) -> None:
    partition = KafkaPythonTopicPartition(make_topic(), 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([partition])
    offset = {partition: OffsetAndMetadata(1, "m" * (METADATA_BYTES_MAX + excess), -1)}
    if excess <= 0:
        consumer.commit(offset)
    else:
        with pytest.raises(OffsetMetadataTooLargeError):
            consumer.commit(offset)
    consumer.close()


def test_the_newest_commit_counts(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    for offset in (9, 3, 5):
        consumer.commit(offsets=[ConfluentTopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    assert read_with_librdkafka(broker.bootstrap, group, topic) == (5, None)


def test_the_java_tool_sees_and_moves_offsets(
    broker: Broker, make_topic: Callable[..., str], java: JavaTools, group: str
) -> None:
    topic = make_topic()
    commit_with_kafka_python(broker.bootstrap, group, topic)
    words = ("--bootstrap-server", broker.bootstrap, "--group", group)

    described = java.run(CONSUMER_GROUPS, *words, "--describe", "--offsets")
    assert ["".join(group), topic, "0", str(OFFSET), "0"] == described.split("LAG")[-1].split("CLIENT-ID")[-1].split()[
        :5
    ]

    reset = ("--reset-offsets", "--to-offset", "0", "--topic", topic)
    java.run(CONSUMER_GROUPS, *words, *reset, "--dry-run")
    assert read_with_librdkafka(broker.bootstrap, group, topic) == (OFFSET, None)
    java.run(CONSUMER_GROUPS, *words, *reset, "--execute")
    assert read_with_librdkafka(broker.bootstrap, group, topic) == (0, None)

    java.run(CONSUMER_GROUPS, *words, "--delete-offsets", "--topic", topic)
    assert read_with_librdkafka(broker.bootstrap, group, topic)[0] < 0
