"""Transactional producers of each client, with the same verbs."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from py4j.protocol import Py4JJavaError

from tests.clients.jvm import Jvm
from tests.clients.waiting import PATIENCE_S

PATIENCE_MS = PATIENCE_S * 1_000
TIMEOUT_MS = 60_000
RECOVERY = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500}
"""
By default librdkafka (2.16) forgets its brokers when none is connected, and starts again from the bootstrap list. Its cache of
group coordinators keeps the forgotten one, so after a restart of the only broker `send_offsets_to_transaction` never returns.
"""


class RefusedError(Exception):
    """The client reported that the broker refused a step of a transaction."""


class TransactionalProducer(Protocol):
    """A producer with a transactional id. Every verb may raise `RefusedError`."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str) -> None:
        """Returns when the record is acknowledged."""

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        """Returns when the offset is accepted."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._bootstrap = bootstrap
        settings = {"transaction.timeout.ms": timeout_ms, "linger.ms": 0, "log_level": 2, **RECOVERY}
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
        with self._translated():
            self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        with self._translated():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                refused.append(error)

        with self._translated():
            self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
            assert self._producer.flush(PATIENCE_S) == 0
            if refused:
                raise KafkaException(refused[0])

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        with self._translated():
            offsets = [ConfluentTopicPartition(topic, partition, offset)]
            self._producer.send_offsets_to_transaction(offsets, metadata, PATIENCE_S)
        consumer.close()

    def commit(self) -> None:
        with self._translated():
            self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        with self._translated():
            self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        """A producer of librdkafka ends when it is collected."""

    @staticmethod
    @contextmanager
    def _translated() -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            raise RefusedError(str(exc)) from exc
        except SystemError as exc:
            # confluent-kafka sets the exception of a fatal error before it calls the delivery callback, whose first call fails.
            if not isinstance(exc.__cause__, KafkaException):
                raise
            raise RefusedError(str(exc.__cause__)) from exc


class Aiokafka:
    """aiokafka, on an event loop in a thread of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: Any = self._run(self._started(bootstrap, transactional_id, timeout_ms))

    async def _started(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        offsets = {AiokafkaTopicPartition(topic, partition): offset}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)
        except aiokafka.errors.KafkaError as exc:
            raise RefusedError(str(exc)) from exc


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        with self._translated():
            self._producer.init_transactions()

    def begin(self) -> None:
        with self._translated():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        with self._translated():
            self._producer.send(topic, value.encode(), partition=partition).get(PATIENCE_S)

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        offsets = {KafkaPythonTopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        metadata = ConsumerGroupMetadata(group, -1, "", None, None)
        with self._translated():
            self._producer.send_offsets_to_transaction(offsets, metadata)

    def commit(self) -> None:
        with self._translated():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._translated():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()

    @staticmethod
    @contextmanager
    def _translated() -> Iterator[None]:
        try:
            yield
        except kafka.errors.KafkaError as exc:
            raise RefusedError(str(exc)) from exc


class Java:
    """Apache Kafka's KafkaProducer."""

    def __init__(self, jvm: Jvm, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._kafka = jvm.classes.org.apache.kafka
        self._java = jvm.classes.java
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        settings = jvm.properties(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=str(timeout_ms),
            max_block_ms=str(PATIENCE_MS),
            key_serializer=serializer,
            value_serializer=serializer,
        )
        self._producer = self._kafka.clients.producer.KafkaProducer(settings)
        with self._translated():
            self._producer.initTransactions()

    def begin(self) -> None:
        with self._translated():
            self._producer.beginTransaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        record = self._kafka.clients.producer.ProducerRecord(topic, partition, None, value)
        with self._translated():
            self._producer.send(record).get()

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        position = self._kafka.clients.consumer.OffsetAndMetadata(offset)
        offsets = {self._kafka.common.TopicPartition(topic, partition): position}
        metadata = self._kafka.clients.consumer.ConsumerGroupMetadata(group)
        with self._translated():
            self._producer.sendOffsetsToTransaction(offsets, metadata)

    def commit(self) -> None:
        with self._translated():
            self._producer.commitTransaction()

    def abort(self) -> None:
        with self._translated():
            self._producer.abortTransaction()

    def close(self) -> None:
        self._producer.close(self._java.time.Duration.ofMillis(0))

    @staticmethod
    @contextmanager
    def _translated() -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as exc:
            raise RefusedError(str(exc.java_exception)) from exc


Factory = Callable[..., TransactionalProducer]
"""Makes a producer from bootstrap address, transactional id and optionally its transaction timeout in ms."""

PYTHON_CLIENTS: dict[str, Factory] = {"librdkafka": Librdkafka, "aiokafka": Aiokafka, "kafka-python": KafkaPython}
CLIENTS = (*PYTHON_CLIENTS, "java")


@contextmanager
def opened(factory: Factory, *arguments: Any) -> Iterator[TransactionalProducer]:
    """A producer that is closed at the end, also in the middle of a transaction or after it was fenced."""
    producer = factory(*arguments)
    try:
        yield producer
    finally:
        with suppress(RefusedError):
            producer.close()
