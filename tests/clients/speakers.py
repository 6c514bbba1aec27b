"""The clients, each with the same two verbs: write some records to a topic of one partition, and read them."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaTopicPartition
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition

from tests.clients.java_tools import JavaTools
from tests.clients.records import CODECS, Read, Record
from tests.clients.waiting import PATIENCE_S, wait_until


class Speaker(Protocol):
    """
    A client.

    Attributes:
        codecs: the compressions that it can write and read with the packages that the tests install.
    """

    codecs: tuple[str, ...]

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str) -> None:
        """Returns when all records were acknowledged by all replicas."""

    def read(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        """The first `count` records of partition 0."""


class Librdkafka:
    """confluent-kafka, with its idempotent producer."""

    codecs: tuple[str, ...] = CODECS

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str) -> None:
        refused: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "on_delivery": lambda error, _: refused.append(error) if error else None,
            }
        )
        for record in records:
            producer.produce(topic, record.value, record.key, headers=list(record.headers), partition=0)
        left = producer.flush(PATIENCE_S)
        assert (left, refused) == (0, [])

    def read(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([ConfluentTopicPartition(topic, 0, 0)])
        found: list[Read] = []

        def has_all() -> bool:
            for message in consumer.consume(count - len(found), 0.2):
                assert message.error() is None, message.error()
                kind, timestamp_ms = message.timestamp()
                assert kind == TIMESTAMP_CREATE_TIME
                record = Record(_text(message.key()), _text(message.value()), _headers(message.headers()))
                found.append(Read(message.offset(), timestamp_ms, record))
            return len(found) >= count

        wait_until(has_all, what=f"librdkafka reads {count} records of {topic}")
        consumer.close()
        return found


class Aiokafka:
    """aiokafka, with its idempotent producer."""

    codecs: tuple[str, ...] = CODECS

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str) -> None:
        asyncio.run(asyncio.wait_for(self._write(bootstrap, topic, records, codec), PATIENCE_S))

    async def _write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str) -> None:
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=compression
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    _bytes(record.value),
                    _bytes(record.key),
                    partition=0,
                    headers=[(name, value.encode()) for name, value in record.headers],
                )
                for record in records
            ]
            await asyncio.gather(*sent)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        return asyncio.run(asyncio.wait_for(self._read(bootstrap, topic, count), PATIENCE_S))

    async def _read(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            partition = AiokafkaTopicPartition(topic, 0)
            consumer.assign([partition])
            messages = [await consumer.getone(partition) for _ in range(count)]
        return [
            Read(each.offset, each.timestamp, Record(_text(each.key), _text(each.value), _headers(each.headers)))
            for each in messages
        ]


class KafkaPython:
    """kafka-python, which would need packages of its own for all compressions but one."""

    codecs: tuple[str, ...] = ("none", "gzip")

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str) -> None:
        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=compression)
        sent = [
            producer.send(
                topic,
                value=_bytes(record.value),
                key=_bytes(record.key),
                partition=0,
                headers=[(name, value.encode()) for name, value in record.headers],
            )
            for record in records
        ]
        for future in sent:
            future.get(PATIENCE_S)
        producer.close()

    def read(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        partition = KafkaPythonTopicPartition(topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.assign([partition])
        found: list[Any] = []

        def has_all() -> bool:
            found.extend(consumer.poll(timeout_ms=200).get(partition, ()))
            return len(found) >= count

        wait_until(has_all, what=f"kafka-python reads {count} records of {topic}")
        consumer.close()
        return [
            Read(each.offset, each.timestamp, Record(_text(each.key), _text(each.value), _headers(each.headers)))
            for each in found
        ]


class Java:
    """Apache Kafka's console clients; the producer is idempotent by default."""

    codecs: tuple[str, ...] = CODECS

    def __init__(self, tools: JavaTools) -> None:
        self._tools = tools

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], *, codec: str) -> None:
        lines = ["\t".join((_java_headers(each), each.key or _NULL, _or_null(each.value))) for each in records]
        properties = ("parse.key=true", "parse.headers=true", f"null.marker={_NULL}")
        self._tools.run(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
            *(part for each in properties for part in ("--reader-property", each)),
            stdin="\n".join(lines) + "\n",
        )

    def read(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        printed = ("timestamp", "offset", "headers", "key")
        properties = (*(f"print.{each}=true" for each in printed), f"null.literal={_NULL}")
        output = self._tools.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(count), "--timeout-ms", str(int(PATIENCE_S * 1000))),
            *(part for each in properties for part in ("--formatter-property", each)),
        )
        return [_java_read(line) for line in output.splitlines()]


_NULL = "<null>"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _headers(headers: Sequence[tuple[str, bytes]] | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, value.decode()) for name, value in headers or ())


def _or_null(text: str | None) -> str:
    return _NULL if text is None else text


def _java_headers(record: Record) -> str:
    return ",".join(f"{name}:{value}" for name, value in record.headers) or _NULL


def _java_read(line: str) -> Read:
    timestamp, offset, headers, key, value = line.split("\t")
    pairs = (
        ()
        if headers == "NO_HEADERS"
        else tuple((name, text) for name, text in (h.split(":") for h in headers.split(",")))
    )
    record = Record(None if key == _NULL else key, None if value == _NULL else value, pairs)
    return Read(int(offset.removeprefix("Offset:")), int(timestamp.removeprefix("CreateTime:")), record)
