"""Consumers of share groups: librdkafka's, Apache Kafka's own, and franz-go's, and what each can do with a record."""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.conftest import Broker
from tests.clients.java_tools import JavaTools
from tests.clients.jvm import Jvm
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY


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


CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"


def test_the_console_consumer_reads_a_queue(
    broker: Broker, java: JavaTools, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    configure(broker.bootstrap, group, share_auto_offset_reset="earliest")
    values = [f"v{number}" for number in range(20)]
    produce(broker.bootstrap, topic, values)
    words = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group)
    printed = java.run(CONSOLE, *words, "--max-messages", "20", "--timeout-ms", "60000")
    assert sorted(printed.split()) == sorted(values)


def test_the_verifiable_consumer_acknowledges(
    broker: Broker, java: JavaTools, make_topic: Callable[..., str], group: str
) -> None:
    """What it releases, and what it has renewed when it closes, comes again."""
    topic = make_topic(1)
    produce(broker.bootstrap, topic, [f"v{number}" for number in range(12)])
    words = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", group)
    more = ("--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest")

    def acknowledged(messages: int, pattern: str) -> tuple[list[int], Counter[str]]:
        """The offsets, and how many records were acknowledged in each way."""
        printed = java.run(VERIFIABLE, *words, *more, "--ack-pattern", pattern, "--max-messages", str(messages))
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        offsets: list[int] = []
        kinds: Counter[str] = Counter()
        for event in events:
            if event["name"] == "offsets_acknowledged":
                assert event["success"], event
                offsets += event["partitions"][0]["offsets"]
                kinds.update(event["ackTypeCounts"])
        return sorted(offsets), kinds

    kinds = Counter(ACCEPT=3, RELEASE=3, REJECT=3, RENEW=3)
    assert acknowledged(12, "accept,release,reject,renew") == (list(range(12)), kinds)
    assert acknowledged(6, "accept") == ([1, 3, 5, 7, 9, 11], Counter(ACCEPT=6))
