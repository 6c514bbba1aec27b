"""
Consumers of each client that read a partition in either isolation level.

They read up to a record with the value `END`, which tests produce outside transactions after everything else. So a test does
not depend on how a client counts the offsets of transaction markers.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaTopicPartition
from confluent_kafka import Consumer, IsolationLevel, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition

from tests.clients.jvm import Jvm
from tests.clients.waiting import PATIENCE_S, wait_until

END = "the end"
ISOLATIONS = ("read_committed", "read_uncommitted")
POLL_MS = 200

Read = Callable[[str, str, int, str], list[str]]
"""Values of a partition before `END`. Arguments: bootstrap address, topic, partition, isolation level."""


def write_end(bootstrap: str, topic: str, *partitions: int) -> None:
    """Append a record outside transactions to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for partition in partitions:
        producer.produce(topic, END, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def last_stable_offset(bootstrap: str, topic: str, partition: int = 0) -> int:
    return _latest(bootstrap, topic, partition, IsolationLevel.READ_COMMITTED)


def high_watermark(bootstrap: str, topic: str, partition: int = 0) -> int:
    return _latest(bootstrap, topic, partition, IsolationLevel.READ_UNCOMMITTED)


def _latest(bootstrap: str, topic: str, partition: int, isolation: IsolationLevel) -> int:
    where = ConfluentTopicPartition(topic, partition)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=isolation)
    return int(listed[where].result(PATIENCE_S).offset)


def with_librdkafka(bootstrap: str, topic: str, partition: int, isolation: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([ConfluentTopicPartition(topic, partition, 0)])
    found: list[str] = []

    def has_ended() -> bool:
        for message in consumer.consume(1_000, POLL_MS / 1_000):
            assert message.error() is None, message.error()
            found.append(message.value().decode())
        return END in found

    wait_until(has_ended, what=lambda: f"librdkafka reads {topic} to its end; it has {found}")
    consumer.close()
    return found[: found.index(END)]


def with_aiokafka(bootstrap: str, topic: str, partition: int, isolation: str) -> list[str]:
    async def read() -> list[str]:
        found: list[str] = []
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
            where = AiokafkaTopicPartition(topic, partition)
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            while END not in found:
                found.append((await consumer.getone(where)).value.decode())
        return found[:-1]

    return asyncio.run(asyncio.wait_for(read(), PATIENCE_S))


def with_kafka_python(bootstrap: str, topic: str, partition: int, isolation: str) -> list[str]:
    where = KafkaPythonTopicPartition(topic, partition)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    consumer.assign([where])
    found: list[str] = []

    def has_ended() -> bool:
        found.extend(each.value.decode() for each in consumer.poll(timeout_ms=POLL_MS).get(where, ()))
        return END in found

    wait_until(has_ended, what=lambda: f"kafka-python reads {topic} to its end; it has {found}")
    consumer.close()
    return found[: found.index(END)]


def with_java(jvm: Jvm) -> Read:
    def read(bootstrap: str, topic: str, partition: int, isolation: str) -> list[str]:
        deserializer = "org.apache.kafka.common.serialization.StringDeserializer"
        settings = jvm.properties(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit="false",
            isolation_level=isolation,
            key_deserializer=deserializer,
            value_deserializer=deserializer,
        )
        kafka: Any = jvm.classes.org.apache.kafka
        consumer = kafka.clients.consumer.KafkaConsumer(settings)
        consumer.assign([kafka.common.TopicPartition(topic, partition)])
        poll = jvm.classes.java.time.Duration.ofMillis(POLL_MS)
        found: list[str] = []

        def has_ended() -> bool:
            records = consumer.poll(poll).iterator()
            while records.hasNext():
                found.append(records.next().value())
            return END in found

        wait_until(has_ended, what=lambda: f"the Java consumer reads {topic} to its end; it has {found}")
        consumer.close()
        return found[: found.index(END)]

    return read


PYTHON_READERS: dict[str, Read] = {
    "librdkafka": with_librdkafka,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
}
