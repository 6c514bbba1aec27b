"""Topics of a run: created, filled with inputs by a thread, and read back."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kohort_lab.exactly_once.processor import QUIET, RECONNECT, partition_of
from kohort_lab.exactly_once.verdict import Input, Output

KEYS: Final = 50
CALL_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 300.0
DELIVERY_TIMEOUT_MS: Final = 300_000
TICK_SECONDS: Final = 0.02
NOT_YET: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""Of a coordinator after a start, or of another node."""


def create(bootstrap: str, partitions_of: dict[str, int]) -> None:
    """
    Create topics with one replica.

    Raises:
        KafkaException: the broker refused a topic.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [NewTopic(name, partitions, 1) for name, partitions in partitions_of.items()]
    for created in admin.create_topics(wanted).values():
        created.result(CALL_SECONDS)


class Feeder(threading.Thread):
    """
    Produces inputs at a steady rate with an idempotent producer, until stopped.

    Attributes:
        acknowledged: number of acknowledged inputs.
        failed: the first error of a delivery.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.failed: KafkaError | None = None
        self._topic, self._partitions, self._per_second = topic, partitions, per_second
        self._stopped = threading.Event()
        settings = {"enable.idempotence": True, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "linger.ms": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings, **RECONNECT, **QUIET})

    def run(self) -> None:
        begun, sent = time.monotonic(), 0
        while not self._stopped.wait(TICK_SECONDS):
            due = int((time.monotonic() - begun) * self._per_second)
            for number in range(sent, due):
                key = f"key-{number % KEYS}".encode()
                partition = partition_of(key, self._partitions)
                self._producer.produce(self._topic, str(number), key, partition, self._delivered)
            sent = due
            self._producer.poll(0)

    def stop(self) -> None:
        """Stop, and wait until everything is acknowledged."""
        self._stopped.set()
        self.join()
        self._producer.flush(PATIENCE_SECONDS)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self.failed is None:
            self.failed = error


def end_offsets(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The high watermark of each partition. Partitions may get other leaders meanwhile."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **RECONNECT, **QUIET})
    where = [TopicPartition(topic, partition) for partition in range(partitions)]
    deadline = time.monotonic() + CALL_SECONDS
    while True:
        listed = admin.list_offsets({each: OffsetSpec.latest() for each in where})
        try:
            return {each.partition: listed[each].result(CALL_SECONDS).offset for each in where}
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(TICK_SECONDS)


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int] | None:
    """
    The committed offset of each partition that has one; None while the coordinator cannot say, because the broker was killed.

    A consumer asks. The process of an administrator of librdkafka ends with SIGSEGV if the answer is NOT_COORDINATOR
    (librdkafka issue 5040).

    Raises:
        KafkaException: the broker refused the question for another reason.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **RECONNECT, **QUIET})
    try:
        found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], CALL_SECONDS)
    except KafkaException as error:
        if error.args[0].code() in NOT_YET:
            return None
        raise
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def read_inputs(bootstrap: str, topic: str, partitions: int) -> Iterator[Input]:
    for message in read(bootstrap, topic, partitions):
        yield Input(message.partition(), message.offset(), message.key().decode())


def read_outputs(bootstrap: str, topic: str, partitions: int) -> Iterator[Output]:
    for message in read(bootstrap, topic, partitions):
        partition, offset = json.loads(message.value())
        yield Output(message.partition(), message.offset(), message.key().decode(), (partition, offset))


def read(bootstrap: str, topic: str, partitions: int) -> Iterator[Message]:
    """
    Read committed records of all partitions, up to their last stable offsets.

    Raises:
        KafkaException: a partition cannot be read, or the broker does not answer.
    """
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **settings, **RECONNECT, **QUIET})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    left = set(range(partitions))
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while left:
            messages = consumer.consume(10_000, 1.0)
            if not messages and time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"partitions {sorted(left)} of {topic}"))
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
