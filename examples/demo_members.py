"""
One member of a consumer group: `python demo_members.py CLIENT BOOTSTRAP GROUP TOPIC...`.

CLIENT is aiokafka, kafka-python or confluent-kafka, three independent implementations of Kafka's protocol. The member reads
records, commits synchronously, and reports events as JSON lines: `assigned` with its partitions, `committed` with the
acknowledged offsets, `left`. SIGTERM makes it leave the group.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 1_000
RECORDS_MAX = 20
PAUSE_SECONDS = 0.01
"""Pause between commits, for the work of a consumer."""
COMMIT_SECONDS_MAX = 5


def report(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def report_assigned(partitions: Iterable[Any]) -> None:
    report("assigned", partitions=sorted((it.topic, it.partition) for it in partitions))


class Leaving:
    """Whether SIGTERM was received."""

    def __init__(self) -> None:
        self.is_requested = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self.is_requested = True


def run_confluent_kafka(bootstrap: str, group: str, topics: list[str]) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "confluent-kafka",
            "group.id": group,
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe(topics, on_assign=lambda _, partitions: report_assigned(partitions))
    leaving = Leaving()
    while not leaving.is_requested:
        records = [it for it in consumer.consume(RECORDS_MAX, timeout=0.1) if it.error() is None]
        if not records:
            continue
        time.sleep(PAUSE_SECONDS)
        next_offsets = {(it.topic(), it.partition()): it.offset() + 1 for it in records}
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in next_offsets.items()]
        try:
            kept = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            # The group rebalances, or the broker is down. The next owner of the partition reads and commits these records.
            continue
        report("committed", offsets=[(it.topic, it.partition, it.offset) for it in kept if it.error is None])
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, topics: list[str]) -> None:
    import logging

    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            report_assigned(assigned)

    logging.disable()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id="kafka-python",
        group_id=group,
        partition_assignment_strategy=[RangePartitionAssignor],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        reconnect_backoff_max_ms=500,
    )
    consumer.subscribe(topics, listener=Listener())
    leaving = Leaving()
    while not leaving.is_requested:
        by_partition = consumer.poll(timeout_ms=100, max_records=RECORDS_MAX)
        if not by_partition:
            continue
        time.sleep(PAUSE_SECONDS)
        offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in by_partition.items()
        }
        try:
            consumer.commit(offsets, timeout_ms=COMMIT_SECONDS_MAX * 1_000)
        except KafkaError:
            continue
        report("committed", offsets=[(it.topic, it.partition, kept.offset) for it, kept in offsets.items()])
    consumer.close()


def run_aiokafka(bootstrap: str, group: str, topics: list[str]) -> None:
    asyncio.run(_run_aiokafka(bootstrap, group, topics))


async def _run_aiokafka(bootstrap: str, group: str, topics: list[str]) -> None:
    import logging

    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            report_assigned(assigned)

    logging.disable()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id="aiokafka",
        group_id=group,
        partition_assignment_strategy=[RangePartitionAssignor],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe(topics, listener=Listener())
    leaving = Leaving()
    await consumer.start()
    while not leaving.is_requested:
        by_partition = await consumer.getmany(timeout_ms=100, max_records=RECORDS_MAX)
        if not by_partition:
            continue
        await asyncio.sleep(PAUSE_SECONDS)
        offsets = {partition: records[-1].offset + 1 for partition, records in by_partition.items()}
        try:
            await asyncio.wait_for(consumer.commit(offsets), COMMIT_SECONDS_MAX)
        except (KafkaError, TimeoutError):
            continue
        report("committed", offsets=[(it.topic, it.partition, offset) for it, offset in offsets.items()])
    await consumer.stop()


CLIENTS = {"aiokafka": run_aiokafka, "kafka-python": run_kafka_python, "confluent-kafka": run_confluent_kafka}

if __name__ == "__main__":
    client, bootstrap, group, *topics = sys.argv[1:]
    CLIENTS[client](bootstrap, group, topics)
    report("left")
