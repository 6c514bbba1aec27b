"""
One member of a group in a process of its own, which a test may ask to leave (SIGTERM) or kill.

Prints a line of JSON for all that a test wants to know: `{"assigned": [partitions]}` when that has changed, and
`{"read": [partition, offset, value]}` for each record, before its offset is committed; so a test that has seen all values knows
that none was lost, and one that sees a value twice knows where a member died.

    member.py CLIENT BOOTSTRAP GROUP TOPIC [NAME=VALUE ...]

where the rest are settings by librdkafka's names (`group.instance.id=a`); the other clients know `group.instance.id` and
`session.timeout.ms` only.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

SESSION_TIMEOUT_MS = 60_000
HEARTBEAT_INTERVAL_MS = 500
METADATA_INTERVAL_MS = 1_000
POLL_MS = 100
FIRST_POLL_MS = 2_000


class Stop:
    """Whether the process was asked to end."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True


class Reporter:
    """Prints what has changed."""

    def __init__(self) -> None:
        self._assigned: list[int] = []

    def assigned(self, partitions: Iterable[int]) -> None:
        ordered = sorted(partitions)
        if ordered != self._assigned:
            self._assigned = ordered
            self._print({"assigned": ordered})

    def read(self, partition: int, offset: int, value: bytes) -> None:
        self._print({"read": [partition, offset, value.decode()]})

    def _print(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def librdkafka(stop: Stop, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    moved = {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._NO_OFFSET,
        KafkaError.STALE_MEMBER_EPOCH,
    }
    reporter = Reporter()
    # In the consumer protocol, the broker decides about them.
    timeouts = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": METADATA_INTERVAL_MS,
            **({} if settings.get("group.protocol") == "consumer" else timeouts),
            **settings,
        }
    )
    consumer.subscribe([topic])
    while not stop.is_asked:
        messages = consumer.consume(100, POLL_MS / 1000)
        reporter.assigned(each.partition for each in consumer.assignment())
        for message in messages:
            if message.error() is None:
                reporter.read(message.partition(), message.offset(), message.value())
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as exc:
                if exc.args[0].code() not in moved:
                    raise
    consumer.close()


def aiokafka(stop: Stop, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    asyncio.run(_aiokafka(stop, bootstrap, group, topic, settings))


async def _aiokafka(stop: Stop, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import CommitFailedError

    reporter = Reporter()
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_instance_id=settings.get("group.instance.id"),
        session_timeout_ms=int(settings.get("session.timeout.ms", SESSION_TIMEOUT_MS)),
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),
    ) as consumer:
        while not stop.is_asked:
            batches = await consumer.getmany(timeout_ms=POLL_MS)
            reporter.assigned(each.partition for each in consumer.assignment())
            for messages in batches.values():
                for message in messages:
                    reporter.read(message.partition, message.offset, message.value)
            if batches:
                # Suppressed: the partitions were given to another member, which reads the records again.
                with suppress(CommitFailedError):
                    await consumer.commit()


def kafka_python(stop: Stop, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import CommitFailedError

    reporter = Reporter()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_instance_id=settings.get("group.instance.id"),
        session_timeout_ms=int(settings.get("session.timeout.ms", SESSION_TIMEOUT_MS)),
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    while not stop.is_asked:
        # kafka-python 3.0.12 joins again when it has learnt the partitions, and drops the assignment if a poll times out
        # meanwhile.
        batches = consumer.poll(timeout_ms=POLL_MS if consumer.assignment() else FIRST_POLL_MS)
        reporter.assigned(each.partition for each in consumer.assignment())
        for messages in batches.values():
            for message in messages:
                reporter.read(message.partition, message.offset, message.value)
        if batches:
            with suppress(CommitFailedError):
                consumer.commit()
    consumer.close()


CLIENTS: dict[str, Callable[[Stop, str, str, str, dict[str, str]], None]] = {
    "librdkafka": librdkafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}


def main() -> None:
    client, bootstrap, group, topic, *settings = sys.argv[1:]
    CLIENTS[client](Stop(), bootstrap, group, topic, dict(each.split("=", 1) for each in settings))


if __name__ == "__main__":
    main()
