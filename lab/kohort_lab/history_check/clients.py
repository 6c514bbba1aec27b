"""
One producer or one member of a group, in a process of its own, with one of the client libraries.

Prints a line of JSON for each fact:

    {"acknowledged": [partition, offset, value]}       the broker has acknowledged a record
    {"read": [partition, offset, value]}               before its offset is committed
    {"committed": [time, {partition: offset}]}         a commit has succeeded; seconds of the monotonic clock
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kohort_lab.exactly_once.processor import QUIET, RECONNECT

POLL_MS: Final = 100
DELIVERY_TIMEOUT_MS: Final = 600_000
"""A producer never gives up a record; the records of a producer that has failed are not judged as lost."""
REQUEST_TIMEOUT_MS: Final = 5_000
BATCH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Job:
    """
    Attributes:
        name: of the producer or member.
        client: a key of `PRODUCERS` or `MEMBERS`.
        protocol: the group protocol, `classic` or `consumer` (KIP-848).
        instance: the instance id of a static member (KIP-345); empty for a dynamic one.
        per_second: records of a producer per second.
    """

    role: str
    name: str
    client: str
    bootstrap: str
    topic: str
    partitions: int = 0
    group: str = ""
    protocol: str = "classic"
    instance: str = ""
    session_timeout_ms: int = 0
    per_second: int = 0

    @property
    def command(self) -> Sequence[str]:
        """The process that does the job."""
        return (sys.executable, "-m", "kohort_lab.history_check.clients", json.dumps(asdict(self)))


class Stop:
    """Whether the process was asked to end, by SIGTERM."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self.is_asked = True


def say(**fact: Any) -> None:
    """Print one fact; the newline in front ends what a killed process may have left."""
    sys.stdout.write("\n" + json.dumps(fact) + "\n")
    sys.stdout.flush()


def say_read(messages: Iterable[tuple[int, int, bytes]]) -> None:
    """Print several records at once."""
    lines = [json.dumps({"read": [partition, offset, value.decode()]}) for partition, offset, value in messages]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    sys.stdout.flush()


class Pace:
    """How many records are due at a steady rate."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._begun_s = time.monotonic()
        self._sent = 0

    def due(self) -> range:
        """The numbers of the records to send now."""
        until = int((time.monotonic() - self._begun_s) * self._per_second)
        numbers, self._sent = range(self._sent, max(until, self._sent)), max(until, self._sent)
        return numbers


# Producers


def value_of(job: Job, number: int) -> str:
    """A value that no other process writes; the numbers of a producer rise in each partition."""
    return f"{job.name}.{os.getpid()} {number}"


def produce_confluent(job: Job, stop: Stop) -> None:
    from confluent_kafka import KafkaException, Producer

    failed: list[Any] = []

    def delivered(value: str) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                say(acknowledged=[message.partition(), message.offset(), value])
            else:
                failed.append(error)

        return on_delivery

    settings = {"enable.idempotence": True, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": job.bootstrap, **settings, **RECONNECT, **QUIET})
    pace = Pace(job.per_second)
    while not stop.is_asked:
        for number in pace.due():
            value = value_of(job, number)
            producer.produce(job.topic, value, partition=number % job.partitions, on_delivery=delivered(value))
        producer.poll(POLL_MS / 1000)
    producer.flush(DELIVERY_TIMEOUT_MS / 1000)
    if failed:
        raise KafkaException(failed[0])


def produce_aiokafka(job: Job, stop: Stop) -> None:
    asyncio.run(_produce_aiokafka(job, stop))


async def _produce_aiokafka(job: Job, stop: Stop) -> None:
    from aiokafka import AIOKafkaProducer

    async def acknowledge(sent: Any, value: str) -> None:
        written = await sent
        say(acknowledged=[written.partition, written.offset, value])

    waiting: set[asyncio.Task[None]] = set()
    pace = Pace(job.per_second)
    async with AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        request_timeout_ms=DELIVERY_TIMEOUT_MS,
        retry_backoff_ms=POLL_MS,
    ) as producer:
        while not stop.is_asked:
            for number in pace.due():
                value = value_of(job, number)
                sent = await producer.send(job.topic, value.encode(), partition=number % job.partitions)
                task = asyncio.create_task(acknowledge(sent, value))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            await asyncio.sleep(POLL_MS / 1000)
        await asyncio.gather(*waiting)


# Members


def join_confluent(job: Job, stop: Stop) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": job.bootstrap,
        "group.id": job.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **RECONNECT,
        **QUIET,
    }
    if job.instance:
        settings["group.instance.id"] = job.instance
    if job.protocol == "classic":  # else the broker decides
        settings["session.timeout.ms"] = job.session_timeout_ms
        settings["heartbeat.interval.ms"] = max(job.session_timeout_ms // 10, 50)
    else:
        settings["group.protocol"] = job.protocol
    consumer = Consumer(settings)
    consumer.subscribe([job.topic])
    while not stop.is_asked:
        consumed = consumer.consume(BATCH_MAX, POLL_MS / 1000)
        for each in consumed:
            if each.error() is not None and each.error().fatal():
                raise KafkaException(each.error())
        messages = [each for each in consumed if each.error() is None]
        if not messages:
            continue
        say_read((each.partition(), each.offset(), each.value()) for each in messages)
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException:  # the group goes on without this commit; the records are read again
            continue
        say(committed=[time.monotonic(), {each.partition: each.offset for each in done if each.error is None}])
    consumer.close()


def join_aiokafka(job: Job, stop: Stop) -> None:
    asyncio.run(_join_aiokafka(job, stop))


def consumer_settings(job: Job) -> dict[str, Any]:
    """The settings of a consumer of aiokafka or kafka-python, which have the same names."""
    return {
        "bootstrap_servers": job.bootstrap,
        "group_id": job.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "group_instance_id": job.instance or None,
        "session_timeout_ms": job.session_timeout_ms,
        "heartbeat_interval_ms": max(job.session_timeout_ms // 10, 50),
        "retry_backoff_ms": POLL_MS,
    }


async def _join_aiokafka(job: Job, stop: Stop) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    async with AIOKafkaConsumer(
        job.topic,
        **consumer_settings(job),
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),
    ) as consumer:
        while not stop.is_asked:
            fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_MAX)
            messages = [message for batch in fetched.values() for message in batch]
            if not messages:
                continue
            say_read((each.partition, each.offset, each.value) for each in messages)
            offsets = {where: batch[-1].offset + 1 for where, batch in fetched.items() if batch}
            try:
                await consumer.commit(offsets)
            except KafkaError:  # as above
                continue
            say(committed=[time.monotonic(), {where.partition: offset for where, offset in offsets.items()}])


def join_kafka_python(job: Job, stop: Stop) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        job.topic,
        **consumer_settings(job),
        request_timeout_ms=max(REQUEST_TIMEOUT_MS, job.session_timeout_ms + 1),
        reconnect_backoff_max_ms=2 * POLL_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    while not stop.is_asked:
        fetched = consumer.poll(timeout_ms=POLL_MS, max_records=BATCH_MAX)
        messages = [message for batch in fetched.values() for message in batch]
        if not messages:
            continue
        say_read((each.partition, each.offset, each.value) for each in messages)
        offsets = {where: OffsetAndMetadata(batch[-1].offset + 1, "", -1) for where, batch in fetched.items()}
        try:
            consumer.commit(offsets)
        except KafkaError:  # as above
            continue
        say(committed=[time.monotonic(), {where.partition: each.offset for where, each in offsets.items()}])
    consumer.close()


Client = Callable[[Job, Stop], None]
PRODUCERS: Final[dict[str, Client]] = {"confluent-kafka": produce_confluent, "aiokafka": produce_aiokafka}
MEMBERS: Final[dict[str, dict[str, Client]]] = {
    "classic": {
        "confluent-kafka": join_confluent,
        "aiokafka": join_aiokafka,
        "kafka-python": join_kafka_python,
    },
    "consumer": {"confluent-kafka": join_confluent},
}
"""By group protocol."""


def main() -> None:
    """Run the job in the first argument until SIGTERM."""
    job = Job(**json.loads(sys.argv[1]))
    clients = PRODUCERS if job.role == "producer" else MEMBERS[job.protocol]
    clients[job.client](job, Stop())


if __name__ == "__main__":
    main()
