"""Consumers of share groups: librdkafka's, Apache Kafka's own, and franz-go's, as work queues whose workers are killed."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.conftest import Broker, new_topic
from tests.clients.jvm import Jvm
from tests.clients.lines import Lines
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY

WORKER = Path(__file__).with_name("share_worker.py")
RECORDS = 2_000
ROUNDS = 5
QUICK = {"share_session_timeout_ms": "6000", "share_heartbeat_interval_ms": "500", "share_delivery_count_limit": "10"}
"""For groups whose members die."""


def configure(bootstrap: str, group: str, **configs: str) -> None:
    """Set configurations of a group."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(PATIENCE_S)


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(PATIENCE_S) == 0


class Worker:
    """A process of `share_worker.py`."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen((sys.executable, str(WORKER), *words), stdout=subprocess.PIPE, text=True)
        self._lines = Lines(self.process)

    def said(self, fact: str) -> list[Any]:
        events = [json.loads(line) for line in self._lines.all() if line.endswith("}")]
        return [event[fact] for event in events if fact in event]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    """Starts workers; whoever is left at the end is killed."""
    started: list[Worker] = []

    def start(*words: str) -> Worker:
        started.append(Worker(*words))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_librdkafka_reads_a_queue(broker: Broker, make_topic: Callable[..., str], group: str, mode: str) -> None:
    topic = make_topic(2)
    configure(broker.bootstrap, group, share_auto_offset_reset="earliest")
    values = [f"{mode}-{number}" for number in range(200)]
    produce(broker.bootstrap, topic, values)
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": mode, "log_level": 0}
    )
    consumer.subscribe([topic])
    read: list[str] = []

    def has_read_all() -> bool:
        messages = [message for message in consumer.poll(0.2) if message.error() is None]
        for message in messages:
            value = message.value()
            assert isinstance(value, bytes)
            read.append(value.decode())
            if mode == "explicit":
                consumer.acknowledge(message)
        if mode == "explicit" and messages:
            assert not any(consumer.commit_sync(PATIENCE_S).values())
        return len(read) >= len(values)

    wait_until(has_read_all, what=lambda: f"{len(read)} records", interval_s=0)
    assert not any(consumer.commit_sync(PATIENCE_S).values())
    consumer.close()
    assert sorted(read) == sorted(values)


def lag_of(client: Client, group: str) -> int:
    """The number of records that are not acknowledged."""
    asked = m.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = m.DescribeShareGroupOffsetsRequest(groups=[asked])
    answer = client.send_to_coordinator(
        group, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request, error_code=lambda response: response.groups[0].error_code
    )
    return sum(abs(partition.lag) for topic in answer.groups[0].topics for partition in topic.partitions)


def work_off(
    bootstrap: str, start: Callable[..., Worker], group: str, topic: str, disturb: Callable[[list[Worker]], None]
) -> None:
    """
    Workers process all records, however they are disturbed, and none again whose acknowledgement was confirmed.

    A worker that is killed between the confirmation and its line has processed its records, too.
    """
    values = [f"v{number}" for number in range(RECORDS)]
    words = (bootstrap, group, topic)
    alive = [start(*words) for _ in range(3)]
    everybody = list(alive)

    def said(fact: str) -> list[Any]:
        return [each for worker in everybody for each in worker.said(fact)]

    for number in range(0, RECORDS, RECORDS // ROUNDS):
        produce(bootstrap, topic, values[number : number + RECORDS // ROUNDS])
        wait_until(lambda: len(said("read")) > number, what=lambda: f"{len(said('read'))} records")  # noqa: B023
        disturb(alive)
        for worker in [worker for worker in alive if worker.process.poll() is not None]:
            alive.remove(worker)
            alive.append(start(*words))
            everybody.append(alive[-1])
    with Client(bootstrap, PATIENCE_S, PLAINTEXT) as client:
        wait_until(lambda: lag_of(client, group) == 0, what=lambda: f"{len(set(said('done')))} processed records")
    for worker in alive:
        worker.end()
    assert {value for _, _, value, _ in said("read")} == set(values)
    counts = Counter(said("done"))
    assert max(counts.values()) == 1, [value for value, count in counts.items() if count > 1]


def test_workers_are_killed(
    broker: Broker, make_topic: Callable[..., str], group: str, start: Callable[..., Worker]
) -> None:
    configure(broker.bootstrap, group, share_auto_offset_reset="earliest", **QUICK)
    chance = random.Random(group)
    work_off(broker.bootstrap, start, group, make_topic(3), lambda alive: chance.choice(alive).kill())


@NIGHTLY
def test_the_broker_is_killed(own_broker: Callable[[], ServedKohort], group: str, start: Callable[..., Worker]) -> None:
    broker = own_broker()
    topic = new_topic(broker.bootstrap, 3, {})
    configure(broker.bootstrap, group, share_auto_offset_reset="earliest", **QUICK)

    def restart(_alive: list[Worker]) -> None:
        broker.kill()
        broker.start()

    work_off(broker.bootstrap, start, group, topic, restart)


def test_the_java_consumer_accepts_releases_rejects_and_renews(
    broker: Broker, jvm: Jvm, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(1)
    configure(broker.bootstrap, group, share_auto_offset_reset="earliest")
    produce(broker.bootstrap, topic, [f"v{number}" for number in range(12)])
    java = jvm.classes
    consumers = java.org.apache.kafka.clients.consumer
    properties = java.java.util.Properties()
    properties.setProperty("bootstrap.servers", broker.bootstrap)
    properties.setProperty("group.id", group)
    properties.setProperty("share.acknowledgement.mode", "explicit")
    text = java.org.apache.kafka.common.serialization.StringDeserializer
    consumer = consumers.KafkaShareConsumer(properties, text(), text())
    consumer.subscribe([topic])
    kinds = consumers.AcknowledgeType
    first = [kinds.ACCEPT, kinds.RELEASE, kinds.REJECT, kinds.RENEW]
    seen: list[tuple[int, int]] = []

    def poll() -> bool:
        records = consumer.poll(java.java.time.Duration.ofMillis(500)).iterator()
        while records.hasNext():
            record = records.next()
            deliveries = record.deliveryCount().get()
            if (record.offset(), deliveries) not in seen:
                seen.append((record.offset(), deliveries))
                is_renewed = False
            else:
                is_renewed = True
            kind = first[record.offset() % 4] if deliveries == 1 and not is_renewed else kinds.ACCEPT
            consumer.acknowledge(record, kind)
        assert not any(outcome.isPresent() for outcome in consumer.commitSync().values())
        return len(seen) >= 15

    wait_until(poll, what=lambda: str(seen), interval_s=0)
    consumer.close()
    assert sorted(seen) == sorted([(offset, 1) for offset in range(12)] + [(offset, 2) for offset in (1, 5, 9)])


@NIGHTLY
def test_franz_go_passes_its_own_tests_of_share_groups(broker: Broker) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    done = subprocess.run(
        (go, "test", "github.com/twmb/franz-go/pkg/kgo", "-run", "TestShareGroup", "-count=1", "-v"),
        cwd=Path(__file__).with_name("franz_go"),
        env={**os.environ, "KGO_SEEDS": broker.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "5000"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    passed = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("--- PASS")]
    assert done.returncode == 0, done.stdout[-4_000:]
    assert {"TestShareGroup", "TestShareGroupETL", "TestShareGroupAckOnClose"} <= set(passed)
